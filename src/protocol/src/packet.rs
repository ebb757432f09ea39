//! Framing of control connections: four bytes of length, one byte of kind, then the body.
//!
//! Control messages are JSON. A forwarded frame is a complete frame of the test protocol that the coordinator
//! passes on without parsing; four bytes of client number and eight bytes of position precede it. A heartbeat
//! has no body.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::{Serialize, de::DeserializeOwned};

use crate::{StreamDecoder, control::ClientId};

/// Maximum size of a control message. A lease of 100,000 tests with long names has about 30 MB. The limit
/// equals the limit of a client's message, because a packet may carry one.
pub(crate) const PACKET_LIMIT_BYTES: usize = crate::frame::BODY_LIMIT_BYTES;

const HEADER_BYTES: usize = 5;
const KIND_MESSAGE: u8 = 0;
const KIND_FORWARD: u8 = 1;
const KIND_HEARTBEAT: u8 = 2;
/// Bytes before a forwarded frame: client and position.
const FORWARD_HEADER_BYTES: usize = 12;

/// Packet of a process that has nothing else to send.
pub const HEARTBEAT: &[u8] = &[0, 0, 0, 0, KIND_HEARTBEAT];

/// Packet of a control connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlPacket {
    /// A control message, as JSON.
    Message(Bytes),
    /// A complete frame for the client, and the sender's stream position after it.
    Forward {
        client: ClientId,
        /// Number of terminal results of the run that the sender has sent, up to and including this frame.
        position: u64,
        /// The frame with its headers.
        frame: Bytes,
    },
    /// The sender is alive and has nothing to send.
    Heartbeat,
}

/// Fatal error of a control connection.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// The announced length exceeds `PACKET_LIMIT_BYTES`.
    #[error("control packet of {length} bytes exceeds the limit of {PACKET_LIMIT_BYTES}")]
    TooLarge {
        /// Length announced by the header.
        length: usize,
    },
    /// The kind byte is unknown.
    #[error("control packet of unknown kind {kind}")]
    UnknownKind {
        /// Kind in the header.
        kind: u8,
    },
    /// A forwarded frame is too short for client and position.
    #[error("relay packet of {length} bytes is too short for its client and position")]
    ShortForward {
        /// Length of the body.
        length: usize,
    },
}

/// Decoder of control packets.
#[derive(Debug, Default)]
pub struct PacketDecoder;

impl StreamDecoder for PacketDecoder {
    type Item = ControlPacket;
    type Error = PacketError;

    fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<ControlPacket>, PacketError> {
        let Some(header) = buffer.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let [a, b, c, d, kind] = *header;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length > PACKET_LIMIT_BYTES {
            return Err(PacketError::TooLarge { length });
        }
        if kind > KIND_HEARTBEAT {
            return Err(PacketError::UnknownKind { kind });
        }
        if buffer.len() < HEADER_BYTES + length {
            return Ok(None);
        }
        buffer.advance(HEADER_BYTES);
        let mut body = buffer.split_to(length).freeze();
        if kind == KIND_MESSAGE {
            return Ok(Some(ControlPacket::Message(body)));
        }
        if kind == KIND_HEARTBEAT {
            return Ok(Some(ControlPacket::Heartbeat));
        }
        if body.len() < FORWARD_HEADER_BYTES {
            return Err(PacketError::ShortForward { length });
        }
        let client = ClientId(body.get_u32_le());
        let position = body.get_u64_le();
        Ok(Some(ControlPacket::Forward { client, position, frame: body }))
    }

    /// Packets are always taken as a whole.
    fn is_inside_item(&self) -> bool {
        false
    }
}

/// Encodes a control message as one packet.
///
/// # Panics
/// Never for the messages of [`crate::control`]: none has a map whose keys JSON cannot encode.
#[must_use]
pub fn encode_message(message: &impl Serialize) -> Bytes {
    let mut out = Vec::with_capacity(256);
    out.extend_from_slice(&[0; HEADER_BYTES]);
    serde_json::to_writer(&mut out, message).expect("control messages are plain structs and enums");
    let length = u32::try_from(out.len() - HEADER_BYTES).expect("a control message is far below 4 GiB");
    out[..4].copy_from_slice(&length.to_le_bytes());
    out[4] = KIND_MESSAGE;
    Bytes::from(out)
}

/// Encodes a complete client frame, to be forwarded unchanged.
#[must_use]
pub fn forward(client: ClientId, position: u64, frame: &[u8]) -> Bytes {
    let length = FORWARD_HEADER_BYTES + frame.len();
    let mut out = BytesMut::with_capacity(HEADER_BYTES + length);
    out.put_u32_le(u32::try_from(length).expect("a frame is far below 4 GiB"));
    out.put_u8(KIND_FORWARD);
    out.put_u32_le(client.0);
    out.put_u64_le(position);
    out.put_slice(frame);
    out.freeze()
}

/// Reads the body of a [`ControlPacket::Message`].
///
/// # Errors
/// The body is not such a message in JSON.
pub fn decode_message<T: DeserializeOwned>(body: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_survive_any_cut() {
        let mut whole = Vec::new();
        whole.extend_from_slice(&encode_message(&"hello"));
        whole.extend_from_slice(&forward(ClientId(3), 7, b"Content-Length: 2\r\n\r\n{}"));
        for cut in 0..=whole.len() {
            let mut buffer = BytesMut::from(&whole[..cut]);
            let mut seen = Vec::new();
            while let Some(packet) = PacketDecoder.decode(&mut buffer).unwrap() {
                seen.push(packet);
            }
            buffer.extend_from_slice(&whole[cut..]);
            while let Some(packet) = PacketDecoder.decode(&mut buffer).unwrap() {
                seen.push(packet);
            }
            assert_eq!(seen.len(), 2, "cut at {cut}");
            assert_eq!(seen[0], ControlPacket::Message(Bytes::from_static(b"\"hello\"")));
            assert!(
                matches!(&seen[1], ControlPacket::Forward { client: ClientId(3), position: 7, frame } if frame.ends_with(b"{}"))
            );
        }
    }

    #[test]
    fn huge_length_is_refused_before_allocation() {
        let mut buffer = BytesMut::from(&[0xff, 0xff, 0xff, 0xff, 0][..]);
        assert!(matches!(PacketDecoder.decode(&mut buffer), Err(PacketError::TooLarge { .. })));
    }
}
