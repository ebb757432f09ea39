//! The user's configuration: `heeler.toml`, profiles, suites, and how the command line overrides them.
//!
//! [`Config::load`] reads the file into plain types and reports all of its errors at once, with positions.
//! [`ResolvedSettings::resolve`] resolves each setting: the command line overrides suites, suites override
//! profiles, and profiles override defaults. This crate starts no processes, knows no test framework and
//! parses no command-line arguments.

mod closest_match;
mod declarations;
mod file;
pub mod filter;
mod machine;
mod notation;
mod partition;
mod profiles;
mod programs;
mod quantity;
mod reader;
#[cfg(test)]
mod reference;
mod reports;
mod resources;
mod retries;
mod run_options;
mod settings;
mod sources;
mod tables;
mod test_arguments;
#[cfg(test)]
mod tests;
mod types;

pub use closest_match::closest_match;
pub use file::{ConfigError, ConfigProblem, FILE_NAME};
pub use machine::MachineSlots;
pub use partition::{PartitionError, PartitionKind, PartitionSpec, SplitOptions};
pub use programs::{
    FindProgramsError, FoundProgram, MatchingFiles, find_files, find_programs, is_glob, matching_files,
    suite_name_from_path, suite_names_without_base,
};
pub use quantity::{QuantityError, parse_positive_duration, parse_size};
pub use reports::{ReportRequestError, parse_report_request, report_format_names};
pub use resources::{ResourceAmount, ResourceCapacity, ResourceUse, unit_variable};
pub use retries::{RetriesError, parse_retries};
pub use run_options::{ProgramOptions, RunOptions};
pub use settings::{CommandLineSettings, MachineLimits, ResolvedSettings};
pub use tables::{RunLayer, RunSettings, TestLayer, TestSettings};
pub use types::{
    CaptureStrategy, Config, CrashCapture, DumpPolicy, FailFast, FailLimit, FilePosition, FinalStatusLevel,
    FixtureConfig, FlakyResult, JobCount, MemoryLimit, OutputTiming, RunIgnored, SettingsOverride,
    ShuffleMode, SlowTimeout, StatusLevel, SuiteConfig, TimeLimit, UnknownProfileError,
};
