//! The exit of a test process. If the process exits by itself in the middle of its tests, the stack trace is
//! captured. Unlike the exit code and the output, the stack trace shows whether a test or the tear-down of a
//! suite called exit.

use heeler_crash::stacks::{self, RawStacks};
use heeler_protocol::control::OsText;
use heeler_sys::{
    process::{self, ExitStatus, Pid, Signal},
    trace,
};

use super::{
    crash_handler::SYMBOLIZE_TIME_LIMIT,
    symbolizer::{self, SymbolDetail},
    thread_state,
};

/// Maximum stack depth of an exit after the return from `main`: the system call, a destructor or exit
/// handler, one function that it calls, the C library functions around them, and the program's first
/// function.
const FRAMES_AFTER_MAIN: usize = 8;

/// Stack trace of an exit, symbolized after the process is gone.
struct ExitStack {
    raw: RawStacks,
    detail: SymbolDetail,
}

pub(super) struct RootExit {
    root: Pid,
    /// File that exists while the framework runs tests.
    run_mark: Option<OsText>,
    is_requested: bool,
    status: Option<ExitStatus>,
    /// Stack trace of an exit in the middle of the tests.
    stack: Option<ExitStack>,
}

impl RootExit {
    pub(super) fn new(root: Pid, run_mark: Option<OsText>) -> Self {
        Self { root, run_mark, is_requested: false, status: None, stack: None }
    }

    pub(super) fn request(&mut self) {
        self.is_requested = true;
    }

    pub(super) fn is_requested(&self) -> bool {
        self.is_requested
    }

    pub(super) fn status(&self) -> Option<ExitStatus> {
        self.status
    }

    /// Records the exit of a thread if it is the root.
    pub(super) fn record(&mut self, tid: Pid, status: ExitStatus) {
        if tid == self.root {
            self.status = Some(status);
        }
    }

    /// Records an exit that can no longer be received. The dump writer waits for each thread that it attaches
    /// to. If the thread was killed meanwhile, that wait consumes its exit status.
    pub(super) fn record_missed(&mut self, process: Pid) {
        if process == self.root && self.status.is_none() && process::stat(process).is_none() {
            // A stopped process can only exit by SIGKILL.
            self.status = Some(ExitStatus { signal: Some(Signal::KILL.0), ..ExitStatus::default() });
        }
    }

    /// Records the stack of the root's first thread, which is about to exit. Only if the thread has called
    /// the exit of the process and the framework has not ended its run. If the process had children, the
    /// stack is recorded in any case, because a forked child may have ended the run in its place.
    pub(super) fn record_stack(&mut self) {
        let Some(run_mark) = self.run_mark.as_ref().filter(|_| !self.is_requested) else { return };
        let detail = if run_mark.as_path().exists() {
            SymbolDetail::SourceLines(SYMBOLIZE_TIME_LIMIT)
        } else if process::has_had_children(self.root) {
            // The run has probably ended, so this must be quick.
            SymbolDetail::Functions
        } else {
            return;
        };
        self.stack = exit_stack(self.root).map(|raw| ExitStack { raw, detail });
    }

    /// Symbolizes the stack of the root's exit. `None` if there is none, or if nothing could be read.
    pub(super) fn take_stack(&mut self) -> Option<String> {
        let ExitStack { raw, detail } = self.stack.take()?;
        let named = symbolizer::symbolize(&[raw], detail);
        named.texts.into_iter().next().map(|texts| texts.crash).filter(|stack| !stack.is_empty())
    }
}

/// Returns the stack of a stopped thread that has called the exit of its process.
fn exit_stack(tid: Pid) -> Option<RawStacks> {
    let thread = thread_state::read_thread(tid)?;
    // Otherwise another thread called exit, and the position of this thread proves nothing.
    if thread.registers.general.system_call() != trace::EXIT_OF_PROCESS {
        return None;
    }
    // Without a stack trace, the exit code and the output decide, as for an untraced process. A stack trace
    // from after `main` is useless, and symbolizing it would cost a small program more than its tests.
    stacks::unwind(tid, &[thread]).ok().filter(|stack| stack.depth() > FRAMES_AFTER_MAIN)
}

#[cfg(test)]
mod tests {
    use heeler_sys::{
        process::reap_child,
        spawn::{SpawnOptions, spawn},
    };

    use super::*;

    #[test]
    fn exit_consumed_by_another_wait_is_recorded() {
        let args = vec!["-c".into(), "kill -STOP $$".into()];
        let root = spawn(SpawnOptions { args, ..SpawnOptions::new("/bin/sh") }).unwrap();
        let mut exit = RootExit::new(root.pid(), None);
        exit.record_missed(root.pid());
        assert_eq!(exit.status(), None);
        root.signal(Signal::KILL).unwrap();
        // Consume the exit, as the dump writer does if a thread dies while the writer is attached.
        reap_child(root.pid()).unwrap();
        exit.record_missed(Pid::own());
        assert_eq!(exit.status(), None);
        exit.record_missed(root.pid());
        assert_eq!(exit.status().and_then(|exit| exit.signal), Some(Signal::KILL.0));
    }
}
