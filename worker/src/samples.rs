//! Sample values for the unit tests of this crate's pure modules.

use wire::{
    control::{Lease, LeaseId, LeasedTest, ListedTest, Program, TestIndex, TestLimits},
    mtp::ExecutionState,
};

use crate::adapter::Verdict;

pub(crate) fn verdict(state: ExecutionState) -> Verdict {
    Verdict::new(state, None)
}

pub(crate) fn program() -> Program {
    Program {
        suite: "suite".into(),
        path: "/bin/program".into(),
        args: vec![],
        tool_env: Vec::new(),
        env: vec![],
        cwd: "/".into(),
        framework: Some("gtest".into()),
    }
}

pub(crate) fn leased(number: u32) -> LeasedTest {
    let name = format!("A.t{number}");
    LeasedTest {
        test: TestIndex(number),
        uid: format!("suite::{name}"),
        listed: ListedTest { name, ..ListedTest::default() },
        group: None,
        foreign: None,
        timeout_ms: None,
        silence_ms: None,
        slow_ms: None,
        attempts: vec![],
        death: None,
        is_failure_held: false,
    }
}

pub(crate) fn lease(count: u32) -> Lease {
    Lease {
        lease: LeaseId(1),
        run: "run".into(),
        run_dir: "/nowhere".into(),
        program: program(),
        tests: (0..count).map(leased).collect(),
        groups: Vec::new(),
        limits: TestLimits {
            timeout_ms: Some(2000),
            grace_ms: 100,
            output_bytes: 1000,
            startup_ms: 60_000,
            memory_bytes: None,
        },
        watch: wire::control::WatchPlan::default(),
        is_alone: count == 1,
        is_debugged: false,
        is_output_shown: false,
    }
}
