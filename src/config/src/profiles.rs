//! Inheritance of profiles, and the configuration of a directory without `heeler.toml`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::{
    Config, RunSettings, TestSettings, UnknownProfileError, closest_match::known_words_hint,
    types::ResolvedProfile,
};

/// The profile used by default. All other profiles inherit from it.
pub(super) const DEFAULT_PROFILE: &str = "default";

impl Config {
    /// Returns the configuration of a directory without `heeler.toml`.
    #[must_use]
    pub fn without_file(dir: &Path) -> Self {
        Self {
            file: None,
            dir: dir.to_owned(),
            state_dir: dir.join(STATE_DIR),
            stryker: None,
            suites: Vec::new(),
            resources: BTreeMap::new(),
            fixtures: Vec::new(),
            machine_slots: None,
            profiles: BTreeMap::new(),
        }
    }

    /// Returns the configuration with its state directory in `dir`.
    #[must_use]
    pub fn with_state_below(self, dir: &Path) -> Self {
        Self { state_dir: dir.join(STATE_DIR), ..self }
    }

    /// Returns the configuration with a state directory chosen on the command line.
    #[must_use]
    pub fn with_state_dir(self, state_dir: &Path) -> Self {
        Self { state_dir: state_dir.to_owned(), ..self }
    }

    /// Returns a profile with all inherited settings. `default` exists even without a section.
    ///
    /// # Errors
    /// No section defines the profile.
    pub(crate) fn resolve_profile(&self, name: &str) -> Result<ResolvedProfile, UnknownProfileError> {
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
        let mut known = known_words_hint(name, &known);
        if CARGO_PROFILES.contains(&name) {
            known.push_str("; to select a cargo profile, use --cargo-profile");
        }
        UnknownProfileError { name: name.to_owned(), known }
    }
}

/// Profiles built into cargo.
const CARGO_PROFILES: [&str; 4] = ["dev", "release", "test", "bench"];

/// Default state directory, relative to the directory of `heeler.toml`.
pub(super) const STATE_DIR: &str = ".heeler";

/// Returns `path` relative to `dir`, unless it is absolute.
pub(super) fn resolve_path(dir: &Path, path: impl AsRef<Path>) -> PathBuf {
    if dir.as_os_str().is_empty() { path.as_ref().to_owned() } else { dir.join(path) }
}
