//! Sample values for the unit tests of this crate's pure modules.

use heeler_protocol::control::{
    ClientId, ClientRoute, DeliveryLimits, LeaseId, LeasedTest, ListedTest, RunKey, TestId, TestLimits,
    TestProgram, WorkerLease,
};

use heeler_adapters::{FrameworkResult, FrameworkVerdict};

pub(crate) fn verdict(result: FrameworkResult) -> FrameworkVerdict {
    FrameworkVerdict::new(result, None)
}

pub(crate) fn program() -> TestProgram {
    TestProgram {
        suite: "suite".into(),
        path: "/bin/program".into(),
        args: vec![],
        tool_env: Vec::new(),
        env: vec![],
        cwd: "/".into(),
        framework: Some("gtest".into()),
        test_arguments: std::collections::BTreeMap::new(),
        entries: Vec::new(),
        unbuilt: None,
        reproduction: Default::default(),
        resources: Default::default(),
    }
}

pub(crate) fn leased(number: u32) -> LeasedTest {
    let name = format!("A.t{number}");
    LeasedTest {
        test: TestId(number),
        uid: format!("suite::{name}"),
        listed: ListedTest { name, ..ListedTest::default() },
        group: None,
        timeout_ms: None,
        idle_timeout_ms: None,
        slow_ms: None,
        attempts: vec![],
        crashed_attempt: None,
        ran_beside: Vec::new(),
        is_failure_provisional: false,
        is_flaky_failure: false,
        passed_iterations: 0,
    }
}

pub(crate) fn lease(count: u32) -> WorkerLease {
    WorkerLease {
        lease: LeaseId(1),
        run: RunKey::new(ClientId(1), "run"),
        route: ClientRoute {
            callback: None,
            limits: DeliveryLimits {
                connect_ms: 1000,
                stall_ms: 1000,
                drain_ms: 1000,
                answer_ms: 1000,
                first_answer_ms: 1000,
            },
            ..ClientRoute::default()
        },
        run_dir: "/nowhere".into(),
        program: program().into(),
        tests: (0..count).map(leased).map(std::sync::Arc::new).collect(),
        groups: Vec::new(),
        client_members: heeler_protocol::mtp::ClientMembers::default(),
        journal_limit_bytes: u64::MAX,
        limits: TestLimits {
            timeout_ms: Some(2000),
            grace_ms: 100,
            output_bytes: 1000,
            startup_ms: 60_000,
            memory_bytes: None,
        },
        slot: 1,
        unit_variables: Vec::new(),
        is_whole_program: false,
        has_private_tmpdir: false,
        repeat: std::num::NonZeroU32::MIN,
        repeat_until_ms: None,
        crash_capture: heeler_protocol::control::CrashCapturePlan::default(),
        is_isolated: count == 1,
        is_debugged: false,
        output_display: heeler_protocol::control::OutputDisplay::Hidden,
        is_output_live: false,
        is_environment_shown: false,
        runs_ignored: false,
    }
}
