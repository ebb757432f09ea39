//! Decides which process's standard output is parsed, on systems where the kernel identifies the writer of
//! each byte. Only the output of the test process itself counts: a forked copy that returns from a test
//! continues the run and writes the same markers.
//!
//! ```text
//! undecided ── the started process reports a test ──────────────► parse its output; pass on all other output
//!     └─────── another process reports the first test ──► parse that process's output
//!                  └─ one of its ancestors reports a test ─► parse the ancestor's output instead, and
//!                                                            withdraw the results so far
//! ```
//!
//! A wrapper that only starts the test program reports no tests. Pure, except that it inspects processes.

use std::{io::Read as _, path::Path};

use heeler_adapters::{Adapter, TranscriptEvent, TranscriptParser};
use heeler_protocol::control::ListedTest;
use heeler_sys::process::{self, Pid};

/// Bytes of early output kept, in total, until a test is reported. Frameworks write less before the first
/// test.
const KEPT_BYTES: usize = 64 << 10;

/// Maximum number of processes between the started process and the reporting one. Wrappers nest a few levels
/// deep.
const MAX_ANCESTORS: usize = 16;

/// Processes that write to one standard output.
pub(super) struct OutputWriters {
    adapter: &'static dyn Adapter,
    /// The program is a script that starts the test program.
    is_script: bool,
    /// All tests belong to one variant.
    has_variant: bool,
    /// Process whose output is parsed.
    main: Option<Pid>,
    /// Ancestors of the main process.
    origin: Origin,
    /// Output of each process before the first test was reported.
    early_output: Vec<(Pid, Vec<u8>)>,
    /// Parsers for possible ancestors of the main process that have written output since its first report.
    ancestor_parsers: Vec<(Pid, Box<dyn TranscriptParser + Send>)>,
    /// Parser for the output of other processes, to detect whether they run tests too.
    other_parser: Option<Box<dyn TranscriptParser + Send>>,
    has_other_run: bool,
}

/// Processes between the started process and another one.
#[derive(Debug, Clone, Default)]
struct Origin {
    /// Known ancestors, parent first, at most up to the started process.
    ancestors: Vec<Pid>,
    /// The list reaches the started process.
    is_complete: bool,
    /// The process may be a forked copy of an ancestor: both execute the same program, or the ancestry is
    /// unknown.
    is_doubtful: bool,
}

impl Origin {
    /// Looks up the ancestors of a process, which may be gone.
    fn of(process: Pid, root: Pid) -> Self {
        let mut origin = Self::default();
        let mut at = process;
        // The limit also stops at a cycle, which a reused process id could form.
        while at != root && origin.ancestors.len() < MAX_ANCESTORS {
            let Some(stat) = process::stat(at) else { break };
            if stat.parent == Pid::own() || stat.parent.0 <= 1 {
                break;
            }
            at = stat.parent;
            origin.ancestors.push(at);
            origin.is_doubtful |= process::execute_same_program(at, process).unwrap_or(true);
        }
        origin.is_complete = at == root;
        origin.is_doubtful |= !origin.is_complete;
        origin
    }
}

/// Bytes written by one process.
#[derive(Debug, Clone, Copy)]
pub(super) struct WrittenOutput<'a> {
    pub(super) root: Pid,
    pub(super) writer: Pid,
    pub(super) bytes: &'a [u8],
}

/// Returns the tests of the process, to create another parser.
pub(super) type TestSource<'a> = &'a dyn Fn() -> Vec<&'a ListedTest>;

/// Whether earlier results remain valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EarlierResults {
    Stand,
    /// Earlier results were reported by a process other than the started one.
    Withdrawn,
}

impl OutputWriters {
    /// Creates the state for a process of this program that has not written anything yet.
    pub(super) fn new(adapter: &'static dyn Adapter, program: &Path, has_variant: bool) -> Self {
        Self {
            adapter,
            // Checked only if writers are identified, because the check reads the program file for every
            // process.
            is_script: adapter.traits().reports_from_one_process && is_script(program),
            has_variant,
            main: None,
            origin: Origin::default(),
            early_output: Vec::new(),
            ancestor_parsers: Vec::new(),
            other_parser: None,
            has_other_run: false,
        }
    }

    /// Records that a test began with the process, so the first report is an end marker, which a copy might
    /// write too. The main process is then the started process, unless the program is a script.
    pub(super) fn begin_with_process(&mut self, root: Pid) {
        if !self.is_script {
            self.main = Some(root);
        }
    }

    /// Returns whether the results so far come from the started process, or from a program that it started.
    pub(super) fn is_main_known(&self) -> bool {
        !self.origin.is_doubtful
    }

    /// Returns whether a process whose output is not parsed has run tests too. The framework's report may
    /// then be from that process.
    pub(super) fn has_other_run(&self) -> bool {
        self.has_other_run
    }

    /// Parses output of the main process with `transcript`. Passes other output on unchanged.
    pub(super) fn read(
        &mut self,
        written: WrittenOutput<'_>,
        tests: TestSource<'_>,
        transcript: &mut Box<dyn TranscriptParser + Send>,
        events: &mut Vec<TranscriptEvent>,
    ) -> EarlierResults {
        let WrittenOutput { root, writer, bytes } = written;
        match self.main {
            Some(main) if main == writer => transcript.on_stdout(bytes, events),
            Some(_) if !self.has_variant && self.may_be_ancestor(root, writer) => {
                return self.read_ancestor(written, tests, transcript, events);
            }
            Some(_) => {
                self.watch_other(bytes, tests);
                events.push(TranscriptEvent::Output(bytes.to_vec()));
            }
            None => {
                self.keep_early(writer, bytes);
                let before = events.len();
                transcript.on_stdout(bytes, events);
                if has_run(transcript.as_ref(), &events[before..]) {
                    self.set_main(root, writer);
                }
            }
        }
        EarlierResults::Stand
    }

    fn keep_early(&mut self, writer: Pid, bytes: &[u8]) {
        let kept: usize = self.early_output.iter().map(|(_, output)| output.len()).sum();
        if kept >= KEPT_BYTES {
            return;
        }
        match self.early_output.iter_mut().find(|(process, _)| *process == writer) {
            Some((_, output)) => output.extend_from_slice(bytes),
            None => self.early_output.push((writer, bytes.to_vec())),
        }
    }

    fn set_main(&mut self, root: Pid, main: Pid) {
        self.main = Some(main);
        self.origin = Origin::of(main, root);
        // The children of a script may run the same interpreter without being forked copies of the script.
        self.origin.is_doubtful &= !self.is_script;
    }

    /// Returns whether a process may be an ancestor of the main process. If the main process was gone before
    /// its report was read, its ancestors are unknown and any older process may be one. The oldest process
    /// that reports tests then becomes the main process.
    fn may_be_ancestor(&self, root: Pid, process: Pid) -> bool {
        let Some(main) = self.main.filter(|main| *main != root) else { return false };
        process == root
            || self.origin.ancestors.contains(&process)
            || !self.origin.is_complete && process::is_older_descendant(process, main, root)
    }

    /// Reads output of a possible ancestor of the main process. If the ancestor reports a test, it becomes
    /// the main process.
    fn read_ancestor(
        &mut self,
        written: WrittenOutput<'_>,
        tests: TestSource<'_>,
        transcript: &mut Box<dyn TranscriptParser + Send>,
        events: &mut Vec<TranscriptEvent>,
    ) -> EarlierResults {
        let WrittenOutput { root, writer, bytes } = written;
        let mut own = Vec::new();
        let known = self.ancestor_parsers.iter().position(|(process, _)| *process == writer);
        let mut parser = match known {
            Some(at) => self.ancestor_parsers.swap_remove(at).1,
            None => {
                let mut parser = self.adapter.transcript_parser(&tests());
                parser.opening_request(&mut Vec::new());
                let early = self.early_output.iter().find(|(process, _)| *process == writer);
                parser.on_stdout(early.map_or(&[], |(_, output)| output), &mut Vec::new());
                parser
            }
        };
        parser.on_stdout(bytes, &mut own);
        if !has_run(parser.as_ref(), &own) {
            // Wrappers never nest this deep, so not all of these candidates can be ancestors.
            if self.ancestor_parsers.len() < MAX_ANCESTORS {
                self.ancestor_parsers.push((writer, parser));
            }
            events.push(TranscriptEvent::Output(bytes.to_vec()));
            return EarlierResults::Stand;
        }
        self.set_main(root, writer);
        self.has_other_run = true;
        *transcript = parser;
        events.retain(|event| matches!(event, TranscriptEvent::Output(_)));
        events.append(&mut own);
        EarlierResults::Withdrawn
    }

    fn watch_other(&mut self, bytes: &[u8], tests: TestSource<'_>) {
        if self.has_other_run {
            return;
        }
        let parser = self.other_parser.get_or_insert_with(|| self.adapter.transcript_parser(&tests()));
        let mut events = Vec::new();
        parser.on_stdout(bytes, &mut events);
        self.has_other_run = has_run(parser.as_ref(), &events);
    }
}

fn is_script(program: &Path) -> bool {
    let mut mark = [0; 2];
    std::fs::File::open(program).and_then(|mut file| file.read_exact(&mut mark)).is_ok() && &mark == b"#!"
}

/// Returns whether a process has run tests, according to the events in its output.
fn has_run(parser: &dyn TranscriptParser, events: &[TranscriptEvent]) -> bool {
    let is_report = |event: &TranscriptEvent| {
        matches!(event, TranscriptEvent::Begun { .. } | TranscriptEvent::Ended { .. })
    };
    events.iter().any(is_report) || parser.is_complete()
}

#[cfg(test)]
mod tests {
    use heeler_adapters::by_name;

    use super::*;

    // Process ids in order of creation; no process has these ids.
    const ROOT: Pid = Pid(i32::MAX - 2);
    const WRAPPED: Pid = Pid(i32::MAX - 1);
    const OTHER: Pid = Pid(i32::MAX);

    fn listed() -> Vec<ListedTest> {
        ["A.a", "A.b"].map(|name| ListedTest { name: name.to_owned(), ..ListedTest::default() }).to_vec()
    }

    /// Returns the batch's events for these pieces as text, and whether results were withdrawn.
    fn read(pieces: &[(Pid, &str)]) -> (Vec<String>, bool, OutputWriters) {
        let (adapter, tests) = (by_name("gtest").unwrap(), listed());
        let tests = || -> Vec<&ListedTest> { tests.iter().collect() };
        let mut writers = OutputWriters::new(adapter, Path::new("/bin/true"), false);
        let mut transcript = adapter.transcript_parser(&tests());
        let (mut words, mut is_withdrawn) = (Vec::new(), false);
        for (writer, text) in pieces {
            let written = WrittenOutput { root: ROOT, writer: *writer, bytes: text.as_bytes() };
            let mut events = Vec::new();
            is_withdrawn |=
                writers.read(written, &tests, &mut transcript, &mut events) == EarlierResults::Withdrawn;
            words.extend(events.iter().filter_map(|event| match event {
                TranscriptEvent::Begun { place } => Some(format!("begin {place}")),
                TranscriptEvent::Ended { place, verdict } => Some(format!("{place} {:?}", verdict.result)),
                _ => None,
            }));
        }
        (words, is_withdrawn, writers)
    }

    const HEAD: &str = "[==========] Running 2 tests from 1 test suite.\n[----------] 2 tests from A\n";
    const BEGIN_A: &str = "[ RUN      ] A.a\n";
    const COPY: &str = "[       OK ] A.a (0 ms)\n[ RUN      ] A.b\n[       OK ] A.b (0 ms)\n\
                        [----------] 2 tests from A (0 ms total)\n\n\
                        [==========] 2 tests from 1 test suite ran. (0 ms total)\n[  PASSED  ] 2 tests.\n";

    #[test]
    fn what_a_copy_reports_is_output() {
        let failed = COPY.replace("[       OK ] A.a", "[  FAILED  ] A.a");
        let (words, is_withdrawn, writers) =
            read(&[(ROOT, HEAD), (ROOT, BEGIN_A), (OTHER, COPY), (ROOT, &failed)]);
        assert_eq!(words, ["begin 0", "0 Failed", "begin 1", "1 Passed"]);
        assert!(!is_withdrawn && writers.is_main_known() && writers.has_other_run());
    }

    #[test]
    fn marker_that_another_process_tears_is_read() {
        let (half, rest) = BEGIN_A.split_at(7);
        let (words, ..) = read(&[(ROOT, HEAD), (ROOT, BEGIN_A), (ROOT, &COPY[..9]), (OTHER, "x\n")]);
        assert_eq!(words, ["begin 0"]);
        let (words, ..) = read(&[(ROOT, HEAD), (ROOT, half), (ROOT, rest), (OTHER, "x"), (ROOT, COPY)]);
        assert_eq!(words, ["begin 0", "0 Passed", "begin 1", "1 Passed"]);
    }

    #[test]
    fn copy_that_was_forked_before_the_first_test_decides_nothing() {
        let failed = COPY.replace("[       OK ] A.b", "[  FAILED  ] A.b");
        let (words, is_withdrawn, writers) =
            read(&[(ROOT, HEAD), (OTHER, BEGIN_A), (OTHER, COPY), (ROOT, BEGIN_A), (ROOT, &failed)]);
        assert_eq!(words[4..], ["begin 0", "0 Passed", "begin 1", "1 Failed"]);
        assert!(is_withdrawn && writers.is_main_known());
    }

    #[test]
    fn older_process_decides_where_both_are_gone() {
        let failed = COPY.replace("[       OK ] A.b", "[  FAILED  ] A.b");
        let copy = [(OTHER, HEAD), (OTHER, BEGIN_A), (OTHER, COPY)];
        let program = [(WRAPPED, HEAD), (WRAPPED, BEGIN_A), (WRAPPED, &failed)];
        let (words, is_withdrawn, _) = read(&[copy, program].concat());
        assert_eq!(words[4..], ["begin 0", "0 Passed", "begin 1", "1 Failed"]);
        assert!(is_withdrawn);
        let (words, is_withdrawn, writers) = read(&[program, copy].concat());
        assert_eq!(words, ["begin 0", "0 Passed", "begin 1", "1 Failed"]);
        assert!(!is_withdrawn && writers.has_other_run());
    }

    #[test]
    fn program_behind_a_wrapper_reports() {
        let (words, is_withdrawn, writers) =
            read(&[(ROOT, "starts\n"), (OTHER, HEAD), (OTHER, BEGIN_A), (ROOT, "waits\n"), (OTHER, COPY)]);
        assert_eq!(words, ["begin 0", "0 Passed", "begin 1", "1 Passed"]);
        assert!(!is_withdrawn && !writers.is_main_known(), "what it executes is not known any more");
    }

    /// Calls `check` with every interleaving of the output that the process and its copy write after the
    /// fork.
    fn each_order(root: &[&str], copy: &[&str], check: &mut impl FnMut(&[(Pid, String)])) {
        fn extend(
            rest: [&[&str]; 2],
            order: &mut Vec<(Pid, String)>,
            check: &mut impl FnMut(&[(Pid, String)]),
        ) {
            if rest.iter().all(|one| one.is_empty()) {
                return check(order);
            }
            for (at, writer) in [ROOT, OTHER].into_iter().enumerate() {
                let Some((first, behind)) = rest[at].split_first() else { continue };
                order.push((writer, (*first).to_owned()));
                let mut rest = rest;
                rest[at] = behind;
                extend(rest, order, check);
                order.pop();
            }
        }
        extend([root, copy], &mut Vec::new(), check);
    }

    #[test]
    fn process_decides_in_every_order_of_writes() {
        let root = [
            "[  FAILED  ] A.a (0 ms)\n",
            "[ RUN      ] A.b\n",
            "[       OK ] A.b (0 ms)\n",
            "[----------] 2 tests from A (0 ms total)\n\n[==========] 2 tests from 1 test suite ran.",
        ];
        let copy = ["[       OK ] A.a (0 ms)\n", "[ RUN      ] A.b\n", "[       OK ] A.b (0 ms)\n"];
        let (mut orders, mut wrong_by_mistake) = (0, 0);
        each_order(&root, &copy, &mut |order| {
            let start = [(ROOT, HEAD), (ROOT, BEGIN_A)];
            let pieces: Vec<_> = start
                .into_iter()
                .chain(order.iter().map(|(writer, text)| (*writer, text.as_str())))
                .collect();
            let expected = ["begin 0", "0 Failed", "begin 1", "1 Passed"];
            assert_eq!(read(&pieces).0, expected, "{order:?}");
            // Deliberate mistake: parse all output regardless of its writer.
            let mistaken: Vec<_> = pieces.iter().map(|(_, text)| (ROOT, *text)).collect();
            orders += 1;
            wrong_by_mistake += usize::from(read(&mistaken).0 != expected);
        });
        assert_eq!(orders, 35);
        assert!(wrong_by_mistake > 10, "{wrong_by_mistake}");
    }
}
