//! Text format of a coordinator's registration for the machine's slots. The numbers in the first line have a
//! fixed width, so that the coordinator can overwrite them in place.

use std::time::Duration;

use crate::{Slots, machine_slots::MachineDemand};

/// Registration of one coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineRecord {
    pub demand: MachineDemand,
    /// Slots that the coordinator holds.
    pub held: Slots,
    pub owner: SlotOwner,
}

/// A coordinator, as it is shown to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotOwner {
    pub pid: u32,
    /// Command of the coordinator, such as `heeler mutate`.
    pub command: String,
    /// Working directory of the coordinator.
    pub directory: String,
}

impl MachineRecord {
    /// Returns the complete text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let SlotOwner { pid, command, directory } = &self.owner;
        format!("{}{pid}\n{command}\n{directory}", numbers_text(&self.demand, self.held))
    }

    /// Reads a text; `None` if another version of Heeler has written it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.splitn(4, '\n');
        let mut numbers = lines.next()?.split_whitespace();
        let mut slots = || numbers.next()?.parse().ok().map(Slots);
        let (machine, wanted, least, held) = (slots()?, slots()?, slots()?, slots()?);
        let turn = Duration::from_nanos(numbers.next()?.parse().ok()?);
        let demand = MachineDemand { machine, wanted, least, turn };
        let (pid, command) = (lines.next()?.parse().ok()?, lines.next()?.to_owned());
        let owner = SlotOwner { pid, command, directory: lines.next()?.to_owned() };
        Some(Self { demand, held, owner })
    }
}

/// Returns the first line of the text.
#[must_use]
pub fn numbers_text(demand: &MachineDemand, held: Slots) -> String {
    let MachineDemand { machine, wanted, least, turn } = demand;
    let turn = u64::try_from(turn.as_nanos()).unwrap_or(u64::MAX);
    format!("{:>20} {:>20} {:>20} {:>20} {turn:>20}\n", machine.0, wanted.0, least.0, held.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_read_as_written_and_keeps_its_length() {
        let owner = SlotOwner { pid: 7, command: "heeler run".to_owned(), directory: "/a\nb".to_owned() };
        let demand = |number, turn| MachineDemand {
            machine: Slots(number),
            wanted: Slots(number),
            least: Slots(1),
            turn: Duration::from_nanos(turn),
        };
        let record = |demand| MachineRecord { demand, held: Slots(2), owner: owner.clone() };
        let (small, large) = (record(demand(0, 0)), record(demand(usize::MAX, u64::MAX)));
        for record in [&small, &large] {
            assert_eq!(MachineRecord::parse(&record.to_text()).as_ref(), Some(record));
        }
        assert_eq!(small.to_text().len(), large.to_text().len());
        assert_eq!(MachineRecord::parse("1 2 3"), None);
        assert_eq!(MachineRecord::parse(""), None);
    }
}
