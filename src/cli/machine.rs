//! Facts about this machine and the processes of Heeler on it, for people: memory, load, and who uses them.

use std::path::Path;

use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System, UpdateKind};

use super::display::memory_size;

/// Maximum number of characters shown of a command line.
const MAX_COMMAND_CHARS: usize = 100;

/// The facts, as read at one moment.
pub(super) struct MachineFacts {
    system: System,
}

impl MachineFacts {
    /// Reads the facts; an error is returned as text.
    pub(super) fn read() -> Result<Self, String> {
        let mut system = System::new().map_err(|error| error.to_string())?;
        system.refresh_memory();
        let kind = ProcessRefreshKind::nothing()
            .with_memory()
            .with_exe(UpdateKind::Always)
            .with_cmd(UpdateKind::Always)
            .with_user(UpdateKind::Always)
            .without_tasks();
        system.refresh_processes_specifics(ProcessesToUpdate::All, true, kind);
        Ok(Self { system })
    }

    /// Returns the share of memory that is free to use, such as `3.1 GiB of 16 GiB available`.
    pub(super) fn describe_memory(&self) -> String {
        let [available, total] = [self.system.available_memory(), self.system.total_memory()];
        let mut text = format!("{} of {} available", kib_size(available), kib_size(total));
        if let Some(group) = self.system.cgroup_limits().filter(|group| group.total_memory < total) {
            text += &format!(
                "; a control group allows {}, of which {} are free",
                kib_size(group.total_memory),
                kib_size(group.free_memory)
            );
        }
        if self.system.used_swap() > 0 {
            text += &format!("; {} are swapped out", kib_size(self.system.used_swap()));
        }
        text
    }

    /// Returns the load and the number of processes, such as `1.25 in the last minute, 214 processes of 3 users`.
    pub(super) fn describe_load(&self) -> String {
        let load = System::load_average()
            .map_or_else(|_| "not known".to_owned(), |load| format!("{:.2} in the last minute", load.one));
        let processes = self.system.processes();
        let mut users: Vec<_> = processes.values().filter_map(|process| process.user_id()).collect();
        users.sort_unstable();
        users.dedup();
        let plural = if users.len() == 1 { "" } else { "s" };
        format!("{load}; {} processes of {} user{plural}", processes.len(), users.len())
    }

    /// Returns a line for each other process of this program, oldest first: id, age, memory and command.
    pub(super) fn describe_own_processes(&self) -> Vec<String> {
        let Ok(program) = std::env::current_exe() else { return Vec::new() };
        let is_ours = |process: &&sysinfo::Process| {
            process.exe().is_some_and(|exe| exe == Path::new(&program))
                && process.pid().as_u32() != std::process::id()
        };
        let mut own: Vec<_> = self.system.processes().values().filter(is_ours).collect();
        own.sort_by_key(|process| (process.start_time(), process.pid()));
        own.into_iter().map(describe_process).collect()
    }
}

fn describe_process(process: &sysinfo::Process) -> String {
    let words: Vec<_> = process.cmd().iter().map(|word| word.to_string_lossy()).collect();
    let command = heeler_report::sanitise::one_line(&words.join(" ")).into_owned();
    let shown: String = command.chars().take(MAX_COMMAND_CHARS).collect();
    let more = if shown.len() < command.len() { "…" } else { "" };
    let age = age_text(process.run_time());
    format!("process {}, for {age}, {}: {shown}{more}", process.pid(), kib_size(process.memory()))
}

fn kib_size(bytes: u64) -> String {
    memory_size(bytes / 1024)
}

/// Formats an age by its largest unit: `5 s`, `3 min`, `2 h`, `4 d`.
fn age_text(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_one_unit() {
        let ages = [0, 119, 120, 7199, 7200, 172_799, 172_800].map(age_text);
        assert_eq!(ages, ["0 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 d"]);
    }
}
