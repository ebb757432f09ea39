//! The default settings, and how one layer of settings overrides another.

use std::{
    num::NonZeroU32,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    CaptureStrategy, Config, CrashCapture, DumpPolicy, FailLimit, JobCount, MemoryLimit, ResolvedProfile,
    RunLayer, RunSettings, ShuffleMode, TestLayer, TestSettings, TimeLimit, UnknownProfileError,
};

/// The profile that is used when none is named, and that all others inherit from.
pub(super) const DEFAULT_PROFILE: &str = "default";

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            jobs: JobCount::Cpus,
            fail_limit: FailLimit::Never,
            shuffle: ShuffleMode::Off,
            status_level: None,
            reports: Vec::new(),
            capture: CaptureStrategy::Kept,
            output_limit_bytes: 1 << 20,
            grace_period: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(5),
            client_stall_timeout: Duration::from_secs(120),
            connect_timeout: Duration::from_secs(5),
            debugger_timeout: Duration::from_secs(120),
            startup_timeout: Duration::from_secs(60),
            list_timeout: Duration::from_secs(60),
            run_timeout: TimeLimit::Unlimited,
            max_startup_crashes: NonZeroU32::MIN.saturating_add(2),
            keep_runs: NonZeroU32::MIN.saturating_add(19),
            is_history_kept: true,
            dump_limit_bytes: 64 << 20,
            dumps_per_run: 50,
            dumps_total_bytes: 1 << 30,
            is_environment_dumped: false,
        }
    }
}

impl RunSettings {
    /// Returns these settings with those of a layer on top.
    #[must_use]
    pub fn with_layer(self, layer: &RunLayer) -> Self {
        Self {
            jobs: layer.jobs.unwrap_or(self.jobs),
            fail_limit: layer.fail_limit.unwrap_or(self.fail_limit),
            shuffle: layer.shuffle.unwrap_or(self.shuffle),
            status_level: layer.status_level.or(self.status_level),
            reports: layer.reports.clone().unwrap_or(self.reports),
            capture: layer.capture.unwrap_or(self.capture),
            output_limit_bytes: layer.output_limit_bytes.unwrap_or(self.output_limit_bytes),
            grace_period: layer.grace_period.unwrap_or(self.grace_period),
            drain_timeout: layer.drain_timeout.unwrap_or(self.drain_timeout),
            client_stall_timeout: layer.client_stall_timeout.unwrap_or(self.client_stall_timeout),
            connect_timeout: layer.connect_timeout.unwrap_or(self.connect_timeout),
            debugger_timeout: layer.debugger_timeout.unwrap_or(self.debugger_timeout),
            startup_timeout: layer.startup_timeout.unwrap_or(self.startup_timeout),
            list_timeout: layer.list_timeout.unwrap_or(self.list_timeout),
            run_timeout: layer.run_timeout.unwrap_or(self.run_timeout),
            max_startup_crashes: layer.max_startup_crashes.unwrap_or(self.max_startup_crashes),
            keep_runs: layer.keep_runs.unwrap_or(self.keep_runs),
            is_history_kept: layer.history.unwrap_or(self.is_history_kept),
            dump_limit_bytes: layer.dump_limit_bytes.unwrap_or(self.dump_limit_bytes),
            dumps_per_run: layer.dumps_per_run.unwrap_or(self.dumps_per_run),
            dumps_total_bytes: layer.dumps_total_bytes.unwrap_or(self.dumps_total_bytes),
            is_environment_dumped: layer.dump_environment.unwrap_or(self.is_environment_dumped),
        }
    }
}

impl Default for TestSettings {
    fn default() -> Self {
        Self {
            timeout: None,
            slow_period: Duration::from_secs(60),
            retries: 0,
            is_isolated: false,
            memory_bytes: None,
            idle_timeout: None,
            dumps: DumpPolicy::All,
            crash_capture: CrashCapture::Root,
        }
    }
}

impl TestSettings {
    /// Returns these settings with those of a layer on top. A time limit of the layer, of either kind,
    /// replaces the inherited one.
    #[must_use]
    pub fn with_layer(self, layer: &TestLayer) -> Self {
        Self {
            timeout: if layer.has_time_limit() { layer.shortest_time_limit() } else { self.timeout },
            slow_period: layer.slow_timeout.map_or(self.slow_period, |slow| slow.period),
            retries: layer.retries.unwrap_or(self.retries),
            is_isolated: layer.isolate.unwrap_or(self.is_isolated),
            memory_bytes: match layer.max_memory {
                Some(MemoryLimit::Bytes(bytes)) => Some(bytes),
                Some(MemoryLimit::Unlimited) => None,
                None => self.memory_bytes,
            },
            idle_timeout: match layer.idle_timeout {
                Some(TimeLimit::After(limit)) => Some(limit),
                Some(TimeLimit::Unlimited) => None,
                None => self.idle_timeout,
            },
            dumps: layer.dumps.unwrap_or(self.dumps),
            crash_capture: layer.crash_capture.unwrap_or(self.crash_capture),
        }
    }
}

impl TestLayer {
    fn has_time_limit(&self) -> bool {
        self.timeout.is_some() || self.slow_timeout.is_some_and(|slow| slow.terminate_after.is_some())
    }

    /// Returns the shorter of the two kinds of time limit.
    fn shortest_time_limit(&self) -> Option<Duration> {
        let timeout = match self.timeout {
            Some(TimeLimit::After(limit)) => Some(limit),
            Some(TimeLimit::Unlimited) | None => None,
        };
        let by_periods =
            self.slow_timeout.and_then(|slow| Some(slow.period.saturating_mul(slow.terminate_after?.get())));
        timeout.into_iter().chain(by_periods).min()
    }
}

impl Config {
    /// Returns the configuration of a directory without `heeler.toml`.
    #[must_use]
    pub fn without_file(dir: &Path) -> Self {
        Self {
            file: None,
            dir: dir.to_owned(),
            state_dir: dir.join(STATE_DIR),
            suites: Vec::new(),
            profiles: std::collections::BTreeMap::new(),
        }
    }

    /// Returns a profile with all inherited settings. `default` exists without a section.
    ///
    /// # Errors
    /// No section defines the profile.
    pub fn resolve_profile(&self, name: &str) -> Result<ResolvedProfile, UnknownProfileError> {
        let base = self.profiles.get(DEFAULT_PROFILE).cloned().unwrap_or_default();
        let (run, tests) =
            (RunSettings::default().with_layer(&base.run), TestSettings::default().with_layer(&base.tests));
        let default = ResolvedProfile { name: name.to_owned(), run, tests, overrides: base.overrides };
        if name == DEFAULT_PROFILE {
            return Ok(default);
        }
        let own = self.profiles.get(name).cloned().ok_or_else(|| self.unknown_profile_error(name))?;
        Ok(ResolvedProfile {
            run: default.run.with_layer(&own.run),
            tests: default.tests.with_layer(&own.tests),
            overrides: own.overrides.into_iter().chain(default.overrides).collect(),
            name: default.name,
        })
    }

    fn unknown_profile_error(&self, name: &str) -> UnknownProfileError {
        let mut known: Vec<&str> = self.profiles.keys().map(String::as_str).collect();
        if !known.contains(&DEFAULT_PROFILE) {
            known.insert(0, DEFAULT_PROFILE);
        }
        let hint =
            crate::closest_match(name, known.iter().copied()).map(|near| format!("did you mean \"{near}\"?"));
        let known = hint.unwrap_or_else(|| format!("the profiles are {}", known.join(", ")));
        UnknownProfileError { name: name.to_owned(), known }
    }
}

/// The default state directory, relative to the directory of the file.
pub(super) const STATE_DIR: &str = ".heeler";

/// Returns `path` relative to `dir`, unless it is absolute.
pub(super) fn resolve_path(dir: &Path, path: &str) -> PathBuf {
    if dir.as_os_str().is_empty() { PathBuf::from(path) } else { dir.join(path) }
}
