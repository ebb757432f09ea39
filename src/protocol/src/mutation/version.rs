//! Supported versions of clients. Versions with the same major number are compatible. The protocol also
//! applies this to versions below 1 and to pre-releases.

use super::{alpha::PROTOCOL_VERSION, code::UNKNOWN_PROTOCOL_VERSION};
use crate::rpc::RpcError;

/// Rejects a client whose protocol version is not a semantic version, or has another major number.
///
/// # Errors
/// The error to respond with.
pub fn check_client_version(version: &str) -> Result<(), RpcError> {
    let own = major(PROTOCOL_VERSION);
    if own.is_some() && major(version) == own {
        return Ok(());
    }
    let shown: String = version.chars().take(60).collect();
    let message = format!(
        "unsupported clientInfo.version {shown:?}; expected a version compatible with {PROTOCOL_VERSION}"
    );
    Err(RpcError::new(UNKNOWN_PROTOCOL_VERSION, message))
}

/// Returns the major number of a valid semantic version (Semantic Versioning 2.0.0).
fn major(version: &str) -> Option<&str> {
    let (version, build) =
        version.split_once('+').map_or((version, None), |(rest, build)| (rest, Some(build)));
    let (core, pre) = version.split_once('-').map_or((version, None), |(core, pre)| (core, Some(pre)));
    let is_number = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_digit())
            && (text == "0" || !text.starts_with('0'))
    };
    let is_word = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_pre_word =
        |text: &str| is_word(text) && (!text.bytes().all(|byte| byte.is_ascii_digit()) || is_number(text));
    let mut numbers = core.split('.');
    let (major, minor, patch) = (numbers.next()?, numbers.next()?, numbers.next()?);
    let is_valid = numbers.next().is_none()
        && [major, minor, patch].into_iter().all(is_number)
        && pre.is_none_or(|pre| pre.split('.').all(is_pre_word))
        && build.is_none_or(|build| build.split('.').all(is_word));
    is_valid.then_some(major)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_the_same_major_number_are_served() {
        for version in ["0.0.1-alpha.1", "0.0.0", "0.4.0", "0.17.3-rc.1+x.01", "0.0.1+build-7", "0.1.0--"] {
            assert_eq!(check_client_version(version), Ok(()), "{version}");
        }
        for version in [
            "1.0.0",
            "",
            "0",
            "0.1",
            "0.1.2.3",
            "v0.1.2",
            "00.1.2",
            "0.01.2",
            "0.1.2-",
            "0.1.2-01",
            "0.1.2+",
            "0.1.2-a..b",
            " 0.1.2",
            "0.1.2\n",
            "0.1.x",
            "-0.1.2",
            "0.1.2-ü",
        ] {
            let error = check_client_version(version).unwrap_err();
            assert_eq!(error.code, UNKNOWN_PROTOCOL_VERSION, "{version}");
        }
    }
}
