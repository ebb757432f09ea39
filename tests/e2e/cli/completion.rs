//! Completion of values in real shells, by the scripts of `heeler completions`.

use std::path::Path;

use crate::support::{
    heeler,
    world::{FinishedCommand, TestWorld, run},
};

/// Calls the function that `bash` calls for a line: with the program as typed, the fragment to complete, and
/// the previous word.
const CALL: &str = r#"
PATH="${HEELER%/*}:$PATH"
source <(heeler completions bash)
COMP_LINE="$LINE_SO_FAR" COMP_POINT=${#LINE_SO_FAR}
read -ra COMP_WORDS <<< "$LINE_SO_FAR"
[[ "$LINE_SO_FAR" != *" " ]] || COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_heeler_values heeler "$FRAGMENT" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

fn complete(world: &TestWorld, line: &str, fragment: &str) -> FinishedCommand {
    let mut command = world.shell(CALL);
    command.env("HEELER", heeler()).env("LINE_SO_FAR", line).env("FRAGMENT", fragment);
    run(command)
}

/// Checks that the candidates in `bash` are exactly these, without any error.
#[track_caller]
fn check(world: &TestWorld, line: &str, fragment: &str, expected: &[&str]) {
    let ran = complete(world, line, fragment);
    assert_eq!(ran.stdout.lines().collect::<Vec<_>>(), expected, "{line}: {ran}");
    assert_eq!(ran.stderr, "", "{line}");
}

fn world() -> TestWorld {
    let world = TestWorld::with_gtest("deaths");
    world.note_starts();
    world.write(
        "heeler.toml",
        "[profile.ci]\nretries = 1\n[[suite]]\nname = \"unit\"\nprograms = [\"deaths\"]\n\
         [[suite]]\nname = \"net tests\"\nprograms = [\"deaths\"]\n",
    );
    world
}

#[test]
fn bash_completes_suites_profiles_frameworks_runs_and_tests() {
    let world = world();
    check(&world, "heeler run -E ", "", &[""]);
    world.run(&["run", "--suite", "unit", "-E", "First.*"]);
    let starts = world.starts().len();
    assert!(starts > 0);
    check(&world, "heeler run --suite ", "", &["unit", "'net tests'"]);
    check(&world, "heeler run --suite=u", "u", &["unit"]);
    check(&world, "heeler run --suite 'net", "'net", &["net tests"]);
    check(&world, "heeler list -P c", "c", &["ci"]);
    check(&world, "heeler run --framework bo", "bo", &["boost"]);
    check(&world, "heeler run -E First.O", "First.O", &["First.One"]);
    check(&world, "heeler run -E 'test(=First.T", "'test(=First.T", &["test(=First.Two)"]);
    let ran = complete(&world, "heeler report ", "");
    let words: Vec<_> = ran.stdout.lines().collect();
    assert_eq!((words.len(), words[0]), (2, "latest"), "{ran}");
    world.run(&["report", words[1]]).assert_code(0).line_with(&["Report", "of run"]);
    // Options are completed as before.
    check(&world, "heeler run --partition-h", "--partition-h", &["--partition-history"]);
    assert_eq!(world.starts().len(), starts, "completion starts no test");
}

#[test]
fn completion_of_a_broken_project_prints_nothing() {
    let world = world();
    world.write("heeler.toml", "[[suite]\n");
    std::fs::create_dir_all(world.path(".heeler")).unwrap();
    world.write(".heeler/history.sqlite", "no database");
    for line in ["heeler run --suite ", "heeler run -E ", "heeler run -P "] {
        check(&world, line, "", &[""]);
    }
    assert!(!Path::exists(&world.path(".heeler/runs")));
}
