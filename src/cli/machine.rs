//! Facts about this machine and Heeler's processes on it, for people: memory, load, and processes.

use std::io;

use heeler_core::system_facts::{age_text, memory_size};
use heeler_sys::machine::{MachineReading, ProcessDescription, ProcessTable};

use super::display::count_of;

/// Maximum number of process ids shown of one role.
const MAX_SHOWN_PIDS: usize = 8;

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

    /// Returns how many other processes of this program and user are running in each role, with their ids.
    pub(super) fn describe_own_processes(&self) -> String {
        let Ok(program) = std::env::current_exe() else { return "not known".to_owned() };
        let mut own = self.processes.processes_of(&program);
        own.retain(|process| process.pid.as_u32() != std::process::id());
        let Some(oldest) = own.first() else { return "no other process is running".to_owned() };
        let roles = PROCESS_ROLES.iter().filter_map(|role| role.describe(&own));
        let memory = byte_size(own.iter().map(|process| process.resident_bytes).sum());
        let roles = roles.collect::<Vec<_>>().join(", ");
        format!("{roles}; {memory} together, the oldest for {}", age_text(oldest.age))
    }
}

/// A role of Heeler's processes.
struct ProcessRole {
    name: &'static str,
    /// First argument of the processes; `None` for those with any other argument.
    argument: Option<&'static str>,
}

/// All roles, in the order of the output.
const PROCESS_ROLES: [ProcessRole; 5] = [
    ProcessRole { name: "coordinator", argument: None },
    ProcessRole { name: "watchdog", argument: Some("__watchdog") },
    ProcessRole { name: "worker", argument: Some("__worker") },
    ProcessRole { name: "fork server", argument: Some("__fork-server") },
    ProcessRole { name: "guard", argument: Some("__guard") },
];

impl ProcessRole {
    /// Returns the number and ids of the processes in this role, such as `2 workers (pid 7, 9)`.
    fn describe(&self, processes: &[ProcessDescription]) -> Option<String> {
        let pids: Vec<_> = processes
            .iter()
            .filter(|process| argument_of_role(&process.command) == self.argument)
            .map(|process| process.pid.to_string())
            .collect();
        let more = pids.len().saturating_sub(MAX_SHOWN_PIDS);
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        let shown = pids[..pids.len().min(MAX_SHOWN_PIDS)].join(", ");
        (!pids.is_empty()).then(|| format!("{} (pid {shown}{more})", count_of(pids.len(), self.name)))
    }
}

/// Returns the first argument in a command line that names a role.
fn argument_of_role(command: &str) -> Option<&'static str> {
    let mut words = command.split_whitespace();
    words.find_map(|word| PROCESS_ROLES.iter().filter_map(|role| role.argument).find(|name| *name == word))
}

fn byte_size(bytes: u64) -> String {
    memory_size(bytes / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_counted_by_role() {
        let process = |pid, command: &str| ProcessDescription {
            pid: heeler_sys::process::Pid(pid),
            name: "heeler".to_owned(),
            command: command.to_owned(),
            age: std::time::Duration::from_secs(5),
            resident_bytes: 1 << 20,
        };
        let mut processes =
            vec![process(3, "/a b/heeler run -E __x"), process(4, "/a b/heeler __worker s 1")];
        processes.extend((10..20).map(|pid| process(pid, "heeler __guard")));
        let texts: Vec<_> = PROCESS_ROLES.iter().filter_map(|role| role.describe(&processes)).collect();
        let guards = "10 guards (pid 10, 11, 12, 13, 14, 15, 16, 17, and 2 more)";
        assert_eq!(texts, ["1 coordinator (pid 3)", "1 worker (pid 4)", guards]);
    }
}
