//! Display of `heeler mutate` while mutants are tested: survivors as they are found, with a line about the
//! progress below them on a terminal, and at the end a summary.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use heeler_mutant::{MutantResult, MutantStatus, MutationCounts};
use heeler_report::{mutation::change_text, sanitise};

use super::{
    DisplayKind, DisplayOptions, OutputStream,
    format::{count_of, grouped_number, rough_duration},
    options::TerminalSizeSource,
    screen::LiveScreen,
    style::{ColourMode, Style, StyledLine},
};

/// How often the line about the progress is drawn again.
const REDRAWN_EVERY: Duration = Duration::from_millis(100);

/// What is shown of a run of mutants.
pub(crate) struct MutationDisplay {
    kind: DisplayKind,
    colour: ColourMode,
    size: TerminalSizeSource,
    screen: LiveScreen,
    out: Box<dyn Write + Send>,
    /// What is being done before the first mutant runs.
    phase: Option<(String, String)>,
    counts: MutationCounts,
    /// Number of mutants that tests run for.
    total: usize,
    /// Number of those that have results of this run.
    done: usize,
    began: Instant,
    drawn: Option<Instant>,
}

/// What a summary says beside the counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct MutationEnding {
    pub(crate) took: Duration,
    /// Number of verdicts that were taken over from earlier runs.
    pub(crate) kept: usize,
    pub(crate) is_cancelled: bool,
    /// Lines about what was left out.
    pub(crate) notes: Vec<String>,
    /// Files that were written.
    pub(crate) files: Vec<String>,
}

impl MutationDisplay {
    pub(crate) fn new(options: DisplayOptions, stream: OutputStream, now: Instant) -> Self {
        Self {
            kind: options.kind,
            colour: options.colour,
            size: options.size,
            screen: LiveScreen::new(options.colour),
            out: stream.writer(),
            phase: None,
            counts: MutationCounts::default(),
            total: 0,
            done: 0,
            began: now,
            drawn: None,
        }
    }

    pub(crate) fn kind(&self) -> DisplayKind {
        self.kind
    }

    /// Shows what is being done.
    pub(crate) fn show_phase(&mut self, label: &str, words: &str) {
        self.phase = Some((label.to_owned(), words.to_owned()));
        match self.kind {
            DisplayKind::Live => self.draw(Instant::now()),
            DisplayKind::Plain | DisplayKind::GitHub => {
                self.print(&[StyledLine::with_label(Style::Bold, label).with_plain(words)]);
            }
        }
    }

    /// Begins the mutants that tests run for.
    pub(crate) fn begin(&mut self, total: usize, now: Instant) {
        (self.total, self.done, self.began) = (total, 0, now);
        self.show_phase("Testing", &count_of(total, "mutant"));
        self.phase = None;
    }

    /// Shows a text for the user.
    pub(crate) fn warn(&mut self, text: &str) {
        let lines = sanitise::sanitised_lines(text, sanitise::ColourPolicy::Dropped);
        let lines = lines.into_iter().enumerate().map(|(place, line)| {
            StyledLine::with_label(Style::Warning, if place == 0 { "warning" } else { "" }).with_plain(line)
        });
        self.print(&lines.collect::<Vec<_>>());
    }

    /// Counts a result, and shows that of a survivor.
    pub(crate) fn on_result(&mut self, result: &MutantResult) {
        self.counts.add(result.status);
        self.done += 1;
        if result.status == MutantStatus::Survived {
            let tests = format!("   ({})", covering_text(result.covered_by.len()));
            let line = result_line("SURVIVED", Style::Failure, result).with(Style::Dim, tests);
            self.print(&[line]);
        }
    }

    /// Advances the time.
    pub(crate) fn tick(&mut self, now: Instant) {
        let is_due = self.drawn.is_none_or(|drawn| now.saturating_duration_since(drawn) >= REDRAWN_EVERY);
        if self.kind == DisplayKind::Live && is_due {
            self.draw(now);
        }
    }

    /// Removes the line about the progress, and prints the summary.
    pub(crate) fn end(&mut self, results: &[MutantResult], ending: &MutationEnding) {
        let counts: MutationCounts = results.iter().map(|result| result.status).collect();
        let mut lines = vec![summary_line(counts, ending)];
        let plain = |label: &str, text: &str| {
            StyledLine::with_label(Style::Dim, label).with_plain(sanitise::one_line(text).into_owned())
        };
        lines.extend(ending.notes.iter().map(|note| plain("note", note)));
        lines.extend(ending.files.iter().map(|file| plain("report", file)));
        self.phase = None;
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
            None if self.total > 0 => self.progress_line(now),
            None => return Vec::new(),
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
        // A reader that is gone is no failure of the tests.
        let _closed = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
    }
}

impl Drop for MutationDisplay {
    fn drop(&mut self) {
        // What is written next, such as an error, begins a line.
        if !self.screen.is_empty() {
            let text = self.screen.replace("", &[], (self.size)());
            self.write(&text);
        }
    }
}

fn covering_text(tests: usize) -> String {
    format!("{} {} it", count_of(tests, "test"), if tests == 1 { "covers" } else { "cover" })
}

/// Returns a line about a mutant: where it is, its mutator, and what it changes.
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
        (MutantStatus::CompileError, "do not compile"),
        (MutantStatus::RuntimeError, "died before any test"),
        (MutantStatus::Ignored, "ignored"),
        (MutantStatus::Pending, "not tested"),
    ];
    let parts = words.iter().filter(|(status, _)| counts.of(*status) > 0);
    let parts: Vec<String> = parts.map(|(status, words)| format!("{} {words}", counts.of(*status))).collect();
    let total = count_of(usize::try_from(counts.total()).unwrap_or(usize::MAX), "mutant");
    let mut text = if parts.is_empty() { total } else { format!("{total}: {}", parts.join(", ")) };
    if let Some(score) = counts.score() {
        text.push_str(&format!(" · score {score:.1} %"));
    }
    text.push_str(&format!(" · {}", rough_duration(ending.took)));
    if ending.kept > 0 {
        text.push_str(&format!(" · {} of earlier runs", count_of(ending.kept, "verdict")));
    }
    if ending.is_cancelled {
        text.push_str(" · cancelled");
    }
    let is_noticed = counts.of(MutantStatus::Survived) == 0 && counts.of(MutantStatus::NoCoverage) == 0;
    let style = if is_noticed && !ending.is_cancelled { Style::Success } else { Style::Failure };
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
            "     Summary 7 mutants: 2 killed, 1 timed out, 1 survived, 1 not covered, 1 do not compile, 1 not \
             tested · score 60.0 % · 4.0s · 1 verdict of earlier runs"
        );
        let cancelled = MutationEnding { is_cancelled: true, ..MutationEnding::default() };
        let none = text(MutationCounts::default(), &cancelled);
        assert_eq!(none, "     Summary 0 mutants · 0.0s · cancelled");
        assert_eq!(covering_text(1), "1 test covers it");
        assert_eq!(covering_text(12), "12 tests cover it");
    }
}
