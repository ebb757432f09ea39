//! The user's configuration: `heeler.toml`, profiles, suites, and their precedence against the command line.
//!
//! [`Config::load`] reads the file into plain types, and reports every error in it at once, with positions.
//! [`Settings::resolve`] applies the command line over suites over profiles over the defaults. Nothing here
//! starts a process, knows a test framework or parses command-line arguments.

mod defaults;
mod file;
mod partition;
mod programs;
mod quantity;
mod reader;
mod reference;
mod settings;
#[cfg(test)]
mod tests;
mod types;

pub use file::{ConfigError, FILE_NAME, Problem};
pub use partition::{Partition, PartitionError, PartitionKind};
pub use programs::{FoundProgram, ProgramsError, find_programs, name_below};
pub use quantity::{QuantityError, parse_duration, parse_size};
pub use reference::{Key, Section, reference, reference_table};
pub use settings::{CommandLine, Settings};
pub use types::{
    Capture, Config, Dumps, FailLimit, Jobs, MemoryLimit, Override, Position, Profile, RunLayer, RunSettings,
    Shuffle, SlowTimeout, StatusLevel, Suite, SuiteSource, TestLayer, TestSettings, TimeLimit,
    UnknownProfile, Watch,
};
