//! Secret key of this user on this machine. Only this user's processes can sign with it. So a file from an
//! archive, a repository or another machine never carries a valid signature.
//!
//! The key is a file of random bytes outside every workspace. The file's inode and birth time are part of
//! the key, so a copy, such as in a container image, cannot sign or verify.

use std::{
    hash::{BuildHasher as _, RandomState},
    io::{self, Read as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::OnceLock,
    time::SystemTime,
};

use heeler_core::error_chain;
use heeler_sys::{
    dirs::{open_regular, private_dir, write_new_file_atomically},
    process::effective_uid,
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

use super::fallback_state_dir;

/// Name of the key's file.
const FILE_NAME: &str = "key";
/// Directory of the key in the user's state directory.
const DIR_NAME: &str = "heeler";
const KEY_BYTES: usize = 32;
/// Number of hexadecimal digits of an unpredictable name.
const NAME_DIGITS: usize = 16;

#[derive(Debug)]
pub(super) struct SigningKey {
    hmac: Hmac<Sha256>,
}

impl SigningKey {
    /// Returns this user's key, and creates it if missing. `None` if the key can't be stored in any of the
    /// user's directories; then nothing can be signed.
    pub(super) fn of_user() -> Option<&'static Self> {
        static KEY: OnceLock<Option<SigningKey>> = OnceLock::new();
        KEY.get_or_init(|| {
            key_directories().iter().find_map(|dir| {
                let unusable = |error: &io::Error| {
                    tracing::debug!(dir = %dir.display(), error = error_chain(error), "no signing key here");
                };
                Self::open(dir).inspect_err(unusable).ok()
            })
        })
        .as_ref()
    }

    /// Opens the key in a directory, and creates both if missing.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        private_dir(dir).map_err(io::Error::other)?;
        let path = dir.join(FILE_NAME);
        match Self::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        let mut bytes = [0; KEY_BYTES];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        match write_new_file_atomically(&path, &bytes) {
            // Another process was faster.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            Ok(()) | Err(_) => Self::read(&path),
        }
    }

    fn read(path: &Path) -> io::Result<Self> {
        let mut file = open_regular(path)?;
        let found = file.metadata()?;
        if found.uid() != effective_uid() || found.permissions().mode() & 0o077 != 0 {
            return Err(io::Error::other("the key is accessible to other users"));
        }
        if found.len() != KEY_BYTES as u64 {
            return Err(io::Error::other("the key has the wrong size"));
        }
        let mut bytes = [0; KEY_BYTES];
        file.read_exact(&mut bytes)?;
        // Some file systems have no birth times.
        let born = found.created().ok().and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
        let born = born.map_or(0, |since| since.as_nanos());
        let file_identity = joined(&[&found.ino().to_le_bytes(), &born.to_le_bytes()]);
        Ok(Self::of_bytes(&Self::of_bytes(&bytes).digest(&file_identity).finalize().into_bytes()))
    }

    fn of_bytes(bytes: &[u8]) -> Self {
        Self { hmac: Hmac::new_from_slice(bytes).expect("HMAC takes keys of any length") }
    }

    fn digest(&self, message: &[u8]) -> Hmac<Sha256> {
        self.hmac.clone().chain_update(message)
    }

    /// Signs `parts`. The signature is valid only for `purpose`.
    pub(super) fn sign(&self, purpose: &str, parts: &[&[u8]]) -> Vec<u8> {
        self.digest(&message(purpose, parts)).finalize().into_bytes().to_vec()
    }

    /// Returns whether this key made the signature of these parts.
    pub(super) fn is_valid(&self, purpose: &str, parts: &[&[u8]], signature: &[u8]) -> bool {
        self.digest(&message(purpose, parts)).verify_slice(signature).is_ok()
    }
}

fn message(purpose: &str, parts: &[&[u8]]) -> Vec<u8> {
    let mut message = joined(&[purpose.as_bytes()]);
    message.extend(joined(parts));
    message
}

/// Joins parts with their lengths, so that different parts never have the same bytes.
fn joined(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend((part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part);
    }
    bytes
}

/// Returns a name for a directory of build results that only this user's processes can predict. No unpacked
/// or checked-out directory has this name, so nothing that others have built is executed. Without a key, the
/// name is different in each process.
#[must_use]
pub fn unpredictable_name(parts: &[&[u8]]) -> String {
    static OF_PROCESS: OnceLock<u64> = OnceLock::new();
    let bytes = match SigningKey::of_user() {
        Some(key) => key.sign("name", parts),
        None => {
            let random = OF_PROCESS.get_or_init(|| RandomState::new().hash_one(0));
            Sha256::digest(joined(&[&random.to_le_bytes(), &joined(parts)])).to_vec()
        }
    };
    data_encoding::HEXLOWER.encode(&bytes)[..NAME_DIGITS].to_owned()
}

/// Returns the directories that may hold the key, best first.
fn key_directories() -> Vec<PathBuf> {
    let own = |variable: &str| {
        let dir = PathBuf::from(std::env::var_os(variable)?);
        // `HOME` may belong to another user, as under sudo; the key would then be in the wrong user's
        // directory.
        let is_own =
            std::fs::metadata(&dir).is_ok_and(|found| found.is_dir() && found.uid() == effective_uid());
        (dir.is_absolute() && is_own).then_some(dir)
    };
    let state = own("XDG_STATE_HOME").map(|dir| dir.join(DIR_NAME));
    let home = own("HOME").map(|dir| dir.join(".local/state").join(DIR_NAME));
    state.into_iter().chain(home).chain([fallback_state_dir()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_is_valid_for_its_key_purpose_and_parts_only() {
        let dir = tempfile::tempdir().unwrap();
        let open = |name: &str| SigningKey::open(&dir.path().join(name)).unwrap();
        let signature = open("a").sign("run", &[b"x", b"yz"]);
        assert!(open("a").is_valid("run", &[b"x", b"yz"], &signature), "the key is kept");
        assert!(!open("b").is_valid("run", &[b"x", b"yz"], &signature), "another user's key");
        assert!(!open("a").is_valid("name", &[b"x", b"yz"], &signature));
        assert!(!open("a").is_valid("run", &[b"xy", b"z"], &signature));
        assert!(!open("a").is_valid("run", &[b"x", b"yz"], &signature[1..]));
    }

    #[test]
    fn copy_of_the_key_signs_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let signature = SigningKey::open(&dir.path().join("a")).unwrap().sign("run", &[b"x"]);
        private_dir(&dir.path().join("b")).unwrap();
        std::fs::copy(dir.path().join("a/key"), dir.path().join("b/key")).unwrap();
        let copied = SigningKey::open(&dir.path().join("b")).unwrap();
        assert!(!copied.is_valid("run", &[b"x"], &signature));
    }

    #[test]
    fn links_and_open_files_are_not_keys() {
        let dir = tempfile::tempdir().unwrap();
        SigningKey::open(&dir.path().join("a")).unwrap();
        let key = dir.path().join("a/key");
        private_dir(&dir.path().join("b")).unwrap();
        std::os::unix::fs::symlink(&key, dir.path().join("b/key")).unwrap();
        assert!(SigningKey::open(&dir.path().join("b")).is_err());
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(SigningKey::open(&dir.path().join("a")).is_err());
    }
}
