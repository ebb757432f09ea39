//! A subreaper adopts and kills detached descendants, even without free descriptors. This is a separate test
//! program because [`ChildExits`] requires a single-threaded process.
#![expect(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use std::{
    os::fd::{AsFd, AsRawFd},
    time::{Duration, Instant},
};

use heeler_sys::{
    io::wait_readable,
    process::{self, ChildExits, ExitStatus, Pid, Signal},
    spawn::{SpawnOptions, spawn},
};

const PATIENCE: Duration = Duration::from_secs(20);

fn count_sleepers() -> usize {
    let family = process::descendants(Pid::own());
    family.into_iter().filter(|pid| process::command_line(*pid).starts_with("sleep 100")).count()
}

/// Lowers the limit of open files until this process can open no more.
fn exhaust_file_limit() {
    let next = std::fs::File::open("/").unwrap().as_raw_fd();
    let script = format!("exec prlimit --pid {} --nofile={next}:{next}", Pid::own());
    let mut prlimit =
        spawn(SpawnOptions { args: vec!["-c".into(), script.into()], ..SpawnOptions::new("/bin/sh") })
            .unwrap();
    assert_eq!(prlimit.wait().unwrap().code, Some(0));
    assert!(std::fs::File::open("/").is_err(), "there may be {next} files, and there are more");
}

fn main() {
    process::become_subreaper().unwrap();
    let ends = ChildExits::watch().unwrap();
    // Separate sessions and orphans: neither a process group nor a living parent leads to them.
    let script = "setsid sleep 1000 & setsid sh -c 'sleep 1001 & exec sleep 1002' & exit 3";
    let args = vec!["-c".into(), script.into()];
    let root = spawn(SpawnOptions { args, ..SpawnOptions::new("/bin/sh") }).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while count_sleepers() < 3 {
        assert!(Instant::now() < deadline, "three sleepers were started, {} are seen", count_sleepers());
        wait_readable([], Some(Instant::now() + Duration::from_millis(1))).unwrap();
    }

    exhaust_file_limit();
    let mut exits: Vec<(Pid, ExitStatus)> = Vec::new();
    while process::has_children() {
        let _reached = process::signal_descendants(Pid::own(), Signal::KILL, |_, _| true);
        assert_eq!(wait_readable([Some(ends.as_fd())], Some(deadline)).unwrap(), [true], "{exits:?}");
        ends.clear();
        while let Some(end) = process::reap_any().unwrap() {
            exits.push(end);
        }
    }
    let of_root = exits.iter().find(|(pid, _)| *pid == root.pid()).unwrap();
    assert_eq!(of_root.1.code, Some(3));
    let killed = exits.iter().filter(|(_, exit)| exit.signal == Some(Signal::KILL.0)).count();
    assert_eq!(killed, 3, "{exits:?}");
    assert_eq!(process::reap_any().unwrap(), None);
    println!("a subreaper adopts and kills what hides, though it may open nothing: ok");
}
