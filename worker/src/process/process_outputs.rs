//! The worker's ends of a process's outputs: standard output, standard error, and the report channel or
//! connections.

use tokio::{
    task::yield_now,
    time::{Instant, sleep_until},
};

use super::{
    connections::{self, ProcessConnections},
    output_pipe::OutputPipe,
    report_channel::{self, ReportChannel},
};

/// The worker's ends of a process's outputs.
pub(crate) struct ProcessOutputs {
    pub(crate) stdout: OutputPipe,
    pub(crate) stderr: OutputPipe,
    /// Report channel, if the command has one.
    pub(crate) channel: Option<ReportChannel>,
    /// Connections of the process, if its command makes any.
    pub(crate) connections: Option<ProcessConnections>,
}

impl ProcessOutputs {
    /// Returns whether all outputs were read to their ends.
    pub(super) fn are_at_end(&self) -> bool {
        let is_channel_at_end = self.channel.as_ref().is_none_or(ReportChannel::is_at_end);
        let are_connections_at_end = self.connections.as_ref().is_none_or(ProcessConnections::are_at_end);
        self.stdout.is_at_end() && self.stderr.is_at_end() && is_channel_at_end && are_connections_at_end
    }

    /// Returns the largest number of unread bytes in any output.
    pub(super) fn unread_bytes(&self) -> u64 {
        let channel = self.channel.as_ref().map_or(0, ReportChannel::unread_bytes);
        let connections = self.connections.as_ref().map_or(0, ProcessConnections::unread_bytes);
        channel.max(connections).max(self.stdout.unread_bytes()).max(self.stderr.unread_bytes())
    }

    /// Waits until there is output to read.
    ///
    /// Cancel safe: yes, because it only waits for readiness.
    pub(super) async fn wait_readable(&self) {
        tokio::select! {
            () = self.stdout.wait_readable() => {}
            () = self.stderr.wait_readable() => {}
            () = report_channel::wait_ready(self.channel.as_ref()) => {}
            () = connections::wait_ready(self.connections.as_ref()) => {}
        }
    }

    /// Waits until there is output to read, then until `next_read_at` for more to arrive.
    ///
    /// Cancel safe: yes, because it only waits for readiness.
    pub(super) async fn wait_readable_after(&self, next_read_at: Instant) {
        let is_urgent = tokio::select! {
            () = self.stderr.wait_readable() => true,
            () = self.stdout.wait_readable() => false,
            () = report_channel::wait_ready(self.channel.as_ref()) => false,
            () = connections::wait_ready(self.connections.as_ref()) => true,
        };
        // The timer rounds up to a whole millisecond, even for a past time. A pipe that fills up must not
        // wait that long.
        if is_urgent || next_read_at <= Instant::now() {
            // Yield, because timers and other connections advance only while this task waits. Without
            // yielding, the task would never wait while the process writes faster than the worker reads.
            return yield_now().await;
        }
        tokio::select! {
            () = self.stderr.wait_readable() => {}
            () = sleep_until(next_read_at) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write as _};

    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test]
    async fn process_that_writes_without_end_lets_other_tasks_run() {
        let (stdout, writer) = OutputPipe::new().unwrap();
        let (stderr, _stderr_writer) = OutputPipe::new().unwrap();
        let outputs = ProcessOutputs { stdout, stderr, channel: None, connections: None };
        File::from(writer).write_all(b"y\ny\n").unwrap();
        outputs.wait_readable().await;
        let mut others = JoinSet::new();
        others.spawn(async {});
        outputs.wait_readable_after(Instant::now()).await;
        assert!(others.try_join_next().is_some());
    }
}
