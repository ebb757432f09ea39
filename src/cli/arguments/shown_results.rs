//! The arguments that control which results, and which outputs of tests, are printed.

use clap::{Args, ValueEnum};

use super::convert;
use heeler_config::{FinalStatusLevel, OutputTiming, RunLayer, StatusLevel};

/// `--format` of `heeler run` and `heeler report`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum RunFormat {
    /// Results as text.
    #[default]
    Human,
    /// One JSON object per line.
    Json,
}

/// Arguments that control which results, and which outputs of tests, are printed.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Reporting")]
pub(crate) struct ShownResultArguments {
    /// Which results to print; each level includes the levels before it.
    #[arg(long, value_name = "LEVEL", value_parser = convert::status_level())]
    pub status_level: Option<StatusLevel>,
    /// Which results to list at the end; each level includes the levels before it.
    #[arg(long, value_name = "LEVEL", value_parser = convert::final_status_level())]
    pub final_status_level: Option<FinalStatusLevel>,
    /// When to print the output of passed tests: with the result, at the end, both, or never (the default).
    #[arg(long, value_name = "WHEN", value_parser = convert::output_timing())]
    pub success_output: Option<OutputTiming>,
    /// When to print the output of failed tests: with the result (the default), at the end, both, or never.
    #[arg(long, value_name = "WHEN", value_parser = convert::output_timing())]
    pub failure_output: Option<OutputTiming>,
}

impl ShownResultArguments {
    /// Returns the layer with the settings of these arguments.
    pub(super) fn layer_over(&self, layer: RunLayer) -> RunLayer {
        RunLayer {
            status_level: self.status_level,
            final_status_level: self.final_status_level,
            success_output: self.success_output,
            failure_output: self.failure_output,
            ..layer
        }
    }
}
