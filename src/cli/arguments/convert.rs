//! Converts single arguments to the types of `config`, and a command's arguments to the settings layer that
//! overrides the profile.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    time::Duration,
};

use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::{
    GeneralArguments, ListArguments, RepetitionArguments, ReportArguments, ReportFileArguments, RunArguments,
    RunningArguments, SelectionArguments, ServedArguments, StressCount,
};
use crate::cli::debugger::{DebuggerCommand, DebuggerCommandError};
use heeler_config::filter::{Filter, FilterError};
use heeler_config::{
    CaptureStrategy, CommandLineSettings, FailFast, FinalStatusLevel, FlakyResult, JobCount, MachineSlots,
    MemoryLimit, OutputTiming, QuantityError, RunIgnored, RunLayer, ShuffleMode, SlowTimeout, SplitOptions,
    StatusLevel, TestLayer, TimeLimit, parse_positive_duration, parse_size,
};
use heeler_core::partition::SplitDigest;
use heeler_report::{ReportRequest, find_report_format};

/// Error in the value of an option.
#[derive(Debug, thiserror::Error)]
pub(super) enum ArgumentValueError {
    #[error("expected a number of at least 1, or num-cpus")]
    Jobs,
    #[error("expected a number of at least 1, or off")]
    MachineSlots,
    #[error("expected a number as the seed; name programs before --shuffle, or use --shuffle=random")]
    Shuffle,
    #[error("expected wait or immediate")]
    FailFast,
    #[error("expected a number of at least 1, or until-fail:N")]
    Repeat,
    #[error("use --retries N to repeat a failed test until it passes")]
    UntilPass,
    #[error("expected a number (at least 1) or \"infinite\"")]
    StressCount,
    #[error("expected an address and a port, such as 127.0.0.1:4711 or [::1]:0")]
    Address,
    #[cfg(feature = "mutation")]
    #[error("expected a percentage from 0 to 100")]
    Percentage,
    #[error("expected a partition digest (16 hexadecimal digits)")]
    SplitDigest,
    #[error("{0}")]
    Filter(String),
    #[error(transparent)]
    Debugger(#[from] DebuggerCommandError),
    #[error(transparent)]
    Quantity(#[from] QuantityError),
}

pub(super) fn jobs(word: &str) -> Result<JobCount, ArgumentValueError> {
    match word {
        "num-cpus" => Ok(JobCount::Cpus),
        _ => word.parse::<NonZeroUsize>().map(JobCount::Count).map_err(|_| ArgumentValueError::Jobs),
    }
}

pub(super) fn machine_slots(word: &str) -> Result<MachineSlots, ArgumentValueError> {
    match word {
        "off" => Ok(MachineSlots::Off),
        _ => word.parse().map(MachineSlots::Count).map_err(|_| ArgumentValueError::MachineSlots),
    }
}

#[cfg(feature = "mutation")]
pub(super) fn percentage(word: &str) -> Result<f64, ArgumentValueError> {
    let parsed = word.parse::<f64>().ok().filter(|percent| (0.0..=100.0).contains(percent));
    parsed.ok_or(ArgumentValueError::Percentage)
}

pub(super) fn shuffle(word: &str) -> Result<ShuffleMode, ArgumentValueError> {
    match word {
        "random" => Ok(ShuffleMode::Random),
        _ => word.parse().map(ShuffleMode::Seed).map_err(|_| ArgumentValueError::Shuffle),
    }
}

#[cfg(feature = "mutation")]
pub(super) fn duration(word: &str) -> Result<std::time::Duration, ArgumentValueError> {
    Ok(parse_positive_duration(word)?)
}

pub(super) fn time_limit(word: &str) -> Result<TimeLimit, ArgumentValueError> {
    match word {
        "none" => Ok(TimeLimit::Unlimited),
        _ => Ok(TimeLimit::After(parse_positive_duration(word)?)),
    }
}

/// Parses the value of `--fail-fast`.
pub(super) fn fail_fast(word: &str) -> Result<FailFast, ArgumentValueError> {
    match word {
        "wait" => Ok(FailFast::Wait),
        "immediate" => Ok(FailFast::Immediate),
        _ => Err(ArgumentValueError::FailFast),
    }
}

/// Accepts the names of the client protocols.
pub(super) fn protocols() -> PossibleValuesParser {
    PossibleValuesParser::new(heeler_server::listen::program_front_ends().map(|one| one.name()))
}

/// Parses a debugger command, split into words like a shell command.
pub(super) fn debugger(word: &str) -> Result<DebuggerCommand, ArgumentValueError> {
    Ok(word.parse::<DebuggerCommand>()?)
}

/// Parses a filter; the error message marks the position of the error.
pub(super) fn filter(word: &str) -> Result<Filter, ArgumentValueError> {
    let patterns = gtest_patterns(word);
    let word = patterns.as_deref().unwrap_or(word);
    word.parse().map_err(|error: FilterError| ArgumentValueError::Filter(error.with_carets()))
}

/// Translates a GoogleTest pattern list (`A.*:B.c-A.slow*`) into a filter; `None` if the text is not such a
/// list. Each pattern must contain a full stop or be `*`, so that other names with these characters stay
/// plain text.
fn gtest_patterns(word: &str) -> Option<String> {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "_./*?:-".contains(character);
    if word.contains("::") || !word.contains([':', '-']) || !word.chars().all(is_plain) {
        return None;
    }
    let (positive, negative) = word.split_once('-').unwrap_or((word, ""));
    let globs = |list: &str| {
        let patterns = list.split(':').filter(|pattern| !pattern.is_empty());
        let one = |pattern: &str| {
            let is_pattern = pattern == "*" || pattern.contains('.');
            (is_pattern && !pattern.contains('-')).then(|| format!("test(#{pattern})"))
        };
        patterns.map(one).collect::<Option<Vec<_>>>().map(|globs| globs.join(" | "))
    };
    let (positive, negative) = (globs(positive)?, globs(negative)?);
    let positive = if positive.is_empty() { "all()".to_owned() } else { positive };
    Some(if negative.is_empty() { positive } else { format!("({positive}) - ({negative})") })
}

pub(super) fn split_digest(word: &str) -> Result<SplitDigest, ArgumentValueError> {
    SplitDigest::read(word).ok_or(ArgumentValueError::SplitDigest)
}

pub(super) fn memory_limit(word: &str) -> Result<MemoryLimit, ArgumentValueError> {
    match word {
        "none" => Ok(MemoryLimit::Unlimited),
        _ => Ok(MemoryLimit::Bytes(parse_size(word)?)),
    }
}

pub(super) fn slow_timeout(word: &str) -> Result<SlowTimeout, ArgumentValueError> {
    Ok(SlowTimeout::every(parse_positive_duration(word)?))
}

/// Checks only the syntax; host names are resolved when the address is used.
pub(super) fn address(word: &str) -> Result<String, ArgumentValueError> {
    let (host, port) = word.rsplit_once(':').ok_or(ArgumentValueError::Address)?;
    let is_host = !host.is_empty() && (host.starts_with('[') == host.ends_with(']'));
    let is_plain_v6 = host.contains(':') && !host.starts_with('[');
    if !is_host || is_plain_v6 || port.parse::<u16>().is_err() {
        return Err(ArgumentValueError::Address);
    }
    Ok(word.to_owned())
}

pub(super) fn run_ignored() -> impl TypedValueParser<Value = RunIgnored> {
    one_of(&[("default", RunIgnored::Default), ("only", RunIgnored::Only), ("all", RunIgnored::All)])
}

pub(super) fn flaky_result() -> impl TypedValueParser<Value = FlakyResult> {
    one_of(&FlakyResult::WORDS)
}

/// Parses the value of `--repeat`: a number, or CTest's `until-fail:N`.
pub(super) fn repeat(word: &str) -> Result<NonZeroU32, ArgumentValueError> {
    let count = word.strip_prefix("until-fail:").unwrap_or(word);
    if count.starts_with("until-pass:") {
        return Err(ArgumentValueError::UntilPass);
    }
    count.parse().map_err(|_| ArgumentValueError::Repeat)
}

pub(super) fn stress_count(word: &str) -> Result<StressCount, ArgumentValueError> {
    match word {
        "infinite" => Ok(StressCount::Infinite),
        _ => word.parse().map(StressCount::Times).map_err(|_| ArgumentValueError::StressCount),
    }
}

impl RepetitionArguments {
    /// Returns the number of runs of each test, if given.
    fn count(&self) -> Option<NonZeroU32> {
        match self.stress_count {
            Some(StressCount::Times(count)) => Some(count),
            Some(StressCount::Infinite) | None => self.repeat,
        }
    }

    /// Returns how long to repeat all tests, if given.
    fn duration(&self) -> Option<Duration> {
        match self.stress_count {
            Some(StressCount::Infinite) => Some(Duration::MAX),
            Some(StressCount::Times(_)) | None => self.stress_duration,
        }
    }
}

pub(super) fn status_level() -> impl TypedValueParser<Value = StatusLevel> {
    one_of(&StatusLevel::WORDS)
}

pub(super) fn final_status_level() -> impl TypedValueParser<Value = FinalStatusLevel> {
    one_of(&FinalStatusLevel::WORDS)
}

pub(super) fn output_timing() -> impl TypedValueParser<Value = OutputTiming> {
    one_of(&OutputTiming::WORDS)
}

/// Returns a parser that accepts these values. The help lists them.
fn one_of<T>(words: &'static [(&'static str, T)]) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync,
{
    PossibleValuesParser::new(words.iter().map(|(word, _)| *word)).map(move |found| {
        let known = words.iter().find(|(word, _)| *word == found);
        known.expect("the parser accepts only words of this list").1
    })
}

/// Returns the help of `--report`, with the registered formats.
pub(super) fn report_help() -> String {
    format!(
        "Write a report file, such as --report junit=out/junit.xml; {{run}} in the name is replaced by the run's id; may \
         be repeated [formats: {}]",
        heeler_config::report_format_names()
    )
}

impl ReportFileArguments {
    /// Returns the requested reports; `None` if the command line requests none.
    #[must_use]
    pub(crate) fn requests(&self) -> Option<Vec<ReportRequest>> {
        let junit = self.junit.as_ref().and_then(|file| {
            Some(ReportRequest { format: find_report_format("junit")?, file: file.clone() })
        });
        let all: Vec<_> = self.reports.iter().cloned().chain(junit).collect();
        (!all.is_empty()).then_some(all)
    }
}

impl SelectionArguments {
    fn split(&self) -> SplitOptions {
        SplitOptions { history: self.partition_history.clone(), digest: self.partition_digest }
    }

    /// Returns `general` with the selection added.
    pub(super) fn command_line(&self, general: CommandLineSettings) -> CommandLineSettings {
        CommandLineSettings {
            filters: self.filters.clone(),
            partition: self.partition,
            split: self.split(),
            run_ignored: self.run_ignored,
            ..general
        }
    }
}

impl RunningArguments {
    fn run_layer(&self) -> RunLayer {
        RunLayer {
            jobs: self.jobs,
            fail_fast: if self.is_no_fail_fast { Some(FailFast::Off) } else { self.fail_fast },
            max_fail: self.max_fail,
            shuffle: self.shuffle,
            run_timeout: self.run_timeout,
            ..RunLayer::default()
        }
    }

    fn test_layer(&self) -> TestLayer {
        TestLayer {
            timeout: self.timeout,
            slow_timeout: self.slow_timeout,
            retries: self.retries,
            flaky_result: self.flaky_result,
            is_isolated: self.is_isolated.then_some(true),
            max_memory: self.max_memory,
            ..TestLayer::default()
        }
    }
}

impl GeneralArguments {
    /// Returns the settings from the arguments common to all commands.
    #[must_use]
    pub(crate) fn command_line(&self) -> CommandLineSettings {
        let run = RunLayer { is_history_kept: self.is_history_off.then_some(false), ..RunLayer::default() };
        CommandLineSettings {
            profile: self.profile.clone(),
            state_dir: self.state_dir.clone(),
            machine_slots: self.machine_slots,
            run,
            ..CommandLineSettings::default()
        }
    }
}

impl RunArguments {
    /// Returns the settings from the arguments of the run.
    #[must_use]
    pub(crate) fn command_line(&self) -> CommandLineSettings {
        let general = self.general.command_line();
        CommandLineSettings {
            run: RunLayer {
                reports: self.reporting.report_files.requests(),
                capture: (self.reporting.is_output_shown || self.debugger.is_some())
                    .then_some(CaptureStrategy::Shown),
                is_history_kept: general.run.is_history_kept,
                is_environment_shown: self.reporting.is_environment_shown.then_some(true),
                ..self.reporting.shown.layer_over(self.running.run_layer())
            },
            tests: self.running.test_layer(),
            framework: self.programs.framework.clone(),
            repeat: self.repetition.count(),
            stress_duration: self.repetition.duration(),
            ..self.selection.command_line(general)
        }
    }
}

impl ListArguments {
    /// Returns the settings from the arguments of the listing.
    #[must_use]
    pub(crate) fn command_line(&self) -> CommandLineSettings {
        CommandLineSettings {
            framework: self.programs.framework.clone(),
            ..self.selection.command_line(self.general.command_line())
        }
    }
}

impl ReportArguments {
    /// Returns the settings from the arguments of the report.
    #[must_use]
    pub(crate) fn command_line(&self) -> CommandLineSettings {
        let general = self.general.command_line();
        let run = self.shown.layer_over(general.run);
        CommandLineSettings { run, ..general }
    }
}

impl ServedArguments {
    /// Returns the settings from the arguments for each run of the server.
    #[must_use]
    pub(crate) fn command_line(&self) -> CommandLineSettings {
        let general = self.general.command_line();
        CommandLineSettings {
            run: RunLayer {
                is_history_kept: general.run.is_history_kept,
                reports: self.report_files.requests(),
                ..self.running.run_layer()
            },
            tests: self.running.test_layer(),
            framework: self.programs.framework.clone(),
            ..general
        }
    }
}
