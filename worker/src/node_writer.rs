//! Renders a test's changes as JSON, directly into the buffer that goes to journal and client: one worker
//! writes a hundred thousand per second. What a result means is decided elsewhere.

use std::time::Duration;

use heeler_protocol::{
    control::{LeakedProcess, LeasedTest, ProcessExit, TestGroup, WorkerId, WorkerLease},
    mtp::{
        ExecutionState, LeakedProcessInfo, TestPartInfo, encode_change_in_group, group_node, group_path, key,
    },
};

use heeler_adapters::{FrameworkResult, TestPart};

use crate::{
    process_clock::UtcTime, process_leaks::leak_note, update_batch::UpdateBatch, verdict::FinalResult,
};

/// Renders the changes of one lease's tests.
#[derive(Debug)]
pub(crate) struct NodeWriter {
    /// `,"heeler.suite":S,"heeler.worker":N`.
    started_members: Vec<u8>,
    /// The same, with the program in between.
    result_members: Vec<u8>,
    suite: String,
    /// The groups of the lease.
    groups: Vec<AncestorGroup>,
}

/// A group, with the JSON fragments that the changes of its tests share.
#[derive(Debug)]
struct AncestorGroup {
    uid: String,
    parent: Option<usize>,
    /// The group's own change.
    change: Vec<u8>,
    /// Start of its tests' changes, up to the uid.
    head: Vec<u8>,
    /// `,"location.type":T`.
    location_type: Vec<u8>,
    is_sent: bool,
}

/// Start, end and duration of a test.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TestTimes {
    /// `None` for a test that never started.
    pub(crate) start: Option<UtcTime>,
    pub(crate) stop: UtcTime,
    pub(crate) duration: Duration,
}

impl NodeWriter {
    /// Returns the writer for one lease's tests.
    pub(crate) fn new(lease: &WorkerLease, worker: WorkerId) -> Self {
        let program = &lease.program;
        let mut started_members = Vec::new();
        write_text(&mut started_members, key::SUITE, &program.suite);
        let mut result_members = started_members.clone();
        write_text(&mut result_members, key::PROGRAM, &program.path.to_text());
        for members in [&mut started_members, &mut result_members] {
            write_number(members, key::WORKER, worker.0);
        }
        let groups = lease.groups.iter().map(|group| AncestorGroup::new(group, lease)).collect();
        Self { started_members, result_members, suite: program.suite.clone(), groups }
    }

    /// Returns the suite's name.
    pub(crate) fn suite(&self) -> &str {
        &self.suite
    }

    /// Adds the ancestor groups of a test that the stream has not sent yet, outermost first.
    pub(crate) fn add_ancestor_groups(&mut self, test: &LeasedTest, parcel: &mut UpdateBatch) {
        let mut next = test.group.map(|group| group as usize);
        let mut untold = Vec::new();
        while let Some(place) = next
            && let Some(above) = self.groups.get(place)
            && !above.is_sent
        {
            untold.push(place);
            // A parent that is not an earlier entry could form a cycle.
            next = above.parent.filter(|parent| *parent < place);
        }
        for place in untold.into_iter().rev() {
            let above = &mut self.groups[place];
            above.is_sent = true;
            parcel.add_group(&above.uid, &above.change);
        }
    }

    fn parent_group(&self, test: &LeasedTest) -> Option<&AncestorGroup> {
        self.groups.get(test.group? as usize)
    }

    fn write_head(&self, out: &mut Vec<u8>, test: &LeasedTest, state: &'static str) {
        out.extend_from_slice(self.parent_group(test).map_or(TOP_LEVEL_HEAD, |above| &above.head));
        write_json_string(out, &test.uid);
        write_text(out, "display-name", test.listed.display.as_deref().unwrap_or(&test.listed.name));
        out.extend_from_slice(br#","node-type":"action","execution-state":""#);
        out.extend_from_slice(state.as_bytes());
        out.push(b'"');
    }

    fn write_location(&self, out: &mut Vec<u8>, test: &LeasedTest, outcome: Option<&FinalResult>) {
        if let Some(above) = self.parent_group(test) {
            out.extend_from_slice(&above.location_type);
            write_text(
                out,
                "location.method",
                test.uid.strip_prefix(above.uid.as_str()).unwrap_or(&test.listed.name),
            );
        }
        let (file, line) = match (&test.listed.file, outcome) {
            (None, Some(outcome)) => (outcome.file.as_deref(), outcome.line),
            (file, _) => (file.as_deref(), test.listed.line),
        };
        let Some(file) = file else { return };
        write_text(out, "location.file", file);
        if let Some(line) = line {
            write_number(out, "location.line-start", line);
            write_number(out, "location.line-end", line);
        }
    }

    /// Appends the change of a started test.
    pub(crate) fn write_in_progress(&self, out: &mut Vec<u8>, test: &LeasedTest, start: UtcTime) {
        self.write_head(out, test, "in-progress");
        self.write_location(out, test, None);
        write_time(out, "time.start-utc", start);
        out.extend_from_slice(&self.started_members);
        close_change(out, test);
    }

    /// Appends the change of a test with its terminal result.
    pub(crate) fn write_terminal(&self, out: &mut Vec<u8>, test: &LeasedTest, result: &TerminalUpdate<'_>) {
        let TerminalUpdate { outcome, times, reproduce, process_exit: process } = result;
        let leaked = process.map(|process| process.leaked.as_slice()).filter(|leaked| !leaked.is_empty());
        let is_leaky = leaked.is_some() && outcome.state == ExecutionState::Passed;
        self.write_head(out, test, outcome.state.as_str());
        write_optional(out, "outcome-kind", outcome.kind.or(is_leaky.then_some("leaky")));
        self.write_location(out, test, Some(outcome));
        if let Some(start) = times.start {
            write_time(out, "time.start-utc", start);
        }
        write_time(out, "time.stop-utc", times.stop);
        write_number(out, "time.duration-ms", times.duration.as_secs_f64() * 1000.0);
        write_optional(out, "error.message", outcome.message.as_deref());
        self.write_stacktrace(out, test, outcome);
        write_optional(out, "assert.actual", outcome.actual.as_deref());
        write_optional(out, "assert.expected", outcome.expected.as_deref());
        write_optional(out, "standardOutput", non_empty(&outcome.outputs.stdout));
        write_stderr(out, &outcome.outputs.stderr, leaked);
        write_traits(out, test);
        out.extend_from_slice(&self.result_members);
        write_optional(out, key::REPRODUCE, reproduce.as_deref());
        if let Some(death) = &outcome.exit_reason {
            write_optional(out, key::SIGNAL, death.signal.as_deref());
            if let Some(code) = death.code {
                write_number(out, key::EXIT_CODE, code);
            }
        }
        write_optional(out, key::ISOLATED_RERUN, outcome.isolated_rerun);
        if let Some(usage) = process.and_then(ProcessExit::usage) {
            write_number(out, key::CPU_MS, Duration::from_micros(usage.cpu_us).as_secs_f64() * 1000.0);
            write_number(out, key::PEAK_MEMORY_KIB, usage.peak_kib);
        }
        if let Some(leaked) = leaked {
            write_member_name(out, key::LEAKED);
            let leaked: Vec<_> = leaked.iter().map(LeakedProcessInfo::from).collect();
            serde_json::to_writer(&mut *out, &leaked).expect("numbers and texts are JSON");
        }
        write_parts(out, &outcome.outputs.parts);
        write_attachments(out, outcome);
        if outcome.attempt > 1 {
            write_number(out, key::ATTEMPT, outcome.attempt);
        }
        close_change(out, test);
    }

    /// Writes `error.stacktrace`: the framework's or the captured stack, otherwise the location of the failed
    /// assertion when the test itself is located elsewhere.
    fn write_stacktrace(&self, out: &mut Vec<u8>, test: &LeasedTest, outcome: &FinalResult) {
        let seen = outcome.outputs.evidence.as_ref().map(|evidence| &evidence.stack);
        let stacktrace = outcome.stacktrace.as_ref().or(seen.filter(|stack| !stack.is_empty()));
        match (stacktrace, &outcome.file) {
            (Some(stacktrace), _) => write_text(out, "error.stacktrace", stacktrace),
            (None, Some(file)) if test.listed.file.is_some() => {
                let line = outcome.line.map_or(String::new(), |line| format!(":{line}"));
                write_text(out, "error.stacktrace", &format!("{file}{line}"));
            }
            (None, _) => {}
        }
    }
}

/// Appends the parts of the test.
fn write_parts(out: &mut Vec<u8>, parts: &[TestPart]) {
    if parts.is_empty() {
        return;
    }
    let info = |part: &TestPart| TestPartInfo {
        name: part.name.clone(),
        state: part.result.map_or("in-progress", FrameworkResult::as_str).to_owned(),
        message: part.message.clone(),
    };
    write_member_name(out, key::PARTS);
    let parts: Vec<_> = parts.iter().map(info).collect();
    serde_json::to_writer(&mut *out, &parts).expect("texts are JSON");
}

/// Appends the attached files, numbered from 0.
fn write_attachments(out: &mut Vec<u8>, outcome: &FinalResult) {
    let files = outcome.outputs.evidence.iter().flat_map(|evidence| &evidence.files);
    for (number, file) in files.enumerate() {
        let path = file.path.to_text();
        let name = path.rsplit('/').next().unwrap_or_default();
        write_text(out, &format!("attachments.{number}.uri"), &heeler_protocol::mtp::file_uri(&file.path));
        write_text(out, &format!("attachments.{number}.display-name"), name);
        write_text(out, &format!("attachments.{number}.description"), &file.description);
    }
}

/// Appends the test's standard error followed by a note on leaked processes, because every client shows that
/// text.
fn write_stderr(out: &mut Vec<u8>, stderr: &str, leaked: Option<&[LeakedProcess]>) {
    let Some(leaked) = leaked else { return write_optional(out, "standardError", non_empty(stderr)) };
    let border = if stderr.is_empty() || stderr.ends_with('\n') { "" } else { "\n" };
    write_text(out, "standardError", &format!("{stderr}{border}{}", leak_note(leaked)));
}

/// A final result, ready to be rendered.
#[derive(Debug)]
pub(crate) struct TerminalUpdate<'a> {
    pub(crate) outcome: &'a FinalResult,
    pub(crate) times: TestTimes,
    /// A command line that runs the test in isolation.
    pub(crate) reproduce: Option<String>,
    /// How the process ended, if it ran this test only.
    pub(crate) process_exit: Option<&'a ProcessExit>,
}

impl AncestorGroup {
    fn new(group: &TestGroup, lease: &WorkerLease) -> Self {
        let parent = group.parent.map(|place| place as usize);
        let parent_uid = parent.and_then(|place| Some(lease.groups.get(place)?.uid.as_str()));
        let node = group_node(&group.uid, &group.name);
        let change = encode_change_in_group(parent_uid, &node, group.client_members.as_deref());
        let mut head = br#"{"parent":"#.to_vec();
        write_json_string(&mut head, &group.uid);
        head.extend_from_slice(br#","node":{"uid":"#);
        let mut location_type = Vec::new();
        write_text(&mut location_type, "location.type", group_path(&group.uid, &lease.program.suite));
        Self { uid: group.uid.clone(), parent, change, head, location_type, is_sent: false }
    }
}

/// Start of a change of a top-level test, up to the uid.
const TOP_LEVEL_HEAD: &[u8] = br#"{"parent":null,"node":{"uid":"#;

/// Appends the members that a client added, as the last ones, and closes the change.
fn close_change(out: &mut Vec<u8>, test: &LeasedTest) {
    if let Some(foreign) = &test.client_members {
        out.push(b',');
        out.extend_from_slice(foreign.as_bytes());
    }
    out.extend_from_slice(b"}}");
}

fn write_traits(out: &mut Vec<u8>, test: &LeasedTest) {
    for (index, one) in test.listed.traits.iter().enumerate() {
        out.extend_from_slice(if index == 0 { br#","traits":[{"# } else { b",{" });
        write_json_string(out, &one.name);
        out.push(b':');
        write_json_string(out, &one.value);
        out.push(b'}');
    }
    if !test.listed.traits.is_empty() {
        out.push(b']');
    }
}

fn write_time(out: &mut Vec<u8>, name: &str, utc: UtcTime) {
    write_member_name(out, name);
    out.push(b'"');
    utc.write_iso8601(out);
    out.push(b'"');
}

fn write_optional(out: &mut Vec<u8>, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        write_text(out, name, value);
    }
}

fn write_text(out: &mut Vec<u8>, name: &str, value: &str) {
    write_member_name(out, name);
    write_json_string(out, value);
}

fn write_number(out: &mut Vec<u8>, name: &str, value: impl std::fmt::Display) {
    use std::io::Write as _;
    write_member_name(out, name);
    write!(out, "{value}").expect("a Vec takes all");
}

/// Appends a member name. Names are constants of this crate and need no escaping.
fn write_member_name(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

fn write_json_string(out: &mut Vec<u8>, value: &str) {
    serde_json::to_writer(out, value).expect("text is JSON");
}

fn non_empty(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use heeler_protocol::{
        control::{ExitReason, ListedTest, TestIndex, TestProgram, TraitPair},
        mtp::{ExecutionState, NodeChange, NodeType, TestNode, TestTrait},
    };

    use super::*;
    use crate::verdict::TestOutputs;

    fn program() -> TestProgram {
        TestProgram {
            suite: "sui\"te".into(),
            path: "/bin/p q".into(),
            args: vec![],
            tool_env: Vec::new(),
            env: vec![],
            cwd: "/".into(),
            framework: None,
        }
    }

    fn leased() -> LeasedTest {
        LeasedTest {
            test: TestIndex(0),
            listed: ListedTest {
                name: "A.b".into(),
                display: Some("b\n\u{1}ü".into()),
                file: Some("a.cc".into()),
                line: Some(7),
                skip: None,
                selector: None,
                traits: vec![
                    TraitPair { name: "k".into(), value: "v\\".into() },
                    TraitPair { name: "l".into(), value: String::new() },
                ],
            },
            uid: "s::A.b".into(),
            group: Some(1),
            client_members: Some(r#""x.y":[1.0]"#.into()),
            timeout_ms: None,
            idle_timeout_ms: None,
            slow_ms: None,
            attempts: vec![],
            crashed_attempt: None,
            is_failure_provisional: false,
        }
    }

    fn writer() -> NodeWriter {
        let group = |uid: &str, name: &str, parent| TestGroup {
            uid: uid.into(),
            name: name.into(),
            parent,
            client_members: None,
        };
        let groups = vec![group("s::", "s", None), group("s::A.", "A", Some(0))];
        NodeWriter::new(
            &WorkerLease { program: program(), groups, ..crate::test_values::lease(0) },
            WorkerId(3),
        )
    }

    fn outcome() -> FinalResult {
        FinalResult { state: ExecutionState::Passed, message: None, ..FinalResult::skipped("") }
    }

    fn terminal(test: &LeasedTest, outcome: &FinalResult, reproduce: Option<&str>) -> TestNode {
        let mut out = Vec::new();
        let times = TestTimes {
            start: Some(UtcTime::from_epoch(Duration::from_secs(1))),
            stop: UtcTime::from_epoch(Duration::from_secs(2)),
            duration: Duration::from_micros(1500),
        };
        let told =
            TerminalUpdate { outcome, times, reproduce: reproduce.map(str::to_owned), process_exit: None };
        writer().write_terminal(&mut out, test, &told);
        read(&out)
    }

    fn read(json: &[u8]) -> TestNode {
        let change: NodeChange = serde_json::from_slice(json).unwrap();
        assert_eq!(change.parent.as_deref(), Some("s::A."));
        change.node
    }

    #[test]
    fn started_node_has_location_and_start_time() {
        let mut out = Vec::new();
        writer().write_in_progress(&mut out, &leased(), UtcTime::from_epoch(Duration::ZERO));
        let mut expected = TestNode::test("s::A.b", "b\n\u{1}ü", ExecutionState::InProgress);
        expected.location_file = Some("a.cc".into());
        expected.location_line_start = Some(7);
        expected.location_line_end = Some(7);
        add_location(&mut expected);
        expected.start_utc = Some("1970-01-01T00:00:00.000Z".into());
        expected.members.insert(key::SUITE.into(), program().suite.into());
        expected.members.insert(key::WORKER.into(), 3.into());
        assert_eq!(read(&out), expected);
    }

    #[test]
    fn terminal_node_has_all_known_members() {
        let outcome = FinalResult {
            kind: Some("crashed"),
            message: Some("m\0".into()),
            actual: Some("1".into()),
            expected: Some("2".into()),
            file: Some("other.cc".into()),
            line: Some(9),
            outputs: TestOutputs {
                stdout: "o".into(),
                stderr: "e".into(),
                evidence: None,
                parts: Vec::new(),
            },
            exit_reason: Some(ExitReason {
                signal: Some("SIGSEGV".into()),
                code: Some(3),
                has_core: true,
                detail: None,
                cause: None,
            }),
            isolated_rerun: Some("crashes-alone"),
            attempt: 2,
            state: ExecutionState::Error,
            stacktrace: None,
        };
        let node = terminal(&leased(), &outcome, Some("./p --x"));
        assert_eq!(node.state, Some(ExecutionState::Error));
        assert_eq!(node.outcome_kind.as_deref(), Some("crashed"));
        assert_eq!((node.location_file.as_deref(), node.location_line_start), (Some("a.cc"), Some(7)));
        assert_eq!(node.error_stacktrace.as_deref(), Some("other.cc:9"));
        assert_eq!(node.error_message.as_deref(), Some("m\0"));
        assert_eq!((node.assert_actual.as_deref(), node.assert_expected.as_deref()), (Some("1"), Some("2")));
        assert_eq!((node.standard_output.as_deref(), node.standard_error.as_deref()), (Some("o"), Some("e")));
        assert_eq!(node.duration_ms, Some(1.5));
        assert_eq!(node.stop_utc.as_deref(), Some("1970-01-01T00:00:02.000Z"));
        assert_eq!(node.traits[0], TestTrait { name: "k".into(), value: "v\\".into() });
        assert_eq!(node.traits.len(), 2);
        assert_eq!(node.text_member(key::SUITE), Some("sui\"te"));
        assert_eq!(node.text_member(key::PROGRAM), Some("/bin/p q"));
        assert_eq!(node.text_member(key::REPRODUCE), Some("./p --x"));
        assert_eq!(node.text_member(key::SIGNAL), Some("SIGSEGV"));
        assert_eq!(node.text_member(key::ISOLATED_RERUN), Some("crashes-alone"));
        assert_eq!(
            (&node.members[key::EXIT_CODE], &node.members[key::WORKER], &node.members[key::ATTEMPT]),
            (&3.into(), &3.into(), &2.into())
        );
    }

    #[test]
    fn passed_node_has_only_required_members() {
        let mut test = leased();
        test.listed = ListedTest { name: "A.b".into(), ..ListedTest::default() };
        let node = terminal(&test, &outcome(), None);
        let mut expected = TestNode::test("s::A.b", "A.b", ExecutionState::Passed);
        expected.duration_ms = Some(1.5);
        expected.start_utc = Some("1970-01-01T00:00:01.000Z".into());
        expected.stop_utc = Some("1970-01-01T00:00:02.000Z".into());
        for (name, value) in [(key::SUITE, "sui\"te"), (key::PROGRAM, "/bin/p q")] {
            expected.members.insert(name.into(), value.into());
        }
        expected.members.insert(key::WORKER.into(), 3.into());
        add_location(&mut expected);
        assert_eq!(node, expected);
    }

    /// Adds the members that the group and the client contribute to [`leased`].
    fn add_location(node: &mut TestNode) {
        node.location_type = Some("s::A".into());
        node.location_method = Some("b".into());
        node.members.insert("x.y".into(), serde_json::json!([1.0]));
    }

    #[test]
    fn groups_are_sent_once_before_their_tests() {
        let mut writer = writer();
        let mut parcel = UpdateBatch::at_position(0);
        for _ in 0..2 {
            writer.add_ancestor_groups(&leased(), &mut parcel);
            parcel.add_started(TestIndex(0), |out| {
                writer.write_in_progress(out, &leased(), UtcTime::from_epoch(Duration::ZERO))
            });
        }
        // Another lease of the same run uses the same stream.
        let mut parcel = parcel.take();
        let changes: Vec<NodeChange> = parcel
            .chunks()
            .flat_map(|load| load.changes)
            .map(|change| serde_json::from_slice(change).unwrap())
            .collect();
        let uids: Vec<_> = changes.iter().map(|change| change.node.uid.as_str()).collect();
        assert_eq!(uids, ["s::", "s::A.", "s::A.b", "s::A.b"]);
        assert_eq!(changes[1].parent.as_deref(), Some("s::"));
        assert_eq!((changes[1].node.node_type, changes[1].node.state), (NodeType::Group, None));
        parcel = UpdateBatch::at_position(0);
        parcel.sent_groups = ["s::".to_owned(), "s::A.".to_owned()].into();
        self::writer().add_ancestor_groups(&leased(), &mut parcel);
        assert!(parcel.is_empty());
    }

    #[test]
    fn failure_location_replaces_missing_test_location() {
        let mut test = leased();
        (test.listed.file, test.listed.line) = (None, None);
        let failed = FinalResult { file: Some("x.rs".into()), line: Some(4), ..outcome() };
        let node = terminal(&test, &failed, None);
        assert_eq!((node.location_file.as_deref(), node.location_line_start), (Some("x.rs"), Some(4)));
        assert_eq!(node.error_stacktrace, None);
    }
}
