//! Dialogue with a test process: reads and parses its output, passes it to the batch, and sends requests.

use std::time::Duration;

use heeler_adapters::InvocationChannel;
use heeler_protocol::control::WorkerLease;
use heeler_sys::process::{self, Pid};

use super::{
    super::{
        marker_writers::WriterSample,
        output_writers::{EarlierResults, WrittenOutput},
        prepared_lease::listed_tests,
    },
    RunningProcess, TranscriptReader,
};
use crate::batch::{DialogueStall, RawOutputs, ReleaseConditions, SoleWriterSpan};

impl RunningProcess<'_> {
    /// Returns whether reading must wait: output can be attributed to writers only after the guard has
    /// reported which process it started.
    pub(super) fn awaits_root(&self) -> bool {
        self.root.is_none() && !self.is_over && self.process.channel() == InvocationChannel::OutputSocket
    }

    /// Reads the outputs and returns what is known about the processes that wrote them.
    pub(super) fn read_outputs_and_writers(&mut self) -> ReleaseConditions {
        let names_writers = self.process.channel() == InvocationChannel::OutputSocket;
        let until = self.clock.now().running;
        // A stopped process may be about to exit, and its exit then decides.
        let is_running = || self.root.and_then(process::stat).is_some_and(|stat| stat.is_running());
        let own = (names_writers && self.writers.is_main_known() && is_running())
            .then_some(SoleWriterSpan { after: Duration::ZERO, until });
        let sample = self.root.filter(|_| !names_writers).and_then(|root| WriterSample::take(root, until));
        self.read_outputs();
        let read_at = self.clock.now().running;
        let alone = own.or_else(|| sample.and_then(|sample| self.marker_writers.record(sample, read_at)));
        ReleaseConditions {
            doubtful_since: self.reader.transcript.doubtful_since(),
            is_complete: self.reader.transcript.is_complete(),
            alone,
        }
    }

    /// Checks the held tests, using what is known about the writers of the output.
    pub(super) fn check_held_tests(&mut self) {
        let conditions = self.read_outputs_and_writers();
        self.batch.check_held_tests(self.clock.now(), conditions, self.sink);
        self.sink.try_send_batch();
    }

    /// Reads and handles the available output.
    pub(super) fn read_outputs(&mut self) {
        if self.awaits_root() {
            return;
        }
        let channel = self.process.channel();
        let TranscriptReader { transcript, events, .. } = &mut self.reader;
        let read = self
            .process
            .read_outputs(|connection, input| transcript.on_connection(connection, input, events));
        self.death_files.on_stderr(read.stderr);
        self.death_files.on_stdout(read.stdout);
        let mut withdraws = false;
        let mut outputs = RawOutputs { stdout: read.stdout, stderr: read.stderr };
        // Parse the output as its channel requires.
        match channel {
            InvocationChannel::Connections => {}
            InvocationChannel::Descriptor => {
                if transcript.on_outputs(read.stdout, read.stderr, events) {
                    outputs = RawOutputs::default();
                }
            }
            InvocationChannel::StandardStreams | InvocationChannel::SocketStreams => outputs.stdout = &[],
            InvocationChannel::OutputSocket | InvocationChannel::CombinedSocket => {
                outputs.stdout = &[];
                let mut rest = read.stdout;
                let tests = || listed_tests(&self.batch);
                for piece in read.stdout_pieces {
                    let (bytes, behind) = rest.split_at(piece.bytes);
                    rest = behind;
                    // Bytes without a writer belong to the process itself: its guard may have written them.
                    let root = self.root.or(piece.writer).unwrap_or(Pid::own());
                    let writer = piece.writer.unwrap_or(root);
                    let written = WrittenOutput { root, writer, bytes };
                    withdraws |=
                        self.writers.read(written, &tests, transcript, events) == EarlierResults::Withdrawn;
                }
            }
            InvocationChannel::StandardOutput | InvocationChannel::CombinedOutput => {
                outputs.stdout = &[];
                if !read.stdout.is_empty() {
                    transcript.on_stdout(read.stdout, events);
                }
            }
        }
        // Pass the events on to the batch.
        if self.writers.has_other_run() {
            self.batch.settlement.stream_names.set_socket(false);
        }
        if withdraws {
            self.batch.withdraw_all();
        }
        self.reader.pass_on(outputs, &self.clock, &mut self.batch, self.sink);
        // End the requests, or check whether the dialogue is stalled.
        let is_over = self.reader.transcript.is_over()
            && !self.extension.may_follow(&*self.reader.transcript, &self.batch);
        if is_over && self.cancel_request.is_empty() {
            self.finish_requests();
        }
        let stall = if self.process.has_unread_request() {
            Some(DialogueStall::RequestUnread)
        } else {
            self.process.has_closed_dialogue().then_some(DialogueStall::ReportsClosed)
        };
        self.batch.deadlines.dialogue.set_stall(stall, self.clock.now());
        if self.batch.deadlines.dialogue.awaits_requests_taken() {
            self.batch.deadlines.set_request_taken(!self.process.is_last_request_unread(), self.clock.now());
        }
    }

    /// Settles the ended tests whose results are proven.
    pub(super) fn settle_proven(&mut self) {
        // A snapshot of the processes only proves output that was read before the snapshot.
        self.read_outputs();
        let conditions = self.read_outputs_and_writers();
        self.batch.settle_proven(conditions, self.sink);
        self.sink.try_send_batch();
    }

    pub(super) fn extend(&mut self, lease: WorkerLease) {
        let transcript = &*self.reader.transcript;
        let Some(added) = self.extension.extend(lease, transcript, &mut self.batch, self.sink) else {
            return;
        };
        self.batch.deadlines.set_waiting(false, self.clock.now());
        let tests = &listed_tests(&self.batch)[added];
        let request = self.reader.transcript.add_tests(tests, &mut self.reader.events);
        self.process.send_request(request);
        self.reader.pass_on(RawOutputs::default(), &self.clock, &mut self.batch, self.sink);
        self.sink.try_send_batch();
    }

    /// Ends the requests, so that the process exits.
    pub(super) fn finish_requests(&mut self) {
        let request = self.reader.transcript.closing_request();
        self.process.send_request(request);
        self.process.finish_requests();
        if self.reader.transcript.has_forked_copies() {
            // A forked copy may have read the last request instead of the process.
            self.process.shut_down_requests();
        }
        self.batch.deadlines.set_waiting(false, self.clock.now());
        self.batch.deadlines.on_requests_finished(self.clock.now());
    }

    /// Sends the first request to a process that receives requests.
    pub(super) fn send_opening_request(&mut self) {
        let request = self.reader.transcript.opening_request(&mut self.reader.events);
        self.begins_with_process = !self.reader.events.is_empty();
        self.is_start_unknown |= self.begins_with_process;
        self.process.send_request(request);
        self.reader.pass_on(RawOutputs::default(), &self.clock, &mut self.batch, self.sink);
    }

    /// Reads the files that a process wrote about its death or hang.
    pub(super) fn read_death_files(&mut self) {
        let is_ending = self.process.is_terminating() || self.death_files.is_report_begun();
        let has_died = !is_ending && !self.reader.transcript.is_complete();
        if has_died {
            self.reader.read_death_evidence(&self.death_files, self.root, self.context);
        }
        let affected = self.batch.test_of_death(self.reader.transcript.culprit());
        let test = affected.as_ref().map(|(test, _)| &test.listed);
        if let Some((stacks, report)) = self.death_files.stacks(self.root, test, has_died) {
            self.diagnostics.record_runtime_report(stacks, report);
        }
    }
}
