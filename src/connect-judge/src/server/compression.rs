//! Compression of messages. Those that are left out here are listed as not judged.

use std::io::Read as _;

use flate2::{
    Compression as Level,
    read::{GzDecoder, GzEncoder, ZlibDecoder, ZlibEncoder},
};

use crate::axes::Compression;

use super::checks::compression_header_name;

/// The compressions that servers here know.
pub(crate) const SUPPORTED: [Compression; 3] =
    [Compression::Identity, Compression::Gzip, Compression::Deflate];

/// Returns the compression of a name in headers; none is identity.
pub(super) fn compression_of_name(name: &str) -> Option<Compression> {
    if name.is_empty() {
        return Some(Compression::Identity);
    }
    SUPPORTED.into_iter().find(|known| compression_header_name(*known) == name)
}

/// Returns the compression of responses: that of the request, else the first that the client accepts.
pub(super) fn negotiated(request: Compression, accepted: &str) -> Compression {
    if request != Compression::Identity {
        return request;
    }
    let names = accepted.split([',', ' ']).filter(|name| !name.is_empty());
    names.filter_map(compression_of_name).next().unwrap_or(Compression::Identity)
}

/// Compresses a message.
pub(super) fn compressed(message: &[u8], compression: Compression) -> Vec<u8> {
    let mut out = Vec::new();
    let written = match compression {
        Compression::Gzip => GzEncoder::new(message, Level::default()).read_to_end(&mut out),
        Compression::Deflate => ZlibEncoder::new(message, Level::default()).read_to_end(&mut out),
        Compression::Identity | Compression::Br | Compression::Zstd | Compression::Snappy => {
            out.extend_from_slice(message);
            Ok(message.len())
        }
    };
    written.expect("memory can be written");
    out
}

/// Decompresses a message of at most `limit` bytes; one byte more is returned for a larger one.
///
/// # Errors
/// The message is damaged.
pub(super) fn decompressed(
    message: &[u8],
    compression: Compression,
    limit: usize,
) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let most = limit as u64 + 1;
    match compression {
        Compression::Gzip => GzDecoder::new(message).take(most).read_to_end(&mut out)?,
        Compression::Deflate => ZlibDecoder::new(message).take(most).read_to_end(&mut out)?,
        Compression::Identity | Compression::Br | Compression::Zstd | Compression::Snappy => {
            message.take(most).read_to_end(&mut out)?
        }
    };
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_compression_within_their_limit() {
        for compression in SUPPORTED {
            for message in [&b""[..], b"hello", &[7; 5000]] {
                let bytes = compressed(message, compression);
                assert_eq!(decompressed(&bytes, compression, 5000).unwrap(), message);
                assert_eq!(decompressed(&bytes, compression, 4).unwrap().len(), message.len().min(5));
            }
            let damaged = decompressed(b"nonsense", compression, 100);
            assert_eq!(damaged.is_err(), compression != Compression::Identity);
        }
    }

    #[test]
    fn response_is_compressed_as_the_request_or_as_accepted() {
        assert_eq!(negotiated(Compression::Deflate, "gzip"), Compression::Deflate);
        assert_eq!(negotiated(Compression::Identity, "br, gzip"), Compression::Gzip);
        assert_eq!(negotiated(Compression::Identity, ""), Compression::Identity);
    }
}
