//! Display of a run. A terminal gets a live view with failures above it, other outputs get plain log lines;
//! a summary follows at the end. Styled lines are computed from values and given times; only [`RunDisplay`]
//! writes.
//!
//! - [`DisplayOptions`], and the functions that derive them from the environment: [`kind_for`],
//!   [`colour_for`].
//! - [`RunHead`]: data known when a run begins; [`SummaryExtras`]: data known at its end that is not in the
//!   summary.
//! - [`RunDisplay`]: receives starts and results of tests, log messages and clock ticks.
//! - [`list`]: output of `heeler list`; [`runs`]: output of `heeler runs`; [`mutants`]: output of
//!   `heeler mutate`.

mod options;
mod style;

mod explanation;
mod format;
mod github;
mod listed_programs;
mod live;
mod progress;
mod same_failures;
mod sample_events;
mod screen;
mod status_lines;
mod step_summary;
mod summary;
mod test_line;
mod waits;

mod run_display;

pub(crate) mod list;
#[cfg(feature = "mutation")]
pub(crate) mod mutants;
#[cfg(feature = "mutation")]
pub(crate) mod mutation;
pub(crate) mod runs;

pub(crate) use format::count_of;
pub(crate) use listed_programs::ProgramTestCount;
pub(crate) use options::{
    DisplayKind, DisplayOptions, DisplayStream, OutputTarget, TerminalSize, TypedLineSource, colour_for,
    is_read_by_agent, kind_for,
};
pub(crate) use progress::{RunHead, StartedTest};
pub(crate) use run_display::RunDisplay;
pub(crate) use status_lines::machine_wait_text;
pub(crate) use step_summary::step_summary;
pub(crate) use style::{Style, StyledLine};
pub(crate) use summary::SummaryExtras;
pub(crate) use waits::DisplayedWait;

#[cfg(test)]
mod tests;
