//! Which guards the preprocessor leaves in what is compiled: the code of the others is in no program,
//! whatever the tests reach.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// What was compiled, over all compilations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompiledGuards {
    /// Files that were read, by paths relative to the tree.
    files: BTreeSet<PathBuf>,
    /// The number of mutants of each guard, by the number of the first.
    guards: BTreeMap<u32, u32>,
    /// Something was compiled, of which it is not known with which guards.
    has_unknown: bool,
}

impl CompiledGuards {
    /// Adds the preprocessed text of a compilation in a directory.
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

    /// Adds what others have compiled.
    pub(super) fn extend(&mut self, other: Self) {
        self.files.extend(other.files);
        self.guards.extend(other.guards);
        self.has_unknown |= other.has_unknown;
    }

    /// Returns what is known of a compilation that can't be preprocessed.
    pub(super) fn unknown() -> Self {
        Self { has_unknown: true, ..Self::default() }
    }

    /// Returns whether some compilation has read a file.
    pub(crate) fn has_file(&self, path: &Path) -> bool {
        self.files.contains(path)
    }

    /// Returns whether some compilation has compiled the guard of a mutant, or may have.
    pub(crate) fn has_mutant(&self, number: u32) -> bool {
        let before = self.guards.range(..=number).next_back();
        self.has_unknown || before.is_some_and(|(first, count)| number - first < *count)
    }
}

/// Returns the file of a line such as `# 12 "src/list.c" 2`.
fn marker(line: &str) -> Option<String> {
    let rest = line.strip_prefix("# ")?.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let quoted = rest.strip_prefix(" \"")?;
    let end = quoted.rfind('"')?;
    Some(quoted[..end].replace("\\\"", "\"").replace("\\\\", "\\"))
}

/// Returns the calls of guards in a line: the number of the first mutant, and how many the guard has.
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
