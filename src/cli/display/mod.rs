//! Display of a run: on a terminal a live view with failures above it, elsewhere plain log lines, and at the
//! end a summary. The content is computed from values and given times, as styled lines; only [`Display`]
//! writes.
//!
//! - [`Options`], and the functions that derive them from the environment: [`kind_for`], [`colour_for`].
//! - [`RunHead`]: data known when a run begins; [`End`]: data for its end that is not in the summary.
//! - [`Display`]: receives changes, log messages and clock ticks.
//! - [`list`]: output of `heeler list`; [`runs`]: output of `heeler runs`.

mod options;
mod style;

mod closing;
mod format;
mod github;
mod live;
mod progress;
mod result;
mod screen;

mod show;

pub mod list;
pub mod runs;

pub use closing::End;
pub use options::{Kind, Options, Output, Size, SizeSource, colour_for, kind_for};
pub use progress::RunHead;
pub use show::Display;
pub use style::{Colour, Line, Tone};

#[cfg(test)]
mod tests;
