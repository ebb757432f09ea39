//! Writes a minidump: builds it in memory, checks it, removes the environment, and then writes it to disk
//! completely or not at all.

use std::{
    fs::{File, OpenOptions},
    io::{self, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use minidump_writer::minidump_writer::MinidumpWriterConfig;

use super::{
    context, layout,
    request::{DumpError, DumpFile, DumpPlan, DumpTarget},
    scrub::{self, ProcessEnvironment},
};

/// Dumps a process. Its threads are stopped for a few milliseconds.
///
/// # Errors
///
/// If the process is gone or traced, or if the dump would be too large or cannot be stored. In these cases,
/// no file is left on disk.
pub fn write(subject: &DumpTarget, plan: &DumpPlan) -> Result<DumpFile, DumpError> {
    let pid = subject.pid;
    // The writer needs paths in UTF-8. With another path, it would fail halfway, with a message that does not
    // name the problem.
    if std::fs::read(format!("/proc/{pid}/maps")).is_ok_and(|maps| std::str::from_utf8(&maps).is_err()) {
        return Err(DumpError::UnnameableFile { pid });
    }
    // Read the environment before the process continues, because the process may then exit.
    let environment = ProcessEnvironment::read(pid, subject.blamed);
    let mut dump = capture(subject, plan)?;
    let soft_errors = layout::soft_errors(&dump);
    let threads = layout::thread_count(&dump);
    if threads == 0 {
        return Err(DumpError::NoThreads { pid, soft_errors });
    }
    let bytes = dump.len() as u64;
    if bytes > plan.limit_bytes {
        return Err(DumpError::TooLarge { bytes, limit_bytes: plan.limit_bytes });
    }
    if !plan.keeps_environment {
        scrub::scrub(&mut dump, &environment);
    }
    store(&plan.path, &dump)?;
    Ok(DumpFile { path: plan.path.clone(), bytes, threads, soft_errors })
}

fn capture(subject: &DumpTarget, plan: &DumpPlan) -> Result<Vec<u8>, DumpError> {
    let mut config = MinidumpWriterConfig::new(subject.pid.0, subject.blamed.0);
    config.stop_timeout(plan.stop_timeout);
    config.set_minidump_size_limit(plan.limit_bytes / 2);
    if let Some(facts) = &subject.crash {
        config.set_crash_context(context::crash_context(subject.pid, facts));
    }
    heeler_sys::fail::pass("guard.capture");
    let written = config.write(&mut DiscardedFile(0));
    written.map_err(|source| DumpError::Capture { pid: subject.pid, source: Box::new(source) })
}

fn store(path: &Path, dump: &[u8]) -> Result<(), DumpError> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".part");
    let aside = PathBuf::from(aside);
    let failed = |source| DumpError::Write { path: path.to_owned(), source };
    // An existing file belongs to another process and must not be changed.
    let mut file = heeler_sys::fail::at("guard.dump").and_then(|()| create(&aside)).map_err(failed)?;
    let stored = file.write_all(dump).and_then(|()| std::fs::rename(&aside, path));
    stored.map_err(|source| {
        // Remove the useless partial file. Ignore errors.
        let _gone = std::fs::remove_file(&aside);
        failed(source)
    })
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// A file that discards its contents. The writer both writes a file and returns all bytes, and only the bytes
/// are needed.
struct DiscardedFile(u64);

impl Write for DiscardedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for DiscardedFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0 = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::Current(by) | SeekFrom::End(by) => self.0.saturating_add_signed(by),
        };
        Ok(self.0)
    }
}
