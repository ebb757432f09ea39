//! A coordinator simulated by the tests, and the programs that its workers run.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use heeler_protocol::{
    control::{
        ClientId, ClientRoute, DeliveryLimits, DiscoveryJob, FromWorker, JoinMessage, LeaseEnd, LeaseEvent,
        LeaseId, LeasedTest, ListedTest, OsText, OutputDisplay, RunKey, TestId, TestLimits, TestProgram,
        ToWorker, WorkerId, WorkerLease,
    },
    mtp::{TestNode, UpdateParams},
    rpc::{self, RpcMessage},
};
use heeler_sys::spawn::{ChildStdio, SpawnOptions, SpawnedChild, spawn};
use heeler_transport::{
    LinkTask,
    control::{ControlReceiver, ControlSender, ReceivedPacket},
    local::LocalListener,
};
use tempfile::TempDir;
use tokio::time::timeout;

/// Generous, because the machine may be busy.
const DEADLINE: Duration = Duration::from_secs(150);

/// Shell functions that print GoogleTest's markers.
const MARKERS: &str = r#"
echo "[==========] Running tests."
begin() { echo "[ RUN      ] A.$1"; }
ok() { echo "[       OK ] A.$1 (0 ms)"; }
bad() { echo "[  FAILED  ] A.$1 (0 ms)"; }
count() { if [ "$1" = 1 ]; then echo "1 test"; else echo "$1 tests"; fi; }
last() {
  all=$(count $(($1 + $2)))
  echo "[----------] $all from A (0 ms total)"
  echo
  echo "[----------] Global test environment tear-down"
  echo "[==========] $all from 1 test suite ran. (0 ms total)"
  echo "[  PASSED  ] $(count $1)."
  if [ "$2" -gt 0 ]; then echo "[  FAILED  ] $(count $2), listed below:"; exit 1; fi
  exit 0
}
"#;

/// A test program in the harness directory.
pub(crate) struct TestScript(PathBuf);

impl TestScript {
    pub(crate) fn path(&self) -> OsText {
        self.0.as_path().into()
    }
}

/// A worker process and its simulated coordinator.
pub(crate) struct WorkerHarness {
    dir: TempDir,
    worker: SpawnedChild,
    sender: ControlSender,
    receiver: ControlReceiver,
    task: LinkTask,
    scripts: u32,
    seen: LeaseObservation,
}

/// Observed results of a lease.
#[derive(Debug)]
pub(crate) struct LeaseObservation {
    pub(crate) end: LeaseEnd,
    pub(crate) start_us: Option<u64>,
    pub(crate) reports: Vec<LeaseEvent>,
    /// Terminal nodes by display name.
    pub(crate) nodes: BTreeMap<String, TestNode>,
    pub(crate) logs: Vec<String>,
}

impl Default for LeaseObservation {
    fn default() -> Self {
        Self {
            end: LeaseEnd::Complete,
            start_us: None,
            reports: Vec::new(),
            nodes: BTreeMap::new(),
            logs: Vec::new(),
        }
    }
}

impl LeaseObservation {
    /// Returns `name state` of each terminal node.
    pub(crate) fn states(&self) -> Vec<String> {
        self.nodes.iter().map(|(name, node)| format!("{name} {}", node.state.unwrap())).collect()
    }
}

/// A worker whose coordinator has disconnected.
pub(crate) struct OrphanedWorker {
    _dir: TempDir,
    worker: SpawnedChild,
}

impl OrphanedWorker {
    pub(crate) fn wait_for_exit(mut self) {
        self.worker.wait().unwrap();
    }
}

impl WorkerHarness {
    pub(crate) async fn new() -> Self {
        Self::with_output(ChildStdio::Null).await
    }

    /// Starts a worker whose fork servers exit immediately.
    pub(crate) async fn without_fork_server() -> Self {
        let mut env: Vec<_> = std::env::vars_os().collect();
        env.push(("HEELER_WITHOUT_FORK_SERVER".into(), "1".into()));
        Self::with(|spawn| SpawnOptions { env: Some(env), ..spawn }).await
    }

    /// Starts a worker whose own standard output goes to `stdout`.
    pub(crate) async fn with_output(stdout: ChildStdio) -> Self {
        Self::with(|spawn| SpawnOptions { stdout, ..spawn }).await
    }

    async fn with(change: impl FnOnce(SpawnOptions) -> SpawnOptions) -> Self {
        let dir = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o700)).tempdir().unwrap();
        let socket = dir.path().join("control");
        let mut listener = LocalListener::bind(&socket).unwrap();
        let worker = spawn(change(SpawnOptions {
            args: vec!["__worker".into(), socket.clone().into(), "1".into()],
            stdout: ChildStdio::Null,
            ..SpawnOptions::new(roles_executable())
        }))
        .unwrap();
        let stream = timeout(DEADLINE, listener.accept()).await.unwrap().unwrap();
        let (sender, mut receiver, task) = heeler_transport::control::open(stream);
        let join = receiver.next::<JoinMessage>().await.unwrap().unwrap();
        let expected = JoinMessage::Worker { worker: WorkerId(1), pid: worker.pid().as_u32() };
        assert_eq!(join, ReceivedPacket::Message(expected));
        sender.send(&ToWorker::Accepted).await.unwrap();
        Self { dir, worker, sender, receiver, task, scripts: 0, seen: LeaseObservation::default() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a script with GoogleTest's markers as shell functions.
    pub(crate) fn script(&mut self, body: &str) -> TestScript {
        self.script_without_markers(&format!("{MARKERS}{body}"))
    }

    pub(crate) fn script_without_markers(&mut self, body: &str) -> TestScript {
        self.scripts += 1;
        let path = self.path(&format!("script{}", self.scripts));
        fs::write(&path, format!("#!/bin/bash\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        TestScript(path)
    }

    /// Compiles a Rust test program.
    pub(crate) fn rust_program(&self, source: &str) -> TestScript {
        let (file, program) = (self.path("program.rs"), self.path("program"));
        fs::write(&file, source).unwrap();
        let rustc = std::env::var_os("RUSTC").map_or_else(|| find_in_path("rustc"), PathBuf::from);
        let args = ["--test".into(), "-o".into(), program.clone().into(), file.into()];
        let mut compiler = spawn(SpawnOptions { args: args.to_vec(), ..SpawnOptions::new(rustc) }).unwrap();
        assert_eq!(compiler.wait().unwrap().code, Some(0));
        TestScript(program)
    }

    pub(crate) fn fifo(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        let mkfifo =
            SpawnOptions { args: vec![path.clone().into()], ..SpawnOptions::new(find_in_path("mkfifo")) };
        assert_eq!(spawn(mkfifo).unwrap().wait().unwrap().code, Some(0));
        path
    }

    pub(crate) async fn send(&self, message: &ToWorker) {
        if let ToWorker::Lease(lease) = message {
            self.sender.send(&ToWorker::Program(Arc::clone(&lease.program))).await.unwrap();
        }
        self.sender.send(&self.with_run_dir(message)).await.unwrap();
    }

    /// Sets the harness directory for the lease's journal, unless the lease names one.
    fn with_run_dir(&self, message: &ToWorker) -> ToWorker {
        let mut message = message.clone();
        if let ToWorker::Lease(lease) = &mut message
            && lease.run_dir.as_bytes().is_empty()
        {
            lease.run_dir = self.dir.path().into();
        }
        message
    }

    /// Returns the next message of the worker; records relayed messages.
    pub(crate) async fn receive(&mut self) -> FromWorker {
        loop {
            let received = timeout(DEADLINE, self.receiver.next()).await;
            let received = received.unwrap_or_else(|_| panic!("no word after {:?}", self.seen));
            match received.unwrap().expect("the worker is there") {
                ReceivedPacket::Message(message) => return message,
                ReceivedPacket::Forward { frame, .. } => self.record_frame(&frame),
            }
        }
    }

    pub(crate) async fn receive_nothing(&mut self, duration: Duration) {
        let received = timeout(duration, self.receiver.next::<FromWorker>()).await;
        assert!(received.is_err(), "{received:?}");
    }

    /// Waits until a test has started.
    pub(crate) async fn wait_until_started(&mut self) {
        while self.seen.reports.is_empty() {
            let message = self.receive().await;
            self.record_message(message);
        }
    }

    pub(crate) async fn run(&mut self, lease: WorkerLease) -> LeaseObservation {
        self.send(&ToWorker::Lease(Box::new(lease))).await;
        self.wait_for_lease_end().await
    }

    pub(crate) async fn wait_for_lease_end(&mut self) -> LeaseObservation {
        loop {
            let message = self.receive().await;
            if self.record_message(message) {
                return std::mem::take(&mut self.seen);
            }
        }
    }

    pub(crate) async fn discover(
        &mut self,
        program: &TestScript,
        timeout_ms: u64,
    ) -> Result<(String, Vec<ListedTest>), String> {
        self.discover_as(program, None, timeout_ms).await
    }

    /// Lists a program of this framework, or detects the framework.
    pub(crate) async fn discover_as(
        &mut self,
        program: &TestScript,
        framework: Option<&str>,
        timeout_ms: u64,
    ) -> Result<(String, Vec<ListedTest>), String> {
        let program = self::program(program);
        let program = TestProgram { framework: framework.map(Into::into), ..program };
        let job = DiscoveryJob { job: 5, program, timeout_ms, capture: None, upcoming_run: None };
        self.send(&ToWorker::Discover(Box::new(job))).await;
        match self.receive().await {
            FromWorker::Discovered { job: 5, framework, tests, .. } => Ok((framework, tests)),
            FromWorker::NotDiscovered { job: 5, error } => Err(error),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn worker_peak_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.worker.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Returns the number of journals that the worker has open.
    pub(crate) fn open_journals(&self) -> usize {
        let descriptors = fs::read_dir(format!("/proc/{}/fd", self.worker.pid())).unwrap();
        let files = descriptors.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
        files.filter(|file| file.extension().is_some_and(|extension| extension == "journal")).count()
    }

    /// Closes the control connection, like the death of a coordinator.
    pub(crate) fn disconnect(self) -> OrphanedWorker {
        let Self { dir, worker, task, .. } = self;
        drop(task);
        OrphanedWorker { _dir: dir, worker }
    }

    /// Records a message; returns whether it ended a lease.
    fn record_message(&mut self, message: FromWorker) -> bool {
        match message {
            FromWorker::LeaseEvents { events: reports, .. } => self.seen.reports.extend(reports),
            FromWorker::Log { lines, .. } => {
                self.seen.logs.extend(lines.into_iter().map(|line| line.message));
            }
            FromWorker::LeaseEnded { end, start_us, .. } => {
                (self.seen.end, self.seen.start_us) = (end, start_us);
                return true;
            }
            other => panic!("{other:?}"),
        }
        false
    }

    fn record_frame(&mut self, frame: &[u8]) {
        let start = frame.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
        let RpcMessage::Notification { params, .. } = rpc::parse(&frame[start..]).unwrap() else { panic!() };
        let params: UpdateParams = serde_json::from_str(params.unwrap().get()).unwrap();
        for node in params.changes.unwrap().into_iter().map(|change| change.node) {
            if node.state.unwrap().is_terminal() {
                let twice = self.seen.nodes.insert(node.display_name.clone(), node);
                assert!(twice.is_none(), "{twice:?}");
            }
        }
    }
}

/// Returns the path of `examples/roles.rs`, which `cargo test` builds.
fn roles_executable() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let roles = test.parent().unwrap().with_file_name("examples").join("roles");
    assert!(roles.exists(), "{} is built by `cargo test` without `--test`", roles.display());
    roles
}

fn find_in_path(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| Path::exists(path)).unwrap()
}

fn program(script: &TestScript) -> TestProgram {
    TestProgram {
        suite: "suite".into(),
        path: script.path(),
        args: vec![],
        tool_env: vec![],
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

/// Returns a lease on the first tests `A.t0`, `A.t1`, … of a script.
pub(crate) fn lease(script: &TestScript, count: u32) -> WorkerLease {
    let listed = |number| ListedTest { name: format!("A.t{number}"), ..ListedTest::default() };
    WorkerLease {
        lease: LeaseId(3),
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
        run_dir: "".into(),
        program: program(script).into(),
        tests: leased((0..count).map(listed).collect()),
        groups: Vec::new(),
        client_members: heeler_protocol::mtp::ClientMembers::default(),
        journal_limit_bytes: u64::MAX,
        limits: TestLimits {
            timeout_ms: None,
            grace_ms: 300,
            output_bytes: 1000,
            startup_ms: 20_000,
            memory_bytes: None,
        },
        slot: 1,
        unit_variables: Vec::new(),
        is_whole_program: false,
        has_private_tmpdir: false,
        repeat: std::num::NonZeroU32::MIN,
        repeat_until_ms: None,
        crash_capture: heeler_protocol::control::CrashCapturePlan::default(),
        is_isolated: false,
        is_debugged: false,
        output_display: OutputDisplay::Hidden,
        is_output_live: false,
        is_environment_shown: false,
        runs_ignored: false,
    }
}

pub(crate) fn leased(tests: Vec<ListedTest>) -> Vec<Arc<LeasedTest>> {
    let tests = tests.into_iter().zip(0..);
    tests
        .map(|(listed, number)| LeasedTest {
            test: TestId(number),
            uid: format!("suite::{}", listed.name),
            listed,
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
        })
        .map(Arc::new)
        .collect()
}
