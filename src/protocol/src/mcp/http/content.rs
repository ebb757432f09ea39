//! Encoding of request and response bodies. The filter reads UTF-8 without content coding, so bodies that a
//! reader would decode differently must not pass.

/// A body that readers may not decode as UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableContent {
    #[error("Content-Encoding is not supported")]
    Encoding,
    #[error("the only supported Transfer-Encoding is chunked")]
    TransferEncoding,
    #[error("Content-Type must occur at most once")]
    Type,
    #[error("the charset must be UTF-8")]
    Charset,
    #[error("the body must be UTF-8 without null bytes")]
    Text,
}

/// Checks the headers that describe a body. Names with underscores count as well, because servers with a
/// CGI-like interface (WSGI, Rack, PHP) do not distinguish them.
///
/// # Errors
/// A reader may not decode the body as UTF-8.
pub fn check_content_headers<'h>(
    headers: impl Iterator<Item = (&'h str, &'h [u8])>,
) -> Result<(), UnreadableContent> {
    let mut types = 0;
    for (name, value) in headers {
        let value = str::from_utf8(value).ok().map(str::to_ascii_lowercase);
        let is_list_of = |allowed: &[&str]| {
            let mut words = value.as_deref().unwrap_or("?").split(',').map(str::trim);
            words.all(|word| word.is_empty() || allowed.contains(&word))
        };
        match name.to_ascii_lowercase().replace('_', "-").as_str() {
            "content-encoding" if !is_list_of(&["identity"]) => return Err(UnreadableContent::Encoding),
            "transfer-encoding" if !is_list_of(&["chunked", "identity"]) => {
                return Err(UnreadableContent::TransferEncoding);
            }
            "content-type" => {
                types += 1;
                if types > 1 {
                    return Err(UnreadableContent::Type);
                }
                if !value.as_deref().is_some_and(is_utf8_type) {
                    return Err(UnreadableContent::Charset);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns whether a media type, in lower case, cannot be read as a charset other than UTF-8, however its
/// parameters are split.
fn is_utf8_type(media_type: &str) -> bool {
    let mut parameters = media_type.split(';').skip(1).map(str::trim);
    match media_type.matches("charset").count() {
        0 => true,
        1 => parameters.any(|parameter| {
            let charset = parameter.strip_prefix("charset=").unwrap_or_default();
            ["utf-8", "utf8", "\"utf-8\"", "\"utf8\""].contains(&charset)
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_utf8_without_coding_is_readable() {
        let check = |headers: &[(&str, &str)]| {
            check_content_headers(headers.iter().map(|(name, value)| (*name, value.as_bytes())))
        };
        for headers in [
            &[][..],
            &[("content-type", "application/json")],
            &[("Content-Type", "Application/JSON; Charset=UTF-8"), ("content-encoding", "Identity")],
            &[("content-type", "application/json;charset=\"utf-8\";v=1"), ("transfer-encoding", "Chunked")],
            &[("content-type", "text/event-stream"), ("content-encoding", "")],
            &[("content-type", ""), ("accept-charset", "utf-16")],
        ] {
            assert_eq!(check(headers), Ok(()), "{headers:?}");
        }
        use UnreadableContent::{Charset, Encoding, TransferEncoding, Type};
        for (name, value, error) in [
            ("content-encoding", "gzip", Encoding),
            ("Content-Encoding", "identity, DEFLATE", Encoding),
            ("content-encoding", "identity gzip", Encoding),
            ("content-encoding", "\u{e9}", Encoding),
            ("content_encoding", "br", Encoding),
            ("transfer-encoding", "gzip, chunked", TransferEncoding),
            ("content-type", "application/json; charset=utf-16le", Charset),
            ("content-type", "application/json; CHARSET=\"UTF-7\"", Charset),
            ("content-type", "application/json; charset=utf-8; charset=utf-32", Charset),
            ("content-type", "application/json; charset*=utf-16''utf-16", Charset),
            ("content-type", "application/json; charset = utf-16", Charset),
            ("content-type", "application/json; x=\"; charset=utf-16\"", Charset),
            ("content-type", "application/json; charset=utf-8x", Charset),
            ("content-type", "application/json charset=utf-16", Charset),
            ("content_type", "application/json; charset=ibm037", Charset),
        ] {
            assert_eq!(check(&[(name, value)]), Err(error), "{name}: {value}");
        }
        let json = ("content-type", "application/json");
        assert_eq!(check(&[json, json]), Err(Type));
        assert_eq!(check(&[json, ("Content_Type", "text/plain")]), Err(Type));
        let header = [("content-type", b"application/json; charset=\xff".as_slice())];
        assert_eq!(check_content_headers(header.into_iter()), Err(Charset));
    }
}
