//! What the user and the surroundings want of the display. Decided from values: the environment is given.

use std::time::Duration;

use wire::mtp::LogLevel;

use super::style::Colour;
use crate::{cli::arguments::Color, config::StatusLevel};

/// Where the display is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Lines, one after the other: a file, a pipe, a CI log.
    Plain,
    /// The same, with the folding groups and annotations of GitHub Actions.
    GitHub,
    /// A terminal that can be redrawn.
    Live,
}

/// Columns and rows of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Columns.
    pub columns: usize,
    /// Rows.
    pub rows: usize,
}

/// Tells the terminal's size now; asked before each redraw, because users resize windows.
pub type SizeSource = Box<dyn Fn() -> Size + Send>;

/// How the display is to be.
pub struct Options {
    /// Where it is shown.
    pub kind: Kind,
    /// Whether in colours.
    pub colour: Colour,
    /// Which results get a line; `None` decides by kind and number of tests.
    pub status_level: Option<StatusLevel>,
    /// The terminal's size; asked for [`Kind::Live`] only.
    pub size: SizeSource,
    /// A test that takes longer is called slow, and again after each further such time.
    pub slow_after: Duration,
    /// Log messages from this level on are shown.
    pub log_level: LogLevel,
    /// Paths below this directory are shown relative to it, in annotations and locations.
    pub root: String,
}

impl Options {
    /// Returns options with the usual limits, for a terminal of 80 by 24 until `size` is set.
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

/// What the output is, as far as the display cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// A terminal.
    Terminal,
    /// A file or a pipe.
    Stream,
}

/// Returns the kind of display for an output in these surroundings.
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

/// Returns whether to use colours: the flag decides, then NO_COLOR, then CLICOLOR_FORCE, then the output.
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
