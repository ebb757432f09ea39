//! Copies of files attached by tests. The framework may remove or replace the originals at any time.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

use heeler_adapters::TranscriptEvent;
use heeler_core::{DiagnosticsFile, LogLine, OsText, RecordSink, RunRecord, TestId, error_chain};

use super::diagnostics::evidence_file_name;
use crate::{batch::RunningBatch, process::evidence_files::plain_file_name};

/// Larger files are hard-linked instead of copied. A copy survives if the test rewrites the file, but copying
/// a larger file would delay the process's tests.
const COPIED_BYTES: u64 = 64 << 20;
/// Maximum number of files kept per test. A test that attaches more probably does so in a loop.
const MAX_FILES: usize = 100;
/// Highest number tried to make a file name unique. Each attempt of a test uses at most `MAX_FILES` names.
const MAX_NUMBER: usize = 10_000;

/// Keeps the files attached by the tests of one process.
#[derive(Debug)]
pub(super) struct FileKeeper {
    dir: PathBuf,
    /// Originals of the files kept for each test, by its index.
    tests: HashMap<usize, Vec<KeptSource>>,
}

/// The original of a kept file, as it was when kept.
#[derive(Debug, PartialEq, Eq)]
struct KeptSource {
    path: PathBuf,
    inode: u64,
    length: u64,
    modified: Option<SystemTime>,
}

/// A file attached by a test.
#[derive(Debug, Clone, Copy)]
pub(super) struct AttachedSource<'a> {
    pub(super) path: &'a Path,
    pub(super) description: &'a str,
}

impl FileKeeper {
    /// Creates the keeper for a process whose files go to this directory, which need not exist yet.
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), tests: HashMap::new() }
    }

    /// Keeps the files named by events. Logs a warning for each file that is lost.
    pub(super) fn keep_named(
        &mut self,
        events: &[TranscriptEvent],
        batch: &mut RunningBatch,
        records: &mut dyn RecordSink,
    ) {
        for event in events {
            let TranscriptEvent::File { place, path, description } = event else { continue };
            let source = AttachedSource { path: Path::new(path), description };
            if let Err(error) = self.keep(*place, source, batch, records) {
                warn_of_loss(batch.tests().get(*place).map(|test| test.test), source.path, &error, records);
            }
        }
    }

    /// Keeps one file and adds it to the result of its test.
    ///
    /// # Errors
    /// If the file is missing, not a regular file, or cannot be copied, or if the test has too many files.
    pub(super) fn keep(
        &mut self,
        place: usize,
        source: AttachedSource<'_>,
        batch: &mut RunningBatch,
        records: &mut dyn RecordSink,
    ) -> io::Result<()> {
        let Some(test) = batch.tests().get(place) else { return Ok(()) };
        let base = evidence_file_name(&test.uid, false);
        // Open the file first: an open file stays readable even if the framework removes it.
        let file = heeler_sys::io::open_without_waiting(source.path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        // Skip a file that is already kept in this state.
        let original = KeptSource {
            path: source.path.to_owned(),
            inode: found.ino(),
            length: found.len(),
            modified: found.modified().ok(),
        };
        let kept = self.tests.entry(place).or_default();
        if kept.contains(&original) {
            return Ok(());
        }
        if kept.len() == MAX_FILES {
            return Err(io::Error::other(format!("a test can attach at most {MAX_FILES} files")));
        }
        heeler_sys::dirs::private_dir(&self.dir)
            .map_err(|error| io::Error::other(format!("cannot {}", error_chain(&error))))?;
        // Store it under the first unused name.
        let name = shortened_file_name(source.path);
        let numbers = kept.len()..MAX_NUMBER;
        let path = numbers
            .map(|number| self.dir.join(format!("{base}.{number}.{name}")))
            .find_map(|target| match store(&file, original.length, source.path, &target) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
                stored => Some(stored.map(|()| target)),
            })
            .unwrap_or_else(|| Err(io::ErrorKind::AlreadyExists.into()))?;
        kept.push(original);
        let description = source.description.to_owned();
        batch.attach(place, DiagnosticsFile { path: OsText::from(path.as_path()), description }, records);
        Ok(())
    }
}

/// Logs that an attached file is lost.
pub(super) fn warn_of_loss(
    test: Option<TestId>,
    path: &Path,
    error: &io::Error,
    records: &mut dyn RecordSink,
) {
    let advice = match error.kind() {
        io::ErrorKind::NotFound => "; attached files must exist until Heeler has read the end of the test",
        _ => "",
    };
    let message = format!("could not keep the attached file {}: {error}{advice}", path.display());
    records.record(RunRecord::Log(LogLine::warning(test, message)));
}

/// Stores an open file under an unused name.
fn store(file: &File, length: u64, source: &Path, target: &Path) -> io::Result<()> {
    use io::Read as _;
    if length > COPIED_BYTES {
        return fs::hard_link(fs::canonicalize(source)?, target);
    }
    let mut copy = OpenOptions::new().write(true).create_new(true).mode(0o600).open(target)?;
    let copied = io::copy(&mut file.take(COPIED_BYTES), &mut copy);
    if copied.is_err() {
        // Remove the partial copy.
        drop(fs::remove_file(target));
    }
    copied.map(drop)
}

/// Returns the end of a file's name, including its extension.
fn shortened_file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let reversed: String = name.chars().rev().collect();
    plain_file_name(&reversed).chars().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_their_extension() {
        assert_eq!(shortened_file_name(Path::new("/tmp/a b\n.txt")), "a_b_.txt");
        let long = shortened_file_name(&Path::new("/tmp").join("x".repeat(200) + ".png"));
        assert_eq!((long.len(), long.ends_with("xx.png")), (80, true));
    }

    #[test]
    fn file_is_stored_once_under_each_name() {
        let dir = tempfile::tempdir().unwrap();
        let (source, target) = (dir.path().join("source"), dir.path().join("target"));
        fs::write(&source, "one").unwrap();
        let file = File::open(&source).unwrap();
        fs::remove_file(&source).unwrap();
        store(&file, 3, &source, &target).unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "one");
        let again = store(&file, 3, &source, &target).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        let linked = store(&file, COPIED_BYTES + 1, &source, &dir.path().join("link")).unwrap_err();
        assert_eq!(linked.kind(), io::ErrorKind::NotFound, "it is linked by its name, which is gone");
    }
}
