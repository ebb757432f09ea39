//! Cost of sampling and describing a process: single counters read from procfs, as for running tests,
//! compared with `sysinfo`, which describes processes in reports.
//!
//! `cargo bench -p heeler-sys --bench process_facts`

#![expect(clippy::unwrap_used, reason = "a bench that fails may panic")]

use divan::{Bencher, black_box};
use heeler_sys::{
    machine::{MachineReading, ProcessTable},
    process::{self, Pid},
    trace,
};
use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System};

fn main() {
    divan::main();
}

/// Memory as read by the sampling: the process and its descendants.
#[divan::bench]
fn memory_by_procfs() -> Option<u64> {
    process::memory_above(black_box(Pid::own()), u64::MAX)
}

/// Memory of one process only. `sysinfo` finds descendants only by reading all processes.
#[divan::bench]
fn memory_by_sysinfo(bencher: Bencher<'_, '_>) {
    let mut system = System::new().unwrap();
    let kind = ProcessRefreshKind::nothing().with_memory().without_tasks();
    let own = [sysinfo::Pid::from_u32(std::process::id())];
    bencher.bench_local(|| {
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&own), true, kind);
        system.process(own[0]).map(sysinfo::Process::memory)
    });
}

/// State, system call, CPU time and waiting time of a thread; `sysinfo` lacks most of these.
#[divan::bench]
fn thread_state_by_procfs() {
    black_box(trace::read_syscall_state(Pid::own()));
}

/// CPU time of a process.
#[divan::bench]
fn cpu_time_by_procfs() -> u64 {
    trace::cpu_us(black_box(Pid::own()))
}

/// CPU time of a process.
#[divan::bench]
fn cpu_time_by_sysinfo(bencher: Bencher<'_, '_>) {
    let mut system = System::new().unwrap();
    let kind = ProcessRefreshKind::nothing().with_cpu().without_tasks();
    let own = [sysinfo::Pid::from_u32(std::process::id())];
    bencher.bench_local(|| {
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&own), true, kind);
        system.process(own[0]).map(sysinfo::Process::accumulated_cpu_time)
    });
}

/// First description with a new process table.
#[divan::bench]
fn first_description() {
    black_box(ProcessTable::new().unwrap().read(Pid::own()));
}

/// Further descriptions with the same table.
#[divan::bench]
fn further_description(bencher: Bencher<'_, '_>) {
    let mut table = ProcessTable::new().unwrap();
    bencher.bench_local(|| table.read(Pid::own()));
}

/// Load, memory and cores of the machine.
#[divan::bench]
fn machine() {
    black_box(MachineReading::read().unwrap());
}
