//! Results in the formats of both protocol versions.

use std::{collections::BTreeMap, path::Path};

use heeler_mutant_model::MutantResult;
use heeler_protocol::mutation::{
    StatusName, TestedMutant,
    alpha::MutantInFile,
    v0_4::{
        DiscoverResult, DiscoveredFile, DiscoveredFiles, DiscoveredMutant, MutationTestResult, TestedFile,
    },
};
use heeler_report::mutation::tested_mutant;

use super::selection::relative_path;

/// Returns results with absolute paths.
pub(super) fn mutants_in_files(results: &[MutantResult], directory: &Path) -> Vec<MutantInFile> {
    let in_file = |result: &MutantResult| MutantInFile {
        file_name: directory.join(&**result.mutant.path()).display().to_string(),
        mutant: tested_mutant(result),
    };
    results.iter().map(in_file).collect()
}

/// Returns discovered mutants by file.
pub(super) fn discovered(results: &[MutantResult]) -> DiscoverResult {
    let mut files: BTreeMap<String, DiscoveredFile> = BTreeMap::new();
    for result in results {
        let TestedMutant { id, location, mutator_name, replacement, description, .. } = tested_mutant(result);
        let found =
            DiscoveredMutant { id, location, mutator_name, replacement: Some(replacement), description };
        files.entry(result.mutant.path().to_string()).or_default().mutants.push(found);
    }
    DiscoverResult { files }
}

/// Returns tested mutants by file.
pub(super) fn tested(results: &[MutantResult]) -> MutationTestResult {
    let mut files: BTreeMap<String, TestedFile> = BTreeMap::new();
    for result in results {
        files.entry(result.mutant.path().to_string()).or_default().mutants.push(tested_mutant(result));
    }
    MutationTestResult { files }
}

/// Requested mutants without a result.
#[derive(Debug)]
pub(super) struct AwaitedMutants(DiscoveredFiles);

impl AwaitedMutants {
    /// Takes the mutants of a request, whose paths may be absolute.
    pub(super) fn new(files: DiscoveredFiles, directory: &Path) -> Self {
        let mut awaited = DiscoveredFiles::new();
        for (path, file) in files {
            // A path outside the project has no result, and is reported exactly as the client sent it.
            let path = relative_path(&path, directory).unwrap_or(path);
            awaited.entry(path).or_default().mutants.extend(file.mutants);
        }
        Self(awaited)
    }

    /// Removes the mutants that have a result.
    pub(super) fn remove(&mut self, tested: &MutationTestResult) {
        for (path, file) in &tested.files {
            if let Some(awaited) = self.0.get_mut(path) {
                awaited.mutants.retain(|one| !file.mutants.iter().any(|mutant| mutant.id == one.id));
            }
        }
    }

    /// Returns the remaining mutants as ignored. Without a result, a client would show them as running
    /// forever.
    pub(super) fn into_ignored(self) -> MutationTestResult {
        let ignored = |mutant: DiscoveredMutant| TestedMutant {
            id: mutant.id,
            location: mutant.location,
            mutator_name: mutant.mutator_name,
            replacement: mutant.replacement.unwrap_or_default(),
            description: mutant.description,
            status: StatusName::Ignored,
            status_reason: Some("this mutant no longer exists; run discover again".to_owned()),
            covered_by: Vec::new(),
            killed_by: Vec::new(),
            tests_completed: None,
            r#static: None,
            duration: None,
        };
        let file =
            |file: DiscoveredFile| TestedFile { mutants: file.mutants.into_iter().map(ignored).collect() };
        let files = self.0.into_iter().filter(|(_, file)| !file.mutants.is_empty());
        MutationTestResult { files: files.map(|(path, one)| (path, file(one))).collect() }
    }
}
