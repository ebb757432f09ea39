//! The fork server: guards forked by it, what they inherit, and what its death ends.

use std::{
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    time::Instant,
};

use host::{
    io::{socket_pair, wait_readable},
    pass,
    process::{Pid, Signal, children},
    spawn::{Child, Spawn, Stream, Twin, spawn},
};
use wire::{
    control::{FromGuard, ToGuard, TraceMode, TracePlan},
    nursery::{BIRTH_BYTES, Birth, REQUEST},
};

use crate::{
    Test,
    support::{Feet, Guarded, PATIENCE, is_gone, shell, state_of, until},
    tests,
};

pub(crate) const TESTS: &[Test] = tests![
    a_born_guard_tells_of_its_test_as_an_executed_one,
    a_born_guard_traces_and_dumps,
    a_born_guard_leads_its_own_group_and_ends_its_test_when_all_above_are_gone,
    a_test_of_a_born_guard_inherits_its_streams_and_nothing_else,
    a_born_guard_holds_nothing_of_its_sisters_or_of_its_nursery,
    a_test_of_a_born_guard_finds_signals_limits_and_mask_as_everywhere,
    a_nursery_that_is_let_go_stays_until_its_guards_have_left,
    a_nursery_reaps_its_guards_and_grows_with_none,
    a_nursery_that_is_asked_without_descriptors_leaves,
];

/// A fork server, and the connection to it.
struct Nursery {
    process: Child,
    socket: OwnedFd,
}

impl Nursery {
    fn start() -> Self {
        let (socket, theirs) = pass::packet_pair().unwrap();
        let process = spawn(Spawn {
            args: vec!["__nursery".into()],
            stdin: Stream::Fd(theirs),
            stdout: Stream::Null,
            stderr: Stream::Null,
            ..Spawn::new(std::env::current_exe().unwrap())
        })
        .unwrap();
        Self { process, socket }
    }

    fn birth(&self) -> Guarded<Twin> {
        let (output, writer) = Feet::new();
        let (ours, theirs) = socket_pair().unwrap();
        pass::send(self.socket.as_fd(), &REQUEST, &[theirs.as_fd(), writer.as_fd(), writer.as_fd()]).unwrap();
        let readable = wait_readable([Some(self.socket.as_fd())], Some(Instant::now() + PATIENCE)).unwrap();
        assert!(readable[0], "the nursery is silent");
        let mut bytes = [0; BIRTH_BYTES];
        let (count, [pidfd, ..]) = pass::receive(self.socket.as_fd(), &mut bytes).unwrap();
        let Some(Birth::Pid(pid)) = Birth::from_bytes(&bytes[..count]) else { panic!("{bytes:?}") };
        let twin = Twin { pid: Pid(pid), pidfd: pidfd.unwrap() };
        Guarded::of(twin, UnixStream::from(ours), output)
    }

    fn shell(&self, script: &str) -> Guarded<Twin> {
        let mut guarded = self.birth();
        guarded.send(&ToGuard::Exec(shell(script)));
        guarded
    }

    fn children(&self) -> Vec<Pid> {
        children(self.process.pid())
    }

    fn leave(self) {
        let Self { mut process, socket } = self;
        drop(socket);
        assert_eq!(process.wait().unwrap().code, Some(0));
    }
}

fn a_born_guard_tells_of_its_test_as_an_executed_one() {
    let nursery = Nursery::start();
    for code in [0, 7] {
        let mut guarded = nursery.shell(&format!("echo out; echo err >&2; (sleep 1000 &) ; exit {code}"));
        let pid = guarded.started();
        assert_eq!(guarded.output.wait_for_end(), "out\nerr\n");
        let end = guarded.ended();
        assert_eq!((end.code, end.signal, end.leaked.len()), (Some(code), None, 1));
        assert!(is_gone(pid));
    }
    nursery.leave();
}

fn a_born_guard_traces_and_dumps() {
    let dir = tempfile::tempdir().unwrap();
    let nursery = Nursery::start();
    for round in 0..3 {
        let mut guarded = nursery.birth();
        let mut command = shell("ulimit -c 0; kill -SEGV $$");
        let mut trace =
            TracePlan { mode: TraceMode::Root, name: format!("round{round}"), ..TracePlan::default() };
        trace.dir = dir.path().as_os_str().into();
        trace.dumps.crash = true;
        command.trace = Some(trace);
        guarded.send(&ToGuard::Exec(command));
        let pid = guarded.started();
        let Some(FromGuard::Crashed(report)) = guarded.next() else { panic!("no report") };
        assert_eq!((report.pid, report.signal), (pid, Signal::SEGV.0), "{report:?}");
        let dump = PathBuf::from(report.dump.unwrap().as_os_str());
        assert!(std::fs::metadata(dump).unwrap().len() > 1000);
        assert_eq!(guarded.ended().signal, Some(Signal::SEGV.0));
    }
    nursery.leave();
}

fn a_born_guard_leads_its_own_group_and_ends_its_test_when_all_above_are_gone() {
    let mut nursery = Nursery::start();
    let mut guarded = nursery.shell("exec sleep 1000");
    let test = guarded.started();
    let guard = guarded.guard.pid;
    let stat = host::process::stat(guard).unwrap();
    assert_eq!((stat.parent, stat.group), (nursery.process.pid(), guard));
    // A stopped guard is woken by the death, otherwise it could end nothing.
    guarded.guard.signal(Signal::STOP).unwrap();
    until("the guard stands", || state_of(guard.as_u32()), |state| *state == Some('T'));
    nursery.process.signal(Signal::KILL).unwrap();
    nursery.process.wait().unwrap();
    until("the guard goes on", || state_of(guard.as_u32()), |state| *state != Some('T'));
    assert!(!is_gone(test));
    guarded.control = None;
    assert_eq!(guarded.output.wait_for_end(), "");
    until("the end of the test", || is_gone(test), |is_gone| *is_gone);
}

fn a_test_of_a_born_guard_inherits_its_streams_and_nothing_else() {
    let nursery = Nursery::start();
    let mut first = nursery.shell("exec sleep 1000");
    first.started();
    // Descriptors of the shell are closed before the program that replaces it lists them.
    let mut guarded = nursery.shell("readlink /proc/self/fd/0; exec ls /proc/self/fd");
    guarded.started();
    // `ls` itself has the directory open as 3.
    assert_eq!(guarded.output.wait_for_end(), "/dev/null\n0\n1\n2\n3\n");
    assert_eq!(guarded.ended().code, Some(0));
    first.send(&ToGuard::Kill);
    first.ended();
    nursery.leave();
}

/// Returns the open files of a process, except the ones that every process may have; the root directory is a
/// guard's reserved descriptor.
fn open_by(pid: Pid) -> Vec<PathBuf> {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let links = open.filter_map(|one| std::fs::read_link(one.unwrap().path()).ok());
    let mut links: Vec<_> =
        links.filter(|link| !["/dev/null", "/"].contains(&link.to_str().unwrap())).collect();
    links.sort();
    links
}

fn a_born_guard_holds_nothing_of_its_sisters_or_of_its_nursery() {
    let nursery = Nursery::start();
    let mut sisters = [nursery.shell("exec sleep 1000"), nursery.shell("exec sleep 1000")];
    for sister in &mut sisters {
        sister.started();
        // The guard has finished its initialization.
        sister.send(&ToGuard::Pause);
        assert_eq!(sister.next(), Some(FromGuard::Paused));
    }
    let held = [nursery.process.pid(), sisters[0].guard.pid, sisters[1].guard.pid].map(open_by);
    let sockets = |links: &Vec<PathBuf>| {
        links.iter().filter(|link| link.to_str().unwrap().starts_with("socket:")).cloned().collect::<Vec<_>>()
    };
    for links in &held {
        // Its own connection, and the signal descriptor for its children.
        assert_eq!((sockets(links).len(), links.len()), (1, 2), "{links:?}");
    }
    let all: std::collections::HashSet<_> = held.iter().flat_map(sockets).collect();
    assert_eq!(all.len(), 3, "{held:?}");
    for sister in &mut sisters {
        sister.send(&ToGuard::Kill);
        sister.ended();
    }
    nursery.leave();
}

fn a_test_of_a_born_guard_finds_signals_limits_and_mask_as_everywhere() {
    let script =
        "grep -E '^(Sig|Shd)' /proc/self/status; umask; ulimit -a; cat /proc/self/oom_score_adj; pwd";
    let mut executed = Guarded::shell(script);
    executed.started();
    let expected = executed.output.wait_for_end().to_owned();
    executed.ended();
    let nursery = Nursery::start();
    let mut born = nursery.shell(script);
    born.started();
    assert_eq!(born.output.wait_for_end(), expected);
    born.ended();
    assert!(expected.contains("SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000"), "{expected}");
    nursery.leave();
}

fn a_nursery_that_is_let_go_stays_until_its_guards_have_left() {
    let nursery = Nursery::start();
    let mut guarded = nursery.shell("echo here; exec sleep 1000");
    guarded.started();
    guarded.output.wait_for("here");
    let Nursery { mut process, socket } = nursery;
    drop(socket);
    guarded.send(&ToGuard::Terminate { grace_ms: 10_000 });
    assert_eq!(guarded.ended().signal, Some(Signal::TERM.0));
    assert_eq!(process.wait().unwrap().code, Some(0));
}

fn a_nursery_reaps_its_guards_and_grows_with_none() {
    let nursery = Nursery::start();
    let pages = || {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", nursery.process.pid())).unwrap();
        let fields: Vec<u64> = text.split_whitespace().map(|field| field.parse().unwrap()).collect();
        // Its total memory, and the part of it that is data and stack.
        (fields[0], fields[5])
    };
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", nursery.process.pid())).unwrap().count();
    let serve = |count| {
        for _ in 0..count {
            let mut guarded = nursery.shell("exit 0");
            guarded.started();
            guarded.ended();
        }
        until("no children", || nursery.children(), Vec::is_empty);
    };
    serve(5);
    let before = (pages(), descriptors());
    serve(100);
    assert_eq!((pages(), descriptors()), before);
    nursery.leave();
}

fn a_nursery_that_is_asked_without_descriptors_leaves() {
    let mut nursery = Nursery::start();
    pass::send(nursery.socket.as_fd(), &REQUEST, &[]).unwrap();
    assert_eq!(nursery.process.wait().unwrap().code, Some(1));
}
