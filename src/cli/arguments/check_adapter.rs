//! The arguments of `heeler check-adapter`.

use std::{ffi::OsString, time::Duration};

use clap::{Args, ValueEnum, ValueHint};

const EXAMPLES: &str = "\
Examples:
  heeler check-adapter ./adapter.py
  heeler check-adapter --framework json-lines-stdio node -- adapter.mjs --all";

/// Arguments of `heeler check-adapter`. Its rules are in docs/frameworks/json-lines.md.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CheckAdapterArguments {
    /// Adapter to check: a name in PATH, or a path. Its tests are run.
    #[arg(value_name = "PROGRAM", value_hint = ValueHint::CommandName)]
    pub program: String,
    /// Arguments of the adapter.
    #[arg(last = true, value_name = "ARGS")]
    pub args: Vec<OsString>,
    /// Channel for the reports: file descriptor 3 (json-lines), or standard input and output
    /// (json-lines-stdio).
    #[arg(long, value_name = "NAME", default_value = "json-lines", value_parser = ["json-lines", "json-lines-stdio"])]
    pub framework: String,
    /// Time limit for each report, and for the exit of the adapter.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = heeler_config::parse_positive_duration)]
    pub timeout: Duration,
    /// Output format.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub format: CheckFormat,
}

/// `--format` of `heeler check-adapter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum CheckFormat {
    /// One line per rule, followed by its violations.
    #[default]
    Human,
    /// A JSON array with one object per rule, one per line.
    Json,
}
