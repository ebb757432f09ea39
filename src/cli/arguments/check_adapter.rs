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
    /// The program: a name in PATH, or a path. Its tests are run.
    #[arg(value_name = "PROGRAM", value_hint = ValueHint::CommandName)]
    pub program: String,
    /// Its arguments.
    #[arg(last = true, value_name = "ARGS")]
    pub args: Vec<OsString>,
    /// What carries the reports: descriptor 3 (json-lines), or standard input and output (json-lines-stdio).
    #[arg(long, value_name = "NAME", default_value = "json-lines", value_parser = ["json-lines", "json-lines-stdio"])]
    pub framework: String,
    /// How long the program may take for each report, and to exit.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = heeler_config::parse_positive_duration)]
    pub timeout: Duration,
    /// Output format: for people, or for programs.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub format: CheckFormat,
}

/// `--format` of `heeler check-adapter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum CheckFormat {
    /// A line for each rule, and what is wrong below it.
    #[default]
    Human,
    /// A JSON array with an object for each rule, one in each line.
    Json,
}
