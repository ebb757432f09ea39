//! Describes processes and the machine in reports about hangs and leaked processes. Periodic samples of
//! running tests read single counters instead.

use heeler_core::{MachineLoad, ProcessFacts};
use heeler_sys::{
    machine::{MachineReading, ProcessTable},
    process::{self, Pid},
};

/// Describes processes one by one. Creating this is cheap, since most tests leave no process behind.
#[derive(Default)]
pub(super) struct ProcessDescriber {
    table: Option<ProcessTable>,
}

pub(super) struct DescribedProcess {
    pub(super) command: String,
    /// `None` if the process is gone or the system does not report these facts.
    pub(super) facts: Option<ProcessFacts>,
}

impl ProcessDescriber {
    pub(super) fn describe(&mut self, pid: Pid) -> DescribedProcess {
        if self.table.is_none() {
            self.table = ProcessTable::new().ok();
        }
        match self.table.as_mut().and_then(|table| table.read(pid)) {
            Some(process) => DescribedProcess {
                command: process.command,
                facts: Some(ProcessFacts {
                    name: process.name,
                    age_s: process.age.as_secs(),
                    memory_kib: process.resident_bytes / 1024,
                }),
            },
            None => DescribedProcess { command: process::command_line(pid), facts: None },
        }
    }
}

/// Returns load and memory of the machine, or of the control group if it has less memory. `None` if the
/// system does not report them.
pub(super) fn machine_load() -> Option<MachineLoad> {
    let reading = MachineReading::read().ok()?;
    let group = reading.group;
    let free = group.map_or(u64::MAX, |group| group.free_bytes);
    Some(MachineLoad {
        cores: u32::try_from(reading.cores).unwrap_or(u32::MAX),
        load_hundredths: reading.load.map(hundredths),
        available_kib: reading.available_bytes.min(free) / 1024,
        total_kib: group.map_or(reading.total_bytes, |group| group.limit_bytes) / 1024,
        swapped_kib: reading.swapped_bytes / 1024,
        memory_stall_hundredths: reading.memory_stall_percent.map(hundredths),
    })
}

fn hundredths(value: f64) -> u32 {
    // Values are small and never negative, and the conversion saturates.
    (value * 100.0).round() as u32
}
