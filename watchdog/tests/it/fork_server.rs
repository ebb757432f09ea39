//! The fork server: the guards that it forks, what they inherit, and what its death ends.

use std::{
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    time::Instant,
};

use heeler_protocol::{
    control::{FromGuard, ToGuard, TraceMode, TracePlan},
    fork_server::{ExitReply, FORK_REPLY_BYTES, FORK_REQUEST, ForkReply, exit_request},
};
use heeler_sys::{
    fd_passing,
    io::{socket_pair, wait_readable},
    process::{Pid, Signal, children},
    spawn::{ChildStdio, ForkedChild, SpawnOptions, SpawnedChild, spawn},
};

use crate::{
    NamedTest,
    support::{GuardedTest, HeldPipe, WAIT_LIMIT, is_gone, shell_command, state_of, wait_until},
    tests,
};

pub(crate) const TESTS: &[NamedTest] = tests![
    forked_guard_reports_like_executed_one,
    forked_guard_traces_and_dumps,
    forked_guard_kills_test_when_parents_die,
    test_of_forked_guard_inherits_only_streams,
    forked_guard_inherits_no_other_descriptors,
    test_of_forked_guard_has_usual_process_attributes,
    closed_fork_server_waits_for_its_guards,
    fork_server_reports_how_a_lost_guard_ended,
    fork_server_reaps_guards_and_does_not_grow,
    fork_server_exits_on_request_without_descriptors,
];

/// A fork server and the connection to it.
struct TestForkServer {
    process: SpawnedChild,
    socket: OwnedFd,
}

impl TestForkServer {
    fn start() -> Self {
        let (socket, theirs) = fd_passing::seqpacket_pair().unwrap();
        let process = spawn(SpawnOptions {
            args: vec!["__fork-server".into()],
            stdin: ChildStdio::Fd(theirs),
            stdout: ChildStdio::Null,
            stderr: ChildStdio::Null,
            ..SpawnOptions::new(std::env::current_exe().unwrap())
        })
        .unwrap();
        Self { process, socket }
    }

    fn request_fork(&self) -> GuardedTest<ForkedChild> {
        let (output, writer) = HeldPipe::new();
        let (ours, theirs) = socket_pair().unwrap();
        fd_passing::send(
            self.socket.as_fd(),
            &FORK_REQUEST,
            &[theirs.as_fd(), writer.as_fd(), writer.as_fd()],
        )
        .unwrap();
        let readable = wait_readable([Some(self.socket.as_fd())], Some(Instant::now() + WAIT_LIMIT)).unwrap();
        assert!(readable[0], "the fork server sends no reply");
        let mut bytes = [0; FORK_REPLY_BYTES];
        let (count, [pidfd, ..]) = fd_passing::receive(self.socket.as_fd(), &mut bytes).unwrap();
        let Some(ForkReply::Pid(pid)) = ForkReply::from_bytes(&bytes[..count]) else { panic!("{bytes:?}") };
        let child = ForkedChild { pid: Pid(pid), pidfd: pidfd.unwrap() };
        GuardedTest::of(child, UnixStream::from(ours), output)
    }

    fn shell(&self, script: &str) -> GuardedTest<ForkedChild> {
        let mut guarded = self.request_fork();
        guarded.send(&ToGuard::Exec(shell_command(script)));
        guarded
    }

    fn children(&self) -> Vec<Pid> {
        children(self.process.pid())
    }

    fn close_and_wait(self) {
        let Self { mut process, socket } = self;
        drop(socket);
        assert_eq!(process.wait().unwrap().code, Some(0));
    }
}

fn forked_guard_reports_like_executed_one() {
    let fork_server = TestForkServer::start();
    for code in [0, 7] {
        let mut guarded = fork_server.shell(&format!("echo out; echo err >&2; (sleep 1000 &) ; exit {code}"));
        let pid = guarded.expect_started();
        assert_eq!(guarded.output.wait_for_end(), "out\nerr\n");
        let end = guarded.expect_ended();
        assert_eq!((end.code, end.signal, end.leaked.len()), (Some(code), None, 1));
        assert!(is_gone(pid));
    }
    fork_server.close_and_wait();
}

fn forked_guard_traces_and_dumps() {
    let dir = tempfile::tempdir().unwrap();
    let fork_server = TestForkServer::start();
    for round in 0..3 {
        let mut guarded = fork_server.request_fork();
        let mut command = shell_command("ulimit -c 0; kill -SEGV $$");
        let mut trace =
            TracePlan { mode: TraceMode::Root, name: format!("round{round}"), ..TracePlan::default() };
        trace.dir = dir.path().as_os_str().into();
        trace.dumps.crash = true;
        command.trace = Some(trace);
        guarded.send(&ToGuard::Exec(command));
        let pid = guarded.expect_started();
        let Some(FromGuard::Crashed(report)) = guarded.next_message() else { panic!("no report") };
        assert_eq!((report.pid, report.signal), (pid, Signal::SEGV.0), "{report:?}");
        let dump = PathBuf::from(report.dump.unwrap().as_os_str());
        assert!(std::fs::metadata(dump).unwrap().len() > 1000);
        assert_eq!(guarded.expect_ended().signal, Some(Signal::SEGV.0));
    }
    fork_server.close_and_wait();
}

fn forked_guard_kills_test_when_parents_die() {
    let mut fork_server = TestForkServer::start();
    let mut guarded = fork_server.shell("exec sleep 1000");
    let test = guarded.expect_started();
    let guard = guarded.guard.pid;
    let stat = heeler_sys::process::stat(guard).unwrap();
    assert_eq!((stat.parent, stat.group), (fork_server.process.pid(), guard));
    // The death wakes a stopped guard, which otherwise could not end anything.
    guarded.guard.signal(Signal::STOP).unwrap();
    wait_until("the guard stands", || state_of(guard.as_u32()), |state| *state == Some('T'));
    fork_server.process.signal(Signal::KILL).unwrap();
    fork_server.process.wait().unwrap();
    wait_until("the guard goes on", || state_of(guard.as_u32()), |state| *state != Some('T'));
    assert!(!is_gone(test));
    guarded.control = None;
    assert_eq!(guarded.output.wait_for_end(), "");
    wait_until("the end of the test", || is_gone(test), |is_gone| *is_gone);
}

fn test_of_forked_guard_inherits_only_streams() {
    let fork_server = TestForkServer::start();
    let mut first = fork_server.shell("exec sleep 1000");
    first.expect_started();
    // The shell's descriptors are closed before the program that replaces it lists them.
    let mut guarded = fork_server.shell("readlink /proc/self/fd/0; exec ls /proc/self/fd");
    guarded.expect_started();
    // `ls` itself has the directory open as 3.
    assert_eq!(guarded.output.wait_for_end(), "/dev/null\n0\n1\n2\n3\n");
    assert_eq!(guarded.expect_ended().code, Some(0));
    first.send(&ToGuard::Kill);
    first.expect_ended();
    fork_server.close_and_wait();
}

/// Returns the open files of a process, except those that every process may have. A guard's reserved
/// descriptor is open at the root directory.
fn open_files(pid: Pid) -> Vec<PathBuf> {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let links = open.filter_map(|one| std::fs::read_link(one.unwrap().path()).ok());
    let mut links: Vec<_> =
        links.filter(|link| !["/dev/null", "/"].contains(&link.to_str().unwrap())).collect();
    links.sort();
    links
}

fn forked_guard_inherits_no_other_descriptors() {
    let fork_server = TestForkServer::start();
    let mut siblings = [fork_server.shell("exec sleep 1000"), fork_server.shell("exec sleep 1000")];
    for sibling in &mut siblings {
        sibling.expect_started();
        // The guard has finished its initialization.
        sibling.send(&ToGuard::Pause);
        assert_eq!(sibling.next_message(), Some(FromGuard::Paused));
    }
    let held = [fork_server.process.pid(), siblings[0].guard.pid, siblings[1].guard.pid].map(open_files);
    let sockets = |links: &Vec<PathBuf>| {
        links.iter().filter(|link| link.to_str().unwrap().starts_with("socket:")).cloned().collect::<Vec<_>>()
    };
    for links in &held {
        // The guard's own connection, and the signal descriptor for its children.
        assert_eq!((sockets(links).len(), links.len()), (1, 2), "{links:?}");
    }
    let all: std::collections::HashSet<_> = held.iter().flat_map(sockets).collect();
    assert_eq!(all.len(), 3, "{held:?}");
    for sibling in &mut siblings {
        sibling.send(&ToGuard::Kill);
        sibling.expect_ended();
    }
    fork_server.close_and_wait();
}

fn test_of_forked_guard_has_usual_process_attributes() {
    let script =
        "grep -E '^(Sig[PBIC]|Shd)' /proc/self/status; umask; ulimit -a; cat /proc/self/oom_score_adj; pwd";
    let mut executed = GuardedTest::shell(script);
    executed.expect_started();
    let expected = executed.output.wait_for_end().to_owned();
    executed.expect_ended();
    let fork_server = TestForkServer::start();
    let mut forked = fork_server.shell(script);
    forked.expect_started();
    assert_eq!(forked.output.wait_for_end(), expected);
    forked.expect_ended();
    assert!(expected.contains("SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000"), "{expected}");
    fork_server.close_and_wait();
}

fn closed_fork_server_waits_for_its_guards() {
    let fork_server = TestForkServer::start();
    let mut guarded = fork_server.shell("echo here; exec sleep 1000");
    guarded.expect_started();
    guarded.output.wait_for("here");
    let TestForkServer { mut process, socket } = fork_server;
    drop(socket);
    guarded.send(&ToGuard::Terminate { grace_ms: 10_000 });
    assert_eq!(guarded.expect_ended().signal, Some(Signal::TERM.0));
    assert_eq!(process.wait().unwrap().code, Some(0));
}

fn fork_server_reports_how_a_lost_guard_ended() {
    let fork_server = TestForkServer::start();
    let ask = |pid: Pid| {
        fd_passing::send(fork_server.socket.as_fd(), &exit_request(pid.0), &[]).unwrap();
        let mut bytes = [0; FORK_REPLY_BYTES];
        wait_readable([Some(fork_server.socket.as_fd())], Some(Instant::now() + WAIT_LIMIT)).unwrap();
        let (count, _) = fd_passing::receive(fork_server.socket.as_fd(), &mut bytes).unwrap();
        ExitReply::from_bytes(&bytes[..count]).unwrap()
    };
    let mut ended = fork_server.shell("exit 3");
    ended.expect_started();
    ended.expect_ended();
    let mut killed = fork_server.shell("exec sleep 1000");
    killed.expect_started();
    let (ended, pid) = (ended.guard.pid, killed.guard.pid);
    killed.guard.signal(Signal::KILL).unwrap();
    let pidfd = killed.guard.pidfd.as_fd();
    assert_eq!(wait_readable([Some(pidfd)], Some(Instant::now() + WAIT_LIMIT)).unwrap(), [true]);
    assert_eq!(ask(pid), ExitReply::Killed(Signal::KILL.0));
    assert_eq!(ask(ended), ExitReply::Unknown, "a guard that has reported its end has not failed");
    // A guard whose worker disconnects exits with an error.
    let mut orphaned = fork_server.shell("exec sleep 1000");
    orphaned.expect_started();
    orphaned.control = None;
    let pidfd = orphaned.guard.pidfd.as_fd();
    assert_eq!(wait_readable([Some(pidfd)], Some(Instant::now() + WAIT_LIMIT)).unwrap(), [true]);
    assert_eq!(ask(orphaned.guard.pid), ExitReply::Exited(1));
    fork_server.close_and_wait();
}

fn fork_server_reaps_guards_and_does_not_grow() {
    let fork_server = TestForkServer::start();
    let pages = || {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", fork_server.process.pid())).unwrap();
        let fields: Vec<u64> = text.split_whitespace().map(|field| field.parse().unwrap()).collect();
        // Total memory, and its data and stack part.
        (fields[0], fields[5])
    };
    let descriptors =
        || std::fs::read_dir(format!("/proc/{}/fd", fork_server.process.pid())).unwrap().count();
    let serve = |count| {
        for _ in 0..count {
            let mut guarded = fork_server.shell("exit 0");
            guarded.expect_started();
            guarded.expect_ended();
        }
        wait_until("no children", || fork_server.children(), Vec::is_empty);
    };
    serve(5);
    let before = (pages(), descriptors());
    serve(100);
    assert_eq!((pages(), descriptors()), before);
    fork_server.close_and_wait();
}

fn fork_server_exits_on_request_without_descriptors() {
    let mut fork_server = TestForkServer::start();
    fd_passing::send(fork_server.socket.as_fd(), &FORK_REQUEST, &[]).unwrap();
    assert_eq!(fork_server.process.wait().unwrap().code, Some(1));
}
