//! Finds the tests of builds for mutation testing, using the sources of `heeler run`.

use std::path::{Path, PathBuf};

use heeler_config::Config;
use heeler_core::SourceRequest;
use heeler_mutation::{TestFinder, TestSearchError};
use heeler_protocol::control::TestProgram;

use crate::cli::sources::{DebugData, NamedSources, find_interpreter, find_sources};

/// Finds tests using the sources of `heeler run`.
pub(super) struct RunTestFinder;

impl TestFinder for RunTestFinder {
    fn find(&self, directory: &Path, request: SourceRequest) -> Result<Vec<TestProgram>, TestSearchError> {
        let named = NamedSources { requests: vec![request], ..NamedSources::default() };
        let config = Config::without_file(directory);
        let found = find_sources(&config, &named, DebugData::Omitted, &mut |_, _| {})?;
        Ok(found.into_iter().map(|source| source.program).collect())
    }

    fn find_python(&self, named: Option<&str>, directory: &Path) -> Result<PathBuf, TestSearchError> {
        Ok(find_interpreter(named, directory, &[])?)
    }

    fn has_framework(&self, program: &Path) -> bool {
        heeler_worker::likely_framework(program).is_some()
    }
}
