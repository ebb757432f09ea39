//! Rendering of results as test nodes.

use heeler_core::{
    Attempt, DiagnosticsFile, ExitReason, Failure, IsolatedRerun, LeakedProcess, NotRunReason, Outcome,
    OutcomeCounts, ProcessUsage, TestDiagnostics, TestResult,
};
use heeler_protocol::{
    control::TraitPair,
    mtp::{
        ExecutionState, NodeChange, NodeDescription, TestNode, TestTrait, attempts_of_node, key,
        outcome_of_node, render_result, render_started,
    },
};

fn description<'a>(traits: &'a [TraitPair]) -> NodeDescription<'a> {
    NodeDescription {
        report_name: None,
        uid: "s::A.b",
        display_name: "b\n\u{1}ü",
        parent: Some("s::A."),
        suite: "s",
        program: "/bin/p q",
        framework: "f",
        file: Some("a.cc"),
        line: Some(7),
        traits,
        client_members: Some(r#""x.y":[1.0]"#),
    }
}

fn rendered(test: &NodeDescription<'_>, result: &TestResult) -> TestNode {
    let mut out = b"before".to_vec();
    render_result(&mut out, test, result);
    let change: NodeChange = serde_json::from_slice(out.strip_prefix(b"before").unwrap()).unwrap();
    assert_eq!(change.parent.as_deref(), test.parent);
    change.node
}

/// Returns the node of [`description`] without a result.
fn expected_node(state: ExecutionState) -> TestNode {
    let mut node = TestNode {
        location_file: Some("a.cc".into()),
        location_line_start: Some(7),
        location_line_end: Some(7),
        location_type: Some("A".into()),
        location_method: Some("b".into()),
        start_utc: Some("1970-01-01T00:00:01.000Z".into()),
        // A display name is a single line.
        ..TestNode::test("s::A.b", "b\\n\u{1}ü", state)
    };
    node.members.insert("x.y".into(), serde_json::json!([1.0]));
    node.members.set_own(key::SUITE, "s");
    node.members.set_own(key::WORKER, 3);
    node
}

#[test]
fn started_node_has_location_and_start_time() {
    let mut out = Vec::new();
    render_started(&mut out, &description(&[]), 1000, 3);
    let change: NodeChange = serde_json::from_slice(&out).unwrap();
    assert_eq!(change.node, expected_node(ExecutionState::InProgress));
}

#[test]
fn passed_node_has_only_required_members() {
    let result = TestResult {
        started_ms: Some(1000),
        ended_ms: Some(2000),
        duration_us: Some(1500),
        worker: Some(3),
        ..TestResult::new(Outcome::Passed)
    };
    let mut expected = expected_node(ExecutionState::Passed);
    expected.stop_utc = Some("1970-01-01T00:00:02.000Z".into());
    expected.duration_ms = Some(1.5);
    expected.members.set_own(key::PROGRAM, "/bin/p q");
    assert_eq!(rendered(&description(&[]), &result), expected);
}

#[test]
fn terminal_node_has_all_known_members() {
    let pair = |name: &str, value: &str| TraitPair { name: name.into(), value: value.into() };
    let traits = [pair("k", "v\\"), pair("key", "")];
    let failure = Failure {
        file: Some("other.cc".into()),
        line: Some(9),
        expected: Some("2".into()),
        actual: Some("1".into()),
        ..Failure::default()
    };
    let file = DiagnosticsFile { path: "/run/a b.dmp".into(), description: "minidump".into() };
    let result = TestResult {
        failures: vec![failure],
        stdout: "o".into(),
        stderr: "e".into(),
        exit_reason: Some(ExitReason {
            signal: Some("SIGSEGV".into()),
            code: Some(3),
            ..ExitReason::default()
        }),
        isolated_rerun: Some(IsolatedRerun::Crashes),
        diagnostics: Some(Box::new(TestDiagnostics { files: vec![file], ..TestDiagnostics::default() })),
        usage: Some(ProcessUsage { cpu_us: 2500, peak_kib: 9, wall_us: 1 }),
        leaked: vec![LeakedProcess { pid: 7, command: "sleep 9".into(), ..LeakedProcess::default() }],
        reproduce: Some("./p --x".into()),
        ..TestResult::with_reason(Outcome::Crashed, "m\0")
    };
    let node = rendered(&description(&traits), &result);
    assert_eq!(node.state, Some(ExecutionState::Error));
    assert_eq!(node.outcome_kind.as_deref(), Some("crashed"));
    assert_eq!((node.location_file.as_deref(), node.location_line_start), (Some("a.cc"), Some(7)));
    assert_eq!(node.error_stacktrace.as_deref(), Some("other.cc:9"));
    assert_eq!(node.error_message.as_deref(), Some("m\0"));
    assert_eq!((node.assert_actual.as_deref(), node.assert_expected.as_deref()), (Some("1"), Some("2")));
    assert_eq!(node.standard_output.as_deref(), Some("o"));
    let stderr = node.standard_error.as_deref().unwrap();
    assert!(stderr.starts_with("e\n[heeler: the test leaked a process"), "{stderr}");
    let expected = |name: &str, value: &str| TestTrait { name: name.into(), value: value.into() };
    assert_eq!(node.traits, [expected("k", "v\\"), expected("key", "")]);
    assert_eq!(node.text_member(key::REPRODUCE), Some("./p --x"));
    assert_eq!(node.text_member(key::SIGNAL), Some("SIGSEGV"));
    assert_eq!(node.text_member(key::ISOLATED_RERUN), Some("crashes"));
    assert_eq!(node.text_member("attachments.0.uri"), Some("file:///run/a%20b.dmp"));
    assert_eq!(node.text_member("attachments.0.display-name"), Some("a b.dmp"));
    assert_eq!((&node.members[key::EXIT_CODE], &node.members[key::CPU_MS]), (&3.into(), &2.5.into()));
    assert_eq!(node.members[key::LEAKED], serde_json::json!([{"pid": 7, "command": "sleep 9"}]));
    assert!(!node.members.contains_key(key::ATTEMPTS));
}

#[test]
fn failure_location_replaces_missing_test_location() {
    let failure = Failure { file: Some("x.rs".into()), line: Some(4), ..Failure::default() };
    let result = TestResult { failures: vec![failure], ..TestResult::new(Outcome::Failed) };
    let test = NodeDescription { file: None, line: None, ..description(&[]) };
    let node = rendered(&test, &result);
    assert_eq!((node.location_file.as_deref(), node.location_line_start), (Some("x.rs"), Some(4)));
    assert_eq!(node.error_stacktrace, None);
}

#[test]
fn several_failures_are_listed() {
    let failure = |line, message: &str| Failure {
        file: Some("x.cc".into()),
        line: Some(line),
        message: Some(message.into()),
        ..Failure::default()
    };
    let compared =
        Failure { expected: Some("2".into()), actual: Some("1".into()), ..failure(9, "not equal") };
    let failures = vec![failure(4, "bad"), compared];
    let result = TestResult { failures, ..TestResult::new(Outcome::Failed) };
    let node = rendered(&description(&[]), &result);
    assert_eq!(node.error_message.as_deref(), Some("bad\nx.cc:9: not equal"));
    assert_eq!(node.error_stacktrace.as_deref(), Some("x.cc:4\nx.cc:9"));
    // Actual and expected values belong to the first failure, which has none.
    assert_eq!((node.assert_actual.as_deref(), node.assert_expected.as_deref()), (None, None));
    let expected = serde_json::json!([
        {"message": "bad", "file": "x.cc", "line": 4},
        {"message": "not equal", "file": "x.cc", "line": 9, "expected": "2", "actual": "1"},
    ]);
    assert_eq!(node.members[key::FAILURES], expected);
    let reversed = TestResult { failures: result.failures.iter().rev().cloned().collect(), ..result.clone() };
    let node = rendered(&description(&[]), &reversed);
    assert_eq!((node.assert_actual.as_deref(), node.assert_expected.as_deref()), (Some("1"), Some("2")));
    let single = TestResult { failures: vec![failure(4, "bad")], ..result };
    assert!(!rendered(&description(&[]), &single).members.contains_key(key::FAILURES));
}

#[test]
fn attempts_round_trip() {
    let attempt = |outcome, exit_reason| Attempt {
        failed_at: None,
        exit_reason,
        stdout: "o".into(),
        duration_us: 2500,
        ..Attempt::new(outcome, "m")
    };
    let exit = ExitReason { signal: Some("SIGABRT".into()), ..ExitReason::default() };
    let attempts = vec![attempt(Outcome::Failed, None), attempt(Outcome::Crashed, Some(exit))];
    let result = TestResult { attempts: attempts.clone(), ..TestResult::new(Outcome::Flaky) };
    let node = rendered(&description(&[]), &result);
    assert_eq!(attempts_of_node(&node), attempts);
    assert_eq!(node.members[key::ATTEMPT], 3);
    assert_eq!(node.standard_output.as_deref(), Some("attempt 1 (failed): m\nattempt 2 (crashed): m\n"));
}

#[test]
fn client_reads_the_outcome_that_was_rendered() {
    for outcome in OutcomeCounts::KINDS {
        let node = rendered(&description(&[]), &TestResult::new(outcome));
        assert_eq!(outcome_of_node(&node), Some(outcome));
    }
    let stopped = Outcome::NotRun(NotRunReason::TooManyFailures);
    let node = rendered(&description(&[]), &TestResult::new(stopped));
    assert_eq!(node.state, Some(ExecutionState::Cancelled));
    assert_eq!(outcome_of_node(&node), Some(Outcome::NotRun(NotRunReason::Cancelled)));
}

#[test]
fn unfinished_test_has_no_outcome() {
    for state in [ExecutionState::Discovered, ExecutionState::InProgress, ExecutionState::Unknown] {
        let node = TestNode { outcome_kind: Some("not-run".into()), ..TestNode::test("s::t", "t", state) };
        assert_eq!(outcome_of_node(&node), None);
    }
    assert_eq!(outcome_of_node(&TestNode::default()), None);
}
