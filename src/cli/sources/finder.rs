//! Finds the programs of a server's sessions again: rebuilds them, and returns their current paths.

use std::{
    os::fd::{AsFd as _, OwnedFd},
    sync::{Mutex, PoisonError},
};

use heeler_config::{Config, matching_files};
use heeler_server::discovery::{CurrentProgram, CurrentPrograms, ProgramFinder, ProgramSource};

use super::{BuildContext, DebugData, NamedSources, find_supervised_sources, programs::ProgramsSource};
use crate::cli::sources::TestSource as _;
use heeler_cargo::{BuildSupervision, OutputTail};

/// Sources of a server's programs, and the programs found last.
#[derive(Debug)]
pub(crate) struct SourceFinder {
    config: Config,
    named: NamedSources,
    found: Mutex<Vec<ProgramSource>>,
}

impl SourceFinder {
    pub(crate) fn new(config: Config, named: NamedSources, found: Vec<ProgramSource>) -> Self {
        Self { config, named, found: Mutex::new(found) }
    }
}

impl ProgramFinder for SourceFinder {
    fn build(&self, cancelled: OwnedFd) -> Result<Vec<ProgramSource>, String> {
        let tail = OutputTail::default();
        let supervision = BuildSupervision {
            cancelled: Some(cancelled.as_fd()),
            tail: Some(&tail),
            ..BuildSupervision::default()
        };
        // A client may request a debugger in any run, so keep debug data.
        let build = BuildContext { debug_data: DebugData::Kept, supervision };
        let mut display = |label: &str, words: &str| eprintln!("heeler: {label} {words}");
        let found = find_supervised_sources(&self.config, &self.named, build, &mut display);
        let found = found.map_err(|error| {
            let text = tail.text();
            let separator = if text.is_empty() { "" } else { "\n" };
            format!("{}{separator}{text}", heeler_core::error_chain(&error))
        })?;
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&found);
        Ok(found)
    }

    fn current_programs(&self) -> CurrentPrograms {
        let mut current = CurrentPrograms::default();
        let known = |one: &ProgramSource| CurrentProgram {
            path: one.program.path.as_path().to_owned(),
            suite: Some(one.program.suite.clone()),
        };
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        current.programs.extend(found.iter().map(known));
        drop(found);
        if !self.named.requests.is_empty() {
            return current;
        }
        let suites = self.config.suites.iter().filter(|suite| suite.source.source == ProgramsSource.name());
        for suite in suites {
            let patterns: Vec<_> =
                suite.source.arguments.iter().map(|pattern| pattern.to_text().into_owned()).collect();
            let files = matching_files(&self.config.dir, &patterns);
            for path in files.programs {
                let path = std::path::absolute(&path).unwrap_or(path);
                if !current.programs.iter().any(|program| program.path == path) {
                    current.programs.push(CurrentProgram { path, suite: None });
                }
            }
            let absolute =
                files.directories.into_iter().map(|path| std::path::absolute(&path).unwrap_or(path));
            current.directories.extend(absolute);
        }
        current
    }
}
