//! Display options, derived from the user's flags and the environment. The environment is passed in as a
//! function, for tests.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use heeler_protocol::mtp::LogLevel;

use super::style::ColourMode;
use crate::cli::arguments::ColorChoice;
use heeler_config::{FinalStatusLevel, OutputTiming, StatusLevel};

/// Form of the display.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DisplayKind {
    /// Sequential lines: for a file, a pipe or a CI log.
    Plain,
    /// Sequential lines with the folding groups and annotations of GitHub Actions.
    GitHub,
    /// A live view on a terminal that can be redrawn.
    Live,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TerminalSize {
    pub columns: usize,
    pub rows: usize,
}

/// Returns the terminal's current size; called before each redraw, because users resize windows.
pub(crate) type TerminalSizeSource = Box<dyn Fn() -> TerminalSize + Send>;

/// Returns the number of lines typed by the user since the last call. Their echo has moved the cursor.
pub(crate) type TypedLineSource = Box<dyn FnMut() -> usize + Send>;

/// Settings of a display.
pub(crate) struct DisplayOptions {
    /// Form of the display.
    pub kind: DisplayKind,
    /// Whether to use colours.
    pub colour: ColourMode,
    /// Results that get a line; `None` decides by display kind and number of tests.
    pub status_level: Option<StatusLevel>,
    /// Results listed at the end; `None` lists unexpected results and the slowest and largest tests.
    pub final_status_level: Option<FinalStatusLevel>,
    /// When the output of passed tests is printed.
    pub success_output: OutputTiming,
    /// When the output of failed tests is printed.
    pub failure_output: OutputTiming,
    /// The terminal's size; called only for [`DisplayKind::Live`].
    pub size: TerminalSizeSource,
    /// Lines typed by the user; each prints the state of the run.
    pub typed_lines: TypedLineSource,
    /// A running test is reported as slow after this time, and again each time it elapses.
    pub slow_after: Duration,
    /// Minimum severity of displayed log messages.
    pub log_level: LogLevel,
    /// Paths below this directory are shown relative to it, in annotations and locations.
    pub root: String,
    /// Prints only what a coding agent needs: failures, once each, warnings and counts.
    pub is_brief: bool,
}

impl DisplayOptions {
    /// Returns options with default limits, for a terminal of 80 by 24 until `size` is set.
    #[must_use]
    pub(crate) fn new(kind: DisplayKind, colour: ColourMode) -> Self {
        Self {
            kind,
            colour,
            status_level: None,
            final_status_level: None,
            success_output: OutputTiming::Never,
            failure_output: OutputTiming::Immediate,
            size: Box::new(|| TerminalSize { columns: 80, rows: 24 }),
            typed_lines: Box::new(|| 0),
            slow_after: Duration::from_secs(60),
            log_level: LogLevel::Warning,
            root: String::new(),
            is_brief: false,
        }
    }

    /// Prints failures once, and no passes, progress or slowest tests: every line costs a coding agent
    /// context. Colours would, too.
    #[must_use]
    pub(crate) fn brief(mut self) -> Self {
        if self.kind == DisplayKind::Live {
            self.kind = DisplayKind::Plain;
        }
        self.is_brief = true;
        self.status_level = Some(StatusLevel::Fail);
        self
    }
}

/// Variables that coding agents set for the commands that they run.
const AGENT_VARIABLES: [&str; 6] =
    ["CLAUDECODE", "CURSOR_AGENT", "AI_AGENT", "GEMINI_CLI", "CODEX_SANDBOX", "OPENCODE"];

/// Returns whether a coding agent reads the output; reads environment variables with `variable`.
pub(crate) fn is_read_by_agent(variable: impl Fn(&str) -> Option<String>) -> bool {
    let is_set = |value: String| !matches!(value.as_str(), "" | "0" | "false");
    AGENT_VARIABLES.iter().any(|name| variable(name).is_some_and(is_set))
}

/// Kind of the output device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputTarget {
    Terminal,
    /// A file or a pipe.
    Stream,
}

/// The output stream of a command. `heeler run` writes to standard error, which leaves standard output to
/// the tests and to the event stream. Commands that print requested data write to standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DisplayStream {
    StandardOutput,
    StandardError,
}

impl DisplayStream {
    pub(crate) fn target(self) -> OutputTarget {
        let is_terminal = match self {
            Self::StandardOutput => io::stdout().is_terminal(),
            Self::StandardError => io::stderr().is_terminal(),
        };
        if is_terminal { OutputTarget::Terminal } else { OutputTarget::Stream }
    }

    pub(crate) fn writer(self) -> Box<dyn Write + Send> {
        match self {
            Self::StandardOutput => Box::new(io::stdout()),
            Self::StandardError => Box::new(io::stderr()),
        }
    }

    /// Returns the size of the stream's terminal; 80 by 24 without a terminal.
    pub(crate) fn size(self) -> TerminalSize {
        let (rows, columns) = match self {
            Self::StandardOutput => console::Term::stdout().size(),
            Self::StandardError => console::Term::stderr().size(),
        };
        TerminalSize { columns: usize::from(columns), rows: usize::from(rows) }
    }
}

/// Returns the display kind for an output; reads environment variables with `variable`.
pub(crate) fn kind_for(output: OutputTarget, variable: impl Fn(&str) -> Option<String>) -> DisplayKind {
    let is_set = |name| variable(name).is_some_and(|value| !value.is_empty() && value != "false");
    if variable("GITHUB_ACTIONS").as_deref() == Some("true") {
        DisplayKind::GitHub
    } else if output == OutputTarget::Terminal && !is_dumb(&variable) && !is_set("CI") {
        DisplayKind::Live
    } else {
        DisplayKind::Plain
    }
}

/// Returns whether to use colours. The flag takes precedence, then `NO_COLOR`, `FORCE_COLOR`,
/// `CLICOLOR_FORCE`, `CARGO_TERM_COLOR`, and the output.
pub(crate) fn colour_for(
    wish: ColorChoice,
    output: OutputTarget,
    variable: impl Fn(&str) -> Option<String>,
) -> ColourMode {
    let is_set = |name| variable(name).is_some_and(|value| !value.is_empty());
    let is_clicolor_forced =
        variable("CLICOLOR_FORCE").is_some_and(|value| !value.is_empty() && value != "0");
    let is_on = match wish {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto if is_set("NO_COLOR") => false,
        // Programs that set it to 0 want no colours.
        ColorChoice::Auto if is_set("FORCE_COLOR") => {
            !matches!(variable("FORCE_COLOR").as_deref(), Some("0" | "false"))
        }
        ColorChoice::Auto if is_clicolor_forced => true,
        ColorChoice::Auto if variable("CARGO_TERM_COLOR").as_deref() == Some("always") => true,
        ColorChoice::Auto if variable("CARGO_TERM_COLOR").as_deref() == Some("never") => false,
        ColorChoice::Auto if variable("GITHUB_ACTIONS").as_deref() == Some("true") => true,
        ColorChoice::Auto => {
            output == OutputTarget::Terminal
                && !is_dumb(&variable)
                && !is_read_by_agent(&variable)
                && variable("CLICOLOR").as_deref() != Some("0")
        }
    };
    if is_on { ColourMode::On } else { ColourMode::Off }
}

fn is_dumb(variable: impl Fn(&str) -> Option<String>) -> bool {
    variable("TERM").as_deref() == Some("dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn display_kind_follows_the_environment() {
        let kind = |output, pairs| kind_for(output, environment(pairs));
        assert_eq!(kind(OutputTarget::Terminal, &[("TERM", "xterm")]), DisplayKind::Live);
        assert_eq!(kind(OutputTarget::Terminal, &[("CI", "false")]), DisplayKind::Live);
        assert_eq!(kind(OutputTarget::Terminal, &[("TERM", "dumb")]), DisplayKind::Plain);
        assert_eq!(kind(OutputTarget::Terminal, &[("CI", "1")]), DisplayKind::Plain);
        assert_eq!(kind(OutputTarget::Stream, &[("TERM", "xterm")]), DisplayKind::Plain);
        assert_eq!(
            kind(OutputTarget::Stream, &[("GITHUB_ACTIONS", "true"), ("CI", "true")]),
            DisplayKind::GitHub
        );
    }

    #[test]
    fn agents_are_recognized_by_their_variables() {
        let is_read = |pairs| is_read_by_agent(environment(pairs));
        assert!(is_read(&[("CLAUDECODE", "1")]) && is_read(&[("AI_AGENT", "some-agent")]));
        assert!(!is_read(&[("CLAUDECODE", "")]) && !is_read(&[("OPENCODE", "0")]) && !is_read(&[]));
    }

    #[test]
    fn colour_precedence_is_flag_no_color_force_cargo_output() {
        let colour = |wish, output, pairs| colour_for(wish, output, environment(pairs));
        use ColorChoice::{Always, Auto, Never};
        use OutputTarget::{Stream, Terminal};
        assert_eq!(colour(Always, Stream, &[("NO_COLOR", "1")]), ColourMode::On);
        assert_eq!(colour(Never, Terminal, &[("CLICOLOR_FORCE", "1")]), ColourMode::Off);
        assert_eq!(colour(Auto, Terminal, &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")]), ColourMode::Off);
        assert_eq!(colour(Auto, Terminal, &[("NO_COLOR", "")]), ColourMode::On);
        assert_eq!(colour(Auto, Stream, &[("CLICOLOR_FORCE", "1")]), ColourMode::On);
        assert_eq!(colour(Auto, Stream, &[("CLICOLOR_FORCE", "0")]), ColourMode::Off);
        assert_eq!(colour(Auto, Terminal, &[("NO_COLOR", "1"), ("FORCE_COLOR", "1")]), ColourMode::Off);
        assert_eq!(colour(Auto, Stream, &[("FORCE_COLOR", "1")]), ColourMode::On);
        assert_eq!(colour(Auto, Terminal, &[("FORCE_COLOR", "0"), ("CLICOLOR_FORCE", "1")]), ColourMode::Off);
        assert_eq!(colour(Auto, Stream, &[("CARGO_TERM_COLOR", "always")]), ColourMode::On);
        assert_eq!(colour(Auto, Terminal, &[("CARGO_TERM_COLOR", "never")]), ColourMode::Off);
        assert_eq!(
            colour(Auto, Stream, &[("CLICOLOR_FORCE", "1"), ("CARGO_TERM_COLOR", "never")]),
            ColourMode::On
        );
        assert_eq!(colour(Auto, Terminal, &[("CARGO_TERM_COLOR", "auto")]), ColourMode::On);
        assert_eq!(colour(Auto, Terminal, &[("CLAUDECODE", "1")]), ColourMode::Off);
        assert_eq!(colour(Auto, Stream, &[("GITHUB_ACTIONS", "true")]), ColourMode::On);
        assert_eq!(colour(Auto, Terminal, &[("CLICOLOR", "0")]), ColourMode::Off);
        assert_eq!(colour(Auto, Stream, &[]), ColourMode::Off);
    }
}
