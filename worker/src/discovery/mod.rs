//! Runs one discovery job: finds out which framework a program uses, and which tests it has. The program
//! itself lists its tests; its bytes only suggest which framework to try first. Each error becomes one
//! sentence for the user.

mod image;

use std::{fs, path::Path, sync::Arc, time::Duration};

use host::process::Signal;
use model::path::Nesting;
use tokio::{sync::mpsc, time::Instant};
use wire::control::{self, DiscoverJob, FromWorker, Program};

use crate::{
    adapter::{self, Adapter, Invocation, Listing, ListingError, ListingOutput},
    chain::chain,
    listing::{Budget, CaptureError, Captured, capture},
    runner::Order,
    setting::{PrepareError, Setting},
};

/// Size limit of a listing file, the same as for printed listings.
const FILE_LIMIT_BYTES: u64 = 64 << 20;

/// Why the tests of a program could not be listed.
#[derive(Debug, thiserror::Error)]
enum DiscoverError {
    #[error("{program} does not exist")]
    Missing { program: String },
    #[error("{program} is a directory, not a test program")]
    Directory { program: String },
    #[error("{program} is not executable")]
    NotExecutable { program: String },
    #[error("{program} can't be looked at: {source}")]
    Unreadable { program: String, source: std::io::Error },
    #[error("there is no framework {name:?}; there are {known}")]
    UnknownFramework { name: String, known: String },
    #[error("the listing of {program} can't be prepared: {}", chain(.source))]
    Prepare { program: String, source: PrepareError },
    #[error("failed to ask {program} for its tests: failed to {source}")]
    Capture { program: String, source: CaptureError },
    #[error("{program} died of {signal} when it was asked for its tests{said}")]
    Crashed { program: String, signal: String, said: String },
    #[error("failed to ask {program} for its tests: how its process ended is not known")]
    Lost { program: String },
    #[error("failed to ask {program} for its tests: failed to {source}")]
    Listing { program: String, source: ListingError },
    #[error(
        "{program} is neither a GoogleTest nor a Rust test program: it answered `{asked}` with {answer}; name the framework with --framework if it is"
    )]
    NoTest { program: String, asked: String, answer: String },
}

impl DiscoverError {
    /// Returns whether a second attempt may succeed.
    fn may_be_chance(&self) -> bool {
        let not_started = |source: &CaptureError| matches!(source, CaptureError::NotStarted(_));
        matches!(self, Self::Crashed { .. } | Self::Lost { .. })
            || matches!(self, Self::Capture { source, .. } if not_started(source))
    }

    /// Returns whether another framework would fail in the same way.
    fn is_final(&self) -> bool {
        !matches!(self, Self::Listing { .. } | Self::NoTest { .. })
    }
}

/// A program's reply to a listing command, in one short line.
struct Answer {
    asked: String,
    answer: String,
}

/// Runs one discovery job.
///
/// Cancel safe: no, because the listing process is abandoned with the call: its guard ends it.
pub(crate) async fn discover(
    job: DiscoverJob,
    setting: Arc<Setting>,
    orders: mpsc::Receiver<Order>,
) -> FromWorker {
    let DiscoverJob { job, program, timeout_ms } = job;
    let limit = Duration::from_millis(timeout_ms);
    let budget = Budget { limit, deadline: Instant::now() + limit };
    let mut asking =
        Asking { program: &program, setting: &setting, orders, budget, first: None, start_us: None };
    match asking.ask_all().await {
        Ok(listing) => FromWorker::Discovered {
            job,
            framework: listing.framework.to_owned(),
            nesting: nesting(listing.framework),
            tests: listing.tests,
            start_us: asking.start_us.unwrap_or_default(),
        },
        Err(error) => FromWorker::NotDiscovered { job, error: error.to_string() },
    }
}

fn nesting(framework: &str) -> control::Nesting {
    match adapter::by_name(framework).map(Adapter::nesting).unwrap_or_default() {
        Nesting::Flat => control::Nesting::Flat,
        Nesting::FullStop => control::Nesting::FullStop,
        Nesting::Colons => control::Nesting::Colons,
    }
}

struct Asking<'a> {
    program: &'a Program,
    setting: &'a Setting,
    orders: mpsc::Receiver<Order>,
    budget: Budget,
    /// The reply to the first listing command.
    first: Option<Answer>,
    /// The shortest run time of a listing process.
    start_us: Option<u64>,
}

impl Asking<'_> {
    async fn ask_all(&mut self) -> Result<Listing, DiscoverError> {
        let path = self.program.path.as_path();
        look(path)?;
        if let Some(name) = &self.program.framework {
            return self.ask(named(name)?).await;
        }
        let hinted = image::hinted(path).await;
        let is_hinted = |adapter: &dyn Adapter| hinted.contains(&adapter.name());
        let (first, then): (Vec<_>, Vec<_>) = adapter::all().iter().partition(|one| is_hinted(**one));
        let mut told = None;
        for adapter in first.into_iter().chain(then) {
            match self.ask(adapter).await {
                Ok(listing) => return Ok(listing),
                Err(error) if error.is_final() => return Err(error),
                // The bytes indicate this framework, so its error is the one to report.
                Err(error) if is_hinted(adapter) && told.is_none() => told = Some(error),
                Err(_) => {}
            }
        }
        Err(told.unwrap_or_else(|| self.no_test()))
    }

    fn no_test(&self) -> DiscoverError {
        let program = self.program.path.to_text().into_owned();
        let (asked, answer) = match &self.first {
            Some(first) => (first.asked.clone(), first.answer.clone()),
            None => ("--list".into(), "nothing".into()),
        };
        DiscoverError::NoTest { program, asked, answer }
    }

    /// Lists with one framework, and retries once if the process or its guard was killed: the kill may be
    /// unrelated, and giving up would cost a whole program.
    async fn ask(&mut self, adapter: &'static dyn Adapter) -> Result<Listing, DiscoverError> {
        match self.ask_once(adapter).await {
            Err(error) if error.may_be_chance() => self.ask_once(adapter).await,
            answer => answer,
        }
    }

    async fn ask_once(&mut self, adapter: &'static dyn Adapter) -> Result<Listing, DiscoverError> {
        let program = || self.program.path.to_text().into_owned();
        let prepare = |source| DiscoverError::Prepare { program: program(), source };
        let scratch = self.setting.sweep().map_err(prepare)?;
        let mut outputs = Vec::new();
        for invocation in adapter.listing(self.program, scratch) {
            if !outputs.is_empty() && !adapter.needs_more(&outputs) {
                break;
            }
            let command = self.setting.prepare(self.program, &invocation, None).map_err(prepare)?;
            let captured = capture(&self.setting.guards, command, self.budget, &mut self.orders).await;
            let captured =
                captured.map_err(|source| DiscoverError::Capture { program: program(), source })?;
            self.note(&invocation, &captured);
            if let Some(signal) = captured.end.signal {
                let (signal, said) = (Signal(signal).name(), said(&captured));
                return Err(DiscoverError::Crashed { program: program(), signal, said });
            }
            if captured.end.code.is_none() {
                return Err(DiscoverError::Lost { program: program() });
            }
            outputs.push(output(&invocation, captured));
        }
        adapter
            .read_listing(self.program, &outputs)
            .map_err(|source| DiscoverError::Listing { program: program(), source })
    }

    fn note(&mut self, invocation: &Invocation, captured: &Captured) {
        let wall_us = captured.end.wall_us;
        self.start_us = Some(self.start_us.map_or(wall_us, |shortest| shortest.min(wall_us)));
        if self.first.is_none() {
            let asked = invocation.args.first().map_or(String::new(), |arg| arg.to_text().into_owned());
            self.first = Some(Answer { asked, answer: answer(captured) });
        }
    }
}

/// Checks the file without starting it.
fn look(path: &Path) -> Result<(), DiscoverError> {
    use std::os::unix::fs::PermissionsExt as _;
    let program = path.display().to_string();
    match fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(DiscoverError::Missing { program }),
        Err(source) => Err(DiscoverError::Unreadable { program, source }),
        Ok(found) if found.is_dir() => Err(DiscoverError::Directory { program }),
        Ok(found) if found.permissions().mode() & 0o111 == 0 => Err(DiscoverError::NotExecutable { program }),
        Ok(_) => Ok(()),
    }
}

fn named(name: &str) -> Result<&'static dyn Adapter, DiscoverError> {
    adapter::by_name(name).ok_or_else(|| {
        let known: Vec<_> = adapter::all().iter().map(|adapter| adapter.name()).collect();
        DiscoverError::UnknownFramework { name: name.to_owned(), known: known.join(", ") }
    })
}

fn output(invocation: &Invocation, captured: Captured) -> ListingOutput {
    let Captured { stdout, stderr, end } = captured;
    let file = invocation.reads.as_deref().and_then(read_file);
    ListingOutput { stdout, stderr, file, code: end.code, signal: end.signal }
}

/// Returns the listing file, or `None` if it is missing or too large: the printed listing then replaces it.
fn read_file(path: &Path) -> Option<Vec<u8>> {
    let found = fs::metadata(path).ok()?;
    if found.len() > FILE_LIMIT_BYTES { None } else { fs::read(path).ok() }
}

/// Returns the first line that a program printed, truncated, and its exit code.
fn answer(captured: &Captured) -> String {
    let line = first_line(&captured.stdout).or_else(|| first_line(&captured.stderr));
    let words = line.map_or("nothing".to_owned(), |line| format!("{line:?}"));
    match captured.end.code {
        None | Some(0) => words,
        Some(code) => format!("{words} and exit code {code}"),
    }
}

fn said(captured: &Captured) -> String {
    let last = last_line(&captured.stderr).or_else(|| last_line(&captured.stdout));
    last.map_or(String::new(), |line| format!("; it said {line:?}"))
}

fn first_line(bytes: &[u8]) -> Option<String> {
    bytes.split(|byte| *byte == b'\n').find_map(printable)
}

fn last_line(bytes: &[u8]) -> Option<String> {
    bytes.rsplit(|byte| *byte == b'\n').find_map(printable)
}

fn printable(line: &[u8]) -> Option<String> {
    let line = line.trim_ascii();
    (!line.is_empty()).then(|| String::from_utf8_lossy(&line[..line.len().min(100)]).into_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_is_no_program_is_told_before_any_start() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        let said = |path: &Path| look(path).unwrap_err().to_string();
        assert_eq!(said(&file), format!("{} does not exist", file.display()));
        assert_eq!(said(dir.path()), format!("{} is a directory, not a test program", dir.path().display()));
        fs::write(&file, "").unwrap();
        assert_eq!(said(&file), format!("{} is not executable", file.display()));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o700)).unwrap();
        look(&file).unwrap();
    }

    #[test]
    fn an_answer_is_one_short_line() {
        let captured = |stdout: &str, stderr: &str, code| Captured {
            stdout: stdout.into(),
            stderr: stderr.into(),
            end: wire::control::RawEnd { code: Some(code), ..Default::default() },
        };
        assert_eq!(answer(&captured("\n  usage: x\nmore", "", 1)), "\"usage: x\" and exit code 1");
        assert_eq!(answer(&captured("", "bad\n", 0)), "\"bad\"");
        assert_eq!(answer(&captured("", "", 0)), "nothing");
        assert!(answer(&captured(&"x".repeat(1000), "", 0)).len() < 110);
        assert_eq!(said(&captured("a\nb\n", "", 0)), "; it said \"b\"");
    }
}
