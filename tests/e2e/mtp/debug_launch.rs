//! Tests that the client's debugger launches: the command that Heeler offers, and the test's result, whether
//! the launch succeeds or fails.

use std::{
    io::Read as _,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use crate::support::{
    debugging::{
        ATTACH, CANCEL, begin_debug_run, cancelled_requests, debug_server, finish, log_of,
        wait_attach_request, wait_request, world,
    },
    process::{ProcessRole, signal, state, wait_until},
    server::TestServer,
    world::TestWorld,
};

const LAUNCH: &str = "client/launchDebugger";

/// A request to launch a test, as the client received it.
struct ReceivedLaunchRequest {
    id: Value,
    line: String,
    cwd: PathBuf,
}

/// Responds that the client cannot attach; waits for the first launch request.
fn decline_attach(server: &mut TestServer<'_>) -> (u32, ReceivedLaunchRequest) {
    let asked = wait_attach_request(server, 0);
    let error = json!({"code": -32601, "message": "there is no such method"});
    server.send(&json!({"jsonrpc": "2.0", "id": asked.id, "error": error}));
    (asked.pid, wait_launch_request(server, 0))
}

/// Waits for the n-th launch request, counted from 0.
fn wait_launch_request(server: &TestServer<'_>, number: usize) -> ReceivedLaunchRequest {
    let message = wait_request(server, LAUNCH, number);
    let params = message["params"].as_object().unwrap();
    let mut names: Vec<_> = params.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["args", "environmentVariables", "program", "workingDirectory"]);
    assert!(params["environmentVariables"].is_object());
    let text = |name: &str| params[name].as_str().unwrap();
    ReceivedLaunchRequest {
        id: message["id"].clone(),
        line: format!("'{}' {}", text("program"), text("args")),
        cwd: text("workingDirectory").into(),
    }
}

fn answer(server: &mut TestServer<'_>, offered: &ReceivedLaunchRequest, result: Value) {
    server.send(&json!({"jsonrpc": "2.0", "id": offered.id, "result": result}));
}

impl ReceivedLaunchRequest {
    /// Launches the test under a debugger command.
    fn launch(&self, words: &str) -> LaunchedTest {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec 2>&1; exec {words} {}", self.line)]).current_dir(&self.cwd);
        // The test must not inherit the environment of the client's processes.
        command.env("HEELER_IT_CLIENT", "1").process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        LaunchedTest(command.spawn().unwrap())
    }

    /// Launches the test under gdb, which executes these commands.
    fn launch_under_gdb(&self, lines: &[&str]) -> LaunchedTest {
        let lines: String = lines.iter().map(|line| format!(" -ex '{line}'")).collect();
        self.launch(&format!("gdb -q -nx -batch -ex 'set breakpoint pending on'{lines} --args"))
    }
}

struct LaunchedTest(Child);

impl LaunchedTest {
    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn output(mut self) -> String {
        let mut text = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        self.0.wait().unwrap();
        text
    }
}

impl Drop for LaunchedTest {
    fn drop(&mut self) {
        // The process may have exited already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Waits until the endless test of a world's program is running; returns its process id.
fn running_test_process(world: &TestWorld, server: &TestServer<'_>, uid: &str) -> u32 {
    server.wait_state(uid, "in-progress");
    world.starts().last().unwrap().pid
}

fn wait_gone(pid: u32) {
    wait_until("the launched process is gone", || state(pid).is_none_or(|state| state == 'Z'));
}

#[test]
fn client_without_attach_launches_tests() {
    for is_listening in [false, true] {
        let world = world();
        // These timeouts would end a test that runs under a debugger.
        world.write(
            "heeler.toml",
            "[profile.default]\ntimeout = \"100ms\"\nidle-timeout = \"100ms\"\nstartup-timeout = \"100ms\"\n",
        );
        let mut server = debug_server(&world, is_listening);
        let tests = ["kinds::Math.Fail", "kinds::Noise.Errors"];
        let run = begin_debug_run(&mut server, 1, &tests);
        let (held, first) = decline_attach(&mut server);
        assert_eq!(first.cwd, world.dir().canonicalize().unwrap());
        let lines = ["break Math_Fail_Test::TestBody", "run", "bt 1", "shell sleep 0.5", "continue"];
        let said = first.launch_under_gdb(&lines).output();
        assert!(said.contains("Breakpoint 1, ") && said.contains("#0  "), "{said}");
        assert!(said.contains("is executing new program") && !said.contains("received signal"), "{said}");
        answer(&mut server, &first, json!({"success": true}));
        // The held process was never started, and the client is not asked to attach to the next one.
        let second = wait_launch_request(&server, 1);
        wait_gone(held);
        assert_eq!(world.starts().len(), 1);
        answer(&mut server, &second, json!({}));
        second.launch_under_gdb(&["run"]).output();
        let checked_run = finish(&server, &run, &tests);
        assert_eq!((checked_run.state(tests[0]), checked_run.state(tests[1])), ("failed", "passed"));
        assert_eq!(checked_run.test(tests[1])["standardError"], "written to standard error\n");
        assert_eq!((cancelled_requests(&server), log_of(&server, "kinds")), (vec![], vec![]));
        let attached = server.recorder.events();
        let attached =
            attached.iter().filter_map(|event| event.message()).filter(|one| one["method"] == ATTACH);
        assert_eq!(attached.count(), 1);
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn launch_request_needs_no_response() {
    let world = world();
    let mut server = debug_server(&world, false);
    let tests = ["kinds::Math.Add"];
    let run = begin_debug_run(&mut server, 1, &tests);
    let (_, offered) = decline_attach(&mut server);
    let launched = offered.launch("");
    finish(&server, &run, &tests).assert_all("passed");
    // Heeler captures the test's output, so the launched command prints nothing.
    assert_eq!(launched.output(), "");
    assert_eq!((cancelled_requests(&server), log_of(&server, "kinds")), (vec![], vec![]));
    // A response after the run's end is ignored.
    answer(&mut server, &offered, json!({"success": false}));
    server.run(Some(&tests));
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn declined_launch_runs_tests_normally() {
    let refusals = [
        Some(json!({"result": {"success": false}})),
        Some(json!({"error": {"code": -32601, "message": "nor this method"}})),
        Some(json!({"result": {"success": true}})),
        None,
    ];
    for refusal in refusals {
        let world = world();
        let is_silent = refusal.is_none();
        let comes_to_nothing = refusal.as_ref().is_none_or(|one| one["result"]["success"] == true);
        if comes_to_nothing {
            world.write("heeler.toml", "[profile.default]\ndebugger-timeout = \"300ms\"\n");
        }
        let mut server = debug_server(&world, false);
        let tests = ["kinds::Crash.Segv"];
        let run = begin_debug_run(&mut server, 1, &tests);
        let (held, offered) = decline_attach(&mut server);
        if let Some(refusal) = refusal {
            let mut message = json!({"jsonrpc": "2.0", "id": offered.id});
            message.as_object_mut().unwrap().extend(refusal.as_object().unwrap().clone());
            server.send(&message);
        }
        let checked_run = finish(&server, &run, &tests);
        checked_run.assert_all("error");
        // The held process ran the test and is traced again, so the crash has a dump.
        assert_eq!(world.starts().iter().map(|start| start.pid).collect::<Vec<_>>(), [held]);
        assert!(checked_run.message(tests[0]).contains("SIGSEGV"), "{}", checked_run.message(tests[0]));
        assert!(
            checked_run.response["result"]["attachments"].to_string().contains(".dmp"),
            "{}",
            checked_run.response
        );
        let log = log_of(&server, "without a debugger");
        assert!(log.len() == 1 && log[0].contains(tests[0]), "{log:?}");
        assert_eq!(log[0].contains("debugger-timeout"), comes_to_nothing, "{log:?}");
        let expected = if is_silent { vec![offered.id.clone()] } else { vec![] };
        assert_eq!(cancelled_requests(&server), expected);
        // A late launch does not find a server.
        let late = offered.launch("").output();
        assert!(late.contains("the run no longer waits for this process"), "{late}");
        assert_eq!(world.starts().len(), 1);
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn crash_in_launched_test_is_reported() {
    let world = world();
    let mut server = debug_server(&world, false);
    let tests = ["kinds::Math.Add", "kinds::Crash.Segv"];
    let run = begin_debug_run(&mut server, 1, &tests);
    let (_, first) = decline_attach(&mut server);
    // A process that exits before its test begins is not offered again: the next request is for the other
    // test.
    let said = first.launch_under_gdb(&["catch exec", "run", "kill"]).output();
    assert!(said.contains("Catchpoint 1 "), "{said}");
    let said = wait_launch_request(&server, 1).launch_under_gdb(&["run", "bt 1", "kill"]).output();
    assert!(said.contains("SIGSEGV"), "{said}");
    let checked_run = finish(&server, &run, &tests);
    checked_run.assert_all("error");
    let messages = [checked_run.message(tests[0]), checked_run.message(tests[1])];
    assert!(messages.iter().all(|message| message.contains("in the debugger")), "{messages:?}");
    assert!(
        messages[0].contains("not run") && messages[0].contains("before the test started"),
        "{messages:?}"
    );
    assert_eq!(checked_run.test(tests[0])["outcome-kind"], "not-run");
    assert_eq!(checked_run.test(tests[1])["outcome-kind"], "lost");
    checked_run.assert_no_program_failures();
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn launched_tests_leaks_are_killed_and_reported() {
    let world = world();
    let mut server = debug_server(&world, false);
    let tests = ["kinds::Leak.Child"];
    let run = begin_debug_run(&mut server, 1, &tests);
    let (_, offered) = decline_attach(&mut server);
    let mut launched = offered.launch("");
    finish(&server, &run, &tests).assert_all("passed");
    assert_eq!(log_of(&server, "kinds::Leak.Child").len(), 1);
    // The launched process is the leader of its process group, which also contains the child.
    launched.0.wait().unwrap();
    let group = format!("-{}", launched.pid());
    let is_there = || Command::new("kill").args(["-0", "--", &group]).stderr(Stdio::null()).status().unwrap();
    wait_until("nothing of the group is left", || !is_there().success());
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn cancelled_run_withdraws_or_kills_launch() {
    for is_launched in [false, true] {
        let world = world();
        let mut server = debug_server(&world, true);
        let tests = ["kinds::Hang.Forever", "kinds::Leak.Child"];
        let run = begin_debug_run(&mut server, 1, &tests);
        let (_, offered) = decline_attach(&mut server);
        let launched = is_launched.then(|| offered.launch_under_gdb(&["run"]));
        let pid = is_launched.then(|| running_test_process(&world, &server, tests[0]));
        server.notify(CANCEL, json!({"id": run.request}));
        let checked_run = finish(&server, &run, &tests);
        checked_run.assert_all("cancelled");
        assert_eq!(checked_run.response["error"]["code"], -32800);
        assert_eq!(cancelled_requests(&server), if is_launched { vec![] } else { vec![offered.id] });
        pid.into_iter().for_each(wait_gone);
        drop(launched);
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn launched_test_dies_with_its_supervisors() {
    for role in [Some(ProcessRole::Worker), Some(ProcessRole::Watchdog), None] {
        let world = world();
        let mut server = debug_server(&world, false);
        let tests = ["kinds::Hang.Forever"];
        begin_debug_run(&mut server, 1, &tests);
        let (_, offered) = decline_attach(&mut server);
        // A debugger is the parent of the test process, except when the coordinator is killed.
        let launched = if role.is_none() { offered.launch("") } else { offered.launch_under_gdb(&["run"]) };
        let pid = running_test_process(&world, &server, tests[0]);
        match role {
            Some(role) => signal(server.processes(role)[0], "KILL"),
            None => signal(server.pid(), "KILL"),
        }
        wait_gone(pid);
        drop(launched);
        if role.is_some() {
            server.disconnect();
        }
        server.wait_gone();
    }
}

#[test]
fn client_disconnect_kills_launched_test() {
    let world = world();
    let mut server = debug_server(&world, false);
    let tests = ["kinds::Hang.Forever"];
    begin_debug_run(&mut server, 1, &tests);
    let (_, offered) = decline_attach(&mut server);
    let launched = offered.launch("");
    let pid = running_test_process(&world, &server, tests[0]);
    assert_eq!(pid, launched.pid());
    server.disconnect();
    server.wait_gone();
    wait_gone(pid);
}

#[test]
fn dialogue_reaches_a_test_that_a_debugger_launches() {
    for role in ["json-lines", "json-lines-stdio"] {
        let world = TestWorld::new();
        world.note_starts();
        world.fake(role);
        let suite = format!("name = \"fake\"\nprograms = [\"{role}\"]\nframework = \"{role}\"\n");
        world.write("heeler.toml", &format!("[[suite]]\n{suite}"));
        let mut server = TestServer::start(&world, &[]);
        server.initialize(json!({"testing": {"debuggerProvider": true}}));
        let tests = ["fake::t05", "fake::t06"];
        let run = begin_debug_run(&mut server, 1, &tests);
        let (_, first) = decline_attach(&mut server);
        answer(&mut server, &first, json!({}));
        first.launch_under_gdb(&["run"]).output();
        let second = wait_launch_request(&server, 1);
        answer(&mut server, &second, json!({}));
        second.launch_under_gdb(&["run"]).output();
        let checked_run = finish(&server, &run, &tests);
        assert_eq!(
            (checked_run.state(tests[0]), checked_run.state(tests[1])),
            ("failed", "passed"),
            "{role}"
        );
        assert_eq!(checked_run.message(tests[0]), "row 2: odd\nrows.rs:3: row 3: odd too");
        assert!(
            checked_run.test(tests[1])["standardOutput"].as_str().unwrap().contains("out of t06"),
            "{role}"
        );
    }
}
