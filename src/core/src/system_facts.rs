//! Facts about processes and their machine for readers of reports. They explain a hang or a leak; no decision
//! depends on them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Divisor: a machine is short of memory if less than this fraction of its memory is available.
const SHORT_MEMORY_DIVISOR: u64 = 20;
/// A machine is short of memory if its processes wait for memory in more than this share of the time, in
/// hundredths of a percent.
const SHORT_MEMORY_STALL: u32 = 1000;

/// Facts about a process other than its command line.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessFacts {
    /// Process name reported by the kernel, at most 15 bytes.
    pub name: String,
    /// Time since its start, in whole seconds.
    pub age_s: u64,
    /// Resident memory in KiB.
    pub memory_kib: u64,
}

/// Load and memory of the machine at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MachineLoad {
    /// Number of logical processors.
    pub cores: u32,
    /// Load average of the last minute (processes that ran or wanted to run), in hundredths.
    pub load_hundredths: Option<u32>,
    /// Memory that can be used without swapping, in KiB. The control group's value if that is less than the
    /// machine's.
    pub available_kib: u64,
    /// Total memory, or the limit of the control group, in KiB.
    pub total_kib: u64,
    /// Swapped-out memory, in KiB.
    pub swapped_kib: u64,
    /// Share of the last ten seconds during which a process waited for memory, in hundredths of a percent;
    /// `None` if the system does not measure it.
    pub memory_stall_hundredths: Option<u32>,
}

impl ProcessFacts {
    /// Describes the process in parentheses: `pid 7, 3 s old, 1.2 MiB`. The name is added unless the
    /// command line begins with it.
    #[must_use]
    pub fn describe(&self, pid: u32, command: &str) -> String {
        let program = command.split(' ').next().unwrap_or_default();
        let program = program.rsplit('/').next().unwrap_or_default().trim_start_matches('[');
        let name = if self.name.is_empty() || program.starts_with(&self.name) {
            String::new()
        } else {
            format!(" {:?}", self.name)
        };
        let age = age_text(Duration::from_secs(self.age_s));
        format!("pid {pid}{name}, {age} old, {}", memory_size(self.memory_kib))
    }
}

impl MachineLoad {
    /// Returns whether a lack of memory may explain a slow or hanging test.
    #[must_use]
    pub(crate) fn is_short_of_memory(&self) -> bool {
        self.available_kib < self.total_kib / SHORT_MEMORY_DIVISOR
            || self.memory_stall_hundredths.is_some_and(|stall| stall >= SHORT_MEMORY_STALL)
    }

    /// Describes the machine in one line, such as `load 1.25 on 2 cores; 3.1 GiB of 16 GiB of memory
    /// available`.
    #[must_use]
    pub fn describe(&self) -> String {
        let cores = if self.cores == 1 { "core" } else { "cores" };
        let load = self
            .load_hundredths
            .map_or_else(|| "load unknown".to_owned(), |load| format!("load {}", decimal(load)));
        let (available, total) = (memory_size(self.available_kib), memory_size(self.total_kib));
        let mut text = format!("{load} on {} {cores}; {available} of {total} memory available", self.cores);
        if self.swapped_kib > 0 {
            text += &format!(", {} swapped out", memory_size(self.swapped_kib));
        }
        if let Some(stall) = self.memory_stall_hundredths.filter(|stall| *stall > 0) {
            text += &format!(", processes waited for memory during {} % of the last 10 s", decimal(stall));
        }
        if self.is_short_of_memory() {
            text += "; the machine is short of memory";
        }
        text
    }
}

/// Formats hundredths: `1.25`.
fn decimal(hundredths: u32) -> String {
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// Formats an age by its largest unit: `5 s`, `3 min`, `2 h`, `4 d`.
#[must_use]
pub fn age_text(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Formats an amount of memory: `999 KiB`, `97.6 MiB`, `1,024 MiB`, `16 GiB`. At most ten columns.
#[must_use]
pub fn memory_size(kib: u64) -> String {
    let whole = |number: u64| match number {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", number / 1000, number % 1000),
    };
    match kib {
        0..1024 => format!("{kib} KiB"),
        1024..102_400 => format!("{}.{} MiB", kib / 1024, kib % 1024 * 10 / 1024),
        102_400..10_485_760 => format!("{} MiB", whole(kib / 1024)),
        _ => format!("{} GiB", whole(kib / 1_048_576)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_one_unit() {
        let ages = [0, 119, 120, 7199, 7200, 172_799, 172_800].map(|age| age_text(Duration::from_secs(age)));
        assert_eq!(ages, ["0 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 d"]);
    }

    #[test]
    fn memory_sizes_are_short_and_rounded_down() {
        let sizes = [
            (0, "0 KiB"),
            (1023, "1023 KiB"),
            (1024, "1.0 MiB"),
            (102_399, "99.9 MiB"),
            (262_144, "256 MiB"),
            (10_485_759, "10,239 MiB"),
            (10_485_760, "10 GiB"),
        ];
        for (kib, text) in sizes {
            assert_eq!(memory_size(kib), text);
        }
    }

    #[test]
    fn process_name_is_added_unless_the_command_begins_with_it() {
        let facts = |name: &str| ProcessFacts { name: name.to_owned(), age_s: 3, memory_kib: 1300 };
        assert_eq!(facts("sleep").describe(7, "/bin/sleep 9"), "pid 7, 3 s old, 1.2 MiB");
        assert_eq!(facts("sleep").describe(7, "[sleep]"), "pid 7, 3 s old, 1.2 MiB");
        assert_eq!(facts("a-name-cut-afte").describe(7, "/b/a-name-cut-after-15"), "pid 7, 3 s old, 1.2 MiB");
        assert_eq!(facts("pool").describe(7, "/bin/server"), "pid 7 \"pool\", 3 s old, 1.2 MiB");
    }

    #[test]
    fn machine_short_of_memory_is_named() {
        let mut machine = MachineLoad {
            cores: 2,
            load_hundredths: Some(125),
            available_kib: 3 << 20,
            total_kib: 16 << 20,
            ..MachineLoad::default()
        };
        let text = "load 1.25 on 2 cores; 3,072 MiB of 16 GiB memory available";
        assert_eq!(machine.describe(), text);
        machine.memory_stall_hundredths = Some(1050);
        let stalled = format!(
            "{text}, processes waited for memory during 10.50 % of the last 10 s; the machine is short of memory"
        );
        assert_eq!(machine.describe(), stalled);
        machine = MachineLoad { available_kib: 100 << 10, memory_stall_hundredths: Some(0), ..machine };
        assert!(machine.describe().ends_with("; the machine is short of memory"), "{}", machine.describe());
    }
}
