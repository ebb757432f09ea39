//! Tests with real processes: start, parent-death signal, exit report.
#![expect(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use std::{
    ffi::OsString,
    fs::File,
    io::{Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    time::{Duration, Instant},
};

use heeler_sys::{
    io::{pipe, socket_pair, wait_readable},
    machine::{MachineReading, ProcessTable},
    process::{self, Pid, Signal},
    spawn::{ChildStdio, SpawnError, SpawnOptions, SpawnedChild, spawn},
    trace,
};

/// Environment variable that names the role of a re-executed test.
const ROLE: &str = "HEELER_HOST_TEST_ROLE";
const PATIENCE: Duration = Duration::from_secs(20);

fn shell(script: &str) -> SpawnOptions {
    SpawnOptions { args: vec!["-c".into(), script.into()], ..SpawnOptions::new("/bin/sh") }
}

/// Re-executes this test program for one test in the given role.
fn reexecute_with_role(test: &str, role: &str) -> SpawnOptions {
    let mut env: Vec<_> = std::env::vars_os().collect();
    env.push((ROLE.into(), role.into()));
    SpawnOptions {
        args: [test, "--exact", "--nocapture", "--test-threads=1"].map(OsString::from).to_vec(),
        env: Some(env),
        ..SpawnOptions::new(std::env::current_exe().unwrap())
    }
}

fn has_role(role: &str) -> bool {
    std::env::var(ROLE).is_ok_and(|own| own == role)
}

fn output(mut what: SpawnOptions) -> String {
    let (reader, writer) = pipe().unwrap();
    what.stdout = ChildStdio::Fd(writer);
    let mut child = spawn(what).unwrap();
    let text = read_to_end(reader);
    child.wait().unwrap();
    text
}

fn read_to_end(reader: OwnedFd) -> String {
    let mut text = String::new();
    File::from(reader).read_to_string(&mut text).unwrap();
    text
}

/// Reads until `end` has arrived; the writers may still be running.
fn read_until(file: &mut File, end: &str) -> String {
    let mut text = String::new();
    let mut byte = [0];
    while !text.ends_with(end) {
        assert!(wait_readable([Some(file.as_fd())], Some(Instant::now() + PATIENCE)).unwrap()[0], "{text:?}");
        assert_eq!(file.read(&mut byte).unwrap(), 1, "the end came after {text:?}");
        text.push(char::from(byte[0]));
    }
    text
}

fn assert_end_comes(file: &mut File) {
    let deadline = Instant::now() + PATIENCE;
    let mut rest = [0; 256];
    loop {
        assert!(wait_readable([Some(file.as_fd())], Some(deadline)).unwrap()[0], "a holder still lives");
        if file.read(&mut rest).unwrap() == 0 {
            return;
        }
    }
}

/// Waits until a condition holds.
fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited for: {what}");
        wait_readable([], Some(Instant::now() + Duration::from_millis(1))).unwrap();
    }
}

#[test]
fn arguments_environment_and_directory_reach_the_child() {
    let strange = OsString::from_vec(b"two words \xff '\"*".to_vec());
    let what = SpawnOptions {
        args: vec![
            "-c".into(),
            r#"printf '%s|%s|%s' "$1" "$NAME" "$PWD"; env | wc -l"#.into(),
            "sh".into(),
            strange,
        ],
        env: Some(vec![("NAME".into(), "v=1".into())]),
        cwd: Some("/usr".into()),
        ..SpawnOptions::new("/bin/sh")
    };
    let (reader, writer) = pipe().unwrap();
    let mut child = spawn(SpawnOptions { stdout: ChildStdio::Fd(writer), ..what }).unwrap();
    let mut bytes = Vec::new();
    File::from(reader).read_to_end(&mut bytes).unwrap();
    assert_eq!(child.wait().unwrap().code, Some(0));
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert!(bytes.starts_with(b"two words \xff '\"*|v=1|/usr"), "{text}");
}

#[test]
fn report_channel_is_descriptor_3_of_the_child_and_of_no_other() {
    let start = |channel| SpawnOptions {
        stdout: ChildStdio::Null,
        channel,
        ..shell("read -r line <&3 && echo got $line >&3; ls /proc/self/fd >&3")
    };
    for is_held in [false, true] {
        let (ours, theirs) = socket_pair().unwrap();
        let mut ours = File::from(ours);
        let mut child = if is_held {
            trace::spawn_held(start(Some(theirs))).unwrap().release().finish().unwrap()
        } else {
            spawn(start(Some(theirs))).unwrap()
        };
        ours.write_all(b"ping\n").unwrap();
        let mut text = String::new();
        // The end of file proves that this process kept no copy of the descriptor.
        ours.read_to_string(&mut text).unwrap();
        // `ls` itself opens the directory that it lists.
        assert_eq!(text, "got ping\n0\n1\n2\n3\n4\n");
        assert_eq!(child.wait().unwrap().code, Some(0));
        let mut without =
            spawn(SpawnOptions { channel: None, ..shell("test ! -e /proc/self/fd/3") }).unwrap();
        assert_eq!(without.wait().unwrap().code, Some(0));
    }
}

#[test]
fn exec_failure_names_program_and_reason() {
    let error = spawn(SpawnOptions::new("/no/such/program")).unwrap_err();
    assert_eq!(error.to_string(), "execute /no/such/program");
    let SpawnError::Execute { source, .. } = error else { panic!("{error:?}") };
    assert_eq!(source.kind(), std::io::ErrorKind::NotFound);

    let error = spawn(SpawnOptions::new("/etc/passwd")).unwrap_err();
    let SpawnError::Execute { source, .. } = error else { panic!("{error:?}") };
    assert_eq!(source.kind(), std::io::ErrorKind::PermissionDenied);

    let error = spawn(SpawnOptions { cwd: Some("/no/such/place".into()), ..SpawnOptions::new("/bin/true") })
        .unwrap_err();
    assert_eq!(error.to_string(), "enter the directory /no/such/place to start /bin/true");

    let error =
        spawn(SpawnOptions { args: vec!["a\0b".into()], ..SpawnOptions::new("/bin/true") }).unwrap_err();
    assert!(matches!(error, SpawnError::NulByte { text, .. } if text == "a\0b"));
}

#[test]
fn child_inherits_only_its_three_streams() {
    // An inheritable descriptor that must not reach the child.
    let (_reader, writer) = pipe().unwrap();
    let mut leaky = shell("ls /proc/self/fd | tr '\\n' ' '; readlink /proc/self/fd/0");
    leaky.stderr = ChildStdio::Fd(writer);
    let listing = output(leaky);
    // `ls` itself has the directory open as 3.
    assert_eq!(listing, "0 1 2 3 /dev/null\n");
}

#[test]
fn streams_one_and_two_may_be_swapped() {
    let (out_reader, out_writer) = pipe().unwrap();
    let (err_reader, err_writer) = pipe().unwrap();
    let mut what = reexecute_with_role("streams_one_and_two_may_be_swapped", "crosser");
    if has_role("crosser") {
        // The test's own descriptors 1 and 2, swapped: setting either one would overwrite the other's source.
        let mut child = spawn(SpawnOptions {
            stdout: ChildStdio::Fd(std::io::stderr().as_fd().try_clone_to_owned().unwrap()),
            stderr: ChildStdio::Fd(std::io::stdout().as_fd().try_clone_to_owned().unwrap()),
            ..shell("echo to-out; echo to-err >&2")
        })
        .unwrap();
        child.wait().unwrap();
        return;
    }
    what.stdout = ChildStdio::Fd(out_writer);
    what.stderr = ChildStdio::Fd(err_writer);
    let mut child = spawn(what).unwrap();
    let (out, err) = (read_to_end(out_reader), read_to_end(err_reader));
    child.wait().unwrap();
    assert!(out.contains("to-err") && !out.contains("to-out"), "{out}");
    assert!(err.contains("to-out") && !err.contains("to-err"), "{err}");
}

#[test]
fn child_has_own_group_and_default_signals() {
    if has_role("deaf") {
        process::ignore_terminal_signals();
        let _ends = process::ChildExits::watch().unwrap();
        let status = "/proc/self/status".into();
        let mut child = spawn(SpawnOptions { args: vec![status], ..SpawnOptions::new("/bin/cat") }).unwrap();
        child.wait().unwrap();
        return;
    }
    let text = output(reexecute_with_role("child_has_own_group_and_default_signals", "deaf"));
    for set in ["SigBlk", "SigIgn", "SigCgt"] {
        assert!(text.contains(&format!("{set}:\t0000000000000000\n")), "{text}");
    }
    let (mut feet, mut child) = sleeper();
    assert_eq!(process::stat(child.pid()).unwrap().group, child.pid());
    process::kill_group(child.pid(), Signal::KILL).unwrap();
    assert_end_comes(&mut feet);
    child.wait().unwrap();
    process::kill_group(child.pid(), Signal::KILL).unwrap();
}

/// Returns a process that lives until it is killed, and a pipe that reaches its end when the process exits.
fn sleeper() -> (File, SpawnedChild) {
    let (reader, writer) = pipe().unwrap();
    let child = spawn(SpawnOptions {
        args: vec!["1000".into()],
        stdout: ChildStdio::Fd(writer),
        ..SpawnOptions::new("/bin/sleep")
    })
    .unwrap();
    (File::from(reader), child)
}

#[test]
fn child_is_killed_on_parent_exit() {
    if has_role("parent") {
        let child =
            spawn(SpawnOptions { args: vec!["1000".into()], ..SpawnOptions::new("/bin/sleep") }).unwrap();
        println!("child {} runs", child.pid());
        std::io::stdout().flush().unwrap();
        wait_readable([], None).unwrap();
    }
    let (reader, writer) = pipe().unwrap();
    let mut parent = spawn(SpawnOptions {
        stdout: ChildStdio::Fd(writer),
        ..reexecute_with_role("child_is_killed_on_parent_exit", "parent")
    })
    .unwrap();
    let mut file = File::from(reader);
    read_until(&mut file, " runs\n");
    parent.signal(Signal::KILL).unwrap();
    // The dead parent and the child were the only holders of the pipe.
    assert_end_comes(&mut file);
    assert_eq!(parent.wait().unwrap().signal, Some(kill_signal_number()));
}

fn kill_signal_number() -> i32 {
    Signal::KILL.0
}

#[test]
fn exit_status_has_code_or_signal_and_usage() {
    let exit = spawn(shell("exit 7")).unwrap().wait().unwrap();
    assert_eq!((exit.code, exit.signal), (Some(7), None));
    let exit = spawn(shell("kill -SEGV $$")).unwrap().wait().unwrap();
    assert_eq!((exit.code, exit.signal), (None, Some(Signal::SEGV.0)));
    let exit = spawn(shell("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")).unwrap().wait().unwrap();
    assert!(exit.cpu > Duration::from_millis(1), "{exit:?}");
    assert!(exit.peak_kib > 500, "{exit:?}");
}

#[test]
fn child_is_reaped_once_and_exit_remembered() {
    let (mut feet, mut child) = sleeper();
    assert_eq!(child.try_wait().unwrap(), None);
    assert_eq!(wait_readable([Some(child.pidfd())], Some(Instant::now())).unwrap(), [false]);
    child.signal(Signal::TERM).unwrap();
    assert_eq!(wait_readable([Some(child.pidfd())], Some(Instant::now() + PATIENCE)).unwrap(), [true]);
    assert_end_comes(&mut feet);
    let exit = child.wait().unwrap();
    assert_eq!(exit.signal, Some(Signal::TERM.0));
    assert_eq!(child.try_wait().unwrap(), Some(exit));
    assert_eq!(child.signal(Signal::TERM).unwrap_err().raw_os_error(), Some(3));
}

#[test]
fn processes_and_machine_are_described() {
    let (mut feet, mut child) = sleeper();
    until("the program runs", || process::command_line(child.pid()) == "/bin/sleep 1000");
    let mut table = ProcessTable::new().unwrap();
    let described = table.read(child.pid()).unwrap();
    assert_eq!((described.pid, described.name.as_str()), (child.pid(), "sleep"));
    assert_eq!(described.command, process::command_line(child.pid()));
    assert!(described.age < PATIENCE && described.resident_bytes > 0, "{described:?}");
    let all = ProcessTable::read_all().unwrap();
    assert!(all.process_count() > 1 && all.user_count() > 0);
    let program = std::env::current_exe().unwrap();
    assert!(all.processes_of(&program).iter().any(|own| own.pid == Pid::own()));
    child.signal(Signal::KILL).unwrap();
    assert_end_comes(&mut feet);
    until("it is a zombie", || process::stat(child.pid()).unwrap().state == 'Z');
    child.wait().unwrap();
    assert_eq!(table.read(child.pid()), None);
    let machine = MachineReading::read().unwrap();
    assert!(machine.cores > 0 && machine.load.is_some(), "{machine:?}");
    assert!(0 < machine.available_bytes && machine.available_bytes < machine.total_bytes, "{machine:?}");
}

#[test]
fn process_tree_state_and_command_line_are_read() {
    let (mut feet, mut child) = sleeper();
    until("the program runs", || process::command_line(child.pid()) == "/bin/sleep 1000");
    assert!(process::children(Pid::own()).contains(&child.pid()));
    assert_eq!(process::stat(child.pid()).unwrap().parent, Pid::own());
    child.signal(Signal::STOP).unwrap();
    until("it is stopped", || process::stat(child.pid()).unwrap().state == 'T');
    child.signal(Signal::KILL).unwrap();
    assert_end_comes(&mut feet);
    until("it is a zombie", || process::stat(child.pid()).unwrap().state == 'Z');
    assert_eq!(process::command_line(child.pid()), "[sleep]");
    child.wait().unwrap();
    assert_eq!(process::stat(child.pid()), None);
}
