//! The judge: writes cases, reads answers, and carries out the faults of its own side.

use std::{
    io::{BufReader, Write as _},
    os::unix::fs::symlink,
    path::Path,
    process::{ChildStdin, ChildStdout, Command},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{
    client_program::client_program,
    messages::{CaseAnswer, read_answer, request},
    plan::ConnectPlan,
};
use crate::{
    heeler_process::{HeelerProcess, heeler},
    injector::{RoundClient, RoundProgress},
    planned_faults::{InjectedAction, environment_of},
    support::process::{children, signal_if_there, wait_until},
    traffic_record::TrafficRecord,
};

/// The judge and the relay that it started.
pub(crate) struct Judge {
    pub(crate) process: HeelerProcess,
    pub(crate) record: Arc<TrafficRecord<CaseAnswer>>,
    stdin: Mutex<Option<ChildStdin>>,
    /// Process id of the relay. If the judge is a separate process, `process` is the judge.
    relay: u32,
    has_process: bool,
    /// Set when the judge stops reading.
    is_gone: Arc<AtomicBool>,
}

impl Judge {
    /// Starts the relay.
    pub(crate) fn start(plan: &ConnectPlan, dir: &Path, mark: &str) -> Self {
        symlink(client_program(), dir.join("connect-client")).unwrap();
        let mut relay = heeler(dir, mark);
        relay.envs(environment_of(&plan.faults, &plan.clock, dir)).args(["connect", "relay", "--timeout"]);
        relay.arg(format!("{}ms", plan.timeout.as_millis())).arg("-j").arg(plan.settings.jobs.to_string());
        relay.args(plan.settings.is_isolated.then_some("--isolate")).args(["--", "./connect-client"]);
        let command = if plan.judge.is_process { below_a_shell(&relay) } else { relay };
        let process = HeelerProcess::start(command);
        let relay = if plan.judge.is_process {
            let started = || children(process.pid).first().map(|pid| pid.as_u32());
            wait_until("the judge has started the relay", || started().is_some() || process.has_exited());
            started().unwrap_or(process.pid)
        } else {
            process.pid
        };
        let (stdin, stdout) = {
            let mut child = process.child.lock().unwrap();
            (child.stdin.take(), child.stdout.take().unwrap())
        };
        let is_gone = Arc::new(AtomicBool::new(false));
        let reader = reader_of_answers(stdout, Arc::clone(&is_gone));
        let record = TrafficRecord::of_reader(reader, plan.judge.per_answer);
        let has_process = plan.judge.is_process;
        Self { process, record, stdin: Mutex::new(stdin), relay, has_process, is_gone }
    }

    /// Writes several cases at once. Errors are ignored: other checks detect a dead relay.
    pub(crate) fn ask<'a>(&self, names: impl Iterator<Item = &'a str>) {
        let requests: Vec<u8> = names.flat_map(request).collect();
        let Some(mut stdin) = self.stdin.lock().unwrap().take() else { return };
        stdin.write_all(&requests).and_then(|()| stdin.flush()).ok();
        if !self.record.is_left() {
            *self.stdin.lock().unwrap() = Some(stdin);
        }
    }

    pub(crate) fn relay(&self) -> u32 {
        self.relay
    }

    /// Closes the judge's output, which ends the cases.
    pub(crate) fn close_output(&self) {
        drop(self.stdin.lock().unwrap().take());
    }
}

/// Returns a reader of answers. When the judge is gone, the reader closes its stream at the next answer.
fn reader_of_answers(
    from: ChildStdout,
    is_gone: Arc<AtomicBool>,
) -> impl FnMut() -> Option<CaseAnswer> + Send + 'static {
    let mut from = Some(BufReader::new(from));
    move || {
        let answer = read_answer(from.as_mut()?);
        if is_gone.load(Ordering::SeqCst) {
            from = None;
        }
        answer
    }
}

/// Wraps a command in a shell process that shares its streams.
fn below_a_shell(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$@\"; exit $?", "judge"]).arg(command.get_program()).args(command.get_args());
    shell.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.current_dir(command.get_current_dir().expect("a round has a directory"));
    shell
}

impl RoundClient for Judge {
    fn coordinator(&self) -> u32 {
        self.relay
    }

    fn updates(&self) -> usize {
        self.record.received()
    }

    fn has_completed_run(&self) -> bool {
        // The judge does not receive the ends of runs.
        false
    }

    fn act(&self, action: InjectedAction, progress: &RoundProgress) -> Option<String> {
        match action {
            InjectedAction::StopReadingMain(pause) => {
                self.record.set_paused(true);
                progress.wait_for(pause);
                self.record.set_paused(false);
                Some("the judge".to_owned())
            }
            InjectedAction::Disconnect => {
                self.is_gone.store(true, Ordering::SeqCst);
                self.record.leave();
                self.close_output();
                Some("the judge".to_owned())
            }
            InjectedAction::KillClient if self.has_process => {
                self.record.leave();
                signal_if_there(self.process.pid, "KILL").then(|| "the judge's process".to_owned())
            }
            // Never drawn for this protocol, or injected without the judge.
            _ => None,
        }
    }
}
