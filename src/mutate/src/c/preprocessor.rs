//! Finds the guards that remain after preprocessing. The other guards are in no program, so no test can reach
//! them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// Files and guards of all compilations together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompiledGuards {
    /// Files read by the compilers, relative to the tree.
    files: BTreeSet<PathBuf>,
    /// Number of mutants per guard, keyed by the guard's first mutant.
    guards: BTreeMap<u32, u32>,
    /// Some compilation could not be preprocessed, so its guards are unknown.
    has_unknown: bool,
}

impl CompiledGuards {
    /// Adds the preprocessed text of a compilation that ran in `directory`.
    pub(super) fn add(&mut self, text: &str, directory: &Path, tree: &Path) {
        for line in text.lines() {
            if let Some(file) = marker(line) {
                let path = crate::selection::normalized(&directory.join(file));
                self.files.extend(path.strip_prefix(tree).ok().map(Path::to_owned));
            } else if line.contains("__hg") {
                self.guards.extend(calls(line));
            }
        }
    }

    /// Merges the result of another compilation.
    pub(super) fn extend(&mut self, other: Self) {
        self.files.extend(other.files);
        self.guards.extend(other.guards);
        self.has_unknown |= other.has_unknown;
    }

    /// Returns the value for a compilation that can't be preprocessed.
    pub(super) fn unknown() -> Self {
        Self { has_unknown: true, ..Self::default() }
    }

    /// Returns whether any compilation has read a file.
    pub(crate) fn has_file(&self, path: &Path) -> bool {
        self.files.contains(path)
    }

    /// Returns whether any compilation has, or may have, compiled a mutant's guard.
    pub(crate) fn has_mutant(&self, number: u32) -> bool {
        let before = self.guards.range(..=number).next_back();
        self.has_unknown || before.is_some_and(|(first, count)| number - first < *count)
    }
}

/// Returns the file named by a line marker such as `# 12 "src/list.c" 2`.
fn marker(line: &str) -> Option<String> {
    let rest = line.strip_prefix("# ")?.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let quoted = rest.strip_prefix(" \"")?;
    let end = quoted.rfind('"')?;
    Some(quoted[..end].replace("\\\"", "\"").replace("\\\\", "\\"))
}

/// Returns the guard calls in a line: number of the first mutant, and count of mutants.
fn calls(line: &str) -> impl Iterator<Item = (u32, u32)> {
    line.split("__hg").skip(1).filter_map(|rest| {
        let rest = rest.strip_prefix("_at").unwrap_or(rest).trim_start().strip_prefix('(')?;
        let (base, rest) = rest.split_once(',')?;
        let (count, _) = rest.split_once(')')?;
        Some((base.trim().parse().ok()?, count.trim().parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_of_all_compilations_are_known() {
        let mut compiled = CompiledGuards::default();
        let text = "# 0 \"../src/a.c\"\n# 1 \"/usr/include/x.h\" 1 3 4\nint f() { switch (__hg_at(3, 2)) { case 1: \
                    } return ((__hg(9,1)==1 ? (1) : (__hg_is(7) ? 1 : 2))); }\nunsigned __hg(unsigned base,unsigned count)\n";
        compiled.add(text, Path::new("/t/build"), Path::new("/t"));
        assert!(compiled.has_file(Path::new("src/a.c")) && !compiled.has_file(Path::new("x.h")));
        let known: Vec<u32> = (0..12).filter(|number| compiled.has_mutant(*number)).collect();
        assert_eq!(known, [3, 4, 9]);
        let mut other = CompiledGuards::default();
        other.add("__hg(5,2)", Path::new("/t"), Path::new("/t"));
        compiled.extend(other);
        assert!(compiled.has_mutant(6) && !compiled.has_mutant(7));
        compiled.extend(CompiledGuards::unknown());
        assert!(compiled.has_mutant(7));
    }
}
