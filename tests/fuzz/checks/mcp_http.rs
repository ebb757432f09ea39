//! The Model Context Protocol over HTTP: addresses, headers and event streams of a peer.

use std::net::IpAddr;

use bytes::BytesMut;
use heeler_protocol::{
    StreamDecoder as _,
    mcp::http::{
        EventBlock, EventDecoder, HeaderField, LocalUrl, check_local_request, check_message_headers,
        decode_header_value, encode_event, encode_header_value, mirrored_headers,
    },
};
use serde_json::value::RawValue;

use super::pieces::pieces;

/// Checks an event stream, and each of its lines as an address, a header and a message.
pub fn mcp_http(bytes: &[u8]) {
    let (whole, pieces) = pieces(bytes);
    let (blocks, rest) = decode(&[whole]);
    assert_eq!(decode(&pieces), (blocks.clone(), rest.clone()), "cut otherwise");
    let joined: Vec<u8> = blocks.iter().flat_map(|block| block.bytes().to_vec()).chain(rest).collect();
    assert_eq!(joined, whole, "no byte is lost");
    for data in blocks.iter().filter_map(EventBlock::data) {
        let (again, _) = decode(&[&encode_event(&data)]);
        let [event] = again.as_slice() else { panic!("an event is one event: {again:?}") };
        assert_eq!(event.data().expect("it has data"), data.trim_ascii_end());
    }
    for block in &blocks {
        let (changed, rest) = decode(&[&block.with_data(b"{}")]);
        assert_eq!((changed.len(), rest.len()), (1, 0), "a block stays one block");
        assert_eq!(changed[0].data(), block.data().map(|_| b"{}".to_vec()));
    }
    let Ok(text) = std::str::from_utf8(whole) else { return };
    for line in text.lines() {
        address(line);
        header(line);
        let value = encode_header_value(line);
        assert!(value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()), "{value:?}");
        assert_eq!(decode_header_value(&value).as_deref(), Some(line));
        if let Ok(params) = RawValue::from_string(line.to_owned()) {
            message(&params);
        }
    }
}

fn decode(pieces: &[&[u8]]) -> (Vec<EventBlock>, Vec<u8>) {
    let (mut decoder, mut buffer, mut blocks) = (EventDecoder::default(), BytesMut::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        while let Ok(Some(block)) = decoder.decode(&mut buffer) {
            blocks.push(block);
        }
    }
    (blocks, buffer.to_vec())
}

/// Checks that only local addresses are accepted, and that a parsed address equals the original.
fn address(text: &str) {
    let Ok(url) = LocalUrl::parse(text) else { return };
    assert!(is_this_machine(url.host()), "{url}");
    assert_eq!(LocalUrl::parse(&url.to_string()).as_ref(), Ok(&url));
    assert!(url.path().starts_with('/') && url.path().bytes().all(|byte| byte.is_ascii_graphic()));
}

fn header(text: &str) {
    if check_local_request(HeaderField::One(text), HeaderField::Absent).is_ok() {
        let end = text.rfind(':').filter(|end| !text[*end..].contains(']'));
        assert!(is_this_machine(&text[..end.unwrap_or(text.len())]), "{text}");
    }
    let own = HeaderField::One("localhost");
    if check_local_request(own, HeaderField::One(text)).is_ok() {
        assert!(text.starts_with("http"), "{text}");
    }
}

fn is_this_machine(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Checks that headers generated from a message match the message.
fn message(params: &RawValue) {
    for method in ["tools/call", "resources/read", "tools/list"] {
        let headers = mirrored_headers(method, Some(params));
        let field = |name: &'static str| {
            let value = headers.iter().find(|(one, _)| *one == name);
            value.map_or(HeaderField::Absent, |(_, value)| HeaderField::One(value))
        };
        assert_eq!(check_message_headers(method, Some(params), field), Ok(()), "{headers:?}");
        if !headers.is_empty() {
            assert!(check_message_headers(method, Some(params), |_| HeaderField::Absent).is_err());
        }
    }
}
