//! Renders a test's changes as JSON, directly into the buffer that goes to journal and client: one worker
//! writes a hundred thousand per second. What a result means is decided elsewhere.

use std::time::Duration;

use wire::{
    control::{Group, Leaked, Lease, LeasedTest, RawEnd, WorkerId},
    mtp::{ExecutionState, LeftBehind, change_json_with, group_node, group_path, key},
};

use crate::{clock::Utc, conclusion::Outcome, leaks::note, parcel::Parcel};

/// Renders the changes of one lease's tests.
#[derive(Debug)]
pub(crate) struct NodeWriter {
    /// `,"heeler.suite":S,"heeler.worker":N`.
    brief: Vec<u8>,
    /// The same, with the program in between.
    common: Vec<u8>,
    suite: String,
    /// The groups of the lease.
    groups: Vec<Above>,
}

/// A group, with the JSON fragments that the changes of its tests share.
#[derive(Debug)]
struct Above {
    uid: String,
    parent: Option<usize>,
    /// The group's own change.
    change: Vec<u8>,
    /// Start of its tests' changes, up to the uid.
    head: Vec<u8>,
    /// `,"location.type":T`.
    location_type: Vec<u8>,
    is_told: bool,
}

/// Start, end and duration of a test.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// `None` for a test that never started.
    pub(crate) start: Option<Utc>,
    pub(crate) stop: Utc,
    pub(crate) duration: Duration,
}

impl NodeWriter {
    /// Returns the writer for one lease's tests.
    pub(crate) fn new(lease: &Lease, worker: WorkerId) -> Self {
        let program = &lease.program;
        let mut brief = Vec::new();
        text(&mut brief, key::SUITE, &program.suite);
        let mut common = brief.clone();
        text(&mut common, key::PROGRAM, &program.path.to_text());
        for members in [&mut brief, &mut common] {
            number(members, key::WORKER, worker.0);
        }
        let groups = lease.groups.iter().map(|group| Above::new(group, lease)).collect();
        Self { brief, common, suite: program.suite.clone(), groups }
    }

    /// Returns the suite's name.
    pub(crate) fn suite(&self) -> &str {
        &self.suite
    }

    /// Adds the ancestor groups of a test that the stream has not sent yet, outermost first.
    pub(crate) fn groups_above(&mut self, test: &LeasedTest, parcel: &mut Parcel) {
        let mut next = test.group.map(|group| group as usize);
        let mut untold = Vec::new();
        while let Some(place) = next
            && let Some(above) = self.groups.get(place)
            && !above.is_told
        {
            untold.push(place);
            // A parent that is not an earlier entry could form a cycle.
            next = above.parent.filter(|parent| *parent < place);
        }
        for place in untold.into_iter().rev() {
            let above = &mut self.groups[place];
            above.is_told = true;
            parcel.group(&above.uid, &above.change);
        }
    }

    fn above(&self, test: &LeasedTest) -> Option<&Above> {
        self.groups.get(test.group? as usize)
    }

    fn head(&self, out: &mut Vec<u8>, test: &LeasedTest, state: &'static str) {
        out.extend_from_slice(self.above(test).map_or(TOP, |above| &above.head));
        quote(out, &test.uid);
        text(out, "display-name", test.listed.display.as_deref().unwrap_or(&test.listed.name));
        out.extend_from_slice(br#","node-type":"action","execution-state":""#);
        out.extend_from_slice(state.as_bytes());
        out.push(b'"');
    }

    fn location(&self, out: &mut Vec<u8>, test: &LeasedTest, outcome: Option<&Outcome>) {
        if let Some(above) = self.above(test) {
            out.extend_from_slice(&above.location_type);
            text(
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
        text(out, "location.file", file);
        if let Some(line) = line {
            number(out, "location.line-start", line);
            number(out, "location.line-end", line);
        }
    }

    /// Appends the change of a started test.
    pub(crate) fn in_progress(&self, out: &mut Vec<u8>, test: &LeasedTest, start: Utc) {
        self.head(out, test, "in-progress");
        self.location(out, test, None);
        time(out, "time.start-utc", start);
        out.extend_from_slice(&self.brief);
        end(out, test);
    }

    /// Appends the change of a test with its terminal result.
    pub(crate) fn terminal(&self, out: &mut Vec<u8>, test: &LeasedTest, result: &Told<'_>) {
        let Told { outcome, times, reproduce, process } = result;
        let leaked = process.map(|process| process.leaked.as_slice()).filter(|leaked| !leaked.is_empty());
        let is_leaky = leaked.is_some() && outcome.state == ExecutionState::Passed;
        self.head(out, test, outcome.state.as_str());
        optional(out, "outcome-kind", outcome.kind.or(is_leaky.then_some("leaky")));
        self.location(out, test, Some(outcome));
        if let Some(start) = times.start {
            time(out, "time.start-utc", start);
        }
        time(out, "time.stop-utc", times.stop);
        number(out, "time.duration-ms", times.duration.as_secs_f64() * 1000.0);
        optional(out, "error.message", outcome.message.as_deref());
        self.place_of_failure(out, test, outcome);
        optional(out, "assert.actual", outcome.actual.as_deref());
        optional(out, "assert.expected", outcome.expected.as_deref());
        optional(out, "standardOutput", non_empty(&outcome.outputs.stdout));
        errors(out, &outcome.outputs.stderr, leaked);
        traits(out, test);
        out.extend_from_slice(&self.common);
        optional(out, key::REPRODUCE, reproduce.as_deref());
        if let Some(death) = &outcome.death {
            optional(out, key::SIGNAL, death.signal.as_deref());
            if let Some(code) = death.code {
                number(out, key::EXIT_CODE, code);
            }
        }
        optional(out, key::ALONE, outcome.alone);
        if let Some(usage) = process.and_then(RawEnd::usage) {
            number(out, key::CPU_MS, Duration::from_micros(usage.cpu_us).as_secs_f64() * 1000.0);
            number(out, key::PEAK_MEMORY_KIB, usage.peak_kib);
        }
        if let Some(leaked) = leaked {
            member(out, key::LEAKED);
            let leaked: Vec<_> = leaked.iter().map(LeftBehind::from).collect();
            serde_json::to_writer(&mut *out, &leaked).expect("numbers and texts are JSON");
        }
        attachments(out, outcome);
        if outcome.attempt > 1 {
            number(out, key::ATTEMPT, outcome.attempt);
        }
        end(out, test);
    }

    /// Writes `error.stacktrace`: the framework's or the captured stack, otherwise the location of the failed
    /// assertion when the test itself is located elsewhere.
    fn place_of_failure(&self, out: &mut Vec<u8>, test: &LeasedTest, outcome: &Outcome) {
        let seen = outcome.outputs.evidence.as_ref().map(|evidence| &evidence.stack);
        let stacktrace = outcome.stacktrace.as_ref().or(seen.filter(|stack| !stack.is_empty()));
        match (stacktrace, &outcome.file) {
            (Some(stacktrace), _) => text(out, "error.stacktrace", stacktrace),
            (None, Some(file)) if test.listed.file.is_some() => {
                let line = outcome.line.map_or(String::new(), |line| format!(":{line}"));
                text(out, "error.stacktrace", &format!("{file}{line}"));
            }
            (None, _) => {}
        }
    }
}

/// Appends the attached files, numbered from 0.
fn attachments(out: &mut Vec<u8>, outcome: &Outcome) {
    let files = outcome.outputs.evidence.iter().flat_map(|evidence| &evidence.files);
    for (number, file) in files.enumerate() {
        let path = file.path.to_text();
        let name = path.rsplit('/').next().unwrap_or_default();
        text(out, &format!("attachments.{number}.uri"), &wire::mtp::file_uri(&file.path));
        text(out, &format!("attachments.{number}.display-name"), name);
        text(out, &format!("attachments.{number}.description"), &file.description);
    }
}

/// Appends the test's standard error followed by a note on leaked processes, because every client shows that
/// text.
fn errors(out: &mut Vec<u8>, stderr: &str, leaked: Option<&[Leaked]>) {
    let Some(leaked) = leaked else { return optional(out, "standardError", non_empty(stderr)) };
    let border = if stderr.is_empty() || stderr.ends_with('\n') { "" } else { "\n" };
    text(out, "standardError", &format!("{stderr}{border}{}", note(leaked)));
}

/// A final result, ready to be rendered.
#[derive(Debug)]
pub(crate) struct Told<'a> {
    pub(crate) outcome: &'a Outcome,
    pub(crate) times: Times,
    /// A command line that runs the test in isolation.
    pub(crate) reproduce: Option<String>,
    /// How the process ended, if it ran this test only.
    pub(crate) process: Option<&'a RawEnd>,
}

impl Above {
    fn new(group: &Group, lease: &Lease) -> Self {
        let parent = group.parent.map(|place| place as usize);
        let parent_uid = parent.and_then(|place| Some(lease.groups.get(place)?.uid.as_str()));
        let node = group_node(&group.uid, &group.name);
        let change = change_json_with(parent_uid, &node, group.foreign.as_deref());
        let mut head = br#"{"parent":"#.to_vec();
        quote(&mut head, &group.uid);
        head.extend_from_slice(br#","node":{"uid":"#);
        let mut location_type = Vec::new();
        text(&mut location_type, "location.type", group_path(&group.uid, &lease.program.suite));
        Self { uid: group.uid.clone(), parent, change, head, location_type, is_told: false }
    }
}

/// Start of a change of a top-level test, up to the uid.
const TOP: &[u8] = br#"{"parent":null,"node":{"uid":"#;

/// Appends the members that a client added, as the last ones, and closes the change.
fn end(out: &mut Vec<u8>, test: &LeasedTest) {
    if let Some(foreign) = &test.foreign {
        out.push(b',');
        out.extend_from_slice(foreign.as_bytes());
    }
    out.extend_from_slice(b"}}");
}

fn traits(out: &mut Vec<u8>, test: &LeasedTest) {
    for (index, one) in test.listed.traits.iter().enumerate() {
        out.extend_from_slice(if index == 0 { br#","traits":[{"# } else { b",{" });
        quote(out, &one.name);
        out.push(b':');
        quote(out, &one.value);
        out.push(b'}');
    }
    if !test.listed.traits.is_empty() {
        out.push(b']');
    }
}

fn time(out: &mut Vec<u8>, name: &str, utc: Utc) {
    member(out, name);
    out.push(b'"');
    utc.write(out);
    out.push(b'"');
}

fn optional(out: &mut Vec<u8>, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        text(out, name, value);
    }
}

fn text(out: &mut Vec<u8>, name: &str, value: &str) {
    member(out, name);
    quote(out, value);
}

fn number(out: &mut Vec<u8>, name: &str, value: impl std::fmt::Display) {
    use std::io::Write as _;
    member(out, name);
    write!(out, "{value}").expect("a Vec takes all");
}

/// Appends a member name. Names are constants of this crate and need no escaping.
fn member(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

fn quote(out: &mut Vec<u8>, value: &str) {
    serde_json::to_writer(out, value).expect("text is JSON");
}

fn non_empty(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use wire::{
        control::{Death, ListedTest, Program, TestIndex, TraitPair},
        mtp::{Change, ExecutionState, NodeType, TestNode, Trait},
    };

    use super::*;
    use crate::conclusion::Outputs;

    fn program() -> Program {
        Program {
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
                traits: vec![
                    TraitPair { name: "k".into(), value: "v\\".into() },
                    TraitPair { name: "l".into(), value: String::new() },
                ],
            },
            uid: "s::A.b".into(),
            group: Some(1),
            foreign: Some(r#""x.y":[1.0]"#.into()),
            timeout_ms: None,
            silence_ms: None,
            slow_ms: None,
            attempts: vec![],
            death: None,
            is_failure_held: false,
        }
    }

    fn writer() -> NodeWriter {
        let group = |uid: &str, name: &str, parent| Group {
            uid: uid.into(),
            name: name.into(),
            parent,
            foreign: None,
        };
        let groups = vec![group("s::", "s", None), group("s::A.", "A", Some(0))];
        NodeWriter::new(&Lease { program: program(), groups, ..crate::samples::lease(0) }, WorkerId(3))
    }

    fn outcome() -> Outcome {
        Outcome { state: ExecutionState::Passed, message: None, ..Outcome::skipped("") }
    }

    fn terminal(test: &LeasedTest, outcome: &Outcome, reproduce: Option<&str>) -> TestNode {
        let mut out = Vec::new();
        let times = Times {
            start: Some(Utc::at(Duration::from_secs(1))),
            stop: Utc::at(Duration::from_secs(2)),
            duration: Duration::from_micros(1500),
        };
        let told = Told { outcome, times, reproduce: reproduce.map(str::to_owned), process: None };
        writer().terminal(&mut out, test, &told);
        read(&out)
    }

    fn read(json: &[u8]) -> TestNode {
        let change: Change = serde_json::from_slice(json).unwrap();
        assert_eq!(change.parent.as_deref(), Some("s::A."));
        change.node
    }

    #[test]
    fn a_node_in_progress_says_where_and_when() {
        let mut out = Vec::new();
        writer().in_progress(&mut out, &leased(), Utc::at(Duration::ZERO));
        let mut expected = TestNode::test("s::A.b", "b\n\u{1}ü", ExecutionState::InProgress);
        expected.location_file = Some("a.cc".into());
        expected.location_line_start = Some(7);
        expected.location_line_end = Some(7);
        placed(&mut expected);
        expected.start_utc = Some("1970-01-01T00:00:00.000Z".into());
        expected.other.insert(key::SUITE.into(), program().suite.into());
        expected.other.insert(key::WORKER.into(), 3.into());
        assert_eq!(read(&out), expected);
    }

    #[test]
    fn a_result_says_all_that_is_known() {
        let outcome = Outcome {
            kind: Some("crashed"),
            message: Some("m\0".into()),
            actual: Some("1".into()),
            expected: Some("2".into()),
            file: Some("other.cc".into()),
            line: Some(9),
            outputs: Outputs { stdout: "o".into(), stderr: "e".into(), evidence: None },
            death: Some(Death {
                signal: Some("SIGSEGV".into()),
                code: Some(3),
                has_core: true,
                detail: None,
                cause: None,
            }),
            alone: Some("crashes-alone"),
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
        assert_eq!(node.traits[0], Trait { name: "k".into(), value: "v\\".into() });
        assert_eq!(node.traits.len(), 2);
        assert_eq!(node.text(key::SUITE), Some("sui\"te"));
        assert_eq!(node.text(key::PROGRAM), Some("/bin/p q"));
        assert_eq!(node.text(key::REPRODUCE), Some("./p --x"));
        assert_eq!(node.text(key::SIGNAL), Some("SIGSEGV"));
        assert_eq!(node.text(key::ALONE), Some("crashes-alone"));
        assert_eq!(
            (&node.other[key::EXIT_CODE], &node.other[key::WORKER], &node.other[key::ATTEMPT]),
            (&3.into(), &3.into(), &2.into())
        );
    }

    #[test]
    fn a_plain_pass_says_no_more_than_it_must() {
        let mut test = leased();
        test.listed = ListedTest { name: "A.b".into(), ..ListedTest::default() };
        let node = terminal(&test, &outcome(), None);
        let mut expected = TestNode::test("s::A.b", "A.b", ExecutionState::Passed);
        expected.duration_ms = Some(1.5);
        expected.start_utc = Some("1970-01-01T00:00:01.000Z".into());
        expected.stop_utc = Some("1970-01-01T00:00:02.000Z".into());
        for (name, value) in [(key::SUITE, "sui\"te"), (key::PROGRAM, "/bin/p q")] {
            expected.other.insert(name.into(), value.into());
        }
        expected.other.insert(key::WORKER.into(), 3.into());
        placed(&mut expected);
        assert_eq!(node, expected);
    }

    /// Adds the members that the group and the client contribute to [`leased`].
    fn placed(node: &mut TestNode) {
        node.location_type = Some("s::A".into());
        node.location_method = Some("b".into());
        node.other.insert("x.y".into(), serde_json::json!([1.0]));
    }

    #[test]
    fn groups_are_told_once_and_before_their_tests() {
        let mut writer = writer();
        let mut parcel = Parcel::behind(0);
        for _ in 0..2 {
            writer.groups_above(&leased(), &mut parcel);
            parcel.started(TestIndex(0), |out| writer.in_progress(out, &leased(), Utc::at(Duration::ZERO)));
        }
        // Another lease of the same run uses the same stream.
        let mut parcel = parcel.take();
        let changes: Vec<Change> = parcel
            .loads()
            .flat_map(|load| load.changes)
            .map(|change| serde_json::from_slice(change).unwrap())
            .collect();
        let uids: Vec<_> = changes.iter().map(|change| change.node.uid.as_str()).collect();
        assert_eq!(uids, ["s::", "s::A.", "s::A.b", "s::A.b"]);
        assert_eq!(changes[1].parent.as_deref(), Some("s::"));
        assert_eq!((changes[1].node.node_type, changes[1].node.state), (NodeType::Group, None));
        parcel = Parcel::behind(0);
        parcel.told_groups = ["s::".to_owned(), "s::A.".to_owned()].into();
        self::writer().groups_above(&leased(), &mut parcel);
        assert!(parcel.is_empty());
    }

    #[test]
    fn the_place_of_a_failure_stands_in_for_a_place_that_no_listing_told() {
        let mut test = leased();
        (test.listed.file, test.listed.line) = (None, None);
        let failed = Outcome { file: Some("x.rs".into()), line: Some(4), ..outcome() };
        let node = terminal(&test, &failed, None);
        assert_eq!((node.location_file.as_deref(), node.location_line_start), (Some("x.rs"), Some(4)));
        assert_eq!(node.error_stacktrace, None);
    }
}
