//! Mark of a run: a signature of its manifest and directory with the key of the user who recorded it. A run
//! without a valid mark was copied, unpacked, checked out or edited, or an earlier version of Heeler
//! recorded it. Such a run may be read, but must not decide what is executed.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _},
    path::Path,
};

use data_encoding::HEXLOWER;
use heeler_protocol::manifest::{MANIFEST_FILE_NAME, Manifest};
use heeler_sys::dirs::{open_regular, write_file_atomically};
use sha2::{Digest as _, Sha256};

use super::user_key::SigningKey;

/// Mark file, in the directory of the manifest. Each line contains a plan's digest and a signature.
const FILE_NAME: &str = "manifest.mark";
/// Purpose of these signatures. A signature is valid only for its purpose.
const PURPOSE: &str = "run";
/// Maximum size of a mark, which has two lines.
const MAX_MARK_BYTES: u64 = 1 << 10;
/// Maximum size of a manifest's first line, which contains a command line.
const MAX_HEAD_BYTES: u64 = 64 << 20;
/// Maximum size of a manifest, enough for about four million tests.
const MAX_MANIFEST_BYTES: u64 = 1 << 30;

/// Ownership of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunOwnership {
    /// Recorded by this user, on this machine, in this directory.
    Own,
    /// Copied here, changed, or recorded by an earlier version.
    Copied,
}

/// Writes the manifest of this user's run, with its mark. Without a key, the run has no mark.
///
/// # Errors
/// The files can't be written.
pub fn write_manifest(dir: &Path, manifest: &Manifest) -> io::Result<()> {
    let bytes = manifest.to_bytes();
    if let Some(key) = SigningKey::of_user() {
        let path = dir.join(FILE_NAME);
        let earlier = read_mark(dir);
        let earlier = earlier.lines().next_back().map(|line| format!("{line}\n")).unwrap_or_default();
        let mark = format!("{earlier}{}\n", mark_line(key, dir, &bytes)?);
        // Keep the earlier line of the mark, so that the earlier manifest stays valid until the new one
        // replaces it.
        write_file_atomically(&path, mark.as_bytes())?;
    }
    write_file_atomically(&dir.join(MANIFEST_FILE_NAME), &bytes)
}

fn mark_line(key: &SigningKey, dir: &Path, manifest: &[u8]) -> io::Result<String> {
    let (head, plan) = split(manifest);
    let plan = Sha256::digest(plan);
    let place = dir.canonicalize()?;
    let parts = [place.as_os_str().as_encoded_bytes(), head, plan.as_slice()];
    let signature = key.sign(PURPOSE, &parts);
    Ok(format!("{} {}", HEXLOWER.encode(plan.as_slice()), HEXLOWER.encode(&signature)))
}

/// Splits a manifest after its first line.
fn split(manifest: &[u8]) -> (&[u8], &[u8]) {
    let end = manifest.iter().position(|byte| *byte == b'\n').unwrap_or(manifest.len());
    (&manifest[..end], manifest.get(end + 1..).unwrap_or_default())
}

/// Returns the ownership of a run by its manifest's first line. The plan is not checked, because lists of
/// runs do not read it.
pub(super) fn ownership_by_head(dir: &Path, head: &[u8]) -> RunOwnership {
    ownership(dir, split(head).0, |_plan| true)
}

/// Reads the ownership of a run by its manifest's first line.
pub(super) fn read_ownership(dir: &Path) -> RunOwnership {
    let line = read_head_line(dir);
    line.map_or(RunOwnership::Copied, |line| ownership_by_head(dir, &line))
}

pub(super) fn ownership_by_manifest(dir: &Path, manifest: &[u8]) -> RunOwnership {
    let (head, plan) = split(manifest);
    ownership(dir, head, |signed| Sha256::digest(plan).as_slice() == signed)
}

fn ownership(dir: &Path, head: &[u8], is_plan: impl Fn(&[u8]) -> bool) -> RunOwnership {
    let (Some(key), Ok(place)) = (SigningKey::of_user(), dir.canonicalize()) else {
        return RunOwnership::Copied;
    };
    let is_own = |line: &str| {
        let (plan, signature) = line.split_once(' ')?;
        let decode = |digits: &str| HEXLOWER.decode(digits.as_bytes()).ok();
        let (plan, signature) = (decode(plan)?, decode(signature)?);
        let parts = [place.as_os_str().as_encoded_bytes(), head, &plan];
        Some(is_plan(&plan) && key.is_valid(PURPOSE, &parts, &signature))
    };
    match read_mark(dir).lines().any(|line| is_own(line) == Some(true)) {
        true => RunOwnership::Own,
        false => RunOwnership::Copied,
    }
}

/// Returns a run's mark; empty without a mark.
fn read_mark(dir: &Path) -> String {
    let mut text = String::new();
    let read = open_regular(&dir.join(FILE_NAME))
        .and_then(|file| file.take(MAX_MARK_BYTES).read_to_string(&mut text));
    if read.is_err() {
        text.clear();
    }
    text
}

/// Reads the first line of a manifest, including its line end, if any.
pub(super) fn read_head_line(dir: &Path) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let file = open_regular(&dir.join(MANIFEST_FILE_NAME))?;
    BufReader::new(file.take(MAX_HEAD_BYTES)).read_until(b'\n', &mut line)?;
    Ok(line)
}

pub(super) fn read_manifest_bytes(dir: &Path) -> io::Result<Vec<u8>> {
    let file: File = open_regular(&dir.join(MANIFEST_FILE_NAME))?;
    let size = file.metadata()?.len();
    if size > MAX_MANIFEST_BYTES {
        return Err(io::Error::other(format!(
            "the file has {size} bytes; the limit is {MAX_MANIFEST_BYTES}"
        )));
    }
    let mut bytes = Vec::new();
    file.take(MAX_MANIFEST_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}
