//! The explanation of a run's duration, below its summary.

use std::time::Duration;

use super::{
    format::{count_of, cut_name, precise_duration},
    style::{Style, StyledLine},
    test_line::DetailLevel,
};
use heeler_report::{BoundReason, LossReason, RunExplanation, TimedTest};

/// Maximum width of a test's name between other words.
const NAME_COLUMNS: usize = 60;
/// Width of a duration.
const TIME_COLUMNS: usize = 7;
/// Maximum number of tests of a chain that are listed: the first and the last half of it.
const MAX_CHAIN: usize = 20;
/// Shorter times are not shown: records have this precision.
const PRECISION: Duration = Duration::from_millis(1);

/// Returns the lines of an explanation: the duration, the least possible duration, and each loss.
pub(super) fn explanation_lines(explanation: &RunExplanation, manner: &DetailLevel<'_>) -> Vec<StyledLine> {
    let mut lines = vec![took_line(explanation), least_line(explanation)];
    let shown = explanation.losses.iter().filter(|loss| loss.time >= PRECISION);
    for (place, loss) in shown.enumerate() {
        let label = if place == 0 { "Lost" } else { "" };
        lines.push(timed_line(label, loss.time).with_plain(loss_text(&loss.reason)));
    }
    lines.extend(residual_line(explanation.residual_ns));
    push_chain(&mut lines, &explanation.chain);
    lines.into_iter().flat_map(|line| manner.wrapped(line)).collect()
}

fn took_line(explanation: &RunExplanation) -> StyledLine {
    let lost: Duration = explanation.losses.iter().map(|loss| loss.time).sum();
    timed_line("Took", explanation.wall)
        .with_plain(format!("on {}, ", count_of(explanation.slots as usize, "slot")))
        .with(Style::Bold, format!("{} of it lost", precise_duration(lost)))
}

fn least_line(explanation: &RunExplanation) -> StyledLine {
    let reason = match (explanation.bound_by, &explanation.longest) {
        (BoundReason::LongestTest, Some(longest)) => {
            format!("the longest test, {}", cut_name(&longest.name, NAME_COLUMNS))
        }
        (BoundReason::Chain, _) => {
            format!("the longest chain of prerequisites, {}", count_of(explanation.chain.len(), "test"))
        }
        (BoundReason::Slots | BoundReason::LongestTest, _) => {
            let sum = precise_duration(explanation.test_time);
            format!("{sum} of tests ÷ {}", count_of(explanation.slots as usize, "slot"))
        }
    };
    timed_line("At least", explanation.bound).with_plain(reason)
}

fn loss_text(reason: &LossReason) -> String {
    match reason {
        LossReason::Preparation => "build and listing, before the run".to_owned(),
        LossReason::FirstProcess => "before the first test process".to_owned(),
        LossReason::ProcessStarts { processes } => format!("starts of {}", processes_text(*processes)),
        LossReason::ProcessEnds => "ends of test processes".to_owned(),
        LossReason::BetweenTests => "between the tests of a process".to_owned(),
        LossReason::EarlierAttempts => "attempts before the last one".to_owned(),
        LossReason::Gaps => "idle slots between two processes".to_owned(),
        LossReason::WaitForSlots => "waiting for several free slots".to_owned(),
        LossReason::WaitForResource { name, holders } => {
            format!("waiting for {}{}", cut_name(name, NAME_COLUMNS), holders_text(holders))
        }
        LossReason::WaitForPrerequisites => "waiting for prerequisites".to_owned(),
        LossReason::Tail { last } => {
            let last = last.as_ref().map(|last| format!("; last: {}", timed_text(last)));
            format!("idle slots at the end{}", last.unwrap_or_default())
        }
        LossReason::Finish => "after the last test process".to_owned(),
    }
}

fn processes_text(count: usize) -> String {
    if count == 1 {
        "1 process".to_owned()
    } else {
        format!("{} processes", super::format::grouped_number(count))
    }
}

fn holders_text(holders: &[TimedTest]) -> String {
    let holders: Vec<_> = holders.iter().map(timed_text).collect();
    if holders.is_empty() { String::new() } else { format!("; longest: {}", holders.join(", ")) }
}

fn timed_text(test: &TimedTest) -> String {
    format!("{} ({})", cut_name(&test.name, NAME_COLUMNS), precise_duration(test.duration))
}

/// Returns the line of a residual, unless it is below the precision of the records.
fn residual_line(residual_ns: i128) -> Option<StyledLine> {
    let amount = Duration::from_nanos(u64::try_from(residual_ns.unsigned_abs()).unwrap_or(u64::MAX));
    let sign = if residual_ns < 0 { "-" } else { "" };
    let time = format!("{:>TIME_COLUMNS$}  ", format!("{sign}{}", precise_duration(amount)));
    let line = StyledLine::with_label(Style::Bold, "").with_plain(time);
    (amount >= PRECISION).then(|| line.with_plain("imprecise records"))
}

fn push_chain(lines: &mut Vec<StyledLine>, chain: &[TimedTest]) {
    let is_cut = chain.len() > MAX_CHAIN;
    for (place, test) in chain.iter().enumerate() {
        let label = if place == 0 { "Chain" } else { "" };
        if is_cut && place == MAX_CHAIN / 2 {
            let more = format!("+{} more", chain.len() - MAX_CHAIN);
            lines.push(StyledLine::with_label(Style::Dim, "").with(Style::Dim, more));
        }
        if is_cut && (MAX_CHAIN / 2..chain.len() - MAX_CHAIN / 2).contains(&place) {
            continue;
        }
        lines.push(timed_line(label, test.duration).with_plain(cut_name(&test.name, NAME_COLUMNS)));
    }
}

fn timed_line(label: &str, time: Duration) -> StyledLine {
    StyledLine::with_label(Style::Bold, label)
        .with_plain(format!("{:>TIME_COLUMNS$}  ", precise_duration(time)))
}

#[cfg(test)]
mod tests {
    use heeler_report::Loss;

    use super::*;
    use crate::cli::display::{
        format::SuiteNames,
        style::{ColourMode, text_columns},
    };

    fn timed(name: &str, milliseconds: u64) -> TimedTest {
        TimedTest { name: name.to_owned(), duration: Duration::from_millis(milliseconds) }
    }

    fn explanation() -> RunExplanation {
        let loss = |milliseconds, reason| Loss { reason, time: Duration::from_millis(milliseconds) };
        let holders = vec![timed("Import.Rows", 900), timed("Import.Keys", 800)];
        RunExplanation {
            wall: Duration::from_millis(5300),
            slots: 4,
            test_time: Duration::from_millis(10_000),
            bound: Duration::from_millis(3000),
            bound_by: BoundReason::Chain,
            longest: Some(timed("start_server", 2000)),
            chain: vec![timed("start_server", 2000), timed("uses_server", 1000)],
            losses: vec![
                loss(1200, LossReason::Preparation),
                loss(600, LossReason::WaitForResource { name: "database".to_owned(), holders }),
                loss(300, LossReason::Tail { last: Some(timed("uses_server", 1000)) }),
                loss(200, LossReason::ProcessStarts { processes: 9 }),
            ],
            residual_ns: -2_000_000,
        }
    }

    fn rendered(columns: usize) -> String {
        let manner = DetailLevel {
            suites: SuiteNames::Hidden,
            colour: ColourMode::Off,
            root: "",
            slow_after: Duration::MAX,
            columns,
            is_brief: false,
        };
        let lines = explanation_lines(&explanation(), &manner);
        let render = |line: StyledLine| {
            let mut out = String::new();
            line.render(ColourMode::Off, &mut out);
            out.trim_end().to_owned()
        };
        lines.into_iter().map(render).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn explanation_has_a_line_for_each_loss() {
        insta::assert_snapshot!(rendered(80));
    }

    #[test]
    fn explanation_fits_into_a_narrow_terminal() {
        let text = rendered(40);
        assert!(text.lines().all(|line| text_columns(line) < 40), "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn middle_of_a_long_chain_is_counted() {
        let mut lines = Vec::new();
        push_chain(&mut lines, &vec![timed("x", 1); 50]);
        assert_eq!(lines.len(), 21);
    }
}
