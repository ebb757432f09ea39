//! One round of any protocol: the steps that all protocols share, from preparing the programs to detecting
//! leftovers.

use std::{
    collections::BTreeMap,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use crate::{
    heeler_process::heeler,
    injector::{InjectedFault, RoundClient, RoundProgress, RoundStage, inject},
    leftovers,
    planned_faults::{FaultTarget, InjectedAction, PlannedFault},
    protocols::RoundPlan,
    support::process::{ProcessRole, processes_of_role},
};

/// Peak memory limit of a Heeler process, including the pages of the harness's executable.
const PEAK_MIB: u64 = 100;

/// The result of a round.
pub(crate) struct RoundResult {
    pub(crate) injected: Vec<InjectedFault>,
    /// Peak memory of the coordinator, watchdog and workers, in MiB.
    pub(crate) peaks: BTreeMap<&'static str, u64>,
    pub(crate) took: Duration,
    /// Standard error of the program.
    pub(crate) errors: String,
    /// Whether the machine could provide the drawn disk.
    pub(crate) has_disk: bool,
    /// The violated guarantee and the directory with the round's files.
    pub(crate) finding: Option<RoundFinding>,
}

#[derive(Debug)]
pub(crate) struct RoundFinding {
    pub(crate) what: String,
    pub(crate) kept: PathBuf,
}

/// A round in progress.
pub(crate) struct FaultRound<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) mark: String,
    pub(crate) injected: Vec<InjectedFault>,
    pub(crate) peaks: BTreeMap<&'static str, u64>,
    pub(crate) errors: String,
    pub(crate) has_disk: bool,
}

/// Plays a round.
pub(crate) fn play(plan: &RoundPlan) -> RoundResult {
    let start = Instant::now();
    let dir = tempfile::Builder::new().prefix("hf-").tempdir().unwrap();
    let mut round = FaultRound {
        dir: dir.path(),
        mark: format!("{}-{}", std::process::id(), plan.seed()),
        injected: Vec::new(),
        peaks: BTreeMap::new(),
        errors: String::new(),
        has_disk: false,
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| plan.play(&mut round)));
    let FaultRound { injected, peaks, errors, has_disk, .. } = round;
    let finding = outcome.err().map(|_| {
        let what = crate::panic_messages::take_first();
        let kept = dir.keep();
        let text = format!("{what}\n\n{injected:#?}\n\n{plan:#?}\n");
        fs::write(kept.join("finding.txt"), text).ok();
        RoundFinding { what, kept }
    });
    RoundResult { injected, peaks, took: start.elapsed(), errors, has_disk, finding }
}

impl FaultRound<'_> {
    /// Injects the faults while `converse` runs the client.
    pub(crate) fn with_faults(
        &mut self,
        faults: &[PlannedFault],
        client: &impl RoundClient,
        converse: impl FnOnce(&mut Self, &RoundProgress),
    ) {
        let progress = RoundProgress::new();
        let dir = self.dir;
        std::thread::scope(|scope| {
            let progress = &progress;
            let injections: Vec<_> = faults
                .iter()
                .map(|fault| scope.spawn(move || inject(fault, client, dir, progress)))
                .collect();
            let conversed = catch_unwind(AssertUnwindSafe(|| converse(self, progress)));
            progress.reach(RoundStage::Over);
            for injection in injections {
                self.injected.push(injection.join().expect("a fault is done or missed"));
            }
            if let Err(panic) = conversed {
                std::panic::resume_unwind(panic);
            }
        });
    }

    /// Records the memory of Heeler's processes.
    pub(crate) fn measure(&mut self, coordinator: u32) {
        let roles = [("watchdog", ProcessRole::Watchdog), ("worker", ProcessRole::Worker)];
        let below = roles.iter().flat_map(|(name, role)| {
            processes_of_role(coordinator, *role).into_iter().map(move |pid| (*name, pid))
        });
        for (name, pid) in below.chain([("coordinator", coordinator)]) {
            let peak = peak_mib(pid).unwrap_or(0);
            let most = self.peaks.entry(name).or_default();
            *most = peak.max(*most);
        }
    }

    /// Returns the faults that took effect.
    pub(crate) fn hits(&self) -> impl Iterator<Item = &InjectedFault> + Clone {
        self.injected.iter().filter(|one| one.hit.is_some())
    }

    /// Returns whether a fault may have killed this process.
    pub(crate) fn is_killed(&self, target: FaultTarget) -> bool {
        self.hits().any(|one| one.fault.action.may_kill(target))
    }

    /// Checks that no process, file or mount is left.
    pub(crate) fn check_nothing_left(&self) {
        let is_starved = |one: &InjectedFault| {
            matches!(one.fault.action, InjectedAction::LimitFiles(..) | InjectedAction::LimitMemory(..))
        };
        let has_no_owner = self.is_killed(FaultTarget::Coordinator) || self.hits().any(is_starved);
        let mut left = leftovers::wait_clean(self.dir, &self.mark, !has_no_owner);
        if has_no_owner {
            // If a coordinator was killed before or together with its watchdog, or could not open a directory
            // to clean it, the next start cleans up.
            left.extend(self.left_to_the_next_start());
        }
        assert!(left.is_empty(), "left behind: {left:#?}");
    }

    /// Checks the peak memory of Heeler's processes.
    pub(crate) fn check_peaks(&self) {
        for (name, peak) in &self.peaks {
            assert!(*peak <= PEAK_MIB, "the {name} took {peak} MiB, and at most {PEAK_MIB} are allowed");
        }
    }

    /// Returns the sockets and temporary files that another start of Heeler does not remove.
    fn left_to_the_next_start(&self) -> Vec<String> {
        let left = leftovers::wait_clean(self.dir, &self.mark, true);
        if left.is_empty() {
            return left;
        }
        let mut next = heeler(self.dir, &self.mark);
        // Every start of Heeler cleans up, whatever program it lists.
        next.args(["list", "/bin/true"]).stdout(Stdio::null()).stderr(Stdio::null());
        next.status().unwrap();
        leftovers::wait_clean(self.dir, &self.mark, true)
    }
}

/// Returns whether a line of standard error is a panic of Heeler itself. Forwarded test output is indented.
pub(crate) fn is_own_panic(line: &str) -> bool {
    line.contains("panicked at") && !line.starts_with(' ')
}

fn peak_mib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? / 1024)
}
