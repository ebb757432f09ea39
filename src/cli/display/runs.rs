//! Output of `heeler runs`: a table for people, JSON for programs, or one id per line for shells.

use clap::ValueEnum;
use heeler_core::{NotRunReason, Outcome, OutcomeCounts};
use heeler_protocol::{control::OsText, journal::RunEnd};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    format::{self, count_of, cut_name, grouped_number},
    style::{ColourMode, Style, StyledLine},
};
use heeler_report::sanitise;
use heeler_run_store::{EarlierRun, EarlierRunState, RunOwnership};

/// `--format` of `heeler runs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum RunsFormat {
    /// A table, the newest run last.
    #[default]
    Human,
    /// A JSON array of runs, one per line.
    Json,
    /// One run id per line.
    Names,
}

/// Settings of the output besides the runs.
#[derive(Debug, Clone)]
pub(crate) struct RunsTableContext {
    /// Whether to use colours.
    pub colour: ColourMode,
    /// The state directory.
    pub state_dir: String,
    /// Number of runs to keep.
    pub keep: u32,
}

/// Length of a shortened id: unique enough for people, and accepted by `heeler report`.
const ID_CHARS: usize = 8;
/// Note on a run that this user has not recorded on this machine.
const COPY_NOTE: &str =
    "copied, changed, or recorded by an earlier version: --rerun does not start its programs";
/// Maximum width of a command.
const COMMAND_COLUMNS: usize = 90;

/// Returns the output, with runs in the given order.
#[must_use]
pub(crate) fn render_runs(all: &[EarlierRun], format: RunsFormat, of: &RunsTableContext) -> String {
    match format {
        RunsFormat::Human => human(all, of),
        RunsFormat::Json => {
            let all: Vec<String> = all.iter().map(|run| run_object(run).to_string()).collect();
            if all.is_empty() { "[]\n".to_owned() } else { format!("[\n{}\n]\n", all.join(",\n")) }
        }
        RunsFormat::Names => all.iter().map(|run| format!("{}\n", sanitise::one_line(id(run)))).collect(),
    }
}

fn id(run: &EarlierRun) -> &str {
    run.head.as_ref().map_or(run.name.as_str(), |head| head.run.as_str())
}

fn human(all: &[EarlierRun], of: &RunsTableContext) -> String {
    let mut out = String::new();
    let mut say = |line: StyledLine| {
        let mut text = String::new();
        line.render(of.colour, &mut text);
        out.push_str(text.trim_end());
        out.push('\n');
    };
    if all.is_empty() {
        say(StyledLine::new().with_plain(format!("no runs in {}", sanitise::one_line(&of.state_dir))));
        return out;
    }
    say(StyledLine::new().with(
        Style::Dim,
        format!("{:<8}  {:<18}  {:>9}  {:>7}  {}", "RUN", "BEGAN (UTC)", "TOOK", "TESTS", "RESULT"),
    ));
    for run in all {
        say(run_row(run));
        if let Some(head) = &run.head {
            let command = quote_command(&head.origin.command);
            say(StyledLine::new()
                .with_plain(" ".repeat(10))
                .with(Style::Dim, format!("$ {}", cut_name(&command, COMMAND_COLUMNS))));
        }
        if run.head.is_some() && run.ownership == RunOwnership::Copied {
            say(StyledLine::new().with_plain(" ".repeat(10)).with(Style::Warning, COPY_NOTE));
        }
        for problem in &run.problems {
            say(StyledLine::new()
                .with_plain(" ".repeat(10))
                .with(Style::Warning, sanitise::headline(problem)));
        }
    }
    let kept = format!("{}; the newest {} are kept (keep-runs)", count_of(all.len(), "run"), of.keep);
    say(StyledLine::new().with(Style::Dim, kept));
    out
}

fn run_row(run: &EarlierRun) -> StyledLine {
    let head = run.head.as_ref();
    let short: String = match head {
        Some(head) => head.run.chars().filter(char::is_ascii_alphanumeric).take(ID_CHARS).collect(),
        None => run.name.split_once('-').map_or("", |(_, id)| id).chars().take(ID_CHARS).collect(),
    };
    let began = head.and_then(|head| head.began_utc.parse::<Timestamp>().ok());
    let began = began.map_or_else(|| "?".to_owned(), |at| at.strftime("%Y-%m-%d %H:%M").to_string());
    let took = match &run.state {
        EarlierRunState::Ended(end) => {
            format::rough_duration(std::time::Duration::from_millis(end.duration_ms))
        }
        _ => "-".to_owned(),
    };
    let tests = head.map_or_else(|| "?".to_owned(), |head| grouped_number(head.tests));
    let line = StyledLine::new().with(Style::Bold, format!("{short:<8}"));
    line.with_plain(format!("  {began:<18}  {took:>9}  {tests:>7}  ")).join(result(run))
}

fn result(run: &EarlierRun) -> StyledLine {
    let of = run.head.as_ref().map_or_else(|| "?".to_owned(), |head| grouped_number(head.tests));
    let so_far = |settled: usize| format!("{} of {of} tests have results", grouped_number(settled));
    match &run.state {
        EarlierRunState::Running { settled } => {
            let pid = run.head.as_ref().map_or(0, |head| head.pid);
            StyledLine::new()
                .with(Style::Suite, "running")
                .with_plain(format!(" (pid {pid}): {}", so_far(*settled)))
        }
        EarlierRunState::Finishing { settled } => StyledLine::new()
            .with(Style::Warning, "cleaning up")
            .with_plain(format!(" after a crash of Heeler: {}", so_far(*settled))),
        EarlierRunState::Interrupted { .. } if run.head.is_none() => {
            StyledLine::new().with(Style::Failure, "interrupted").with_plain(" before any test started")
        }
        EarlierRunState::Interrupted { settled } => StyledLine::new()
            .with(Style::Failure, "interrupted")
            .with_plain(format!(": {}", so_far(*settled))),
        EarlierRunState::Unreadable => StyledLine::new().with(Style::Failure, "unreadable"),
        EarlierRunState::Ended(end) => ended_line(end),
    }
}

fn ended_line(end: &RunEnd) -> StyledLine {
    let (tone, word) = run_result(end);
    let words: Vec<String> = by_kind(&end.counts)
        .filter(|(_, number)| *number > 0)
        .map(|(kind, number)| format!("{} {kind}", grouped_number(number)))
        .collect();
    let mut line = StyledLine::new().with(tone, word).with_plain(format!("  {}", words.join(", ")));
    if end.failed_programs > 0 {
        line =
            line.with_plain(format!(", {} failed outside tests", count_of(end.failed_programs, "program")));
    }
    line
}

/// Returns a run's result as text, which the JSON format uses too.
fn run_result(end: &RunEnd) -> (Style, &'static str) {
    match end.stopped_by {
        Some(NotRunReason::Cancelled) => (Style::Warning, "cancelled"),
        Some(NotRunReason::TooManyFailures) => (Style::Failure, "stopped at its failure limit"),
        Some(NotRunReason::TimeLimitReached) => (Style::Failure, "stopped at its time limit"),
        Some(_) => (Style::Failure, "stopped early"),
        None if end.counts.failing() + end.failed_programs > 0 => (Style::Failure, "failed"),
        None => (Style::Success, "passed"),
    }
}

/// Returns the number of tests for each kind of outcome, in the order of summaries.
fn by_kind(counts: &OutcomeCounts) -> impl Iterator<Item = (&'static str, usize)> {
    let count = |outcome: Outcome| (outcome.label(), counts.with_outcome(outcome));
    OutcomeCounts::KINDS.map(count).into_iter()
}

/// Returns a shell-quoted command line, with the program reduced to its file name.
fn quote_command(words: &[OsText]) -> String {
    let mut words = words.iter().map(|word| word.to_text().into_owned());
    let program = words.next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default().to_owned();
    let words = std::iter::once(name).chain(words);
    let quoted =
        words.map(|word| shlex::try_quote(&word).map_or_else(|_| word.clone(), |quoted| quoted.into_owned()));
    quoted.collect::<Vec<_>>().join(" ")
}

fn run_object(run: &EarlierRun) -> Value {
    let state = match &run.state {
        EarlierRunState::Running { .. } => "running",
        EarlierRunState::Finishing { .. } => "ending",
        EarlierRunState::Ended(end) if end.stopped_by.is_some() => "stopped",
        EarlierRunState::Ended(_) => "completed",
        EarlierRunState::Interrupted { .. } => "interrupted",
        EarlierRunState::Unreadable => "unreadable",
    };
    let mut object = json!({
        "run": id(run),
        "directory": run.dir.display().to_string(),
        "state": state,
        "problems": run.problems,
        "copied": run.ownership == RunOwnership::Copied,
    });
    // Members from the head of the manifest, if it is readable.
    let mut put = |key: &str, value: Value| {
        object.as_object_mut().expect("it was made as one").insert(key.to_owned(), value);
    };
    if let Some(head) = &run.head {
        put("began", json!(head.began_utc));
        put("tests", json!(head.tests));
        put("profile", json!(head.profile));
        put("continues", json!(head.origin.continues));
        put("command", head.origin.command.iter().map(|word| word.to_text()).collect());
        put("directory-of-command", json!(head.origin.cwd.to_text()));
    }
    match &run.state {
        // Members that depend on the state.
        EarlierRunState::Running { settled }
        | EarlierRunState::Finishing { settled }
        | EarlierRunState::Interrupted { settled } => {
            put("results", json!(settled));
        }
        EarlierRunState::Ended(end) => {
            put("result", json!(run_result(end).1));
            put("ended", json!(end.ended_utc));
            put("duration-ms", json!(end.duration_ms));
            let counts = by_kind(&end.counts).map(|(kind, number)| (kind.replace(' ', "-"), json!(number)));
            put("counts", Value::Object(counts.collect()));
        }
        EarlierRunState::Unreadable => {}
    }
    object
}
