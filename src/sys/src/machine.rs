//! Facts about this machine and its processes, for reports: memory and its pressure, cores, load, users, and
//! name, command, age and memory of processes. Not for sampling running tests: describing a process costs
//! several times as much as reading a counter (`docs/design/performance.md`).

use std::{collections::BTreeSet, fs, io, path::Path, time::Duration};

use sysinfo::{
    CpuRefreshKind, MemoryRefreshKind, Process, ProcessRefreshKind, ProcessesToUpdate, System, UpdateKind,
};

use crate::process::{Pid, shown_command};

/// Memory, load and cores of this machine at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineReading {
    /// Number of logical CPUs of the machine; a process may be limited to fewer.
    pub cores: usize,
    /// Load average of the last minute (running and runnable processes), if the kernel reports it.
    pub load: Option<f64>,
    /// Memory that can be used without swapping.
    pub available_bytes: u64,
    pub total_bytes: u64,
    pub swapped_bytes: u64,
    /// Limit of this process's control group, if it is below the machine's memory.
    pub group: Option<GroupMemory>,
    /// Share of the last ten seconds during which a process waited for memory, in percent; `None` if the
    /// kernel does not measure it.
    pub memory_stall_percent: Option<f64>,
}

/// Memory of a control group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupMemory {
    pub limit_bytes: u64,
    pub free_bytes: u64,
}

/// Description of a process for reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessDescription {
    pub pid: Pid,
    /// Name in the kernel, at most 15 bytes.
    pub name: String,
    /// Command line, truncated; the name in brackets if there is none.
    pub command: String,
    /// Time since the start of the process, in whole seconds.
    pub age: Duration,
    /// Resident memory.
    pub resident_bytes: u64,
}

/// The processes read so far.
pub struct ProcessTable {
    system: System,
}

impl MachineReading {
    /// Reads the facts.
    ///
    /// # Errors
    /// The system does not report its state, for example without procfs.
    pub fn read() -> io::Result<Self> {
        let mut system = new_system()?;
        system.refresh_memory_specifics(MemoryRefreshKind::everything());
        system.refresh_cpu_list(CpuRefreshKind::nothing());
        let total_bytes = system.total_memory();
        let group = system.cgroup_limits().filter(|group| group.total_memory < total_bytes);
        Ok(Self {
            cores: system.cpus().len().max(1),
            load: System::load_average().ok().map(|load| load.one),
            available_bytes: system.available_memory(),
            total_bytes,
            swapped_bytes: system.used_swap(),
            group: group
                .map(|group| GroupMemory { limit_bytes: group.total_memory, free_bytes: group.free_memory }),
            // `sysinfo` does not read the kernel's pressure statistics.
            memory_stall_percent: fs::read_to_string("/proc/pressure/memory")
                .ok()
                .and_then(|text| stall(&text)),
        })
    }
}

impl ProcessTable {
    /// Returns an empty table.
    ///
    /// # Errors
    /// The system does not report its state, for example without procfs.
    pub fn new() -> io::Result<Self> {
        Ok(Self { system: new_system()? })
    }

    /// Reads all processes with their programs and users.
    ///
    /// # Errors
    /// The system does not report its state, for example without procfs.
    pub fn read_all() -> io::Result<Self> {
        let mut system = new_system()?;
        let kind = described().with_exe(UpdateKind::Always).with_user(UpdateKind::Always);
        system.refresh_processes_specifics(ProcessesToUpdate::All, true, kind);
        Ok(Self { system })
    }

    /// Reads and describes a process; `None` if it no longer exists.
    pub fn read(&mut self, pid: Pid) -> Option<ProcessDescription> {
        let id = sysinfo::Pid::from_u32(pid.as_u32());
        self.system.refresh_processes_specifics(ProcessesToUpdate::Some(&[id]), true, described());
        self.system.process(id).map(describe)
    }

    /// Returns the number of processes.
    #[must_use]
    pub fn process_count(&self) -> usize {
        self.system.processes().len()
    }

    /// Returns the number of users with processes.
    #[must_use]
    pub fn user_count(&self) -> usize {
        let users = self.system.processes().values().filter_map(Process::user_id);
        users.collect::<BTreeSet<_>>().len()
    }

    /// Returns the processes of this user that run a program, oldest first.
    #[must_use]
    pub fn processes_of(&self, program: &Path) -> Vec<ProcessDescription> {
        let user = crate::process::effective_uid();
        let is_own = |process: &&Process| process.user_id().is_some_and(|owner| **owner == user);
        let of_program = |process: &&Process| process.exe() == Some(program);
        let mut found: Vec<_> = self.system.processes().values().filter(of_program).filter(is_own).collect();
        found.sort_by_key(|process| (process.start_time(), process.pid()));
        found.into_iter().map(describe).collect()
    }
}

fn new_system() -> io::Result<System> {
    System::new().map_err(|error| io::Error::other(error.to_string()))
}

/// Returns which data to read about each process.
fn described() -> ProcessRefreshKind {
    ProcessRefreshKind::nothing().with_memory().with_cmd(UpdateKind::Always).without_tasks()
}

fn describe(process: &Process) -> ProcessDescription {
    let name = process.name().to_string_lossy().into_owned();
    let words: Vec<_> = process.cmd().iter().map(|word| word.to_string_lossy()).collect();
    ProcessDescription {
        pid: Pid(process.pid().as_u32().cast_signed()),
        command: shown_command(words.iter().map(AsRef::as_ref), &name),
        name,
        age: Duration::from_secs(process.run_time()),
        resident_bytes: process.memory(),
    }
}

/// Returns the share of the last ten seconds during which a process waited, given a file of `/proc/pressure`.
fn stall(text: &str) -> Option<f64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split(' ').find_map(|word| word.strip_prefix("avg10="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stall_is_that_of_some_process_in_ten_seconds() {
        let text = "some avg10=12.50 avg60=3.00 avg300=1.00 total=99\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=9\n";
        assert_eq!(stall(text), Some(12.5));
        assert_eq!(stall("full avg10=1.00"), None);
    }
}
