//! Lines about a run as a whole: its phase, its head, its progress, and what it waits for.

use std::time::{Duration, Instant};

use heeler_core::{Slots, machine_record::SlotOwner};
use heeler_report::sanitise;

use super::{
    RunHead,
    format::{self, NAME_COLUMNS, count_of, grouped_number},
    live,
    progress::DisplayProgress,
    style::{Style, StyledLine},
    waits::waits_text,
};

/// Time that a test must have run to be named in the progress line.
const MIN_NAMED_DURATION: Duration = Duration::from_secs(2);
/// Maximum width of what the tests wait for in the progress line.
const WAIT_COLUMNS: usize = 80;
/// Maximum number of other runs named.
const MAX_NAMED_OWNERS: usize = 3;

pub(super) fn phase_line(label: &str, words: &str) -> StyledLine {
    StyledLine::with_label(Style::Success, label).with_plain(sanitise::one_line(words))
}

pub(super) fn head_line(head: &RunHead) -> StyledLine {
    let mut words = format!(" of {}", count_of(head.programs, "program"));
    // The report of an earlier run has no workers.
    let label = if head.workers == 0 { "Results" } else { "Running" };
    if head.workers > 0 {
        words.push_str(&format!(" on {}", count_of(head.workers, "worker")));
    }
    if head.filtered > 0 {
        words.push_str(&format!(", {} filtered out", grouped_number(head.filtered)));
    }
    for note in &head.notes {
        words.push_str(&format!(", {}", sanitise::one_line(note)));
    }
    let run: String = head.run.chars().take(8).collect();
    StyledLine::with_label(Style::Success, label)
        .with(Style::Bold, count_of(head.tests, "test"))
        .with_plain(words)
        .with(Style::Dim, format!(" (run {})", sanitise::one_line(&run)))
}

/// Returns a line such as `Running 4,000/20,000 (20%) in 12s, about 48s left: 3,998 passed, 2 failed;
/// 3 wait for db; longest: suite name (9.2s)`. `wait`: what the run waits for outside.
pub(super) fn progress_line(progress: &DisplayProgress, wait: Option<&str>, now: Instant) -> StyledLine {
    let mut words = format!(
        "{}/{} ({}%) in {}",
        grouped_number(progress.done()),
        grouped_number(progress.total()),
        progress.percent(),
        format::rough_duration(progress.elapsed(now)),
    );
    if let Some(left) = progress.remaining(now) {
        words.push_str(&format!(", about {} left", format::estimated_duration(left)));
    }
    let line = StyledLine::with_label(Style::Success, "Running")
        .with_plain(words)
        .with_plain(": ")
        .join(progress.counts_line());
    let waits = waits_text(progress.waits(), WAIT_COLUMNS);
    let waits = wait.into_iter().chain(Some(waits.as_str()).filter(|waits| !waits.is_empty()));
    let line = waits.fold(line, |line, wait| line.with_plain(format!("; {wait}")));
    let Some(longest) = progress.running().into_iter().next() else { return line };
    let ran = now.saturating_duration_since(longest.since);
    if ran < MIN_NAMED_DURATION {
        return line;
    }
    let name = live::running_name(longest, progress.suites(), NAME_COLUMNS);
    line.with_plain("; longest: ").join(name).with_plain(format!(" ({})", format::rough_duration(ran)))
}

/// Returns the line of the live view for what the run waits for.
pub(super) fn wait_line(wait: &str) -> StyledLine {
    StyledLine::with_label(Style::Dim, "").with(Style::Dim, wait)
}

/// Returns text such as `waiting for 2 slots: 1 other run on this machine (heeler mutate in ~/a)`.
/// `home`: directory that is abbreviated.
pub(crate) fn machine_wait_text(missing: Slots, others: &[SlotOwner], home: Option<&str>) -> String {
    let name = |owner: &SlotOwner| {
        let below = home.and_then(|home| owner.directory.strip_prefix(home.trim_end_matches('/')));
        let directory = match below {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("~{rest}"),
            Some(_) | None => owner.directory.clone(),
        };
        sanitise::one_line(&format!("{} in {directory}", owner.command)).into_owned()
    };
    let mut named: Vec<_> = others.iter().take(MAX_NAMED_OWNERS).map(name).collect();
    let more = others.len().saturating_sub(MAX_NAMED_OWNERS);
    if more > 0 {
        named.push(format!("{more} more"));
    }
    let (slots, runs) = (count_of(missing.0, "slot"), count_of(others.len(), "other run"));
    format!("waiting for {slots}: {runs} on this machine ({})", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_runs_are_named_with_their_directories() {
        let owner = |command: &str, directory: &str| SlotOwner {
            pid: 7,
            command: format!("heeler {command}"),
            directory: directory.to_owned(),
        };
        let text =
            |missing, others: &[SlotOwner]| machine_wait_text(Slots(missing), others, Some("/home/me"));
        assert_eq!(
            text(2, &[owner("mutate", "/home/me/a"), owner("run", "/home/meg")]),
            "waiting for 2 slots: 2 other runs on this machine (heeler mutate in ~/a, heeler run in /home/meg)"
        );
        assert_eq!(
            text(1, &[owner("run", "/home/me")]),
            "waiting for 1 slot: 1 other run on this machine (heeler run in ~)"
        );
        let many = text(1, &vec![owner("run", "/b"); 5]);
        assert!(many.ends_with("(heeler run in /b, heeler run in /b, heeler run in /b, 2 more)"), "{many}");
    }
}
