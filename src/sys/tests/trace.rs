//! Tracing of real processes. Each test makes all calls on its own thread, because only the thread that
//! seized a process may control it.
#![expect(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use std::{
    os::fd::AsFd,
    time::{Duration, Instant},
};

use heeler_sys::{
    io::wait_readable,
    process::{ExitStatus, Pid, Signal},
    spawn::{ChildStdio, SpawnError, SpawnOptions},
    trace::{self, KillTimer, SignalDisposition, TraceOptions, TraceStop, WaitEvent},
};

fn test_deadline() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn shell(script: &str) -> SpawnOptions {
    SpawnOptions {
        args: vec!["-c".into(), script.into()],
        stdout: ChildStdio::Null,
        ..SpawnOptions::new("/bin/sh")
    }
}

fn wait_for_stop(pid: Pid) -> TraceStop {
    match trace::wait_for(pid, test_deadline()).unwrap() {
        Some(WaitEvent::Stopped(stop)) => stop,
        other => panic!("{other:?}"),
    }
}

fn wait_for_exit(pid: Pid) -> ExitStatus {
    match trace::wait_for(pid, test_deadline()).unwrap() {
        Some(WaitEvent::Exited(exit)) => exit,
        other => panic!("{other:?}"),
    }
}

/// Starts and seizes a process; returns the process stopped at its first signal.
fn seize_until_signal(script: &str) -> (Pid, Signal) {
    let held = trace::spawn_held(shell(script)).unwrap();
    let pid = held.pid();
    trace::seize(pid, TraceOptions::PROCESS).unwrap();
    let released = held.release();
    assert_eq!(wait_for_stop(pid), TraceStop::Exec);
    released.finish().unwrap();
    trace::cont(pid, None).unwrap();
    match wait_for_stop(pid) {
        TraceStop::Signal(signal) => (pid, signal),
        other => panic!("{other:?}"),
    }
}

#[test]
fn held_process_executes_only_after_release() {
    let held = trace::spawn_held(shell("exit 7")).unwrap();
    let pid = held.pid();
    let a_moment = Instant::now() + Duration::from_millis(20);
    assert_eq!(trace::wait_for(pid, a_moment).unwrap(), None);
    let released = held.release();
    assert_eq!(wait_readable([Some(released.as_fd())], Some(test_deadline())).unwrap(), [true]);
    assert_eq!(released.finish().unwrap().pid(), pid);
    assert_eq!(wait_for_exit(pid).code, Some(7));
}

#[test]
fn dropped_held_process_exits() {
    let held = trace::spawn_held(shell("exit 7")).unwrap();
    let pid = held.pid();
    drop(held);
    assert_eq!(wait_for_exit(pid).code, Some(127));
}

#[test]
fn exec_failure_of_held_process_is_reported() {
    let held = trace::spawn_held(SpawnOptions::new("/no/such/program")).unwrap();
    let pid = held.pid();
    let error = held.release().finish().unwrap_err();
    assert!(matches!(error, SpawnError::Execute { .. }), "{error:?}");
    assert_eq!(wait_for_exit(pid).code, Some(127));
}

#[test]
fn signal_stop_allows_suppressing_the_signal() {
    let (pid, signal) = seize_until_signal("kill -SEGV $$; exit 3");
    assert_eq!(signal, Signal::SEGV);
    let info = trace::signal_info(pid).unwrap();
    assert_eq!((info.signal, info.address), (Signal::SEGV, None));
    assert!(info.code <= 0);
    assert_eq!(trace::signal_disposition(pid, Signal::SEGV), SignalDisposition::Default);
    assert_eq!((trace::tracer_of(pid).is_some(), trace::process_of_thread(pid)), (true, Some(pid)));
    let registers = trace::general_registers(pid).unwrap();
    #[cfg(target_arch = "x86_64")]
    assert!(registers.rip != 0);
    #[cfg(target_arch = "aarch64")]
    assert!(registers.pc != 0);
    trace::floating_registers(pid).unwrap();
    trace::cont(pid, None).unwrap();
    assert_eq!(wait_for_exit(pid).code, Some(3));
}

#[test]
fn signal_disposition_is_ignored_or_caught() {
    let (pid, _) = seize_until_signal("trap '' USR1; trap : USR2; kill -SEGV $$");
    let [ignored, caught] =
        [libc::SIGUSR1, libc::SIGUSR2].map(|number| trace::signal_disposition(pid, Signal(number)));
    assert_eq!((ignored, caught), (SignalDisposition::Ignored, SignalDisposition::Caught));
    trace::cont(pid, Some(Signal::SEGV)).unwrap();
    assert_eq!(wait_for_exit(pid).signal, Some(Signal::SEGV.0));
}

#[test]
fn running_thread_is_interrupted_and_detached() {
    let held = trace::spawn_held(shell("while :; do :; done")).unwrap();
    let child = held.release().finish().unwrap();
    let pid = child.pid();
    trace::seize(pid, TraceOptions::VISIT).unwrap();
    trace::interrupt(pid).unwrap();
    assert_eq!(wait_for_stop(pid), TraceStop::Interrupt);
    assert_eq!(trace::threads(pid), [pid]);
    trace::detach(pid, None).unwrap();
    assert_eq!(trace::tracer_of(pid), None);
    child.signal(Signal::KILL).unwrap();
    assert_eq!(wait_for_exit(pid).signal, Some(Signal::KILL.0));
}

#[test]
fn kill_timer_kills_target_unless_dropped() {
    let sleeper = || {
        trace::spawn_held(SpawnOptions { args: vec!["1000".into()], ..SpawnOptions::new("/bin/sleep") })
            .unwrap()
    };
    let spared = sleeper().release().finish().unwrap();
    drop(KillTimer::arm(spared.pid(), Duration::from_millis(1)).unwrap());
    let killed = sleeper().release().finish().unwrap();
    let _fuse = KillTimer::arm(killed.pid(), Duration::from_millis(10)).unwrap();
    assert_eq!(wait_for_exit(killed.pid()).signal, Some(Signal::KILL.0));
    assert!(!trace::has_ended(spared.pid()));
    spared.signal(Signal::KILL).unwrap();
    assert_eq!(wait_for_exit(spared.pid()).signal, Some(Signal::KILL.0));
}
