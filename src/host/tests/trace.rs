//! Tracing of real processes. Each test makes all calls on its own thread, because only the thread that
//! seized may make requests.
#![expect(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use std::{
    os::fd::AsFd,
    time::{Duration, Instant},
};

use host::{
    io::wait_readable,
    process::{Pid, RawExit, Signal},
    spawn::{Spawn, SpawnError, Stream},
    trace::{self, Disposition, Fuse, Options, Stop, Waited},
};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn shell(script: &str) -> Spawn {
    Spawn { args: vec!["-c".into(), script.into()], stdout: Stream::Null, ..Spawn::new("/bin/sh") }
}

fn stop(pid: Pid) -> Stop {
    match trace::wait_for(pid, soon()).unwrap() {
        Some(Waited::Stopped(stop)) => stop,
        other => panic!("{other:?}"),
    }
}

fn end(pid: Pid) -> RawExit {
    match trace::wait_for(pid, soon()).unwrap() {
        Some(Waited::Ended(exit)) => exit,
        other => panic!("{other:?}"),
    }
}

/// Starts and seizes a process, and returns it stopped at its first signal.
fn at_signal(script: &str) -> (Pid, Signal) {
    let held = trace::hold(shell(script)).unwrap();
    let pid = held.pid();
    trace::seize(pid, Options::PROCESS).unwrap();
    let released = held.release();
    assert_eq!(stop(pid), Stop::Exec);
    released.finish().unwrap();
    trace::cont(pid, None).unwrap();
    match stop(pid) {
        Stop::Signal(signal) => (pid, signal),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_held_process_begins_only_when_it_is_released() {
    let held = trace::hold(shell("exit 7")).unwrap();
    let pid = held.pid();
    let a_moment = Instant::now() + Duration::from_millis(20);
    assert_eq!(trace::wait_for(pid, a_moment).unwrap(), None);
    let released = held.release();
    assert_eq!(wait_readable([Some(released.as_fd())], Some(soon())).unwrap(), [true]);
    assert_eq!(released.finish().unwrap().pid(), pid);
    assert_eq!(end(pid).code, Some(7));
}

#[test]
fn a_held_process_that_is_given_up_leaves() {
    let held = trace::hold(shell("exit 7")).unwrap();
    let pid = held.pid();
    drop(held);
    assert_eq!(end(pid).code, Some(127));
}

#[test]
fn a_held_program_that_cannot_run_is_named() {
    let held = trace::hold(Spawn::new("/no/such/program")).unwrap();
    let pid = held.pid();
    let error = held.release().finish().unwrap_err();
    assert!(matches!(error, SpawnError::Execute { .. }), "{error:?}");
    assert_eq!(end(pid).code, Some(127));
}

#[test]
fn a_signal_is_seen_before_it_is_delivered_and_can_be_kept_away() {
    let (pid, signal) = at_signal("kill -SEGV $$; exit 3");
    assert_eq!(signal, Signal::SEGV);
    let info = trace::signal_info(pid).unwrap();
    assert_eq!((info.signal, info.address), (Signal::SEGV, None));
    assert!(info.code <= 0);
    assert_eq!(trace::disposition(pid, Signal::SEGV), Disposition::Default);
    assert_eq!((trace::tracer_of(pid).is_some(), trace::group_of(pid)), (true, Some(pid)));
    assert!(trace::general_registers(pid).unwrap().rip != 0);
    trace::floating_registers(pid).unwrap();
    trace::cont(pid, None).unwrap();
    assert_eq!(end(pid).code, Some(3));
}

#[test]
fn what_a_process_does_with_a_signal_is_told() {
    let (pid, _) = at_signal("trap '' USR1; trap : USR2; kill -SEGV $$");
    let [ignored, caught] =
        [libc::SIGUSR1, libc::SIGUSR2].map(|number| trace::disposition(pid, Signal(number)));
    assert_eq!((ignored, caught), (Disposition::Ignored, Disposition::Caught));
    trace::cont(pid, Some(Signal::SEGV)).unwrap();
    assert_eq!(end(pid).signal, Some(Signal::SEGV.0));
}

#[test]
fn a_running_thread_is_interrupted_and_let_go() {
    let held = trace::hold(shell("while :; do :; done")).unwrap();
    let child = held.release().finish().unwrap();
    let pid = child.pid();
    trace::seize(pid, Options::VISIT).unwrap();
    trace::interrupt(pid).unwrap();
    assert_eq!(stop(pid), Stop::Trap);
    assert_eq!(trace::threads(pid), [pid]);
    trace::detach(pid, None).unwrap();
    assert_eq!(trace::tracer_of(pid), None);
    child.signal(Signal::KILL).unwrap();
    assert_eq!(end(pid).signal, Some(Signal::KILL.0));
}

#[test]
fn a_fuse_kills_what_is_waited_for_and_nothing_once_it_is_out() {
    let sleeper = || trace::hold(Spawn { args: vec!["1000".into()], ..Spawn::new("/bin/sleep") }).unwrap();
    let spared = sleeper().release().finish().unwrap();
    drop(Fuse::light(spared.pid(), Duration::from_millis(1)).unwrap());
    let killed = sleeper().release().finish().unwrap();
    let _fuse = Fuse::light(killed.pid(), Duration::from_millis(10)).unwrap();
    assert_eq!(end(killed.pid()).signal, Some(Signal::KILL.0));
    assert!(!trace::has_ended(spared.pid()));
    spared.signal(Signal::KILL).unwrap();
    assert_eq!(end(spared.pid()).signal, Some(Signal::KILL.0));
}
