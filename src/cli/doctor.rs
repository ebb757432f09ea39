//! `heeler doctor`: checks this machine for crash capture, cgroups, limits, a writable state directory and
//! the tools of test frameworks, and prints the consequences. Lists the runs that share the machine's slots.

mod slots;
mod tools;

use std::{io::Write, os::fd::OwnedFd, path::Path, time::Duration};

use heeler_protocol::control::{
    CrashReport, DumpKinds, FromGuard, OsText, TestCommand, ToGuard, TraceMode, TracePlan,
};
use heeler_sys::{
    cgroup::{self, CgroupParent},
    spawn::{ChildStdio, SpawnOptions, spawn},
};
use heeler_transport::control::{ControlReceiver, ControlSender, ReceivedPacket};
use tokio::time::{Instant, timeout_at};

use super::{
    arguments::GeneralArguments,
    exit::{CliExitCode, CommandError},
    machine::MachineFacts,
};
use heeler_config::ResolvedSettings;

/// Hidden role that aborts on purpose, for the trial of crash capture.
pub const CRASH_ROLE: &str = "__crash";

/// Time limit of the crash capture trial. The trial normally takes a tenth of a second; only an overloaded
/// machine needs longer.
const TRIAL_DEADLINE: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FindingRating {
    Good,
    Limited,
    Info,
}

struct DoctorFinding {
    rating: FindingRating,
    subject: &'static str,
    text: String,
}

pub(super) async fn check_machine(general: &GeneralArguments) -> Result<CliExitCode, CommandError> {
    let config = super::configuration::load_config(general.config_file.as_deref())?;
    let settings =
        ResolvedSettings::resolve(&config, general.command_line()).map_err(CommandError::Profile)?;
    let mut findings = vec![check_crash_capture().await];
    findings.extend([
        check_ptrace_scope(),
        check_seccomp(),
        check_core_pattern(),
        check_control_groups(),
        check_state_dir(&settings.state_dir),
    ]);
    findings.extend(tools::check_tools().await);
    findings.extend(describe_machine());
    findings.extend(slots::check_slots(settings.machine));
    let is_less = findings.iter().any(|finding| finding.rating == FindingRating::Limited);
    let mut text = String::new();
    for DoctorFinding { rating: mark, subject: what, text: words } in &findings {
        let mark = match mark {
            FindingRating::Good => "ok  ",
            FindingRating::Limited => "WARN",
            FindingRating::Info => "    ",
        };
        text.push_str(&format!("{mark}  {what:<14} {words}\n"));
    }
    // A closed pipe (`heeler doctor | head`) is not an error.
    let _closed = std::io::stdout().write_all(text.as_bytes());
    Ok(if is_less { CliExitCode::Setup } else { CliExitCode::Success })
}

/// Runs an aborting program under a guard, as a worker runs a test.
async fn check_crash_capture() -> DoctorFinding {
    let what = "crash capture";
    let outcome = match heeler_sys::dirs::scratch_dir(&heeler_sys::dirs::temporary_dir()) {
        Ok(dir) => {
            let outcome = run_crash_trial(&dir).await;
            if let Err(error) = std::fs::remove_dir_all(&dir) {
                tracing::debug!(%error, dir = %dir.display(), "failed to remove the directory of the check");
            }
            outcome
        }
        Err(error) => Err(heeler_core::error_chain(&error)),
    };
    match outcome {
        Ok(CrashTrialResult::Captured(report)) => describe_capture(what, &report),
        Ok(CrashTrialResult::Untraced(reason)) => DoctorFinding {
            rating: FindingRating::Limited,
            subject: what,
            text: format!(
                "not available: {reason}; crashes are reported with their signal, but without stack and dump"
            ),
        },
        Err(error) => DoctorFinding {
            rating: FindingRating::Limited,
            subject: what,
            text: format!("the check failed: {error}"),
        },
    }
}

fn describe_capture(what: &'static str, report: &CrashReport) -> DoctorFinding {
    let has_stack = report.stack.contains("abort");
    let dump = if report.dump.is_some() { "minidump written" } else { "no minidump written" };
    let stack = if has_stack { "stack symbolized" } else { "stack not symbolized" };
    let errors = report.soft_errors.join("; ");
    let mark = if report.dump.is_some() && has_stack { FindingRating::Good } else { FindingRating::Limited };
    let errors = if errors.is_empty() { String::new() } else { format!(" ({errors})") };
    DoctorFinding { rating: mark, subject: what, text: format!("captured a crash: {stack}, {dump}{errors}") }
}

enum CrashTrialResult {
    Captured(Box<CrashReport>),
    Untraced(String),
}

async fn run_crash_trial(dir: &Path) -> Result<CrashTrialResult, String> {
    let (ours, theirs) = heeler_sys::io::socket_pair().map_err(|error| error.to_string())?;
    let guard = SpawnOptions {
        args: vec!["__guard".into()],
        stdin: ChildStdio::Fd(theirs),
        stdout: ChildStdio::Null,
        stderr: ChildStdio::Null,
        ..SpawnOptions::new(heeler_sys::process::own_program_path())
    };
    let mut child = spawn(guard).map_err(|error| heeler_core::error_chain(&error))?;
    let stream = connect(ours).map_err(|error| error.to_string())?;
    let (sender, receiver, _task) = heeler_transport::control::open_without_heartbeat(stream);
    let outcome = await_crash_report(&sender, receiver, dir).await;
    if let Err(error) = child.signal(heeler_sys::process::Signal::KILL) {
        tracing::debug!(%error, "the guard of the check had already exited");
    }
    if let Err(error) = child.wait() {
        tracing::debug!(%error, "failed to wait for the guard of the check");
    }
    outcome
}

fn connect(socket: OwnedFd) -> std::io::Result<tokio::net::UnixStream> {
    let stream = std::os::unix::net::UnixStream::from(socket);
    stream.set_nonblocking(true)?;
    tokio::net::UnixStream::from_std(stream)
}

async fn await_crash_report(
    sender: &ControlSender,
    mut receiver: ControlReceiver,
    dir: &Path,
) -> Result<CrashTrialResult, String> {
    // Ask the guard to run the aborting program.
    let command = TestCommand {
        program: OsText::from(
            heeler_sys::process::own_program_path()
                .canonicalize()
                .map_err(|error| error.to_string())?
                .as_path(),
        ),
        args: vec![OsText::from(CRASH_ROLE)],
        env: Vec::new(),
        cwd: OsText::from(dir),
        memory_bytes: None,
        is_stopped_at_start: false,
        is_channel_standard_input: false,
        trace: Some(TracePlan {
            // The aborting program is Heeler itself, which traces processes; the default mode would leave
            // such a program untraced.
            mode: TraceMode::Tree,
            dumps: DumpKinds { crash: true, hang: false },
            dir: OsText::from(dir),
            name: "trial".to_owned(),
            limit_bytes: 0,
            keeps_environment: false,
            expected_crash_markers: Vec::new(),
            is_tracer_read_by_framework: false,
            run_mark: None,
        }),
    };
    sender.send(&ToGuard::Exec(command)).await.map_err(|error| error.to_string())?;
    // Wait for the crash report.
    let deadline = Instant::now() + TRIAL_DEADLINE;
    let mut outcome = None;
    loop {
        let next = timeout_at(deadline, receiver.next::<FromGuard>()).await;
        let message = match next {
            Ok(Ok(Some(ReceivedPacket::Message(message)))) => message,
            Ok(Ok(Some(ReceivedPacket::Forward { .. }) | None)) => break,
            Ok(Err(error)) => return Err(heeler_core::error_chain(&error)),
            Err(_elapsed) => return Err(format!("no answer within {} s", TRIAL_DEADLINE.as_secs())),
        };
        match message {
            FromGuard::Crashed(report) => outcome = Some(CrashTrialResult::Captured(Box::new(report))),
            FromGuard::Untraced { reason } => outcome = Some(CrashTrialResult::Untraced(reason)),
            FromGuard::StartFailed { error } => return Err(error),
            FromGuard::Ended(_) => break,
            FromGuard::Started { .. }
            | FromGuard::Paused
            | FromGuard::Sampled(_)
            | FromGuard::Dumped(_)
            | FromGuard::StoppedAtStart { .. }
            | FromGuard::DebuggerExited
            | FromGuard::ExitedInRun { .. } => {}
        }
    }
    outcome.ok_or_else(|| "the crash was not captured".to_owned())
}

fn check_ptrace_scope() -> DoctorFinding {
    let what = "ptrace scope";
    let Ok(scope) = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope") else {
        return DoctorFinding {
            rating: FindingRating::Info,
            subject: what,
            text: "no restrictions (no Yama in this kernel)".to_owned(),
        };
    };
    let words = match scope.trim() {
        "0" => "0: no restrictions",
        "1" => "1: only descendants can be traced, which is enough for Heeler",
        "2" => "2: tracing requires CAP_SYS_PTRACE",
        _ => "3: tracing is disabled until the next boot",
    };
    let mark = if matches!(scope.trim(), "0" | "1") { FindingRating::Info } else { FindingRating::Limited };
    DoctorFinding { rating: mark, subject: what, text: words.to_owned() }
}

fn check_seccomp() -> DoctorFinding {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:")).map_or("", str::trim);
    let words = match mode {
        "0" => "this process is not filtered",
        "2" => "this process is filtered; the crash capture check above shows whether that matters",
        _ => "unknown",
    };
    DoctorFinding { rating: FindingRating::Info, subject: "seccomp", text: words.to_owned() }
}

fn check_core_pattern() -> DoctorFinding {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let pattern = pattern.trim();
    let words = match pattern {
        "" => "failed to read /proc/sys/kernel/core_pattern".to_owned(),
        _ if pattern.starts_with('|') => format!("core files are piped to a program: {pattern}"),
        _ => format!("core files are named {pattern:?}, if ulimit -c allows them"),
    };
    DoctorFinding { rating: FindingRating::Info, subject: "core files", text: words }
}

/// Creates a control group, and moves this process into the group and back.
fn check_control_groups() -> DoctorFinding {
    let what = "control groups";
    const LOOKING: &str = "max-memory is enforced by sampling every 100 ms";
    let place = match CgroupParent::find() {
        Ok(place) => place,
        Err(error) => {
            let words = format!("failed to {}; {LOOKING}", heeler_core::error_chain(&error));
            return DoctorFinding { rating: FindingRating::Info, subject: what, text: words };
        }
    };
    let dir = place.dir().display();
    let words = match cgroup::probe_move(&place) {
        Err(error) => format!("failed to move a process to a cgroup in {dir} ({error}); {LOOKING}"),
        Ok(()) if place.has_memory() => format!("{dir} is delegated; the kernel enforces max-memory"),
        Ok(()) => format!(
            "{dir} is delegated, but without the memory controller; {LOOKING}; process trees are still killed at once"
        ),
    };
    DoctorFinding { rating: FindingRating::Info, subject: what, text: words }
}

fn check_state_dir(dir: &Path) -> DoctorFinding {
    let what = "state";
    let place = dir.ancestors().find(|place| place.is_dir()).unwrap_or(Path::new("."));
    let trial = place.join(format!(".heeler-doctor-{}", std::process::id()));
    let is_writable =
        heeler_sys::dirs::write_new_file(&trial, b"x").and_then(|()| std::fs::remove_file(&trial));
    let free = heeler_sys::dirs::free_bytes(place)
        .map_or_else(|_| "unknown".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
    match is_writable {
        Ok(()) => DoctorFinding {
            rating: FindingRating::Good,
            subject: what,
            text: format!("{} is writable, {free} free", dir.display()),
        },
        Err(error) => DoctorFinding {
            rating: FindingRating::Limited,
            subject: what,
            text: format!(
                "{} is not writable ({error}); journals and dumps go to the temporary directory",
                dir.display()
            ),
        },
    }
}

/// Returns other load on this machine. Lack of memory or cores slows a run or gets it killed.
fn describe_machine() -> Vec<DoctorFinding> {
    let info = |subject, text| DoctorFinding { rating: FindingRating::Info, subject, text };
    let facts = match MachineFacts::read() {
        Ok(facts) => facts,
        Err(error) => return vec![info("memory", format!("unknown: {error}"))],
    };
    let mut findings = vec![
        info("processors", facts.describe_cores()),
        info("load", facts.describe_load()),
        info("memory", facts.describe_memory()),
        info("pressure", facts.describe_pressure()),
    ];
    findings.push(info("heeler", facts.describe_own_processes()));
    findings
}
