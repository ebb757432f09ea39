//! Slots of the machine: how many there are, and which runs hold or want some.

use heeler_config::MachineLimits;
use heeler_core::machine_record::{MachineRecord, SlotOwner};
use heeler_report::sanitise;
use heeler_sys::machine_slots::{RegistrationReader, directory};

use super::{DoctorFinding, FindingRating};
use crate::cli::display::count_of;

/// Returns a line about the slots, and one for each run that holds or wants some.
pub(super) fn check_slots(limits: Option<MachineLimits>) -> Vec<DoctorFinding> {
    let finding = |text: String| DoctorFinding { rating: FindingRating::Info, subject: "slots", text };
    let Some(limits) = limits else {
        return vec![finding("off: runs on this machine do not wait for each other".to_owned())];
    };
    let found = directory().map_err(|error| heeler_core::error_chain(&error)).and_then(|directory| {
        let texts = RegistrationReader::default()
            .read_others(&directory, None)
            .map_err(|error| format!("read {}: {error}", directory.display()))?;
        Ok((directory, texts))
    });
    match found {
        Err(error) => {
            let text = format!("failed to {error}; runs on this machine do not wait for each other");
            vec![DoctorFinding { rating: FindingRating::Limited, ..finding(text) }]
        }
        Ok((directory, texts)) => {
            let slots = count_of(limits.shared.get(), "slot");
            let text = format!("{slots} for all your runs on this machine ({})", directory.display());
            let records: Vec<_> = texts.iter().filter_map(|(_, text)| MachineRecord::parse(text)).collect();
            let holders = records.iter().map(|record| finding(holder_text(record)));
            [finding(text)].into_iter().chain(holders).collect()
        }
    }
}

/// Returns text such as `1 held, 2 wanted by heeler run in /home/me/a (pid 7)`.
fn holder_text(record: &MachineRecord) -> String {
    let SlotOwner { pid, command, directory } = &record.owner;
    let (held, wanted) = (record.held.0, record.demand.wanted.0);
    let text = format!("{held} held, {wanted} wanted by {command} in {directory} (pid {pid})");
    sanitise::one_line(&text).into_owned()
}
