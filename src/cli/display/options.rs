//! Display options, derived from the user's flags and the environment. The environment is passed in as a
//! function.

use std::time::Duration;

use wire::mtp::LogLevel;

use super::style::Colour;
use crate::{cli::arguments::Color, config::StatusLevel};

/// Form of the display.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Sequential lines: for a file, a pipe or a CI log.
    Plain,
    /// Sequential lines with the folding groups and annotations of GitHub Actions.
    GitHub,
    /// A live view on a terminal that can be redrawn.
    Live,
}

/// Size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub columns: usize,
    pub rows: usize,
}

/// Returns the terminal's current size; called before each redraw, because users resize windows.
pub type SizeSource = Box<dyn Fn() -> Size + Send>;

/// Settings of a display.
pub struct Options {
    /// Form of the display.
    pub kind: Kind,
    /// Whether to use colours.
    pub colour: Colour,
    /// Results that get a line; `None` decides by kind and number of tests.
    pub status_level: Option<StatusLevel>,
    /// The terminal's size; called only for [`Kind::Live`].
    pub size: SizeSource,
    /// A test that runs longer is reported as slow, and again each time this period elapses.
    pub slow_after: Duration,
    /// Minimum severity of log messages that are shown.
    pub log_level: LogLevel,
    /// Paths below this directory are shown relative to it, in annotations and locations.
    pub root: String,
}

impl Options {
    /// Returns options with default limits, for a terminal of 80 by 24 until `size` is set.
    #[must_use]
    pub fn new(kind: Kind, colour: Colour) -> Self {
        Self {
            kind,
            colour,
            status_level: None,
            size: Box::new(|| Size { columns: 80, rows: 24 }),
            slow_after: Duration::from_secs(60),
            log_level: LogLevel::Warning,
            root: String::new(),
        }
    }
}

/// Type of the output, as far as it matters to the display.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    Terminal,
    /// A file or a pipe.
    Stream,
}

/// Returns the kind of display for an output and the environment variables.
pub fn kind_for(output: Output, variable: impl Fn(&str) -> Option<String>) -> Kind {
    let is_set = |name| variable(name).is_some_and(|value| !value.is_empty() && value != "false");
    if variable("GITHUB_ACTIONS").as_deref() == Some("true") {
        Kind::GitHub
    } else if output == Output::Terminal && !is_dumb(&variable) && !is_set("CI") {
        Kind::Live
    } else {
        Kind::Plain
    }
}

/// Returns whether to use colours: the flag takes precedence, then NO_COLOR, then CLICOLOR_FORCE, then the
/// output.
pub fn colour_for(wish: Color, output: Output, variable: impl Fn(&str) -> Option<String>) -> Colour {
    let is_set = |name| variable(name).is_some_and(|value| !value.is_empty());
    let is_forced = variable("CLICOLOR_FORCE").is_some_and(|value| !value.is_empty() && value != "0");
    let is_on = match wish {
        Color::Always => true,
        Color::Never => false,
        Color::Auto if is_set("NO_COLOR") => false,
        Color::Auto if is_forced => true,
        Color::Auto if variable("GITHUB_ACTIONS").as_deref() == Some("true") => true,
        Color::Auto => {
            output == Output::Terminal && !is_dumb(&variable) && variable("CLICOLOR").as_deref() != Some("0")
        }
    };
    if is_on { Colour::On } else { Colour::Off }
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
    fn the_kind_follows_the_surroundings() {
        let kind = |output, pairs| kind_for(output, environment(pairs));
        assert_eq!(kind(Output::Terminal, &[("TERM", "xterm")]), Kind::Live);
        assert_eq!(kind(Output::Terminal, &[("CI", "false")]), Kind::Live);
        assert_eq!(kind(Output::Terminal, &[("TERM", "dumb")]), Kind::Plain);
        assert_eq!(kind(Output::Terminal, &[("CI", "1")]), Kind::Plain);
        assert_eq!(kind(Output::Stream, &[("TERM", "xterm")]), Kind::Plain);
        assert_eq!(kind(Output::Stream, &[("GITHUB_ACTIONS", "true"), ("CI", "true")]), Kind::GitHub);
    }

    #[test]
    fn the_flag_beats_no_color_which_beats_force_which_beats_the_output() {
        let colour = |wish, output, pairs| colour_for(wish, output, environment(pairs));
        use Color::{Always, Auto, Never};
        use Output::{Stream, Terminal};
        assert_eq!(colour(Always, Stream, &[("NO_COLOR", "1")]), Colour::On);
        assert_eq!(colour(Never, Terminal, &[("CLICOLOR_FORCE", "1")]), Colour::Off);
        assert_eq!(colour(Auto, Terminal, &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")]), Colour::Off);
        assert_eq!(colour(Auto, Terminal, &[("NO_COLOR", "")]), Colour::On);
        assert_eq!(colour(Auto, Stream, &[("CLICOLOR_FORCE", "1")]), Colour::On);
        assert_eq!(colour(Auto, Stream, &[("CLICOLOR_FORCE", "0")]), Colour::Off);
        assert_eq!(colour(Auto, Stream, &[("GITHUB_ACTIONS", "true")]), Colour::On);
        assert_eq!(colour(Auto, Terminal, &[("CLICOLOR", "0")]), Colour::Off);
        assert_eq!(colour(Auto, Stream, &[]), Colour::Off);
    }
}
