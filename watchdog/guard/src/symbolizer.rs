//! Symbolizes stack traces in a separate process. A damaged program file can make the symbol reader loop or
//! allocate endlessly, or overflow its stack. The guard survives that, and reports the crash without the
//! symbols.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use heeler_crash::stacks::{RawStacks, StackTexts, SymbolSource, symbolize_from};
use heeler_sys::{
    io::{pipe, wait_readable},
    process::{self, Signal},
    spawn::{ForkResult, SingleThreaded},
};

/// Maximum number of frames in a report. The stacks file has all frames.
const MAX_REPORT_FRAMES: usize = 64;
/// Time limit for symbol tables, which are normally read in milliseconds.
const TABLES_TIME_LIMIT: Duration = Duration::from_secs(3);
/// Memory limit of a symbolizer. More than the debug information of the largest programs needs.
const MEMORY_LIMIT_BYTES: u64 = 4 << 30;
/// Maximum size of text. More than a process with thousands of threads has.
const TEXT_LIMIT_BYTES: u64 = 256 << 20;

/// Texts of several processes, in order, and the problem that affected them.
pub(super) struct SymbolizedTexts {
    pub(super) texts: Vec<StackTexts>,
    pub(super) problem: Option<String>,
}

/// Level of detail of stack traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SymbolDetail {
    /// Functions with source lines, from the debug information. Reading it may take up to this duration.
    SourceLines(Duration),
    /// Only function names, which are read in milliseconds.
    Functions,
}

/// Returns the texts of stack traces, symbolized as well as possible within the time limit.
pub(super) fn symbolize(raws: &[RawStacks], detail: SymbolDetail) -> SymbolizedTexts {
    if raws.is_empty() {
        return SymbolizedTexts { texts: Vec::new(), problem: None };
    }
    let mut problem = None;
    let lines = match detail {
        SymbolDetail::SourceLines(limit) => Some((
            SymbolSource::DebugInformation,
            limit,
            "cannot read debug information, so the stacks have no source lines",
        )),
        SymbolDetail::Functions => None,
    };
    let functions = (
        SymbolSource::SymbolTables,
        TABLES_TIME_LIMIT,
        "cannot read symbol tables, so the stacks have no function names",
    );
    for (source, limit, what) in lines.into_iter().chain([functions]) {
        match in_own_process(raws.len(), limit, || texts_of(raws, source)) {
            Ok(texts) => return SymbolizedTexts { texts, problem },
            Err(SymbolizerError::NotStarted(_)) => {
                // A separate process cannot be started. Symbolizing in the guard is a risk, but damaged files
                // are rare.
                return SymbolizedTexts { texts: texts_of(raws, source), problem };
            }
            Err(failure @ SymbolizerError::Failed(_)) => problem = Some(format!("{what}: {failure}")),
        }
    }
    SymbolizedTexts { texts: texts_of(raws, SymbolSource::Nothing), problem }
}

/// Why a symbolizer produced no texts.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SymbolizerError {
    /// The symbolizer's process could not be created.
    #[error("cannot start the symbolizer: {0}")]
    NotStarted(String),
    /// The symbolizer failed, for this reason.
    #[error("{0}")]
    Failed(String),
}

fn texts_of(raws: &[RawStacks], source: SymbolSource) -> Vec<StackTexts> {
    symbolize_from(raws, source).iter().map(|stacks| stacks.texts(MAX_REPORT_FRAMES)).collect()
}

/// Makes a forked process produce the texts of `count` processes, within limits of time and memory.
///
/// # Errors
///
/// If the process cannot be started, exceeds a limit, crashes, or returns incomplete texts.
pub fn in_own_process(
    count: usize,
    limit: Duration,
    make_texts: impl FnOnce() -> Vec<StackTexts>,
) -> Result<Vec<StackTexts>, SymbolizerError> {
    let not_started = |error: std::io::Error| SymbolizerError::NotStarted(error.to_string());
    let single_threaded = SingleThreaded::check()
        .ok_or_else(|| SymbolizerError::NotStarted("the guard process has several threads".to_owned()))?;
    // Fork the symbolizer.
    let (reader, writer) = pipe().map_err(not_started)?;
    let child = match single_threaded.fork().map_err(not_started)? {
        ForkResult::Parent(child) => child,
        ForkResult::Child => {
            drop(reader);
            process::set_name(c"heeler-symbols");
            let is_limited = process::limit_memory(MEMORY_LIMIT_BYTES).is_ok();
            let is_written = is_limited && write_texts(File::from(writer), &make_texts()).is_ok();
            process::exit_immediately(if is_written { 0 } else { 1 })
        }
    };
    // Receive the texts.
    drop(writer);
    let mut reader = File::from(reader);
    let read = read_until(&mut reader, Instant::now() + limit, TEXT_LIMIT_BYTES);
    if read.is_err() {
        // The process is not reaped yet, so its id is valid.
        drop(child.signal(Signal::KILL));
    }
    // Nothing else reaps this child. If its exit status is unknown, the result depends on the texts alone.
    let signal = process::reap_child(child.pid).ok().and_then(|exit| exit.signal);
    let failed = |reason: String| Err(SymbolizerError::Failed(reason));
    match (read, signal) {
        (Err(TextReadError::Late), _) => failed(format!("timed out after {} s", limit.as_secs_f64())),
        (Err(failure), _) => failed(failure.to_string()),
        (Ok(_), Some(signal)) => failed(format!("the symbolizer was killed by {}", Signal(signal).name())),
        (Ok(bytes), None) => read_texts(&bytes, count)
            .map_or_else(|| failed("the symbolizer returned incomplete text".to_owned()), Ok),
    }
}

/// Why the texts could not be read completely.
#[derive(Debug, thiserror::Error)]
enum TextReadError {
    #[error("timed out")]
    Late,
    #[error("the stacks have more than {} MiB of text", .0 >> 20)]
    TooLong(u64),
    #[error("cannot read from the symbolizer: {0}")]
    Pipe(std::io::Error),
}

/// Reads to the end of the pipe, but not beyond the deadline or `limit_bytes`.
fn read_until(reader: &mut File, deadline: Instant, limit_bytes: u64) -> Result<Vec<u8>, TextReadError> {
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 64 << 10];
    loop {
        match wait_readable([Some(reader.as_fd())], Some(deadline)) {
            Ok([true]) => {}
            Ok([false]) if Instant::now() >= deadline => return Err(TextReadError::Late),
            Ok([false]) => continue,
            Err(error) => return Err(TextReadError::Pipe(error)),
        }
        match reader.read(&mut chunk) {
            Ok(0) => return Ok(bytes),
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(TextReadError::Pipe(error)),
        }
        if bytes.len() as u64 > limit_bytes {
            return Err(TextReadError::TooLong(limit_bytes));
        }
    }
}

/// Writes texts, each preceded by its length.
fn write_texts(mut to: impl Write, texts: &[StackTexts]) -> std::io::Result<()> {
    for StackTexts { all, crash, interrupted } in texts {
        for text in [all, crash, interrupted] {
            to.write_all(&(text.len() as u64).to_ne_bytes())?;
            to.write_all(text.as_bytes())?;
        }
    }
    Ok(())
}

/// Reads the texts written by [`write_texts`] for this number of processes. `None` if they are incomplete.
fn read_texts(bytes: &[u8], count: usize) -> Option<Vec<StackTexts>> {
    let mut rest = bytes;
    let mut next = || {
        let (length, behind) = rest.split_first_chunk()?;
        let (text, behind) = behind.split_at_checked(usize::try_from(u64::from_ne_bytes(*length)).ok()?)?;
        rest = behind;
        String::from_utf8(text.to_vec()).ok()
    };
    (0..count).map(|_| Some(StackTexts { all: next()?, crash: next()?, interrupted: next()? })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_reading_has_its_own_reason() {
        let minute = Duration::from_secs(60);
        let (reader, writer) = pipe().unwrap();
        let (mut reader, mut writer) = (File::from(reader), File::from(writer));
        assert!(matches!(read_until(&mut reader, Instant::now(), 100), Err(TextReadError::Late)));
        writer.write_all(&[7; 100]).unwrap();
        let too_long = read_until(&mut reader, Instant::now() + minute, 99);
        assert!(matches!(too_long, Err(TextReadError::TooLong(99))), "{too_long:?}");
        writer.write_all(&[7; 100]).unwrap();
        drop(writer);
        assert_eq!(read_until(&mut reader, Instant::now() + minute, 100).unwrap(), [7; 100]);
        let mut directory = File::open("/").unwrap();
        let broken = read_until(&mut directory, Instant::now() + minute, 100);
        assert!(matches!(broken, Err(TextReadError::Pipe(_))), "{broken:?}");
    }

    #[test]
    fn texts_are_read_as_written_and_cut_texts_are_not() {
        let text = |name: &str| StackTexts {
            all: format!("{name}\nall"),
            crash: String::new(),
            interrupted: format!("… {name}"),
        };
        let texts = vec![text("one"), text("other")];
        let mut bytes = Vec::new();
        write_texts(&mut bytes, &texts).unwrap();
        assert_eq!(read_texts(&bytes, 2), Some(texts));
        assert!((0..bytes.len()).all(|length| read_texts(&bytes[..length], 2).is_none()));
        assert_eq!(read_texts(&bytes, 3), None);
    }
}
