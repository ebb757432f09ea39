//! Activity of a process tree, derived from two readings of the kernel's per-thread counters. No other source
//! is used, so it works for any process.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

use heeler_protocol::control::{ProcessSample, TreeSample};
use heeler_sys::{
    process::{self, Pid},
    trace::{self, SyscallState},
};

/// Interval between the two readings. Long enough that one scheduling period is only noise.
pub(super) const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of processes examined. A tree may have thousands.
pub(super) const PROCESS_LIMIT: usize = 64;
/// Maximum number of system calls named for a process whose threads wait in different ones.
const CALLS_NAMED: usize = 4;

/// First reading, and when the second is due.
pub(super) struct PendingSample {
    first: CounterReading,
    pub(super) due: Instant,
}

/// One reading of all threads of a process tree.
struct CounterReading {
    at: Instant,
    threads: HashMap<Pid, SyscallState>,
}

impl PendingSample {
    pub(super) fn begin(root: Pid) -> Self {
        let first = CounterReading::read(&live_processes(root));
        Self { due: first.at + SAMPLE_INTERVAL, first }
    }

    /// Takes the second reading.
    pub(super) fn finish(&self, root: Pid) -> TreeSample {
        let processes: Vec<ProcessSample> =
            live_processes(root).into_iter().filter_map(|pid| sample(pid, &self.first)).collect();
        TreeSample {
            cpu_us: processes.iter().map(|process| process.cpu_us).sum(),
            waiting_us: processes.iter().map(|process| process.waiting_us).sum(),
            processes,
        }
    }
}

/// Returns the live processes among the root and the guard's descendants.
pub(super) fn live_processes(root: Pid) -> Vec<Pid> {
    let mut family = process::descendants(Pid::own());
    family.retain(|pid| *pid != root && !trace::has_ended(*pid));
    // If the first thread of the root has exited, the other threads may still run.
    if !trace::has_ended(root) || trace::threads(root).len() > 1 {
        family.insert(0, root);
    }
    family.truncate(PROCESS_LIMIT);
    family
}

/// Returns the activity of a process from a single reading, which cannot distinguish running from waiting for
/// a CPU.
pub(super) fn state_now(pid: Pid) -> String {
    let threads: Vec<SyscallState> =
        trace::threads(pid).into_iter().filter_map(trace::read_syscall_state).collect();
    let threads: Vec<&SyscallState> =
        threads.iter().filter(|thread| !matches!(thread.state, 'Z' | 'X')).collect();
    match stopped_state(&threads) {
        Some(state) => state,
        None if threads.iter().any(|thread| thread.state == 'R') => "RUNNABLE".to_owned(),
        None => blocked_state(&threads),
    }
}

impl CounterReading {
    fn read(family: &[Pid]) -> Self {
        let threads = family.iter().flat_map(|pid| trace::threads(*pid));
        let threads = threads.filter_map(|tid| Some((tid, trace::read_syscall_state(tid)?))).collect();
        Self { at: Instant::now(), threads }
    }
}

fn sample(pid: Pid, first: &CounterReading) -> Option<ProcessSample> {
    let now = CounterReading::read(&[pid]);
    let threads: Vec<&SyscallState> =
        now.threads.values().filter(|thread| !matches!(thread.state, 'Z' | 'X')).collect();
    if threads.is_empty() {
        return None;
    }
    let mut spent =
        CounterDeltas { wall: (now.at - first.at).as_secs_f64() * 1e9, ..CounterDeltas::default() };
    for (tid, thread) in &now.threads {
        if let Some(before) = first.threads.get(tid) {
            spent.run += thread.run_ns.saturating_sub(before.run_ns) as f64;
            spent.waiting += thread.waiting_ns.saturating_sub(before.waiting_ns) as f64;
            spent.sleeps += thread.voluntary_switches.saturating_sub(before.voluntary_switches) as f64;
        }
    }
    let activity = spent.activity(&threads);
    let stopped = stopped_state(&threads);
    Some(ProcessSample {
        pid: pid.as_u32(),
        command: process::command_line(pid),
        is_working: stopped.is_none() && activity.is_working(),
        state: stopped.unwrap_or_else(|| activity.describe(&threads)),
        cpu_us: trace::cpu_us(pid),
        waiting_us: now.threads.values().map(|thread| thread.waiting_ns).sum::<u64>() / 1000,
    })
}

/// Change of a process's thread counters between two readings, in nanoseconds.
#[derive(Default)]
struct CounterDeltas {
    wall: f64,
    run: f64,
    waiting: f64,
    sleeps: f64,
}

/// Activity of a process between two readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessActivity {
    BlockedInKernel,
    Blocked,
    Polling,
    Starved,
    Busy,
}

impl ProcessActivity {
    fn is_working(self) -> bool {
        match self {
            Self::BlockedInKernel | Self::Starved | Self::Busy => true,
            Self::Blocked | Self::Polling => false,
        }
    }

    fn describe(self, threads: &[&SyscallState]) -> String {
        let word = match self {
            Self::BlockedInKernel => "BLOCKED IN KERNEL",
            Self::Blocked => return blocked_state(threads),
            Self::Polling => "POLLING",
            Self::Starved => "STARVED",
            Self::Busy => "BUSY",
        };
        word.to_owned()
    }
}

impl CounterDeltas {
    fn activity(&self, threads: &[&SyscallState]) -> ProcessActivity {
        let (run, waiting) = (self.run / self.wall, self.waiting / self.wall);
        let sleeps_a_second = self.sleeps / (self.wall / 1e9);
        if run < 0.01 && threads.iter().any(|thread| thread.state == 'D') {
            return ProcessActivity::BlockedInKernel;
        }
        if run + waiting < 0.005 && sleeps_a_second < 2.0 {
            return ProcessActivity::Blocked;
        }
        if run < 0.05 && waiting < 0.2 {
            ProcessActivity::Polling
        } else if waiting > 2.0 * run {
            ProcessActivity::Starved
        } else {
            ProcessActivity::Busy
        }
    }
}

/// Returns the state of a process if it is stopped by a signal or a tracer.
fn stopped_state(threads: &[&SyscallState]) -> Option<String> {
    let all = |states: &str| threads.iter().all(|thread| states.contains(thread.state));
    // If this guard traces a process, a stop by a signal also appears as traced.
    (!threads.is_empty() && all("Tt")).then(|| "STOPPED".to_owned())
}

/// Lists the system calls that threads wait in, most frequent first.
fn blocked_state(threads: &[&SyscallState]) -> String {
    let mut calls: BTreeMap<&str, usize> = BTreeMap::new();
    for thread in threads {
        *calls.entry(thread.syscall.as_deref().unwrap_or("the kernel")).or_default() += 1;
    }
    let mut calls: Vec<_> = calls.into_iter().collect();
    calls.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let names = calls.iter().take(CALLS_NAMED).map(|(call, count)| match count {
        1 => (*call).to_owned(),
        count => format!("{call} ({count} threads)"),
    });
    format!("BLOCKED in {}", names.collect::<Vec<_>>().join(", "))
}
