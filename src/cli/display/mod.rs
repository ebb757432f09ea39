//! What a run looks like: on a terminal a live view with failures above it, elsewhere lines that read well in a log,
//! and at the end a summary. What is said is decided from values and given times, as styled lines; only [`Display`]
//! writes.
//!
//! - [`Options`] and what they are decided from: [`kind_for`], [`colour_for`].
//! - [`RunHead`]: what is known when a run begins; [`End`]: what is said at its end beside the summary.
//! - [`Display`]: fed with changes, log messages and the passing of time.
//! - [`list`]: what `heeler list` prints; [`runs`]: what `heeler runs` does.

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
