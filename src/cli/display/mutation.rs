//! Display of `heeler mutate` while it tests mutants. Prints each survivor immediately, with a progress line
//! below them on a terminal, and a summary at the end.

use std::{
    collections::BTreeSet,
    io::Write,
    time::{Duration, Instant},
};

use heeler_mutant_model::{MutantId, MutantResult, MutantStatus, MutationCounts};
use heeler_report::{
    mutation::{UncoveredFunction, change_text, survival_text, uncovered_functions},
    sanitise,
};

use super::{
    DisplayKind, DisplayOptions, DisplayStream,
    format::{count_of, grouped_number, rough_duration},
    options::TerminalSizeSource,
    screen::LiveScreen,
    style::{ColourMode, Style, StyledLine},
};

/// Interval for redrawing the progress line.
const REDRAWN_EVERY: Duration = Duration::from_millis(100);
/// Interval of progress lines without a terminal.
const PRINTED_EVERY: Duration = Duration::from_secs(10);

/// A run estimated to take longer prints advice on how to shorten it.
const LONG_RUN: Duration = Duration::from_secs(600);

/// Maximum number of functions with uncovered mutants shown; reports list all of them.
const SHOWN_UNCOVERED: usize = 50;

pub(crate) struct MutationDisplay {
    kind: DisplayKind,
    colour: ColourMode,
    size: TerminalSizeSource,
    screen: LiveScreen,
    out: Box<dyn Write + Send>,
    /// Current preparation step (copying, building, baseline run): label and description.
    phase: Option<(String, String)>,
    /// Progress of the baseline run, while it runs.
    original: Option<OriginalProgress>,
    counts: MutationCounts,
    /// Survivors that have been printed.
    shown: BTreeSet<MutantId>,
    /// Number of mutants to test.
    total: usize,
    /// Number of those mutants with a result from this run.
    done: usize,
    began: Instant,
    drawn: Option<Instant>,
}

/// Progress of the baseline run (tests without a mutant).
struct OriginalProgress {
    total: usize,
    done: usize,
    slowest: Option<(String, Duration)>,
}

/// Data of the summary besides the counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct MutationEnding {
    pub(crate) took: Duration,
    /// Number of verdicts reused from earlier runs.
    pub(crate) kept: usize,
    /// Reason why the run ended before all mutants had verdicts, such as "cancelled".
    pub(crate) unfinished: Option<String>,
    /// Notes about omitted mutants.
    pub(crate) notes: Vec<String>,
    /// Files that were written.
    pub(crate) files: Vec<String>,
}

impl MutationDisplay {
    pub(crate) fn new(options: DisplayOptions, stream: DisplayStream, now: Instant) -> Self {
        Self {
            kind: options.kind,
            colour: options.colour,
            size: options.size,
            screen: LiveScreen::new(options.colour),
            out: stream.writer(),
            phase: None,
            original: None,
            counts: MutationCounts::default(),
            shown: BTreeSet::new(),
            total: 0,
            done: 0,
            began: now,
            drawn: None,
        }
    }

    pub(crate) fn kind(&self) -> DisplayKind {
        self.kind
    }

    /// Shows the current preparation step.
    pub(crate) fn show_phase(&mut self, label: &str, words: &str) {
        self.phase = Some((label.to_owned(), words.to_owned()));
        match self.kind {
            DisplayKind::Live => self.draw(Instant::now()),
            DisplayKind::Plain | DisplayKind::GitHub => {
                self.print(&[StyledLine::with_label(Style::Bold, label).with_plain(words)]);
            }
        }
    }

    /// Begins the baseline run.
    pub(crate) fn begin_original(&mut self, tests: usize, now: Instant) {
        self.phase = None;
        self.original = Some(OriginalProgress { total: tests, done: 0, slowest: None });
        (self.began, self.drawn) = (now, Some(now));
    }

    /// Sets the number of tests of the baseline run that have ended.
    pub(crate) fn set_original(&mut self, tests: usize) {
        if let Some(original) = &mut self.original {
            original.done = tests;
        }
    }

    /// Counts ended tests of the baseline run.
    pub(crate) fn on_original(&mut self, tests: usize, slowest: Option<(&str, Duration)>) {
        let Some(original) = &mut self.original else { return };
        original.done += tests;
        let before = original.slowest.as_ref().map_or(Duration::ZERO, |(_, took)| *took);
        if let Some((name, took)) = slowest.filter(|(_, took)| *took > before) {
            original.slowest = Some((name.to_owned(), took));
        }
    }

    /// Begins testing mutants. `longest` is the duration if no test fails.
    pub(crate) fn begin(&mut self, total: usize, longest: Option<Duration>, now: Instant) {
        (self.total, self.done, self.began, self.drawn) = (total, 0, now, Some(now));
        let slowest = self.original.take().and_then(|original| original.slowest);
        let mut words = count_of(total, "mutant");
        if let Some(longest) = longest.filter(|_| total > 0) {
            words.push_str(&format!(", {} if no test fails", rough_duration(longest)));
        }
        self.show_phase("Testing", &words);
        self.phase = None;
        if longest.is_some_and(|longest| longest >= LONG_RUN) {
            let slowest = slowest.map_or_else(String::new, |(name, took)| {
                format!(" (the slowest test is {name}, {})", rough_duration(took))
            });
            self.warn(&format!(
                "this may take long{slowest}; skip tests with -E 'not test(NAME)', select mutants with SOURCE or \
                 --in-diff REF, or stop early with --time-limit DURATION"
            ));
        }
    }

    /// Shows a warning.
    pub(crate) fn warn(&mut self, text: &str) {
        let lines = sanitise::sanitised_lines(text, sanitise::ColourPolicy::Dropped);
        let lines = lines.into_iter().enumerate().map(|(place, line)| {
            StyledLine::with_label(Style::Warning, if place == 0 { "warning" } else { "" }).with_plain(line)
        });
        self.print(&lines.collect::<Vec<_>>());
    }

    /// Counts a result, and prints survivors.
    pub(crate) fn on_result(&mut self, result: &MutantResult) {
        self.counts.add(result.status);
        self.done += 1;
        if result.status == MutantStatus::Survived {
            self.shown.insert(result.mutant.id);
            self.print(&[survivor_line(result)]);
        }
    }

    /// Redraws or prints the progress line when due.
    pub(crate) fn tick(&mut self, now: Instant) {
        let is_live = self.kind == DisplayKind::Live;
        let every = if is_live { REDRAWN_EVERY } else { PRINTED_EVERY };
        let is_due = self.drawn.is_none_or(|drawn| now.saturating_duration_since(drawn) >= every);
        if !is_due {
            return;
        }
        if is_live {
            return self.draw(now);
        }
        self.drawn = Some(now);
        if let Some(line) = self.progress(now) {
            self.print(&[line]);
        }
    }

    /// Returns the progress line, if tests run.
    fn progress(&self, now: Instant) -> Option<StyledLine> {
        match &self.original {
            Some(original) => Some(self.original_line(original, now)),
            None => (self.total > 0).then(|| self.progress_line(now)),
        }
    }

    fn original_line(&self, original: &OriginalProgress, now: Instant) -> StyledLine {
        let took = now.saturating_duration_since(self.began);
        let mut words = format!(
            "unmutated code: {}/{} tests  {}",
            grouped_number(original.done),
            grouped_number(original.total),
            rough_duration(took)
        );
        if let Some((name, took)) = &original.slowest {
            words.push_str(&format!("  slowest {} ({})", sanitise::one_line(name), rough_duration(*took)));
        }
        StyledLine::with_label(Style::Bold, "Testing").with_plain(words)
    }

    /// Removes the progress line, then prints survivors not shown yet, uncovered functions and the summary.
    pub(crate) fn end(&mut self, results: &[MutantResult], ending: &MutationEnding) {
        let counts: MutationCounts = results.iter().map(|result| result.status).collect();
        // Survivors that earlier runs found were not printed during this run.
        let is_new = |result: &&MutantResult| {
            result.status == MutantStatus::Survived && !self.shown.contains(&result.mutant.id)
        };
        let mut lines: Vec<_> = results.iter().filter(is_new).map(survivor_line).collect();
        let uncovered = uncovered_functions(results);
        lines.extend(uncovered.iter().take(SHOWN_UNCOVERED).map(uncovered_line));
        if uncovered.len() > SHOWN_UNCOVERED {
            let more = count_of(uncovered.len() - SHOWN_UNCOVERED, "more function");
            let text = format!("{more} with mutants that no test reaches (--json FILE lists all)");
            lines.push(StyledLine::with_label(Style::Failure, "NOT COVERED").with_plain(text));
        }
        lines.push(summary_line(counts, ending));
        let plain = |label: &str, text: &str| {
            StyledLine::with_label(Style::Dim, label).with_plain(sanitise::one_line(text).into_owned())
        };
        lines.extend(ending.notes.iter().map(|note| plain("note", note)));
        lines.extend(ending.files.iter().map(|file| plain("report", file)));
        self.phase = None;
        self.original = None;
        self.total = 0;
        self.print(&lines);
    }

    fn print(&mut self, lines: &[StyledLine]) {
        let mut text = String::new();
        for line in lines {
            line.render(self.colour, &mut text);
            text.push('\n');
        }
        if self.kind == DisplayKind::Live {
            let view = self.view(Instant::now());
            text = self.screen.replace(&text, &view, (self.size)());
        }
        self.write(&text);
    }

    fn draw(&mut self, now: Instant) {
        let view = self.view(now);
        let text = self.screen.replace("", &view, (self.size)());
        self.drawn = Some(now);
        self.write(&text);
    }

    fn view(&self, now: Instant) -> Vec<StyledLine> {
        let line = match &self.phase {
            Some((label, words)) => StyledLine::with_label(Style::Bold, label).with_plain(words.clone()),
            None => match self.progress(now) {
                Some(line) => line,
                None => return Vec::new(),
            },
        };
        vec![line.cut((self.size)().columns.saturating_sub(1))]
    }

    fn progress_line(&self, now: Instant) -> StyledLine {
        let took = now.saturating_duration_since(self.began);
        let percent = self.done * 100 / self.total.max(1);
        let rate = self.done as f64 / took.as_secs_f64().max(0.001);
        let words = format!(
            "{}/{}  {}  {rate:.0} mutants/s  {} killed, {} timed out, ",
            grouped_number(self.done),
            grouped_number(self.total),
            rough_duration(took),
            self.counts.of(MutantStatus::Killed),
            self.counts.of(MutantStatus::Timeout),
        );
        let survived = self.counts.of(MutantStatus::Survived);
        let style = if survived > 0 { Style::Failure } else { Style::Plain };
        StyledLine::with_label(Style::Bold, &format!("{percent}%"))
            .with_plain(words)
            .with(style, format!("{survived} survived"))
    }

    fn write(&mut self, text: &str) {
        // A closed output must not fail the tests.
        let _closed = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
    }
}

impl Drop for MutationDisplay {
    fn drop(&mut self) {
        // Clear the live line, so that later output, such as an error, begins a new line.
        if !self.screen.is_empty() {
            let text = self.screen.replace("", &[], (self.size)());
            self.write(&text);
        }
    }
}

fn survivor_line(result: &MutantResult) -> StyledLine {
    let why = format!("   ({})", survival_text(result));
    result_line("SURVIVED", Style::Failure, result).with(Style::Dim, why)
}

fn uncovered_line(function: &UncoveredFunction<'_>) -> StyledLine {
    let mutant = function.first;
    let start = mutant.start();
    let place = format!("{}:{}:{}", sanitise::one_line(mutant.path()), start.line, start.column);
    let mutants = count_of(function.mutants, "mutant");
    StyledLine::with_label(Style::Failure, "NOT COVERED")
        .with_plain(format!("{place}  {}", sanitise::one_line(function.item_text())))
        .with(Style::Dim, format!("   (no test reaches {mutants} in lines {})", function.lines_text()))
}

/// Returns a line about a mutant: place, mutator and change.
fn result_line(label: &str, style: Style, result: &MutantResult) -> StyledLine {
    let mutant = &result.mutant;
    let start = mutant.start();
    let place = format!("{}:{}:{}", sanitise::one_line(mutant.path()), start.line, start.column);
    StyledLine::with_label(style, label)
        .with_plain(format!("{place}  "))
        .with(Style::Dim, format!("{}  ", mutant.mutator.name()))
        .with_plain(change_text(mutant))
}

fn summary_line(counts: MutationCounts, ending: &MutationEnding) -> StyledLine {
    let words = [
        (MutantStatus::Killed, "killed"),
        (MutantStatus::Timeout, "timed out"),
        (MutantStatus::Survived, "survived"),
        (MutantStatus::NoCoverage, "not covered"),
        (MutantStatus::CompileError, "failed to compile"),
        (MutantStatus::RuntimeError, "died before any test"),
        (MutantStatus::Ignored, "ignored"),
        (MutantStatus::Pending, "not tested"),
    ];
    let parts = words.iter().filter(|(status, _)| counts.of(*status) > 0);
    let parts: Vec<String> = parts.map(|(status, words)| format!("{} {words}", counts.of(*status))).collect();
    let total = count_of(usize::try_from(counts.total()).unwrap_or(usize::MAX), "mutant");
    let text = if parts.is_empty() { total } else { format!("{total}: {}", parts.join(", ")) };
    let untested = counts.of(MutantStatus::Pending);
    let mut text = match (&ending.unfinished, untested) {
        (None, 0) => text,
        (None, _) => format!("incomplete, {untested} not tested · {text}"),
        (Some(why), 0) => format!("{why} · {text}"),
        (Some(why), _) => format!("{why}, {untested} not tested · {text}"),
    };
    if let Some(score) = counts.score() {
        let of_tested = if untested > 0 { " of the tested mutants" } else { "" };
        text.push_str(&format!(" · score {score:.1} %{of_tested}"));
    }
    text.push_str(&format!(" · {}", rough_duration(ending.took)));
    if ending.kept > 0 {
        text.push_str(&format!(" · {} from earlier runs", count_of(ending.kept, "verdict")));
    }
    let is_noticed = counts.of(MutantStatus::Survived) == 0 && counts.of(MutantStatus::NoCoverage) == 0;
    let style = if is_noticed && untested == 0 && ending.unfinished.is_none() {
        Style::Success
    } else {
        Style::Failure
    };
    StyledLine::with_label(style, "Summary").with_plain(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_names_what_there_is() {
        use MutantStatus::{CompileError, Killed, NoCoverage, Pending, Survived, Timeout};
        let counts: MutationCounts =
            [Killed, Killed, Timeout, Survived, NoCoverage, CompileError, Pending].into_iter().collect();
        let ending = MutationEnding { took: Duration::from_secs(4), kept: 1, ..MutationEnding::default() };
        let text = |counts, ending: &MutationEnding| {
            let mut out = String::new();
            summary_line(counts, ending).render(ColourMode::Off, &mut out);
            out
        };
        assert_eq!(
            text(counts, &ending),
            "     Summary incomplete, 1 not tested · 7 mutants: 2 killed, 1 timed out, 1 survived, 1 not covered, \
             1 failed to compile, 1 not tested · score 75.0 % of the tested mutants · 4.0s · 1 verdict from earlier runs"
        );
        let cancelled =
            MutationEnding { unfinished: Some("cancelled".to_owned()), ..MutationEnding::default() };
        let none = text(MutationCounts::default(), &cancelled);
        assert_eq!(none, "     Summary cancelled · 0 mutants · 0.0s");
        let counts: MutationCounts = [Killed, Pending, Pending].into_iter().collect();
        assert_eq!(
            text(counts, &cancelled),
            "     Summary cancelled, 2 not tested · 3 mutants: 1 killed, 2 not tested · score 100.0 % of the tested mutants · 0.0s"
        );
    }
}
