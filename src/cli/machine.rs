//! Facts about this machine and Heeler's processes on it, for people: memory, load, and processes.

use std::io;

use heeler_core::system_facts::{age_text, memory_size};
use heeler_sys::machine::{MachineReading, ProcessDescription, ProcessTable};

/// Maximum number of characters shown of a command line.
const MAX_COMMAND_CHARS: usize = 100;

/// Facts read at one moment.
pub(super) struct MachineFacts {
    machine: MachineReading,
    processes: ProcessTable,
}

impl MachineFacts {
    pub(super) fn read() -> io::Result<Self> {
        Ok(Self { machine: MachineReading::read()?, processes: ProcessTable::read_all()? })
    }

    /// Returns the number of processors, and the number usable by this process.
    pub(super) fn describe_cores(&self) -> String {
        let usable = std::thread::available_parallelism().map_or(1, usize::from);
        let text = format!("{usable} usable by this process (the default number of parallel tests)");
        match self.machine.cores {
            all if all > usable => format!("{text}; the machine has {all}"),
            _ => text,
        }
    }

    /// Returns the available memory, such as `3.1 GiB of 16 GiB available`.
    pub(super) fn describe_memory(&self) -> String {
        let MachineReading { available_bytes, total_bytes, swapped_bytes, .. } = self.machine;
        let mut text = format!("{} of {} available", byte_size(available_bytes), byte_size(total_bytes));
        if let Some(group) = self.machine.group {
            text += &format!(
                "; cgroup limit {}, {} of it free",
                byte_size(group.limit_bytes),
                byte_size(group.free_bytes)
            );
        }
        if swapped_bytes > 0 {
            text += &format!("; {} swapped out", byte_size(swapped_bytes));
        }
        text
    }

    /// Returns how long processes have waited for memory.
    pub(super) fn describe_pressure(&self) -> String {
        match self.machine.memory_stall_percent {
            Some(percent) => format!("processes waited for memory {percent:.2} % of the last 10 s"),
            None => "not measured by this kernel".to_owned(),
        }
    }

    /// Returns the load and the number of processes, such as `1.25 in the last minute, 214 processes of 3
    /// users`.
    pub(super) fn describe_load(&self) -> String {
        let load = self
            .machine
            .load
            .map_or_else(|| "not known".to_owned(), |load| format!("{load:.2} in the last minute"));
        let (processes, users) = (self.processes.process_count(), self.processes.user_count());
        let plural = if users == 1 { "" } else { "s" };
        format!("{load}; {processes} processes of {users} user{plural}")
    }

    /// Returns a line for each other process of this program, oldest first: id, age, memory and command.
    pub(super) fn describe_own_processes(&self) -> Vec<String> {
        let Ok(program) = std::env::current_exe() else { return Vec::new() };
        let own = self.processes.processes_of(&program);
        own.iter()
            .filter(|process| process.pid.as_u32() != std::process::id())
            .map(describe_process)
            .collect()
    }
}

fn describe_process(process: &ProcessDescription) -> String {
    let command = heeler_report::sanitise::one_line(&process.command).into_owned();
    let shown: String = command.chars().take(MAX_COMMAND_CHARS).collect();
    let more = if shown.len() < command.len() { "…" } else { "" };
    let (age, memory) = (age_text(process.age), byte_size(process.resident_bytes));
    format!("pid {}, running for {age}, {memory}: {shown}{more}", process.pid)
}

fn byte_size(bytes: u64) -> String {
    memory_size(bytes / 1024)
}
