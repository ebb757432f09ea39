//! Remembers which mutants did not compile in a command's last build, and which sources that build used. With
//! the same sources, the next build starts from there and recompiles nothing. If sources have changed, all
//! outputs must be removed, because the build may not track which headers a source includes.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use heeler_mutant_model::MutantId;
use heeler_mutate::{Fingerprint, MutatedProject, find_build_inputs};

/// File next to the copy: a line with the hash of the sources, then one line per mutant that does not
/// compile.
const FILE: &str = "uncompiled";

#[derive(Debug)]
pub(super) struct KeptBuild {
    file: PathBuf,
    sources: Fingerprint,
    /// Mutants that do not compile, with the compiler message; `None` if the sources have changed.
    pub(super) uncompiled: Option<BTreeMap<MutantId, String>>,
}

impl KeptBuild {
    /// Reads what the last build of this project by this command recorded. An unreadable file counts as
    /// missing.
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

    /// Removes the record. A finished build writes a new one.
    ///
    /// # Errors
    /// The file can't be removed.
    pub(super) fn forget(&self) -> io::Result<()> {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Records the mutants that did not compile in a finished build.
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

/// Returns a hash of everything that decides which mutants exist and compile.
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
