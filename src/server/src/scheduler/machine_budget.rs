//! This coordinator's part of the machine's slots: takes slots that the runs want, and gives them back when
//! other coordinators are entitled to them. `heeler_core::machine_slots` decides, and `heeler_sys` holds the
//! locks.

use std::{collections::BTreeSet, os::fd::OwnedFd, path::PathBuf, time::Duration};

use heeler_config::MachineLimits;
use heeler_core::{
    Slots,
    machine_record::{MachineRecord, SlotOwner, numbers_text},
    machine_slots::{MachineDemand, is_turn_over, machine_limit, machine_shares},
};
use heeler_sys::{
    clock::monotonic,
    machine_slots::{CoordinatorRegistration, RegistrationReader, SlotLocks},
};
use tokio::time::Instant;

use super::{ClientEvent, MachineWait, clients::Clients};
use crate::pool::SLOT_VARIABLE;

/// Interval of reading what others have registered: while waiting for slots, and at most this often
/// otherwise.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Minimum interval of reports to clients about the wait for slots.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// Needs of the runs and listings of this coordinator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct OwnDemand {
    /// Slots that can be used now, including those in use.
    pub(super) wanted: Slots,
    /// Slots that must be available before another lease can start, including those in use.
    pub(super) least: Slots,
    pub(super) in_use: Slots,
}

/// The machine's slots, as this coordinator sees them.
pub(super) struct MachineBudget {
    /// Own number of slots.
    slots: Slots,
    /// `None` if the coordinator does not share the machine's slots.
    limits: Option<MachineLimits>,
    /// Slots that need no lock: the slot of the test process that this coordinator is part of, or one slot of
    /// a server, because somebody waits for its answers.
    own: Slots,
    shared: Option<SharedSlots>,
}

/// The slots that this coordinator holds, and its knowledge about the others.
struct SharedSlots {
    directory: PathBuf,
    locks: SlotLocks,
    held: BTreeSet<usize>,
    registration: CoordinatorRegistration,
    reader: RegistrationReader,
    demand: MachineDemand,
    /// Slots that this coordinator may hold once its leases have ended.
    share: Slots,
    /// Coordinators that want slots, ordered by name.
    rivals: Vec<(String, MachineRecord)>,
    /// When the rivals were read last.
    looked_at: Option<Instant>,
    /// When the rivals must be read again, even if nothing happens here.
    look_at: Option<Instant>,
    /// When the first slot of the current turn was taken.
    turn_began: Instant,
    /// The last demand that was handled.
    handled: OwnDemand,
}

impl MachineBudget {
    pub(super) fn new(slots: usize, limits: Option<MachineLimits>, is_server: bool) -> Self {
        let has_own = is_server || std::env::var_os(SLOT_VARIABLE).is_some();
        let own = if has_own { Slots::ONE } else { Slots::NONE };
        Self { slots: Slots(slots), limits, own, shared: None }
    }

    /// Joins the other coordinators of this machine, unless this has happened. Returns a descriptor for the
    /// watchdog, which keeps the slots if this process dies.
    pub(super) fn join(&mut self) -> Option<OwnedFd> {
        let limits = self.limits?;
        if self.shared.is_none() {
            self.shared = SharedSlots::open(limits)
                .inspect_err(|error| tracing::warn!("tests do not wait for other runs: failed to {error}"))
                .ok();
        }
        let duplicate = self.shared.as_ref().and_then(|shared| shared.locks.duplicate().ok());
        if duplicate.is_none() {
            self.limits = None;
            self.shared = None;
        }
        duplicate
    }

    /// Leaves the slots to the watchdog, which holds them until all of its processes have ended.
    pub(super) fn leave(&mut self) {
        self.shared = None;
    }

    /// Returns the number of slots that this coordinator may use at best.
    pub(super) fn limit(&self) -> Slots {
        let Some(limits) = self.limits else { return self.slots };
        let rivals = self.shared.as_ref().map_or(&[][..], |shared| &shared.rivals);
        let demands: Vec<_> = rivals.iter().map(|(_, rival)| rival.demand).collect();
        let machine = match demands[..] {
            [] => Slots(limits.alone.get()),
            _ => machine_limit(&demands).min(Slots(limits.shared.get())),
        };
        self.slots.min(machine.max(Slots::ONE))
    }

    /// Returns whether other coordinators want slots.
    pub(super) fn has_rivals(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| !shared.rivals.is_empty())
    }

    /// Takes and gives back slots. Returns the number that leases may occupy now, including those in use.
    pub(super) fn update(&mut self, own: OwnDemand, now: Instant) -> Slots {
        let (Some(limits), Some(shared)) = (self.limits, &mut self.shared) else {
            // Without slots to share, there is either no limit or no process that could use a slot.
            return self.slots;
        };
        let without_own = |slots: Slots| slots.saturating_sub(self.own);
        shared.update(
            OwnDemand {
                wanted: without_own(own.wanted),
                least: without_own(own.least),
                in_use: without_own(own.in_use),
            },
            limits,
            now,
        );
        shared.available().saturating_add(self.own)
    }

    /// Returns when [`Self::update`] must be called again, even if nothing happens until then.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.shared.as_ref().and_then(|shared| shared.look_at)
    }

    /// Returns what this coordinator waits for.
    pub(super) fn wait(&self) -> Option<MachineWait> {
        let shared = self.shared.as_ref()?;
        let missing = shared.handled.wanted.saturating_sub(Slots(shared.held.len()));
        let others: Vec<_> = shared.rivals.iter().map(|(_, rival)| rival.owner.clone()).collect();
        (missing > Slots::NONE && !others.is_empty()).then_some(MachineWait { missing, others })
    }
}

/// Reports to clients what the runs wait for.
#[derive(Default)]
pub(super) struct MachineWaitReport {
    last: Option<MachineWait>,
    reported_at: Option<Instant>,
}

impl MachineWaitReport {
    /// Reports a change. While the runs wait, changes are reported at most once in [`REPORT_INTERVAL`].
    pub(super) fn report(&mut self, wait: Option<MachineWait>, clients: &Clients) {
        let now = Instant::now();
        let is_early = self.reported_at.is_some_and(|reported_at| now < reported_at + REPORT_INTERVAL);
        if self.last == wait || is_early && wait.is_some() {
            return;
        }
        (self.last, self.reported_at) = (wait.clone(), Some(now));
        clients.send_to_all(|| ClientEvent::MachineWait(wait.clone()));
    }
}

/// Why this coordinator can't join the others.
#[derive(Debug, thiserror::Error)]
enum JoinError {
    #[error("{}", heeler_core::error_chain(.0))]
    Directory(heeler_sys::dirs::DirError),
    #[error("use the slots in {}: {source}", directory.display())]
    Use { directory: PathBuf, source: std::io::Error },
}

impl SharedSlots {
    fn open(limits: MachineLimits) -> Result<Self, JoinError> {
        let directory = heeler_sys::machine_slots::directory().map_err(JoinError::Directory)?;
        let failed = |source| JoinError::Use { directory: directory.clone(), source };
        let locks = SlotLocks::open(&directory).map_err(failed)?;
        let demand = MachineDemand {
            machine: Slots(limits.shared.get()),
            wanted: Slots::NONE,
            least: Slots::NONE,
            turn: Duration::ZERO,
        };
        let record = MachineRecord { demand, held: Slots::NONE, owner: own_description() };
        let registration = CoordinatorRegistration::create(&directory, &record.to_text()).map_err(failed)?;
        Ok(Self {
            directory,
            locks,
            held: BTreeSet::new(),
            registration,
            reader: RegistrationReader::default(),
            demand,
            share: Slots::NONE,
            rivals: Vec::new(),
            looked_at: None,
            look_at: None,
            turn_began: Instant::now(),
            handled: OwnDemand::default(),
        })
    }

    /// Returns the number of slots that leases may occupy now. Held slots beyond the share are given back at
    /// the end of their leases.
    fn available(&self) -> Slots {
        self.share.min(Slots(self.held.len()))
    }

    fn update(&mut self, own: OwnDemand, limits: MachineLimits, now: Instant) {
        let is_idle = own.wanted == Slots::NONE && self.held.is_empty();
        let may_look = self.looked_at.is_none_or(|looked_at| now >= looked_at + LOOK_INTERVAL);
        if own == self.handled && is_idle || !may_look && self.is_settled(own) {
            self.handled = own;
            return;
        }
        let before = (self.demand, self.held.len());
        if may_look && !is_idle {
            self.look(now);
        }
        // Register the machine as others must see it. A coordinator without rivals may use more.
        let turn = match self.handled.wanted {
            Slots::NONE => monotonic(),
            _ => self.demand.turn,
        };
        let machine = Slots(limits.shared.get());
        self.demand = MachineDemand { machine, wanted: own.wanted, least: own.least, turn };
        self.handled = own;
        let limit = self.divide(limits, now);
        self.give_back(own.in_use);
        self.take(limit, now);
        if before != (self.demand, self.held.len()) {
            self.register();
        }
        let held = Slots(self.held.len());
        let is_waiting = held < own.wanted || held > own.in_use && !self.rivals.is_empty();
        self.look_at = is_waiting.then(|| now + LOOK_INTERVAL);
    }

    /// Returns whether nothing is to be taken or given back for this demand, unless the others have changed
    /// theirs. So it is for most leases of a run that is alone.
    fn is_settled(&self, own: OwnDemand) -> bool {
        let held = Slots(self.held.len());
        let is_same = own.wanted == self.handled.wanted && own.least == self.handled.least;
        let is_alone = self.rivals.is_empty() && held == self.share && own.in_use <= held;
        own == self.handled || is_same && is_alone
    }

    /// Reads which other coordinators want slots.
    fn look(&mut self, now: Instant) {
        self.looked_at = Some(now);
        let others = self.reader.read_others(&self.directory, Some(self.registration.name()));
        let others = others.inspect_err(|error| {
            tracing::debug!(%error, "failed to read what other runs want");
        });
        let others = others.unwrap_or_default().into_iter();
        let records = others.filter_map(|(name, text)| Some((name, MachineRecord::parse(&text)?)));
        self.rivals = records.filter(|(_, record)| record.demand.wanted > Slots::NONE).collect();
    }

    /// Computes the share, and ends the turn if it is over. Returns the number of slots of the machine.
    fn divide(&mut self, limits: MachineLimits, now: Instant) -> Slots {
        let (demands, place) = self.all_demands(limits);
        let shares = machine_shares(&demands);
        self.share = shares[place];
        let held_for = now.saturating_duration_since(self.turn_began);
        if !self.held.is_empty() && is_turn_over(place, &demands, &shares, held_for) {
            self.demand.turn = monotonic();
            self.turn_began = now;
            let (demands, place) = self.all_demands(limits);
            self.share = machine_shares(&demands)[place];
        }
        machine_limit(&demands)
    }

    /// Returns the demands of all coordinators, and the place of this one. All coordinators use the same
    /// order.
    fn all_demands(&self, limits: MachineLimits) -> (Vec<MachineDemand>, usize) {
        let mut demands: Vec<_> = self.rivals.iter().map(|(_, rival)| rival.demand).collect();
        let place = self.rivals.partition_point(|(name, _)| name.as_str() < self.registration.name());
        let machine = match demands[..] {
            [] => Slots(limits.alone.get()),
            _ => self.demand.machine,
        };
        demands.insert(place, MachineDemand { machine, ..self.demand });
        (demands, place)
    }

    /// Gives back the slots beyond the share that no lease uses. The last ones go first: others take slots
    /// from the start, so all coordinators together soon hold no more than the machine has.
    fn give_back(&mut self, in_use: Slots) {
        while Slots(self.held.len()) > self.share.max(in_use)
            && let Some(slot) = self.held.pop_last()
        {
            if let Err(error) = self.locks.give_back(slot) {
                tracing::warn!(slot, %error, "failed to give back a slot of the machine");
            }
        }
    }

    /// Takes free slots up to the share.
    fn take(&mut self, limit: Slots, now: Instant) {
        if self.held.is_empty() {
            self.turn_began = now;
        }
        for slot in 0..limit.0 {
            if Slots(self.held.len()) >= self.share {
                return;
            }
            if self.held.contains(&slot) {
                continue;
            }
            match self.locks.try_take(slot) {
                Ok(true) => drop(self.held.insert(slot)),
                Ok(false) => {}
                Err(error) => tracing::warn!(slot, %error, "failed to take a slot of the machine"),
            }
        }
    }

    fn register(&self) {
        let numbers = numbers_text(&self.demand, Slots(self.held.len()));
        if let Err(error) = self.registration.overwrite_start(&numbers) {
            tracing::warn!(%error, "failed to register for slots of the machine");
        }
    }
}

/// Returns what people see of this coordinator.
fn own_description() -> SlotOwner {
    let subcommand = std::env::args().nth(1);
    let is_word = |word: &String| word.chars().all(|letter| letter.is_ascii_lowercase());
    let command = match subcommand.filter(is_word) {
        Some(word) => format!("heeler {word}"),
        None => "heeler".to_owned(),
    };
    let directory = std::env::current_dir().unwrap_or_default().display().to_string();
    SlotOwner { pid: std::process::id(), command, directory }
}
