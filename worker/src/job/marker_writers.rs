//! Finds the time spans when only the test process could write its framework's markers. A forked copy that
//! returns from a test, or another instance of the program started by a test, writes the same markers.

use std::time::Duration;

use heeler_sys::process::{Pid, TreeSnapshot};

use crate::batch::SoleWriterSpan;

/// Last known set of processes that may write markers.
#[derive(Debug, Default)]
pub(super) struct MarkerWriters {
    last: Option<(TreeSnapshot, Duration)>,
}

/// Snapshot of a process tree, taken before output is read.
pub(super) struct WriterSample {
    tree: TreeSnapshot,
    taken_at: Duration,
}

impl WriterSample {
    /// Samples the tree below `root` at this running time. `None` if `root` no longer runs; its exit then
    /// decides.
    pub(super) fn take(root: Pid, now: Duration) -> Option<Self> {
        TreeSnapshot::of_running(root).map(|tree| Self { tree, taken_at: now })
    }
}

impl MarkerWriters {
    /// Records a sample. By `read_at`, everything written before the sample had been read. Returns the time
    /// span that ends with the sample, or `None` if another process may have written in that time.
    ///
    /// A copy that is alive is visible in the sample. A copy that lived and ended within the span has changed
    /// its parent's child count.
    pub(super) fn record(&mut self, sample: WriterSample, read_at: Duration) -> Option<SoleWriterSpan> {
        let WriterSample { tree, taken_at: until } = sample;
        let after = match &self.last {
            _ if tree.is_single_process() => Some(Duration::ZERO),
            Some((last, read_at)) if *last == tree && !tree.has_forked_copy() => Some(*read_at),
            Some(_) | None => None,
        };
        self.last = Some((tree, read_at));
        after.map(|after| SoleWriterSpan { after, until })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        process::{Child, Command, Stdio},
    };

    use super::*;

    /// A shell that executes its input and answers each line.
    struct Shell(Child);

    impl Shell {
        #[expect(clippy::disallowed_methods, reason = "the shell is the process that is looked at")]
        fn start() -> Self {
            let mut command = Command::new("/bin/sh");
            Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
        }

        fn run(&mut self, line: &str) {
            writeln!(self.0.stdin.as_ref().unwrap(), "{line}\necho").unwrap();
            let mut answer = [0];
            self.0.stdout.as_mut().unwrap().read_exact(&mut answer).unwrap();
        }

        fn pid(&self) -> Pid {
            Pid(i32::try_from(self.0.id()).unwrap())
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            drop(self.0.kill());
            drop(self.0.wait());
        }
    }

    fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    #[test]
    fn process_without_children_has_written_everything_itself() {
        let mut shell = Shell::start();
        shell.run("x=1");
        let mut writers = MarkerWriters::default();
        for second in [1, 2] {
            let span = writers.record(WriterSample::take(shell.pid(), at(second)).unwrap(), at(second + 1));
            assert_eq!(span, Some(SoleWriterSpan { after: at(0), until: at(second) }));
        }
    }

    #[test]
    fn span_in_which_a_child_has_ended_proves_nothing() {
        let mut shell = Shell::start();
        let mut writers = MarkerWriters::default();
        let mut span = |shell: &Shell, second| {
            writers.record(WriterSample::take(shell.pid(), at(second)).unwrap(), at(second + 1))
        };
        shell.run("(exit 3)");
        assert_eq!(span(&shell, 1), None);
        assert_eq!(span(&shell, 5), Some(SoleWriterSpan { after: at(2), until: at(5) }));
        shell.run("(exit 3)");
        assert_eq!(span(&shell, 8), None, "it was waited for");
    }

    #[test]
    fn process_that_has_ended_or_is_stopped_proves_nothing() {
        let mut shell = Shell::start();
        shell.run("x=1");
        assert!(WriterSample::take(shell.pid(), at(1)).is_some());
        shell.0.kill().unwrap();
        shell.0.wait().unwrap();
        assert!(WriterSample::take(shell.pid(), at(1)).is_none());
    }

    #[test]
    fn forked_copy_may_write_and_another_program_may_not() {
        let mut shell = Shell::start();
        let mut writers = MarkerWriters::default();
        let mut span = |shell: &Shell, second| {
            writers.record(WriterSample::take(shell.pid(), at(second)).unwrap(), at(second + 1))
        };
        shell.run("while kill -0 $$; do :; done 2> /dev/null &");
        assert_eq!(span(&shell, 1), None);
        assert_eq!(span(&shell, 3), None, "nothing has changed, but the copy lives");
        shell.run("kill $!; wait; tail --pid=$$ -f /dev/null &");
        // Before the child has executed its program, it is a forked copy.
        assert!((5..10_000).any(|second| span(&shell, 2 * second).is_some()));
    }
}
