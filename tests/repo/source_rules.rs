//! Source rules that a machine can check: the first line of files, their length, the dependencies between
//! crates.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Maximum number of lines of a file.
const LINES: usize = 600;

/// Allowed dependencies of each crate; a crate without an entry may use none of ours.
const ALLOWED_DEPENDENCIES: [(&str, &[&str]); 10] = [
    ("src/wire", &[]),
    ("src/model", &[]),
    ("src/host", &[]),
    ("src/link", &["heeler-wire", "heeler-host"]),
    ("worker", &["heeler-wire", "heeler-model", "heeler-host", "heeler-link"]),
    ("watchdog", &["heeler-wire", "heeler-model", "heeler-host", "heeler-link"]),
    (
        ".",
        &[
            "heeler-wire",
            "heeler-model",
            "heeler-host",
            "heeler-link",
            "heeler-worker",
            "heeler-watchdog",
            "heeler",
        ],
    ),
    ("samples", &[]),
    ("tests/faults", &["heeler", "heeler-wire", "heeler-host", "heeler-worker", "heeler-watchdog"]),
    ("tests/fuzz", &["heeler", "heeler-wire", "heeler-model", "heeler-worker", "heeler-watchdog"]),
];

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Returns all files of ours with this extension, by their path below the root.
fn files(extension: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let name = entry.file_name().into_string().unwrap();
            // Transcripts are recorded from other programs, sources included; Node packages are third-party
            // too.
            let is_foreign = ["target", "transcripts", "node_modules"].contains(&name.as_str());
            if path.is_dir() && !is_foreign && !name.starts_with('.') {
                waiting.push(path);
            } else if path.extension().is_some_and(|one| one == extension) {
                let below = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
                found.insert(below, fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

/// Returns all sources of ours, by their path below the root.
pub(crate) fn rust_files() -> BTreeMap<String, String> {
    let files = files("rs");
    assert!(files.len() > 50, "the sources are found");
    files
}

/// Panics with every file for which the rule returns a violation.
#[track_caller]
fn check(rule: impl Fn(&str, &str) -> Option<String>) {
    let broken: Vec<_> = rust_files()
        .iter()
        .filter_map(|(path, text)| rule(path, text).map(|what| format!("{path}: {what}")))
        .collect();
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

/// Returns the first line that contains one of the words, with its number.
fn line_with(text: &str, words: &[&str]) -> Option<String> {
    let (number, line) =
        text.lines().enumerate().find(|(_, line)| words.iter().any(|word| line.contains(word)))?;
    Some(format!("line {}: {}", number + 1, line.trim()))
}

#[test]
fn every_file_begins_with_module_doc() {
    check(|_, text| (!text.starts_with("//! ")).then(|| "does not begin with //!".to_owned()));
}

#[test]
fn every_file_is_within_line_limit() {
    check(|_, text| {
        let lines = text.lines().count();
        (lines > LINES).then(|| format!("{lines} lines, at most {LINES}"))
    });
}

#[test]
fn json_field_names_are_only_in_wire() {
    // Assembled, so that this file does not match itself.
    let derives = ["Serialize", "Deserialize"].map(|word| format!("derive({word}"));
    let inside = ["Serialize", "Deserialize"].map(|word| format!(", {word}"));
    check(|path, text| {
        let is_wire = path.starts_with("src/wire/");
        let words: Vec<&str> = derives.iter().map(String::as_str).collect();
        let late = || {
            let is_derive =
                |line: &str| line.contains("derive(") && inside.iter().any(|word| line.contains(word));
            text.lines().find(|line| is_derive(line)).map(str::to_owned)
        };
        if is_wire { None } else { line_with(text, &words).or_else(late) }
    });
}

#[test]
fn tests_do_not_sleep() {
    let word = concat!("thread::", "sleep");
    check(|path, text| {
        let is_test =
            path.contains("tests") && !path.starts_with("tests/fixtures/") && !path.starts_with("samples/");
        if is_test { line_with(text, &[word]) } else { None }
    });
}

#[test]
fn tests_are_neither_ignored_nor_should_panic() {
    let words = [concat!("#[", "ignore"), concat!("#[", "should_panic")];
    check(|path, text| {
        let is_sample = path.starts_with("samples/") || path.starts_with("tests/fixtures/");
        let is_attribute = |line: &&str| words.iter().any(|word| line.trim_start().starts_with(word));
        if is_sample { None } else { text.lines().find(is_attribute).map(str::to_owned) }
    });
}

#[test]
fn files_refer_to_no_outside_paths() {
    let words =
        [concat!("/", "work/"), concat!("/tmp/", "wt"), concat!("DESIGN", ".md"), concat!("/", "root/")];
    let text_files = ["rs", "toml", "md", "cc", "h", "yml", "mjs", "json"];
    let broken: Vec<_> = text_files
        .iter()
        .flat_map(|extension| files(extension))
        .filter_map(|(path, text)| Some(format!("{path}: {}", line_with(&text, &words)?)))
        .collect();
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

/// Returns the names of our crates that a manifest depends on.
fn dependencies(manifest: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(manifest).unwrap_or_else(|error| panic!("{}: {error}", manifest.display()));
    let table: toml::Table = text.parse().unwrap();
    // Tests may depend on more: a worker without a guard starts nothing.
    let sections = ["dependencies", "build-dependencies"];
    let names = sections.iter().filter_map(|section| table.get(*section)?.as_table());
    names.flat_map(|section| section.keys()).filter(|name| name.starts_with("heeler")).cloned().collect()
}

#[test]
fn crate_dependencies_match_allowed_list() {
    for (room, may) in ALLOWED_DEPENDENCIES {
        for name in dependencies(&root().join(room).join("Cargo.toml")) {
            assert!(may.contains(&name.as_str()), "{room} must not use {name}");
        }
    }
    let manifests = files("toml").into_keys().filter(|path| path.ends_with("Cargo.toml")).count();
    // The fixtures' own package is the one that is not listed above.
    assert_eq!(manifests, ALLOWED_DEPENDENCIES.len() + 1, "a new crate needs its arrows here");
}

#[test]
fn coordinator_names_no_framework() {
    let words = ["gtest", "libtest"];
    check(|path, text| {
        let is_deaf = [
            "src/pool/",
            "src/run/",
            "src/discover/",
            "src/front/",
            "src/model/",
            "src/link/",
            "watchdog/src/",
        ];
        let code: String =
            text.lines().take_while(|line| !line.contains("cfg(test)")).collect::<Vec<_>>().join("\n");
        if is_deaf.iter().any(|place| path.starts_with(place)) { line_with(&code, &words) } else { None }
    });
}

#[test]
fn worker_has_no_sessions_watchdog_no_frameworks() {
    check(|path, text| {
        if path.starts_with("worker/src/") {
            line_with(text, &["InitializeParams", "method::RUN"])
        } else {
            None
        }
    });
}

#[test]
fn lock_file_is_within_budget() {
    let manifest: toml::Table = fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    let budget = manifest["workspace"]["metadata"]["heeler"]["lock-budget"].as_integer().unwrap();
    let packages = fs::read_to_string(root().join("Cargo.lock")).unwrap().matches("[[package]]").count();
    assert!(packages as i64 <= budget, "{packages} packages, the budget is {budget}");
}
