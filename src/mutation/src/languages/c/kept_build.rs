//! What is kept of a build by a command for the next one: which mutants do not compile, and for which sources
//! that is known. With the same sources, the next build begins with what this one ends with, and makes
//! nothing again; with others, a build that does not know what its sources include must not keep anything.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use heeler_mutant_model::MutantId;
use heeler_mutate::{Fingerprint, MutatedProject, find_build_inputs};

/// The file, beside the copy: a line with the hash of the sources, then one for each mutant that does not
/// compile.
const FILE: &str = "uncompiled";

/// What is known of the sources of a build.
#[derive(Debug)]
pub(super) struct KeptBuild {
    file: PathBuf,
    sources: Fingerprint,
    /// The mutants that do not compile, with the compiler's words; `None` if the sources have changed.
    pub(super) uncompiled: Option<BTreeMap<MutantId, String>>,
}

impl KeptBuild {
    /// Reads what is known of a project that this command builds. What can't be read is not known.
    pub(super) fn read(dir: &Path, project: &MutatedProject, command: &str) -> Self {
        let file = dir.join(FILE);
        let sources = fingerprint(project, command);
        let text = fs::read_to_string(&file).unwrap_or_default();
        let mut lines = text.lines();
        let is_same = lines.next().is_some_and(|line| line == sources.to_string());
        let mutant = |line: &str| {
            let (id, words) = line.split_once('\t')?;
            Some((id.parse().ok()?, words.to_owned()))
        };
        let uncompiled = is_same.then(|| lines.map_while(mutant).collect());
        Self { file, sources, uncompiled }
    }

    /// Forgets it, until the build has ended.
    ///
    /// # Errors
    /// The file can't be removed.
    pub(super) fn forget(&self) -> io::Result<()> {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Keeps the mutants of a build that has ended.
    ///
    /// # Errors
    /// The file can't be written.
    pub(super) fn write(&self, uncompiled: &BTreeMap<MutantId, String>) -> io::Result<()> {
        let mut text = format!("{}\n", self.sources);
        for (id, words) in uncompiled {
            text.push_str(&format!("{id}\t{}\n", words.replace(['\n', '\r'], " ")));
        }
        fs::write(&self.file, text)
    }
}

/// Returns a hash of what decides which mutants are in the sources and which of them compile.
fn fingerprint(project: &MutatedProject, command: &str) -> Fingerprint {
    let mut hash = Fingerprint::of([env!("CARGO_PKG_VERSION").as_bytes(), command.as_bytes()]);
    for source in &project.sources {
        let file = source.source.file();
        hash = hash.with(file.path.as_bytes()).with(file.text.as_bytes());
        for found in source.mutants() {
            hash = hash.with(&found.mutant.id.0.to_le_bytes());
        }
    }
    for path in find_build_inputs(&project.root) {
        let bytes = fs::read(&path).unwrap_or_default();
        hash = hash.with(path.as_os_str().as_encoded_bytes()).with(&bytes);
    }
    hash
}
