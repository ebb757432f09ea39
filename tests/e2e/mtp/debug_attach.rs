//! Tests that the client attaches a debugger to: they wait for it before their first instruction, and Heeler
//! acts on every response of the client.

use std::{
    io::Read as _,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use crate::support::{
    checked_run::{CheckedRun, ExpectedDelivery},
    debugging::{
        CANCEL, begin_debug_run, cancelled_requests, debug_server, finish, log_of, respond,
        wait_attach_request, world,
    },
    process::{ProcessRole, children, signal, state, wait_until},
    requirement,
    server::{ServerTransport, TestServer},
    terminal::TerminalCommand,
    world::{TestWorld, run},
};

fn tracer_of(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    line.map_or(0, |line| line.trim().parse().unwrap())
}

/// A real debugger that has attached and waits before it executes `then`.
struct DebuggerProcess {
    child: Child,
    go: PathBuf,
}

impl DebuggerProcess {
    fn attach(world: &TestWorld, pid: u32, then: &[&str]) -> Self {
        let go = world.path(&format!("go-{pid}"));
        let wait = format!(
            "shell while [ ! -e {0} -a -e {1} ]; do sleep 0.01; done",
            go.display(),
            world.dir().display()
        );
        let mut command = Command::new("gdb");
        command.args(["-q", "-batch", "-nx", "-p", &pid.to_string(), "-ex", &wait]);
        command.args(then.iter().flat_map(|line| ["-ex", line]));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).process_group(0);
        let child = command.spawn().unwrap();
        let gdb = Self { child, go };
        // After attaching, gdb waits inside a shell command.
        wait_until("gdb has attached and waits", || {
            tracer_of(pid) == gdb.child.id() && !children(gdb.child.id()).is_empty()
        });
        gdb
    }

    /// Attaches lldb, whose tracer is a separate process.
    fn attach_lldb(world: &TestWorld, pid: u32, then: &[&str]) -> Self {
        let (go, here) = (world.path(&format!("go-{pid}")), world.path(&format!("here-{pid}")));
        let wait = format!(
            "platform shell -t 300 -- touch {2}; while [ ! -e {0} -a -e {1} ]; do sleep 0.01; done",
            go.display(),
            world.dir().display(),
            here.display()
        );
        // lldb's shell command has a timeout, in seconds.
        let mut command = Command::new("lldb");
        command.args(["--batch", "--no-lldbinit", "-p", &pid.to_string(), "-o", &wait]);
        command.args(then.iter().flat_map(|line| ["-o", line]));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        let lldb = Self { child: command.spawn().unwrap(), go };
        wait_until("lldb has attached and waits", || here.exists() && tracer_of(pid) != 0);
        lldb
    }

    fn resume(mut self) -> String {
        std::fs::write(&self.go, "").unwrap();
        let mut output = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        output
    }
}

/// Kills the debugger, which may loop forever after a failed test.
impl Drop for DebuggerProcess {
    fn drop(&mut self) {
        let (Ok(()) | Err(_)) = self.child.kill();
        let (Ok(_) | Err(_)) = self.child.wait();
    }
}

/// Waits until a held process has been released to its debugger: SIGCONT is pending, even if the process has
/// not handled it yet.
fn wait_handed_over(pid: u32) {
    wait_until("the process is handed over", || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("SigPnd:")).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap() & (1 << (18 - 1)) != 0
    });
}

#[test]
fn attached_debugger_sees_no_stop_signal_although_the_response_is_late() {
    let world = world();
    let mut server = debug_server(&world, false);
    let tests = ["kinds::Math.Fail"];
    let run = begin_debug_run(&mut server, 1, &tests);
    let asked = wait_attach_request(&server, 0);
    let then = ["break Math_Fail_Test::TestBody", "continue", "continue"];
    let gdb = DebuggerProcess::attach(&world, asked.pid, &then);
    // The debugger may continue the test before the client has responded.
    wait_handed_over(asked.pid);
    assert_eq!(tracer_of(asked.pid), gdb.child.id());
    assert!(world.starts().is_empty(), "nothing of the program has run");
    respond(&mut server, &asked, json!({"success": true}));
    let output = gdb.resume();
    assert!(output.contains("Breakpoint 1, ") && !output.contains("received signal"), "{output}");
    finish(&server, &run, &tests).assert_all("failed");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn attached_lldb_sees_no_stop_signal_before_or_after_the_response() {
    if Command::new("lldb").arg("--version").output().is_err() {
        requirement::leave_out("lldb", "apt-get install lldb");
        return;
    }
    for is_response_late in [true, false] {
        let world = world();
        let mut server = debug_server(&world, false);
        let tests = ["kinds::Math.Fail"];
        let run = begin_debug_run(&mut server, 1, &tests);
        let asked = wait_attach_request(&server, 0);
        let then = ["breakpoint set -n Math_Fail_Test::TestBody", "process continue", "process continue"];
        let lldb = DebuggerProcess::attach_lldb(&world, asked.pid, &then);
        assert!(world.starts().is_empty(), "nothing of the program has run");
        let output = if is_response_late {
            let output = lldb.resume();
            respond(&mut server, &asked, json!({"success": true}));
            output
        } else {
            respond(&mut server, &asked, json!({"success": true}));
            wait_handed_over(asked.pid);
            lldb.resume()
        };
        assert!(output.contains("stop reason = breakpoint 1.1"), "{is_response_late}: {output}");
        // lldb reports one stop for attaching.
        let signals = output.matches("stop reason = signal").count();
        assert!(signals <= 1, "{is_response_late}: {output}");
        finish(&server, &run, &tests).assert_all("failed");
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn attached_debugger_stops_test_and_keeps_result() {
    for is_listening in [false, true] {
        let world = world();
        // These timeouts would end a test that runs under a debugger.
        world.write("heeler.toml", "[profile.default]\ntimeout = \"100ms\"\nidle-timeout = \"100ms\"\nstartup-timeout = \"100ms\"\nrun-timeout = \"200ms\"\n");
        let mut server = debug_server(&world, is_listening);
        let tests = ["kinds::Math.Fail"];
        let run = begin_debug_run(&mut server, 1, &tests);
        let asked = wait_attach_request(&server, 0);
        assert_eq!((state(asked.pid), tracer_of(asked.pid)), (Some('T'), 0));
        assert!(world.starts().is_empty(), "nothing of the program has run");
        let then = ["break Math_Fail_Test::TestBody", "continue", "bt 1", "shell sleep 0.5", "continue"];
        let gdb = DebuggerProcess::attach(&world, asked.pid, &then);
        respond(&mut server, &asked, json!({"success": true}));
        wait_handed_over(asked.pid);
        let said = gdb.resume();
        assert!(said.contains("Breakpoint 1, ") && said.contains("#0  "), "{said}");
        assert!(!said.contains("received signal"), "{said}");
        finish(&server, &run, &tests).assert_all("failed");
        assert_eq!((cancelled_requests(&server), log_of(&server, "kinds")), (vec![], vec![]));
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn debug_run_runs_tests_singly_in_turn() {
    let world = world();
    let mut server = debug_server(&world, false);
    let tests = ["kinds::Math.Add", "kinds::Noise.Errors", "kinds::Crash.Abort"];
    let run = begin_debug_run(&mut server, 1, &tests);
    let mut pids = Vec::new();
    for number in 0..tests.len() {
        let asked = wait_attach_request(&server, number);
        // The previous process has exited, and the next one has not started.
        assert_eq!(server.processes(ProcessRole::Guard).len(), 1);
        assert_eq!(world.starts().len(), number);
        pids.push(asked.pid);
        // An absent or null `success` means true. Although no debugger has attached, the test continues.
        let success = [json!({}), json!({"success": null}), Value::Null];
        respond(&mut server, &asked, success[number].clone());
    }
    let checked_run = finish(&server, &run, &tests);
    assert_eq!(
        (checked_run.state(tests[0]), checked_run.state(tests[1]), checked_run.state(tests[2])),
        ("passed", "passed", "error")
    );
    assert_eq!(world.starts().iter().map(|start| start.pid).collect::<Vec<_>>(), pids);
    // The process was not traced, and the crash is not confirmed by an isolated rerun.
    assert_eq!(checked_run.response["result"]["attachments"], json!([]), "{}", checked_run.response);
    assert_eq!(log_of(&server, "without a debugger"), Vec::<String>::new());
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn declined_attach_runs_tests_normally() {
    let refusals = [
        json!({"result": {"success": false}}),
        json!({"error": {"code": -32603, "message": "no debugger is installed"}}),
        json!({"error": {"code": 7, "message": "", "data": null}}),
    ];
    for refusal in refusals {
        let world = world();
        let mut server = debug_server(&world, false);
        let tests = ["kinds::Crash.Segv"];
        let run = begin_debug_run(&mut server, 1, &tests);
        let asked = wait_attach_request(&server, 0);
        let mut message = json!({"jsonrpc": "2.0", "id": asked.id});
        message.as_object_mut().unwrap().extend(refusal.as_object().unwrap().clone());
        server.send(&message);
        let checked_run = finish(&server, &run, &tests);
        checked_run.assert_all("error");
        // The same process is traced again, so the crash has a stack trace and a dump.
        assert_eq!(world.starts().iter().map(|start| start.pid).collect::<Vec<_>>(), [asked.pid]);
        assert!(checked_run.message(tests[0]).contains("SIGSEGV"), "{}", checked_run.message(tests[0]));
        let files = checked_run.response["result"]["attachments"].to_string();
        assert!(files.contains(".dmp"), "{files}");
        let log = log_of(&server, "without a debugger");
        assert!(log.len() == 1 && log[0].contains("kinds::Crash.Segv"), "{log:?}");
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn time_limits_resume_when_attach_is_declined() {
    let world = world();
    world.write("heeler.toml", "[profile.default]\ntimeout = \"300ms\"\ngrace-period = \"300ms\"\n");
    let mut server = debug_server(&world, false);
    let tests = ["kinds::Hang.Forever"];
    let run = begin_debug_run(&mut server, 1, &tests);
    let asked = wait_attach_request(&server, 0);
    respond(&mut server, &asked, json!({"success": false}));
    finish(&server, &run, &tests).assert_all("timed-out");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn unanswered_attach_request_is_not_repeated() {
    let world = world();
    world.write("heeler.toml", "[profile.default]\ndebugger-timeout = \"300ms\"\n");
    let mut server = debug_server(&world, false);
    let tests = ["kinds::Math.Add"];
    let run = begin_debug_run(&mut server, 1, &tests);
    let first = wait_attach_request(&server, 0);
    finish(&server, &run, &tests).assert_all("passed");
    assert_eq!(cancelled_requests(&server), std::slice::from_ref(&first.id));
    let log = log_of(&server, "debugger-timeout");
    assert!(log.len() == 1 && log[0].contains(tests[0]), "{log:?}");
    respond(&mut server, &first, json!({"success": true}));
    // Unsolicited responses are ignored, even with ids of the client's own requests.
    for id in [json!(run.request), json!("x"), json!(null), json!(1 << 30), json!(1.5)] {
        server.send(&json!({"jsonrpc": "2.0", "id": id, "result": {"success": true}}));
    }
    let next = begin_debug_run(&mut server, 2, &tests);
    let second = wait_attach_request(&server, 1);
    assert_ne!(second.id, first.id);
    respond(&mut server, &second, json!({"success": true}));
    finish(&server, &next, &tests).assert_all("passed");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn cancelled_run_withdraws_attach_and_kills_process() {
    let world = world();
    let mut server = debug_server(&world, true);
    let tests = ["kinds::Math.Add", "kinds::Noise.Errors"];
    let run = begin_debug_run(&mut server, 1, &tests);
    let asked = wait_attach_request(&server, 0);
    server.notify(CANCEL, json!({"id": run.request}));
    let checked_run = finish(&server, &run, &tests);
    checked_run.assert_all("cancelled");
    assert_eq!(checked_run.response["error"]["code"], -32800);
    assert_eq!(cancelled_requests(&server), [asked.id]);
    assert_eq!(state(asked.pid), None);
    assert!(world.starts().is_empty(), "nothing of the program has run");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn client_disconnect_kills_held_process() {
    let world = world();
    let mut server = debug_server(&world, false);
    begin_debug_run(&mut server, 1, &["kinds::Math.Add"]);
    let asked = wait_attach_request(&server, 0);
    server.disconnect();
    server.wait_gone();
    assert_eq!(state(asked.pid), None);
    assert!(world.starts().is_empty());
}

#[test]
fn second_exit_during_debug_run_leaves_nothing_behind() {
    let world = world();
    let mut server = debug_server(&world, false);
    let run = begin_debug_run(&mut server, 1, &["kinds::Math.Add"]);
    let asked = wait_attach_request(&server, 0);
    let recorder = server.recorder.clone();
    // The first test is waiting for the debugger.
    server.notify("exit", json!({}));
    assert_eq!(server.exit(), Some(0));
    assert_eq!(state(asked.pid), None);
    let checked_run =
        CheckedRun::check(&recorder.events(), &run, &["kinds::Math.Add".to_owned()], ExpectedDelivery::Once);
    checked_run.assert_all("cancelled");
}

#[test]
fn worker_death_while_attaching_repeats_attach_request() {
    for role in [ProcessRole::Worker, ProcessRole::Guard, ProcessRole::Watchdog] {
        let world = world();
        let mut server = debug_server(&world, false);
        let tests = ["kinds::Math.Add"];
        let run = begin_debug_run(&mut server, 1, &tests);
        let first = wait_attach_request(&server, 0);
        signal(server.processes(role)[0], "KILL");
        let checked_run = if role == ProcessRole::Guard {
            // The process exited with its guard before its test began, so Heeler retries the test once.
            let second = wait_attach_request(&server, 1);
            respond(&mut server, &second, json!({"success": true}));
            finish(&server, &run, &tests)
        } else {
            let second = wait_attach_request(&server, 1);
            assert_ne!(first.pid, second.pid);
            respond(&mut server, &second, json!({"success": true}));
            finish(&server, &run, &tests)
        };
        checked_run.assert_all("passed");
        assert_eq!(cancelled_requests(&server), [first.id], "{role:?}");
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn debug_run_does_not_block_normal_run() {
    let world = world();
    world.write("heeler.toml", "[profile.default]\njobs = 3\n");
    let mut server = debug_server(&world, true);
    let tests = ["kinds::Math.Add", "kinds::Noise.Errors"];
    let runs = [begin_debug_run(&mut server, 101, &tests), begin_debug_run(&mut server, 102, &tests)];
    let first = [wait_attach_request(&server, 0), wait_attach_request(&server, 1)];
    // Both debug runs wait for a debugger. A normal run is not blocked by them.
    let normal = server.run(Some(&tests));
    finish(&server, &normal, &tests).assert_all("passed");
    for asked in first {
        respond(&mut server, &asked, json!({"success": true}));
    }
    for number in [2, 3] {
        let asked = wait_attach_request(&server, number);
        respond(&mut server, &asked, json!({"success": true}));
    }
    for run in &runs {
        finish(&server, run, &tests).assert_all("passed");
    }
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn debug_server_makes_every_run_a_debug_run() {
    for has_debuggers in [true, false] {
        let world = world();
        let mut server = TestServer::start_with(ServerTransport::Dial, &world, &["kinds"], &["--debug"]);
        server.initialize(json!({"testing": {"debuggerProvider": has_debuggers}}));
        let tests = ["kinds::Math.Add"];
        let run = server.run(Some(&tests));
        if has_debuggers {
            let asked = wait_attach_request(&server, 0);
            respond(&mut server, &asked, json!({"success": true}));
        }
        finish(&server, &run, &tests).assert_all("passed");
        assert_eq!(log_of(&server, "without a debugger").len(), usize::from(!has_debuggers));
        assert_eq!(server.exit(), Some(0));
    }
}

const SCRIPT: &str = "break Math_Fail_Test::TestBody\ncontinue\nbt 1\ncontinue\n";

#[test]
fn cli_debugger_stops_each_test_in_turn() {
    let world = world();
    world.write("script", SCRIPT);
    let debugger = "gdb -q -batch -nx -x script -p {pid}";
    let words =
        ["run", "kinds", "-E", "Math.Fail", "-E", "Noise.Errors", "--debugger", debugger, "--timeout", "1ms"];
    let ran = world.run(&words).assert_code(2);
    assert!(ran.line_with(&["Breakpoint 1, ", "Math_Fail_Test::TestBody"]).len() > 10);
    assert!(!ran.stdout.contains("received signal"), "{ran}");
    ran.line_with(&["FAIL", "Math.Fail"]);
    ran.assert_stderr("written to standard error");
    ran.line_with(&["1 passed, 1 failed"]);
    assert_eq!(world.starts().len(), 2);
}

#[test]
fn cli_debugger_gets_and_returns_terminal() {
    let world = world();
    // The kernel stops a background process that reads from a terminal.
    let ask = "shell echo gdb asks; read -r word </dev/tty; echo gdb read $word.";
    let debugger =
        format!("gdb -q -nx -batch -ex '{ask}' -ex 'break Math_Add_Test::TestBody' -ex continue -ex detach");
    let script = format!("#!/bin/sh\n{debugger} -p $1\n");
    world.write("debug.sh", &script);
    let heeler = env!("CARGO_BIN_EXE_heeler");
    let line = format!(
        "{heeler} run kinds -E Math.Add --color never --debugger \"sh debug.sh {{pid}}\"; echo shell asks; read -r word; echo shell read $word."
    );
    let mut terminal = TerminalCommand::start(&world, &line);
    terminal.wait_for("gdb asks");
    terminal.type_in("one\n");
    terminal.wait_for("gdb read one.");
    terminal.wait_for("Breakpoint 1, ");
    terminal.wait_for("1 passed");
    terminal.wait_for("shell asks");
    terminal.type_in("two\n");
    terminal.wait_for("shell read two.");
    assert!(terminal.ends_well());
}

#[test]
fn killed_debugger_leaves_terminal_restored() {
    let world = world();
    // This debugger turns off line editing, as debuggers do, and never attaches. It must still be ended with
    // the run.
    let script = "stty -icanon -echo </dev/tty; echo has the terminal; kill -INT $PPID; exec sleep 1000\n";
    world.write("debug.sh", script);
    let heeler = env!("CARGO_BIN_EXE_heeler");
    let line = format!(
        "{heeler} run kinds -E Math.Add --debugger \"sh debug.sh {{pid}}\"; stty -a; echo shell ends"
    );
    let mut terminal = TerminalCommand::start(&world, &line);
    terminal.wait_for("shell ends");
    let text = terminal.text();
    assert!(text.contains("has the terminal"), "{text}");
    for mode in [" icanon", " echo "] {
        assert!(text.contains(mode), "{mode}: {text}");
    }
    assert!(terminal.ends_well());
}

#[test]
fn display_is_silent_while_debugger_has_terminal() {
    let world = world();
    world.write("heeler.toml", "[profile.default]\ngrace-period = \"200ms\"\n");
    // While the test is stopped in the debugger, the user cancels the run, which kills the test.
    let script = "gdb -q -nx -batch -p $1 -ex \"shell kill -INT $PPID\" -ex \"shell until grep -q ') Z' /proc/$1/stat; do sleep 0.01; done\" \
                  -ex 'shell echo the debugger ends'\n";
    world.write("debug.sh", script);
    let heeler = env!("CARGO_BIN_EXE_heeler");
    let line = format!("exec 2>&1; exec {heeler} run kinds -E Math.Add --debugger 'sh debug.sh {{pid}}'");
    let ran = run(world.shell(&line)).assert_code(3);
    let place = |what: &str| ran.stdout.find(what).unwrap_or_else(|| panic!("{what}: {ran}"));
    assert!(place("the debugger ends") < place("cancelling"), "{ran}");
}

#[test]
fn debugger_that_does_not_attach_is_an_error() {
    let world = world();
    let ran = world.run(&["run", "kinds", "-E", "Math.Add", "--debugger", "true"]).assert_code(4);
    ran.assert_stdout("exited before it attached");
    ran.assert_stdout("without a debugger");
    ran.line_with(&["1 passed"]);
    world.run(&["run", "kinds", "--debugger", "gdb 'x"]).assert_code(5).assert_stderr("unclosed");
}
