//! `heeler mutate` on unusual projects: tests that start processes, odd file names, and other obstacles.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::support::world::{FinishedCommand, TestWorld, run_with_separate_outputs};

struct Project {
    world: TestWorld,
}

impl Project {
    fn new(files: &[(&str, &str)]) -> Self {
        let project = Self { world: TestWorld::new() };
        for (name, text) in files {
            project.write(name, text);
        }
        project
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.world.path("project").join(name)
    }

    fn mutate(&self, words: &[&str]) -> FinishedCommand {
        let mut command =
            self.world.heeler(&[&["mutate", "-j2", "--json", "../report.json"], words].concat());
        command.current_dir(self.path(""));
        run_with_separate_outputs(command)
    }

    /// Returns the statuses of a source's mutants in the report, by line and replacement.
    fn statuses(&self, source: &str) -> BTreeMap<String, String> {
        statuses_in(&self.world.path("report.json"), source)
    }
}

fn statuses_in(report: &Path, source: &str) -> BTreeMap<String, String> {
    let report: Value = serde_json::from_str(&fs::read_to_string(report).unwrap()).unwrap();
    let mutants = report["files"][source]["mutants"].as_array().unwrap();
    let entry = |mutant: &Value| {
        let line = mutant["location"]["start"]["line"].as_u64().unwrap();
        let name = format!("{line}: {}", mutant["replacement"].as_str().unwrap());
        (name, mutant["status"].as_str().unwrap().to_owned())
    };
    mutants.iter().map(entry).collect()
}

fn manifest(edition: u32) -> String {
    format!(
        "[workspace]\n[package]\nname = \"case\"\nversion = \"0.1.0\"\nedition = \"{edition}\"\n[lib]\ndoctest = false\n"
    )
}

/// Source whose operands begin with blocks.
const BLOCKS: &str = "pub unsafe fn get(n: u8) -> u8 {\n    n\n}\npub fn guard(n: u8) -> bool {\n    match n { 0 => false, _ if unsafe { get(n) } == 3 => true, _ => false }\n}\npub fn tail(n: u8) -> bool {\n    let r = unsafe { get(n) } == 3 && n > 1;\n    r\n}\npub fn matched(n: u8) -> bool {\n    if match n { 3 => 1, _ => 0 } > 0 { return true; }\n    false\n}\npub fn value(n: i32) -> i32 {\n    let a = if n > 2 { 1 } else { 2 } + 3;\n    loop { break -a; }\n}\n#[test]\nfn all() {\n    for f in [guard, tail, matched] {\n        assert!(f(3) && !f(4) && !f(0));\n    }\n    assert_eq!((value(3), value(2)), (-4, -5));\n}\n";

#[test]
fn operands_that_begin_with_blocks_are_no_compile_errors() {
    let project = Project::new(&[("Cargo.toml", &manifest(2021)), ("src/lib.rs", BLOCKS)]);
    let ran = project.mutate(&[]).assert_code(0);
    let statuses = project.statuses("src/lib.rs");
    assert!(statuses.values().all(|status| status != "CompileError"), "{statuses:#?}\n{ran}");
    assert!(!ran.stderr.contains("round 2"), "{ran}");
    for name in [
        "5: unsafe { get(n) } != 3",
        "8: unsafe { get(n) } == 3 || n > 1",
        "12: match n { 3 => 1, _ => 0 } <= 0",
    ] {
        assert_eq!(statuses.get(name).map(String::as_str), Some("Killed"), "{statuses:#?}");
    }
    assert_eq!(statuses.get("17: a").map(String::as_str), Some("Killed"), "{statuses:#?}");
}

#[test]
fn constant_functions_are_tested_unless_the_compiler_calls_them() {
    let source = "pub const fn is_low(a: u8) -> bool {\n    a < 2\n}\npub const fn size(a: usize) -> usize {\n    inner(a) + 1\n}\nconst fn inner(a: usize) -> usize {\n    a * 2\n}\npub static TABLE: [u8; size(3)] = [0; 7];\n#[test]\nfn low() {\n    assert!(is_low(1) && !is_low(2) && !is_low(3) && TABLE.len() == 7);\n}\n";
    let project = Project::new(&[("Cargo.toml", &manifest(2021)), ("src/lib.rs", source)]);
    let ran = project.mutate(&[]).assert_code(0);
    let statuses = project.statuses("src/lib.rs");
    for (name, status) in &statuses {
        let expected = if name.starts_with("1:") || name.starts_with("2:") { "Killed" } else { "Ignored" };
        assert_eq!(status, expected, "{name}: {statuses:#?}\n{ran}");
    }
    let report = fs::read_to_string(project.world.path("report.json")).unwrap();
    assert!(report.contains("in a const fn that is called at compile time"), "{report}");
}

#[test]
fn signal_of_another_process_kills_no_mutant() {
    // Under the mutant, another process kills the test process in the first two runs, but not in the third.
    let source = "pub fn is_low(a: u8) -> bool {\n    a < 2\n}\n#[test]\nfn low() {\n    let count = std::path::Path::new(\"COUNT\");\n    if is_low(2) {\n        let before = std::fs::read_to_string(count).unwrap_or_default();\n        if before.len() < 2 {\n            std::fs::write(count, format!(\"{before}x\")).unwrap();\n            std::process::Command::new(\"sh\").args([\"-c\", \"kill -9 $PPID\"]).status().unwrap();\n        }\n    }\n}\n";
    let project = Project::new(&[]);
    let count = project.world.path("count");
    project.write("Cargo.toml", &manifest(2021));
    project.write("src/lib.rs", &source.replace("COUNT", count.to_str().unwrap()));
    let ran = project.mutate(&["src/lib.rs:2"]).assert_code(0);
    assert_eq!(fs::read_to_string(&count).unwrap(), "xx", "{ran}");
    let statuses = project.statuses("src/lib.rs");
    assert_eq!(statuses.get("2: a <= 2").map(String::as_str), Some("Survived"), "{statuses:#?}\n{ran}");
}

#[test]
fn report_in_the_project_leaves_verdicts_as_they_are() {
    let source = "pub fn is_low(a: u8) -> bool {\n    a < 2\n}\n#[test]\nfn low() {\n    assert!(is_low(1) && !is_low(2) && !is_low(3));\n}\n";
    let project = Project::new(&[("Cargo.toml", &manifest(2021)), ("src/lib.rs", source)]);
    project.mutate(&["--html", "page.html"]).assert_code(0);
    for words in [vec!["--html", "page.html", "--sarif", "s.sarif"], vec![]] {
        project.mutate(&words).assert_code(0).assert_stderr("6 verdicts from earlier runs");
    }
    // Tests may read a file that Heeler did not write, so the new file invalidates the verdicts.
    project.write("page.html", "mine");
    let ran = project.mutate(&[]).assert_code(0);
    assert!(!ran.stderr.contains("from earlier runs"), "{ran}");
}

#[test]
fn project_of_another_build_tool_is_told_how() {
    for (file, expected) in [
        ("CMakeLists.txt", "heeler mutate --build 'cmake -B build && cmake --build build' --ctest build"),
        ("Makefile", "heeler mutate --build 'make TESTS' --test 'PATH/OF/*_test'"),
    ] {
        let project = Project::new(&[(file, ""), ("a.c", "int f(int a) { return a < 2; }\n")]);
        project.mutate(&[]).assert_code(4).assert_stderr(file).assert_stderr(expected);
    }
}

fn assert_all(statuses: &BTreeMap<String, String>, expected: &str, ran: &FinishedCommand) {
    assert!(!statuses.is_empty(), "{}", ran.stderr);
    assert!(statuses.values().all(|status| status == expected), "{statuses:#?}\n{}", ran.stderr);
}

#[test]
fn mutants_are_on_in_programs_that_tests_start_with_an_environment_of_their_own() {
    let test = "use std::process::Command;\n#[test]\nfn is_low() {\n    for (number, code) in [(\"1\", 0), (\"2\", 1), (\"3\", 1)] {\n        \
        let mut shell = Command::new(\"sh\");\n        shell.env_clear().args([\"-c\", \"\\\"$1\\\" $2; exit $?\", \"sh\", env!(\"CARGO_BIN_EXE_tool\"), number]);\n        \
        assert_eq!(shell.status().unwrap().code(), Some(code));\n    }\n}\n";
    let project = Project::new(&[
        ("Cargo.toml", &manifest(2021)),
        ("src/lib.rs", "pub fn is_low(a: u8) -> bool {\n    a < 2\n}\n"),
        (
            "src/bin/tool.rs",
            "fn main() {\n    let a = std::env::args().nth(1).unwrap().parse().unwrap();\n    std::process::exit(i32::from(!case::is_low(a)));\n}\n",
        ),
        ("tests/it.rs", test),
    ]);
    let ran = project.mutate(&["src/lib.rs"]).assert_code(0);
    assert_all(&project.statuses("src/lib.rs"), "Killed", &ran);

    let in_c = Project::new(&[
        (
            "Makefile",
            "all: tool check\ntool: tool.c\n\t$(CC) -std=c99 -Wall -Wextra -Werror -o $@ $<\ncheck: check.c\n\t$(CC) -Wall -Werror -o $@ $<\n",
        ),
        (
            "tool.c",
            "#include <stdlib.h>\nint main(int count, char **words) {\n    return atoi(words[count - 1]) < 2 ? 0 : 1;\n}\n",
        ),
        (
            "check.c",
            "#include <stdlib.h>\nint main(void) {\n    return system(\"env -i ./tool 1\") || !system(\"env -i ./tool 2\") || !system(\"env -i ./tool 3\");\n}\n",
        ),
    ]);
    let ran = in_c.mutate(&["--build", "make", "--test", "check", "tool.c:3"]).assert_code(0);
    let statuses = in_c.statuses("tool.c");
    for name in ["3: atoi(words[count - 1]) <= 2", "3: atoi(words[count - 1]) >= 2"] {
        assert_eq!(statuses.get(name).map(String::as_str), Some("Killed"), "{statuses:#?}\n{}", ran.stderr);
    }
}

#[test]
fn names_of_the_project_and_crates_that_share_a_source_are_no_obstacle() {
    let project = Project::new(&[
        ("Cargo.toml", &manifest(2015)),
        ("src/lib.rs", "pub mod hg;\npub mod low;\n"),
        ("src/hg.rs", "pub fn at(a: u8) -> bool {\n    a > 7\n}\n"),
        ("src/low.rs", "pub fn is_low(a: u8) -> bool {\n    a < 2 && !::hg::at(a)\n}\n"),
        (
            "tests/it.rs",
            "#[path = \"../src/hg.rs\"]\nmod hg;\n#[path = \"../src/low.rs\"]\nmod low;\n#[test]\nfn all() {\n    assert!(low::is_low(1) && !low::is_low(2) && !low::is_low(9));\n    assert!(hg::at(8) && !hg::at(7));\n}\n",
        ),
    ]);
    let ran = project.mutate(&["src/hg.rs"]).assert_code(0);
    assert_all(&project.statuses("src/hg.rs"), "Killed", &ran);
}

#[test]
fn dependency_may_have_the_name_of_a_package_of_the_workspace() {
    let project = Project::new(&[
        (
            "Cargo.toml",
            "[workspace]\nexclude = [\"old\"]\n[package]\nname = \"case\"\nversion = \"0.2.0\"\nedition = \"2021\"\n[lib]\ndoctest = false\n[dev-dependencies]\nold = { package = \"case\", path = \"old\" }\n",
        ),
        (
            "src/lib.rs",
            "pub fn is_low(a: u8) -> bool {\n    a < 2\n}\n#[test]\nfn same() {\n    for a in 0..4 {\n        assert_eq!(is_low(a), old::is_low(a));\n    }\n}\n",
        ),
        (
            "old/Cargo.toml",
            "[workspace]\n[package]\nname = \"case\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
        ),
        ("old/src/lib.rs", "pub fn is_low(a: u8) -> bool {\n    a <= 1\n}\n"),
    ]);
    for words in [["src/lib.rs"].as_slice(), &["-p", "case"]] {
        let ran = project.mutate(words).assert_code(0);
        assert_all(&project.statuses("src/lib.rs"), "Killed", &ran);
    }
}

/// Starts of a test program before the first mutant: with a record of the reached mutants, and without.
const BASELINE_STARTS: usize = 2;

#[test]
fn program_with_a_main_of_its_own_is_one_test() {
    let own = format!("{}[[test]]\nname = \"own\"\nharness = false\n", manifest(2021));
    let project = Project::new(&[
        ("Cargo.toml", &own),
        ("src/lib.rs", "pub fn is_low(a: u8) -> bool {\n    a < 2\n}\n"),
    ]);
    // Each start records its arguments. The exit code of a failure is the test's own.
    let starts = project.path("starts");
    let record = format!(
        "use std::io::Write;\nfn record() {{\n    let mut file = \
         std::fs::OpenOptions::new().append(true).create(true).open({starts:?}).unwrap();\n    \
         writeln!(file, \"started {{:?}}\", std::env::args().skip(1).collect::<Vec<_>>()).unwrap();\n}}\n"
    );
    let check = |condition: &str| {
        format!(
            "{record}fn main() {{\n    record();\n    if !({condition}) {{\n        std::process::exit(9);\n    }}\n}}\n"
        )
    };
    project.write("tests/own.rs", &check("case::is_low(1) && !case::is_low(2) && !case::is_low(3)"));
    let ran = project.mutate(&[]).assert_code(0);
    let statuses = project.statuses("src/lib.rs");
    assert_all(&statuses, "Killed", &ran);
    assert!(!ran.stderr.contains("skipping"), "{}", ran.stderr);
    let started = std::fs::read_to_string(&starts).unwrap();
    // Without a listing: the tests without mutants, then each mutant once.
    assert!(started.lines().all(|line| line == "started []"), "{started}");
    assert_eq!(started.lines().count(), statuses.len() + BASELINE_STARTS, "{statuses:#?}");
    project.write("tests/own.rs", &check("case::is_low(1) == case::is_low(2)"));
    let red = project.mutate(&[]).assert_code(2);
    red.assert_stderr("case::own::own").assert_stderr("exited with code 9");
}

#[test]
fn tests_that_are_not_selected_decide_nothing() {
    let source = "pub fn is_low(a: u8) -> bool {\n    a < 2\n}\n#[test]\nfn red() {\n    assert_eq!(is_low(1), is_low(7), \"as said\");\n}\n#[test]\nfn green() {\n    assert!(!is_low(2));\n}\n";
    let project = Project::new(&[("Cargo.toml", &manifest(2021)), ("src/lib.rs", source)]);
    let red = project.mutate(&[]).assert_code(2);
    red.assert_stderr("case::red: assertion `left == right` failed: as said").assert_stderr("left: true");
    project.mutate(&["-E", "not test(red)"]).assert_code(0);
    let statuses = project.statuses("src/lib.rs");
    let of = |status: &str| statuses.values().filter(|one| *one == status).count();
    assert_eq!((of("Killed"), of("Survived")), (4, 2), "{statuses:#?}");
    project.mutate(&["-E", "test(none)"]).assert_code(5).assert_stderr("no test matches -E (2 tests found)");
    project
        .mutate(&["-E", "state(failed)"])
        .assert_code(5)
        .assert_stderr("needs the history of earlier runs");
}

#[test]
fn what_does_not_compile_or_parse_by_itself_is_named_with_its_line() {
    let project = Project::new(&[
        ("Cargo.toml", &manifest(2021)),
        ("src/lib.rs", "pub fn f(a: u8) -> u8 {\n    a + b\n}\n"),
    ]);
    let broken = project.mutate(&[]).assert_code(4);
    broken.assert_stderr("error[E0425]: cannot find value `b` in this scope (src/lib.rs:2)");
    project.write("src/lib.rs", "pub fn f(a: u8) -> u8 {\n    a + 1\n");
    project.mutate(&[]).assert_code(8).assert_stderr("src/lib.rs:");
    project.write(
        "src/lib.rs",
        "unsafe extern \"C\" {\n    fn nowhere_to_be_found() -> i32;\n}\npub fn f(a: i32) -> i32 {\n    a + unsafe { nowhere_to_be_found() }\n}\n#[test]\nfn g() {\n    f(1);\n}\n",
    );
    project.mutate(&[]).assert_code(4).assert_stderr("nowhere_to_be_found");
    assert!(project.path(".heeler/.gitignore").is_file());
}
