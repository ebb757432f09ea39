//! The command line: arguments, commands, display. A client of the coordinator like any other.
//!
//! - `arguments`: words and their help; `sources`: from words and suites to programs; `select`: which tests.
//! - `run`, `list`, `serve`: the commands.
//! - `runs`, `report`, `rerun`: what earlier runs are good for.
//! - `dump`: minidumps for people.
//! - `here`: a session in this process; `watch`: what the user sees and says meanwhile; `signals`.
//! - `display`: what a run looks like; `exit`: codes and errors.

pub mod arguments;
pub mod cargo;
mod debugger;
pub mod display;
mod doctor;
mod dump;
mod exit;
mod here;
mod list;
mod report;
mod rerun;
mod run;
mod runs;
mod select;
mod serve;
mod signals;
mod sources;
mod start;
mod watch;

pub use doctor::CRASH_ROLE;
pub use exit::{CommandError, Exit};
pub use sources::SourcesError;
use start::load_config;
pub use start::main;
