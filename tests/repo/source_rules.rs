//! Machine-checked source rules: the first lines and the lengths of files, and the dependencies between
//! crates.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

/// Maximum lines of a file.
const LINES: usize = 600;
/// Maximum columns of a comment, as in `rustfmt.toml` for code.
const COLUMNS: usize = 110;

/// Forbidden dependencies that Cargo would accept: each crate with the crates that it must not depend on,
/// even indirectly. Cargo itself rejects cycles.
const FORBIDDEN_DEPENDENCIES: [(&str, &[&str]); 14] = [
    ("heeler-core", &["heeler-protocol", "heeler-sys", "tokio"]),
    ("heeler-protocol", &["heeler-sys", "tokio"]),
    ("heeler-sys", &["heeler-core", "heeler-protocol", "tokio"]),
    ("heeler-cargo", &["heeler-config", "heeler-server", "tokio"]),
    ("heeler-mutant-model", &["heeler-core", "tree-sitter"]),
    ("heeler-mutant", &["heeler-protocol", "heeler-sys", "tokio"]),
    ("heeler-mutate", &["heeler-server", "heeler-worker", "tokio"]),
    (
        "heeler-mutation",
        &["heeler-worker", "heeler-watchdog", "heeler-guard", "heeler-client", "heeler-adapters", "clap"],
    ),
    ("heeler-report", &["heeler-sys", "tokio", "tree-sitter"]),
    ("heeler-adapters", &["heeler-sys", "heeler-transport", "tokio"]),
    (
        "heeler-client",
        &["heeler-server", "heeler-config", "heeler-report", "heeler-run-store", "rusqlite", "clap"],
    ),
    (
        "heeler-server",
        &[
            "heeler-worker",
            "heeler-watchdog",
            "heeler-guard",
            "heeler-client",
            "heeler-adapters",
            "tree-sitter",
        ],
    ),
    ("heeler-worker", &["heeler-server", "heeler-watchdog", "heeler-guard", "heeler-client"]),
    ("heeler-watchdog", &["heeler-server", "heeler-worker", "heeler-adapters", "heeler-client"]),
];

/// The platform whose dependencies are checked.
const HOST: &str = "x86_64-unknown-linux-gnu";

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Returns all of the repository's own files with this extension, by path relative to the root.
pub(crate) fn files(extension: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let name = entry.file_name().into_string().unwrap();
            // Transcripts were recorded from other programs, including sources; Node packages are
            // third-party.
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

/// Returns all of the repository's own Rust sources, by path relative to the root.
pub(crate) fn rust_files() -> BTreeMap<String, String> {
    let files = files("rs");
    assert!(files.len() > 50, "the sources are found");
    files
}

/// Panics if a file violates the rule; the message lists all such files.
#[track_caller]
fn check(rule: impl Fn(&str, &str) -> Option<String>) {
    let broken: Vec<_> = rust_files()
        .iter()
        .filter_map(|(path, text)| rule(path, text).map(|what| format!("{path}: {what}")))
        .collect();
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

/// Returns the first line that contains one of the words, with its line number.
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

/// Returns the first comment line that is too long, except in code blocks and lines with a URL.
fn long_comment(text: &str) -> Option<String> {
    let mut is_in_block = false;
    for (number, line) in text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            is_in_block = false;
            continue;
        };
        if comment.trim_start_matches(['/', '!', ' ']).starts_with("```") {
            is_in_block = !is_in_block;
        }
        let columns = line.chars().count();
        if columns > COLUMNS && !is_in_block && !line.contains("://") {
            return Some(format!("line {}: a comment of {columns} columns, at most {COLUMNS}", number + 1));
        }
    }
    None
}

#[test]
fn comments_are_within_column_limit() {
    check(|_, text| long_comment(text));
    let long = "x".repeat(COLUMNS);
    assert!(long_comment(&format!("    // {long}")).is_some());
    for fine in
        [format!("// ```text\n// {long}\n// ```"), format!("// https://{long}"), format!("let {long};")]
    {
        assert_eq!(long_comment(&fine), None);
    }
}

#[test]
fn json_field_names_are_only_in_wire() {
    // Built at run time, so that this file does not match itself.
    let derives = ["Serialize", "Deserialize"].map(|word| format!("derive({word}"));
    let inside = ["Serialize", "Deserialize"].map(|word| format!(", {word}"));
    check(|path, text| {
        let wire = ["src/protocol/", "src/core/", "src/config/", "src/report/src/run_events.rs"];
        let is_wire = wire.iter().any(|place| path.starts_with(place));
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
    // These tests may be ignored, because a workflow runs them with `scripts/test --peers`.
    let of_peers = concat!("#[", "ignore = \"a peer: scripts/test --peers\"]");
    check(|path, text| {
        let is_sample = path.starts_with("samples/") || path.starts_with("tests/fixtures/");
        let is_attribute =
            |line: &&str| *line != of_peers && words.iter().any(|word| line.trim_start().starts_with(word));
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

/// Returns the normal dependencies of every package, as `cargo metadata` resolves them.
fn resolved_dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = cargo(&["metadata", "--format-version", "1", "--filter-platform", HOST]);
    let metadata: serde_json::Value = serde_json::from_slice(&output).unwrap();
    let names: BTreeMap<&str, &str> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| (package["id"].as_str().unwrap(), package["name"].as_str().unwrap()))
        .collect();
    let is_normal = |dependency: &&serde_json::Value| {
        dependency["dep_kinds"].as_array().unwrap().iter().any(|kind| kind["kind"].is_null())
    };
    metadata["resolve"]["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| {
            let dependencies = node["deps"].as_array().unwrap().iter().filter(is_normal);
            let dependencies =
                dependencies.map(|one| names[one["pkg"].as_str().unwrap()].to_owned()).collect();
            (names[node["id"].as_str().unwrap()].to_owned(), dependencies)
        })
        .collect()
}

/// Returns the output of a cargo command.
fn cargo(words: &[&str]) -> Vec<u8> {
    let mut cargo = std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let output = cargo.args(words).args(["--offline", "--locked"]).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Returns all direct and indirect dependencies of a package.
fn reachable(package: &str, graph: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![package.to_owned()];
    while let Some(name) = waiting.pop() {
        for dependency in &graph[&name] {
            if found.insert(dependency.clone()) {
                waiting.push(dependency.clone());
            }
        }
    }
    found
}

#[test]
fn crates_reach_no_forbidden_dependency() {
    let graph = resolved_dependencies();
    for (package, forbidden) in FORBIDDEN_DEPENDENCIES {
        let reached = reachable(package, &graph);
        let broken: Vec<_> = forbidden.iter().filter(|name| reached.contains(**name)).collect();
        assert!(broken.is_empty(), "{package} must not depend on {broken:?}");
    }
}

#[test]
fn client_depends_on_few_packages() {
    let count = reachable("heeler-client", &resolved_dependencies()).len();
    // Five of these are not real dependencies: `cargo metadata` applies the features that `tree-sitter`'s
    // build script needs to every crate.
    assert!(count <= 66, "heeler-client depends on {count} packages, at most 66");
}

#[test]
fn coordinator_names_no_framework() {
    let words = ["gtest", "libtest"];
    check(|path, text| {
        let is_deaf = ["src/server/", "src/core/", "src/transport/", "watchdog/"];
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

/// Returns one of the budgets in the workspace manifest.
fn budget(name: &str) -> i64 {
    let manifest: toml::Table = fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    manifest["workspace"]["metadata"]["heeler"][name].as_integer().unwrap()
}

#[test]
fn plain_runner_is_within_its_budget() {
    let words = ["tree", "--package", "heeler", "--no-default-features", "--edges", "normal,build"];
    let tree = cargo(&[&words[..], &["--prefix", "none", "--no-dedupe", "--target", HOST]].concat());
    let packages: BTreeSet<&str> = std::str::from_utf8(&tree).unwrap().lines().collect();
    let budget = budget("plain-budget");
    assert!(packages.len() as i64 <= budget, "{} packages, the budget is {budget}", packages.len());
}

#[test]
fn lock_file_is_within_budget() {
    let budget = budget("lock-budget");
    let packages = fs::read_to_string(root().join("Cargo.lock")).unwrap().matches("[[package]]").count();
    assert!(packages as i64 <= budget, "{packages} packages, the budget is {budget}");
}
