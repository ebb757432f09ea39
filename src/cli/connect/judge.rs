//! The process of the judge, `connectconformance`: its start, its outputs, and the socket of its client.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::Duration,
};

use heeler_protocol::connect::{JudgeReport, JudgeReportError, parse_judge_report};
use heeler_server::pool::ProcessExitWatch;
use heeler_sys::{
    dirs::{DirError, SocketDir, socket_dir, write_new_file},
    io::pipe,
    process::{ExitStatus, Signal, kill_group, shared_program_path},
    spawn::{ChildStdio, SpawnError, SpawnOptions, SpawnedChild, spawn},
};
use heeler_transport::local::{BindError, LocalListener};
use tokio::{
    io::AsyncReadExt as _,
    net::unix::pipe::Receiver,
    time::{Instant, sleep_until},
};

use super::case_patterns::CasePatternError;

/// Maximum size of the judge's output. Thousands of failed cases take a few KiB each.
const OUTPUT_LIMIT_BYTES: usize = 64 << 20;
/// Time for the outputs to end after the judge's exit. Only a process left behind by the judge keeps them
/// open.
const OUTPUT_END_LIMIT: Duration = Duration::from_secs(1);
/// Time for the judge to end after SIGTERM.
const GRACE_PERIOD: Duration = Duration::from_secs(5);
/// Number of final lines of the judge's standard error that an error message shows.
const SHOWN_LINES: usize = 20;

/// Error of a judge run. Nothing is known about cases that the judge has not reported.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JudgeError {
    #[error("failed to create a directory for the judge")]
    Directory(#[source] DirError),
    #[error("failed to write a list of cases for the judge")]
    List(#[source] io::Error),
    #[error("failed to listen for the judge's client")]
    Listen(#[source] BindError),
    #[error("failed to start the judge")]
    Start(#[source] SpawnError),
    #[error("failed to connect to the judge's process")]
    Connect(#[source] io::Error),
    #[error("failed to read the judge's output")]
    Output(#[source] io::Error),
    #[error("the judge printed more than {} MiB", OUTPUT_LIMIT_BYTES >> 20)]
    OutputLimit,
    /// The judge rejects its configuration, its patterns or its client.
    #[error("the judge exited with code {code} before it requested a case:\n{stderr}")]
    Refused { code: i32, stderr: String },
    #[error("the judge was killed by {signal} before it reported its verdicts{stderr}")]
    Killed { signal: String, stderr: String },
    #[error("the judge exited with code {code} without a readable report{stderr}")]
    Report { code: i32, stderr: String, source: JudgeReportError },
    #[error("the judge sent nothing for {} s and was stopped (--judge-timeout)", limit.as_secs_f64())]
    Silent { limit: Duration },
    #[error("the judge did not request all of its cases within {} s and was stopped", limit.as_secs())]
    Listing { limit: Duration },
    #[error("{0}")]
    Contradiction(String),
    #[error("invalid value of {option}")]
    Patterns { option: &'static str, source: CasePatternError },
    #[error("the case {case:?} matches both --known-failing and --known-flaky")]
    Ambiguous { case: String },
}

impl JudgeError {
    /// Returns whether the user's input caused the error.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Patterns { .. } | Self::Ambiguous { .. })
    }
}

#[derive(Debug, Clone)]
pub(super) struct JudgeCommand {
    pub(super) program: PathBuf,
    pub(super) config: Option<PathBuf>,
    /// Patterns of cases known to fail, as the user wrote them.
    pub(super) known_failing: Vec<String>,
}

/// Cases of one judge run.
#[derive(Debug, Clone, Default)]
pub(super) struct JudgedCases<'a> {
    /// The cases to run; `None` runs all.
    pub(super) run: Option<Vec<&'a str>>,
    /// Cases known to fail; `None` passes the user's patterns to the judge.
    pub(super) known_failing: Option<BTreeSet<&'a str>>,
    pub(super) known_flaky: BTreeSet<&'a str>,
}

pub(super) struct Judge {
    child: SpawnedChild,
    exit: ProcessExitWatch,
    stdout: OutputReader,
    stderr: OutputReader,
    /// Bytes of standard error that have been returned as lines.
    shown: usize,
    _dir: SocketDir,
}

/// Reads one output of the judge.
struct OutputReader {
    /// `None` after its end.
    pipe: Option<Receiver>,
    text: Vec<u8>,
}

impl OutputReader {
    fn new(pipe: OwnedFd) -> io::Result<Self> {
        Ok(Self { pipe: Some(Receiver::from_owned_fd(pipe)?), text: Vec::new() })
    }

    /// Reads available bytes and returns their number. After the end, the future never completes.
    ///
    /// Cancel safe: yes, because a dropped future has read nothing.
    async fn read(&mut self) -> io::Result<usize> {
        let Some(pipe) = &mut self.pipe else { return std::future::pending().await };
        let count = pipe.read_buf(&mut self.text).await?;
        if count == 0 {
            self.pipe = None;
        }
        Ok(count)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.text).into_owned()
    }
}

pub(super) enum JudgeEvent {
    /// Complete lines on standard error.
    Lines(Vec<String>),
    /// Bytes on standard output, which the judge writes at its end.
    Progress,
    Exited,
}

impl Judge {
    /// Starts the judge; the listener accepts its client process (`heeler connect forward`).
    ///
    /// # Errors
    /// The judge can't be started.
    pub(super) fn start(
        command: &JudgeCommand,
        cases: &JudgedCases<'_>,
    ) -> Result<(Self, LocalListener), JudgeError> {
        let dir = socket_dir().map_err(JudgeError::Directory)?;
        let socket = dir.path().join("client");
        let listener = LocalListener::bind(&socket).map_err(JudgeError::Listen)?;
        let (stdout, their_stdout) = pipe().map_err(JudgeError::Connect)?;
        let (stderr, their_stderr) = pipe().map_err(JudgeError::Connect)?;
        let options = SpawnOptions {
            args: arguments(command, cases, dir.path(), &socket)?,
            stdout: ChildStdio::Fd(their_stdout),
            stderr: ChildStdio::Fd(their_stderr),
            ..SpawnOptions::new(&command.program)
        };
        let child = spawn(options).map_err(JudgeError::Start)?;
        let exit = ProcessExitWatch::watch(child.pid()).map_err(JudgeError::Connect)?;
        let stdout = OutputReader::new(stdout).map_err(JudgeError::Connect)?;
        let stderr = OutputReader::new(stderr).map_err(JudgeError::Connect)?;
        Ok((Self { child, exit, stdout, stderr, shown: 0, _dir: dir }, listener))
    }

    pub(super) fn pid(&self) -> u32 {
        u32::try_from(self.child.pid().0).unwrap_or_default()
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// The outputs can't be read, or are too large.
    ///
    /// Cancel safe: yes, because everything read is kept.
    pub(super) async fn next_event(&mut self) -> Result<JudgeEvent, JudgeError> {
        tokio::select! {
            read = self.stderr.read() => {
                read.map_err(JudgeError::Output)?;
                self.check_size()?;
                Ok(JudgeEvent::Lines(self.new_lines()))
            }
            read = self.stdout.read() => {
                read.map_err(JudgeError::Output)?;
                self.check_size()?;
                Ok(JudgeEvent::Progress)
            }
            () = self.exit.wait() => Ok(JudgeEvent::Exited),
        }
    }

    fn check_size(&self) -> Result<(), JudgeError> {
        let size = self.stdout.text.len() + self.stderr.text.len();
        if size > OUTPUT_LIMIT_BYTES { Err(JudgeError::OutputLimit) } else { Ok(()) }
    }

    /// Takes the complete lines of standard error that have not been returned yet.
    fn new_lines(&mut self) -> Vec<String> {
        let new = &self.stderr.text[self.shown..];
        let end = new.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines = String::from_utf8_lossy(&new[..end]).lines().map(str::to_owned).collect();
        self.shown += end;
        lines
    }

    /// Returns the report after the judge has exited. `has_asked`: whether the judge's client has connected.
    ///
    /// # Errors
    /// The judge printed no report.
    ///
    /// Cancel safe: no, because the exit status would be lost.
    pub(super) async fn report(mut self, has_asked: bool) -> Result<JudgeReport, JudgeError> {
        let exit = self.child.wait().map_err(JudgeError::Connect)?;
        let deadline = Instant::now() + OUTPUT_END_LIMIT;
        while self.stdout.pipe.is_some() || self.stderr.pipe.is_some() {
            let read = tokio::select! {
                read = self.stdout.read() => read,
                read = self.stderr.read() => read,
                () = sleep_until(deadline) => break,
            };
            read.map_err(JudgeError::Output)?;
            self.check_size()?;
        }
        read_report(exit, &self.stdout.text(), &self.stderr.text(), has_asked)
    }

    /// Ends the judge and every process in its group.
    ///
    /// Cancel safe: no, because the judge would then run until this process ends.
    pub(super) async fn end(mut self) {
        for signal in [Signal::TERM, Signal::KILL] {
            // Fails only if the whole group is gone.
            let _gone = kill_group(self.child.pid(), signal);
            let exited = tokio::time::timeout(GRACE_PERIOD, self.exit.wait()).await;
            if exited.is_ok() && signal == Signal::KILL {
                let _reaped = self.child.try_wait();
            }
        }
    }
}

/// Returns the report of a judge with this exit status and these outputs.
fn read_report(
    exit: ExitStatus,
    stdout: &str,
    stderr: &str,
    has_asked: bool,
) -> Result<JudgeReport, JudgeError> {
    let lines: Vec<_> = stderr.lines().collect();
    let shown = lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n");
    let below = if shown.is_empty() { String::new() } else { format!(":\n{shown}") };
    if let Some(signal) = exit.signal {
        return Err(JudgeError::Killed { signal: Signal(signal).name(), stderr: below });
    }
    let code = exit.code.unwrap_or_default();
    match parse_judge_report(stdout) {
        Ok(report) => Ok(report),
        Err(_) if !has_asked && stdout.is_empty() => Err(JudgeError::Refused { code, stderr: shown }),
        Err(source) => Err(JudgeError::Report { code, stderr: below, source }),
    }
}

fn arguments(
    command: &JudgeCommand,
    cases: &JudgedCases<'_>,
    dir: &Path,
    socket: &Path,
) -> Result<Vec<OsString>, JudgeError> {
    let mut args: Vec<OsString> = vec!["--mode".into(), "client".into()];
    if let Some(config) = &command.config {
        args.extend(["--conf".into(), config.into()]);
    }
    if let Some(run) = &cases.run {
        args.extend(["--run".into(), list_file(dir, "run", run.iter())?]);
    }
    match &cases.known_failing {
        // The judge rejects a pattern that matches no case of the run, so known failures are passed by name,
        // and only if there are any.
        Some(names) if names.is_empty() => {}
        Some(names) => {
            args.extend(["--known-failing".into(), list_file(dir, "known-failing", names.iter())?])
        }
        None => {
            for pattern in &command.known_failing {
                args.extend(["--known-failing".into(), pattern.into()]);
            }
        }
    }
    if !cases.known_flaky.is_empty() {
        let list = list_file(dir, "known-flaky", cases.known_flaky.iter())?;
        args.extend(["--known-flaky".into(), list]);
    }
    args.extend(["--".into(), shared_program_path().into()]);
    args.extend(["connect".into(), "forward".into(), socket.into()]);
    Ok(args)
}

/// Writes a list of cases, one pattern per line, and returns the argument that refers to the file.
fn list_file<'a>(
    dir: &Path,
    name: &str,
    cases: impl Iterator<Item = &'a &'a str>,
) -> Result<OsString, JudgeError> {
    let path = dir.join(name);
    let text: String = cases.flat_map(|case| [case, "\n"]).collect();
    write_new_file(&path, text.as_bytes()).map_err(JudgeError::List)?;
    let mut argument = OsString::from("@");
    argument.push(path);
    Ok(argument)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(code: Option<i32>, signal: Option<i32>) -> ExitStatus {
        ExitStatus { code, signal, has_core: false, cpu: Duration::ZERO, peak_kib: 0 }
    }

    fn error(exit: ExitStatus, stdout: &str, stderr: &str, has_asked: bool) -> String {
        heeler_core::error_chain(&read_report(exit, stdout, stderr, has_asked).unwrap_err())
    }

    #[test]
    fn every_end_of_a_judge_is_told_apart() {
        let report = "Total cases: 1\n1 passed, 0 failed\n";
        assert_eq!(read_report(exit(Some(0), None), report, "", true).unwrap().passed, 1);
        assert_eq!(
            error(exit(None, Some(9)), report, "", true),
            "the judge was killed by SIGKILL before it reported its verdicts"
        );
        assert_eq!(
            error(exit(Some(1), None), "", "x.yaml: unknown field \"y\"\n", false),
            "the judge exited with code 1 before it requested a case:\nx.yaml: unknown field \"y\""
        );
        let cut = error(exit(Some(1), None), "Total cases: 1\n", "lost\n", true);
        assert!(cut.starts_with("the judge exited with code 1 without a readable report:\nlost: "), "{cut}");
    }

    #[test]
    fn lists_of_cases_are_files_that_the_judge_reads() {
        let dir = tempfile::tempdir().unwrap();
        let command = JudgeCommand {
            program: "judge".into(),
            config: Some("c.yaml".into()),
            known_failing: vec!["a/**".to_owned()],
        };
        let all = arguments(&command, &JudgedCases::default(), dir.path(), Path::new("/s")).unwrap();
        let expected = ["--mode", "client", "--conf", "c.yaml", "--known-failing", "a/**", "--"];
        assert_eq!(&all[..7], expected);
        assert_eq!(&all[8..], ["connect", "forward", "/s"]);
        let some = JudgedCases {
            run: Some(vec!["A b/c", "D"]),
            known_failing: Some(BTreeSet::from(["D"])),
            known_flaky: BTreeSet::from(["A b/c"]),
        };
        let words = arguments(&command, &some, dir.path(), Path::new("/s")).unwrap();
        let file = |word: &OsString| {
            std::fs::read_to_string(word.to_str().unwrap().strip_prefix('@').unwrap()).unwrap()
        };
        assert_eq!((&words[4], file(&words[5]).as_str()), (&"--run".into(), "A b/c\nD\n"));
        assert_eq!((&words[6], file(&words[7]).as_str()), (&"--known-failing".into(), "D\n"));
        assert_eq!((&words[8], file(&words[9]).as_str()), (&"--known-flaky".into(), "A b/c\n"));
    }
}
