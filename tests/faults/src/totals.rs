//! Totals of all rounds.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, Instant},
};

use crate::{
    injector::InjectedFault,
    planned_faults::{FaultTarget, InjectedAction, PointAction},
    protocols::{Peculiarity, RoundPlan},
    round::RoundResult,
};

/// Number of rounds between progress lines.
const PROGRESS_INTERVAL: u64 = 500;

/// Totals of all rounds.
pub(crate) struct RoundTotals {
    start: Instant,
    /// Options, in addition to protocol and seed, that replay the same rounds.
    mode: String,
    rounds: u64,
    findings: u64,
    /// How many times each fault was drawn, and how many times it took effect.
    faults: BTreeMap<String, (u64, u64)>,
    /// Number of rounds by the number of faults that took effect.
    hits: BTreeMap<usize, u64>,
    peaks: BTreeMap<&'static str, u64>,
    slowest: Option<(Duration, u64)>,
    durations: Vec<Duration>,
    left: Vec<String>,
}

impl RoundTotals {
    pub(crate) fn new(mode: &str) -> Self {
        Self {
            start: Instant::now(),
            mode: mode.to_owned(),
            rounds: 0,
            findings: 0,
            faults: BTreeMap::new(),
            hits: BTreeMap::new(),
            peaks: BTreeMap::new(),
            slowest: None,
            durations: Vec::new(),
            left: Vec::new(),
        }
    }

    /// Adds a round; prints a finding immediately.
    pub(crate) fn add(&mut self, plan: &RoundPlan, played: RoundResult) {
        self.rounds += 1;
        for Peculiarity { name, is_there } in plan.peculiarities(played.has_disk) {
            let count = self.faults.entry(name).or_default();
            *count = (count.0 + 1, count.1 + u64::from(is_there));
        }
        for InjectedFault { fault, hit, .. } in &played.injected {
            let count = self.faults.entry(name(fault.action)).or_default();
            count.0 += 1;
            count.1 += u64::from(hit.is_some());
        }
        *self.hits.entry(played.injected.iter().filter(|one| one.hit.is_some()).count()).or_default() += 1;
        for (name, peak) in played.peaks {
            let most = self.peaks.entry(name).or_default();
            *most = peak.max(*most);
        }
        self.durations.push(played.took);
        self.slowest = self.slowest.max(Some((played.took, plan.seed())));
        if let Some(finding) = played.finding {
            self.findings += 1;
            let what: String = finding.what.chars().take(1500).collect();
            println!(
                "FINDING: {} --seed {} --rounds 1: {what}\nkept in {}\n",
                self.mode_of(plan),
                plan.seed(),
                finding.kept.display()
            );
            for injected in &played.injected {
                println!("  {injected:?}");
            }
        }
        if self.rounds.is_multiple_of(PROGRESS_INTERVAL) {
            println!("{} rounds, {} findings, {:.1}/s", self.rounds, self.findings, self.per_second());
        }
    }

    /// Returns the options that replay a round of this kind.
    fn mode_of(&self, plan: &RoundPlan) -> String {
        format!("--protocol {} {}", plan.protocol().name(), self.mode)
    }

    /// Adds the leftovers in places that all rounds share.
    pub(crate) fn end(&mut self, left: Vec<String>) {
        self.left = left;
    }

    pub(crate) fn has_findings(&self) -> bool {
        self.findings > 0 || !self.left.is_empty()
    }

    /// Returns the load's row in the table.
    pub(crate) fn table_row(&self, load: &str) -> String {
        let mut durations = self.durations.clone();
        durations.sort();
        let median = durations.get(durations.len() / 2).copied().unwrap_or_default().as_secs_f64();
        format!("| {load} | {} | {} | {median:.1} s |\n", self.rounds, self.findings)
    }

    fn per_second(&self) -> f64 {
        self.rounds as f64 / self.start.elapsed().as_secs_f64()
    }
}

impl fmt::Display for RoundTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:44} {:>8} {:>8}", "fault", "drawn", "hit")?;
        for (name, (drawn, hit)) in &self.faults {
            writeln!(f, "{name:44} {drawn:>8} {hit:>8}")?;
        }
        for (hits, rounds) in &self.hits {
            writeln!(f, "{:44} {rounds:>8}", format!("rounds with {hits} faults that hit"))?;
        }
        for (name, peak) in &self.peaks {
            writeln!(f, "{:44} {peak:>8} MiB", format!("peak memory of a {name}"))?;
        }
        if let Some((took, seed)) = self.slowest {
            writeln!(f, "{:44} {:>8.1} s (--seed {seed})", "slowest round", took.as_secs_f64())?;
        }
        for left in &self.left {
            writeln!(f, "left behind: {left}")?;
        }
        write!(
            f,
            "{} rounds, {} findings ({:.1} rounds a second)",
            self.rounds,
            self.findings,
            self.per_second()
        )
    }
}

fn name(action: InjectedAction) -> String {
    let whom = |target| match target {
        FaultTarget::Coordinator => "coordinator".to_owned(),
        FaultTarget::ProcessRole(role) => format!("{role:?}").to_lowercase(),
        FaultTarget::Test => "test process".to_owned(),
    };
    match action {
        InjectedAction::Kill(target) => format!("kill {}", whom(target)),
        InjectedAction::Stop(target, _) => format!("stop {}", whom(target)),
        InjectedAction::StopForGood(target) => format!("stop {} for good", whom(target)),
        InjectedAction::Cancel => "cancel".to_owned(),
        InjectedAction::StopReadingMain(_) => "client stops reading (main)".to_owned(),
        InjectedAction::StopReadingCallbacks(_) => "client stops reading (callback)".to_owned(),
        InjectedAction::Disconnect => "client hangs up".to_owned(),
        InjectedAction::KillClient => "client dies".to_owned(),
        InjectedAction::LimitFiles(target, _) => format!("no more files for {}", whom(target)),
        InjectedAction::LimitMemory(target, _) => format!("no more memory for {}", whom(target)),
        InjectedAction::LimitProcesses(..) => "no more processes".to_owned(),
        InjectedAction::At(point, _, doing) => match doing {
            PointAction::Kill => format!("kill at {}", point.name),
            PointAction::Stop(_) => format!("stop at {}", point.name),
            PointAction::Sleep(_) => format!("sleep at {}", point.name),
            PointAction::Error(_) => format!("error at {}", point.name),
        },
    }
}
