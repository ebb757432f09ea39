//! Go packages: finds the directory for each pattern, reads the output of `go list`, and groups the packages
//! that can be built together. Pure, except that it checks which directories exist.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::{Path, PathBuf},
};

/// Format of a package in the output of `go list`. The path comes last, because it may contain any character.
const LISTING_FORM: &str = "{{.ImportPath}}|{{len .TestGoFiles}}|{{len .XTestGoFiles}}|{{.Dir}}";
/// Listing format that tolerates packages that go can't read. Such a package counts as having tests, so that
/// the build reports its error.
const TOLERANT_LISTING_FORM: &str =
    "{{.ImportPath}}|{{len .TestGoFiles}}|{{if .Error}}1{{else}}{{len .XTestGoFiles}}{{end}}|{{.Dir}}";
/// Names of the `go test -c` flags that decide which files and packages exist, so `go list` needs them too.
const LISTING_ARGUMENTS: [&str; 7] = ["tags", "mod", "modfile", "overlay", "race", "msan", "asan"];
/// Flags of [`LISTING_ARGUMENTS`] that take a value.
const WITH_VALUE: [&str; 4] = ["tags", "mod", "modfile", "overlay"];

/// A working directory for go, with package patterns for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PackageLocation {
    pub(super) dir: PathBuf,
    pub(super) patterns: Vec<String>,
}

impl PackageLocation {
    /// Returns the locations of the patterns. A pattern that is a path is resolved in its own directory,
    /// which may be in another module than `dir`.
    pub(super) fn all_of(dir: &Path, patterns: &[String]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for pattern in patterns {
            let (dir, pattern) = resolved(dir, pattern);
            match all.iter_mut().find(|known| known.dir == dir) {
                Some(known) => known.patterns.push(pattern),
                None => all.push(Self { dir, patterns: vec![pattern] }),
            }
        }
        all
    }
}

fn resolved(dir: &Path, pattern: &str) -> (PathBuf, String) {
    let (base, rest) = match pattern.strip_suffix("...") {
        Some(base) => (base, "./..."),
        None => (pattern, "."),
    };
    let is_path =
        ["./", "../", "/"].iter().any(|start| pattern.starts_with(start)) || base == "." || base == "..";
    let is_whole = rest == "." || base.ends_with('/');
    let path = dir.join(base);
    if is_path && is_whole && !base.contains("...") && path.is_dir() {
        (path.components().collect(), rest.to_owned())
    } else {
        (dir.to_owned(), pattern.to_owned())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GoPackage {
    pub(super) import_path: String,
    pub(super) dir: PathBuf,
    pub(super) has_tests: bool,
}

impl GoPackage {
    /// Parses the output of `go list`.
    pub(super) fn read_all(output: &str) -> Vec<Self> {
        output.lines().filter_map(Self::read).collect()
    }

    fn read(line: &str) -> Option<Self> {
        let [import_path, own, external, dir] = line.splitn(4, '|').collect::<Vec<_>>().try_into().ok()?;
        let count = |text: &str| text.parse::<usize>().ok();
        Some(Self {
            import_path: import_path.to_owned(),
            dir: dir.into(),
            has_tests: count(own)? + count(external)? > 0,
        })
    }

    /// Returns go's name for the program: the last part of the import path that is not a version.
    pub(super) fn program_name(&self) -> String {
        let mut parts = self.import_path.rsplit('/');
        let last = parts.next().unwrap_or_default();
        let name = if is_version(last) { parts.next().unwrap_or(last) } else { last };
        format!("{name}.test")
    }
}

/// Returns whether a path part is a major version: `v2`, but neither `v1` nor `v02`.
fn is_version(part: &str) -> bool {
    let digits = part.strip_prefix('v').unwrap_or_default();
    !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && !digits.starts_with('0')
        && digits != "1"
}

/// Groups the packages so that no two programs of a group have the same name.
pub(super) fn build_groups(packages: &[GoPackage]) -> Vec<Vec<&GoPackage>> {
    let mut groups: Vec<(BTreeSet<String>, Vec<&GoPackage>)> = Vec::new();
    for package in packages {
        let name = package.program_name();
        match groups.iter_mut().find(|(names, _)| !names.contains(&name)) {
            Some((names, group)) => {
                names.insert(name);
                group.push(package);
            }
            None => groups.push((BTreeSet::from([name]), vec![package])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// How go treats a package that it can't read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnreadablePackages {
    /// Go fails.
    Refused,
    /// Go lists the package like the others.
    Listed,
}

/// Returns the arguments of `go list` for listing the packages as they will be built.
pub(super) fn listing_arguments(
    args: &[String],
    patterns: &[String],
    unreadable: UnreadablePackages,
) -> Vec<OsString> {
    let mut words: Vec<&str> = match unreadable {
        UnreadablePackages::Refused => vec!["list", "-f", LISTING_FORM],
        UnreadablePackages::Listed => vec!["list", "-e", "-f", TOLERANT_LISTING_FORM],
    };
    let mut args = args.iter().map(String::as_str).peekable();
    while let Some(word) = args.next() {
        let name = word.trim_start_matches('-');
        if !word.starts_with('-') || !LISTING_ARGUMENTS.contains(&name.split('=').next().unwrap_or_default())
        {
            continue;
        }
        words.push(word);
        if WITH_VALUE.contains(&name) {
            words.extend(args.next());
        }
    }
    words.extend(patterns.iter().map(String::as_str));
    words.into_iter().map(OsString::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(import_path: &str) -> GoPackage {
        GoPackage { import_path: import_path.into(), dir: "/w".into(), has_tests: true }
    }

    fn texts(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn program_is_named_after_its_package_and_not_after_a_version() {
        for (path, name) in [
            ("example.com/m/p", "p.test"),
            ("example.com/m/v2", "m.test"),
            ("example.com/m/v1", "v1.test"),
            ("gopkg.in/yaml.v3", "yaml.v3.test"),
            ("m", "m.test"),
            ("v2", "v2.test"),
        ] {
            assert_eq!(package(path).program_name(), name, "{path}");
        }
    }

    #[test]
    fn packages_of_one_name_are_built_apart() {
        let packages = ["a/unit", "b/other", "b/unit", "c/unit"].map(package);
        let groups: Vec<Vec<&str>> = build_groups(&packages)
            .into_iter()
            .map(|group| group.into_iter().map(|package| package.import_path.as_str()).collect())
            .collect();
        assert_eq!(groups, [vec!["a/unit", "b/other"], vec!["b/unit"], vec!["c/unit"]]);
    }

    #[test]
    fn listing_says_which_packages_have_tests() {
        let listed = GoPackage::read_all("m/p|1|0|/w/a|b\nm/q|0|0|/w/q\nm/r|0|2|/w/r\nwarning\n");
        let seen: Vec<_> =
            listed.iter().map(|package| (package.import_path.as_str(), package.has_tests)).collect();
        assert_eq!(seen, [("m/p", true), ("m/q", false), ("m/r", true)]);
        assert_eq!(listed[0].dir, Path::new("/w/a|b"));
    }

    #[test]
    fn listing_gets_the_arguments_that_select_files() {
        let args = texts(&["-race", "-cover", "-tags", "x", "--mod=vendor", "-ldflags", "-s"]);
        let words = listing_arguments(&args, &texts(&["./..."]), UnreadablePackages::Refused);
        assert_eq!(words[3..], ["-race", "-tags", "x", "--mod=vendor", "./..."].map(OsString::from));
    }

    #[test]
    fn paths_are_resolved_in_their_directory() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        let patterns =
            texts(&["./...", "./sub/...", "./sub", "example.com/x/...", "./no/...", "std", "./su..."]);
        let all = PackageLocation::all_of(dir.path(), &patterns);
        let own = texts(&["./...", "example.com/x/...", "./no/...", "std", "./su..."]);
        assert_eq!(
            all,
            [
                PackageLocation { dir: dir.path().to_owned(), patterns: own },
                PackageLocation { dir: dir.path().join("sub"), patterns: texts(&["./...", "."]) },
            ]
        );
    }
}
