//! Whether the machine is short of memory. While it is, tests run one at a time.

use std::time::Duration;

use heeler_core::{Slots, is_memory_short};
use heeler_sys::machine::MachineReading;
use tokio::time::Instant;

/// Interval of the readings. A reading costs about a tenth of a millisecond.
const INTERVAL: Duration = Duration::from_millis(500);

/// The last reading of the machine's memory.
#[derive(Debug, Default)]
pub(super) struct MemoryPressure {
    read_at: Option<Instant>,
    is_short: bool,
}

impl MemoryPressure {
    /// Reads the memory again if tests run, and the last reading is old.
    pub(super) fn look(&mut self, in_use: Slots, now: Instant) {
        let is_due = self.read_at.is_none_or(|read_at| now >= read_at + INTERVAL);
        if is_due && (in_use > Slots::NONE || self.is_short) {
            (self.read_at, self.is_short) = (Some(now), is_machine_short());
        }
    }

    pub(super) fn is_short(&self) -> bool {
        self.is_short
    }

    /// Returns when to look again although nothing happens: while memory is short.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.read_at.filter(|_| self.is_short).map(|read_at| read_at + INTERVAL)
    }
}

/// Reads the memory of this machine, or of the control group that limits it. An unreadable machine has
/// enough.
fn is_machine_short() -> bool {
    MachineReading::read().is_ok_and(|machine| {
        let of_group = machine.group.map(|group| (group.free_bytes, group.limit_bytes));
        let (available, total) = of_group.unwrap_or((machine.available_bytes, machine.total_bytes));
        is_memory_short(machine.memory_stall_percent, available, total)
    })
}
