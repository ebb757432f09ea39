//! Case patterns in the syntax of `connectconformance`: `*` stands for one component of a name, `**` for any
//! number of components. Heeler matches all patterns itself except `--known-failing`, which the judge reads.

use std::{collections::BTreeSet, io, path::PathBuf};

#[derive(Debug, thiserror::Error)]
pub(crate) enum CasePatternError {
    #[error("failed to read {}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("the pattern {pattern:?} matches no case")]
    Unmatched { pattern: String },
}

/// Returns the cases that match any pattern; `@FILE` reads one pattern per line.
///
/// # Errors
/// A file can't be read, or a pattern matches no case.
pub(super) fn matching_cases(
    arguments: &[String],
    names: &[&str],
) -> Result<BTreeSet<String>, CasePatternError> {
    let mut matched = BTreeSet::new();
    for argument in arguments {
        let patterns = match argument.strip_prefix('@') {
            Some(file) => std::fs::read_to_string(file)
                .map_err(|source| CasePatternError::File { path: file.into(), source })?,
            None => argument.clone(),
        };
        for pattern in patterns.lines().map(str::trim) {
            if !pattern.is_empty() && !pattern.starts_with('#') {
                add_matches(pattern, names, &mut matched)?;
            }
        }
    }
    Ok(matched)
}

fn add_matches(
    pattern: &str,
    names: &[&str],
    all_matched: &mut BTreeSet<String>,
) -> Result<(), CasePatternError> {
    let components: Vec<&str> = pattern.split('/').collect();
    let is_match = |name: &&&str| matches(&components, &name.split('/').collect::<Vec<_>>());
    let mut matched = names.iter().filter(is_match).peekable();
    if matched.peek().is_none() {
        return Err(CasePatternError::Unmatched { pattern: pattern.to_owned() });
    }
    all_matched.extend(matched.map(|name| (*name).to_owned()));
    Ok(())
}

/// Returns whether a pattern matches a whole name. Tracks the set of pattern positions reached so far,
/// because backtracking over several `**` would take exponential time.
fn matches(pattern: &[&str], name: &[&str]) -> bool {
    let skip = |reached: &mut [bool]| {
        for place in 0..pattern.len() {
            reached[place + 1] |= reached[place] && pattern[place] == "**";
        }
    };
    let mut reached = vec![false; pattern.len() + 1];
    reached[0] = true;
    skip(&mut reached);
    for component in name {
        let mut next = vec![false; pattern.len() + 1];
        for (place, part) in pattern.iter().enumerate().filter(|(place, _)| reached[*place]) {
            match *part {
                "**" => next[place] = true,
                part => next[place + 1] |= part == "*" || part == *component,
            }
        }
        skip(&mut next);
        reached = next;
    }
    reached[pattern.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_components() {
        for (pattern, name, expected) in [
            ("a/b", "a/b", true),
            ("a/b", "a/b/c", false),
            ("a/*", "a/b", true),
            ("a/*", "a", false),
            ("a/*", "a/b/c", false),
            ("a/**", "a", true),
            ("a/**", "a/b/c", true),
            ("**/c", "a/b/c", true),
            ("**/c", "c", true),
            ("a/**/c/*", "a/c/c/d", true),
            ("**/b/**", "a/c", false),
            ("**", "a/b", true),
            ("a*", "ab", false),
        ] {
            let split = |text: &'static str| text.split('/').collect::<Vec<_>>();
            assert_eq!(matches(&split(pattern), &split(name)), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn patterns_are_lines_of_files_and_each_matches() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("known");
        std::fs::write(&file, "# why\n\n  a/*  \n").unwrap();
        let names = ["a/b", "a/c", "d", "e"];
        let known = |arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|one| (*one).to_owned()).collect();
            matching_cases(&arguments, &names)
        };
        let found = known(&[&format!("@{}", file.display()), "d"]).unwrap();
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), ["a/b", "a/c", "d"]);
        let error = known(&["d", "x/**"]).unwrap_err().to_string();
        assert_eq!(error, "the pattern \"x/**\" matches no case");
        assert!(matches!(known(&["@/no/such/file"]), Err(CasePatternError::File { .. })));
    }
}
