//! The stack of a test process that exits by itself in the middle of its tests: it shows whether a test has
//! left the process or the tear-down of a suite, which neither the exit code nor the output does.

use heeler_crash::stacks::{self, RawStacks};
use heeler_sys::{
    process::{self, Pid},
    trace,
};

use super::{
    crash_handler::SYMBOLIZE_TIME_LIMIT,
    symbolizer::{self, SymbolDetail},
    thread_state,
    tracer::ProcessTracer,
};

/// Depth of the stack of an exit behind the return from `main`: the system call, a destructor or handler with
/// a function of its own, the functions of the C library around them, and the program's first.
const FRAMES_AFTER_MAIN: usize = 8;

/// The stack of an exit, which is symbolized when the process is gone.
pub(super) struct ExitStack {
    raw: RawStacks,
    detail: SymbolDetail,
}

impl ProcessTracer {
    /// Records the stack of the root's first thread, which is about to exit, if it has called the exit of the
    /// process, and the framework has not ended its run. A forked child may have ended the run in its place,
    /// so the stack of a process that had children is recorded in any case.
    pub(super) fn record_exit_stack(&mut self) {
        let Some(run_mark) = self.plan.run_mark.as_ref().filter(|_| !self.is_exit_requested) else { return };
        let detail = if run_mark.as_path().exists() {
            SymbolDetail::SourceLines(SYMBOLIZE_TIME_LIMIT)
        } else if process::has_had_children(self.root) {
            // Most likely the run has ended: this must not take long.
            SymbolDetail::Functions
        } else {
            return;
        };
        self.exit_stack = exit_stack(self.root).map(|raw| ExitStack { raw, detail });
    }

    /// Symbolizes the stack of the root's exit; `None` if there is none, or if nothing could be read.
    pub(super) fn take_exit_stack(&mut self) -> Option<String> {
        let ExitStack { raw, detail } = self.exit_stack.take()?;
        let named = symbolizer::symbolize(&[raw], detail);
        named.texts.into_iter().next().map(|texts| texts.crash).filter(|stack| !stack.is_empty())
    }
}

/// Returns the stack of a stopped thread that has called the exit of its process.
fn exit_stack(tid: Pid) -> Option<RawStacks> {
    let thread = thread_state::read_thread(tid)?;
    // Another thread may have called it while this one was anywhere.
    if thread.registers.general.system_call() != trace::EXIT_OF_PROCESS {
        return None;
    }
    // Without the stack, the exit code and the output decide, as for an untraced process. One from behind
    // `main` shows nothing, and names would cost each run of a small program more than its tests.
    stacks::unwind(tid, &[thread]).ok().filter(|stack| stack.depth() > FRAMES_AFTER_MAIN)
}
