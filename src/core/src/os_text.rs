//! Strings of the operating system, which need not be UTF-8.

use serde::{Deserialize, Serialize};

/// A string of the operating system: text if it is UTF-8, otherwise bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OsText {
    /// A string in UTF-8.
    Text(String),
    /// Bytes that are not valid UTF-8.
    Bytes(Vec<u8>),
}

impl Default for OsText {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl OsText {
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }

    /// Returns the text, with replacement characters for bytes that are not UTF-8.
    #[must_use]
    pub fn to_text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(self.as_bytes())
    }
}

impl From<Vec<u8>> for OsText {
    fn from(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(error) => Self::Bytes(error.into_bytes()),
        }
    }
}

impl From<&str> for OsText {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for OsText {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

#[cfg(unix)]
impl From<&std::ffi::OsStr> for OsText {
    fn from(text: &std::ffi::OsStr) -> Self {
        Self::from(std::os::unix::ffi::OsStrExt::as_bytes(text).to_vec())
    }
}

#[cfg(unix)]
impl From<&std::path::Path> for OsText {
    fn from(path: &std::path::Path) -> Self {
        Self::from(path.as_os_str())
    }
}

#[cfg(unix)]
impl OsText {
    /// Returns the string in the operating system's form.
    #[must_use]
    pub fn as_os_str(&self) -> &std::ffi::OsStr {
        std::os::unix::ffi::OsStrExt::from_bytes(self.as_bytes())
    }

    /// Returns the string as a path.
    #[must_use]
    pub fn as_path(&self) -> &std::path::Path {
        std::path::Path::new(self.as_os_str())
    }
}
