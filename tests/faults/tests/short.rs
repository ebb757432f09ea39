//! The short form of the harness: a process death and a system error at each named point, and a few rounds of
//! each kind. The weekly workflow plays the long form.
#![expect(clippy::unwrap_used, reason = "a test that meets the unexpected is to stop there")]
#![expect(
    clippy::disallowed_methods,
    reason = "the tests stand outside: they start the harness as a user's shell does"
)]

use std::process::Command;

/// Plays rounds; panics if there are findings.
#[track_caller]
fn play(words: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_heeler-faults")).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "heeler-faults {words:?}\n{said}\n{errors}");
}

#[test]
fn random_fault_rounds_break_no_guarantee() {
    play(&["--protocol", "mtp", "--seed", "1", "--rounds", "40", "--jobs", "6"]);
}

#[test]
fn fault_points_break_no_guarantee() {
    play(&["--points", "--seed", "0", "--rounds", "48", "--jobs", "6"]);
}

#[test]
fn hostile_programs_and_stopped_processes_break_no_guarantee() {
    play(&["--hostile", "--seed", "1", "--rounds", "12", "--jobs", "6"]);
}

#[test]
fn slow_clients_handle_everything_before_completion() {
    play(&["--slow-clients", "--seed", "1", "--rounds", "16", "--jobs", "6"]);
}

#[test]
fn rounds_with_go_programs_break_no_guarantee() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|directory| directory.join("go").is_file()) {
        eprintln!("left out: there is no go in PATH");
        return;
    }
    play(&["--go", "--seed", "1", "--rounds", "6", "--jobs", "4"]);
}

#[test]
fn rounds_on_the_runtime_server_protocol_break_no_guarantee() {
    play(&["--protocol", "rsp", "--seed", "20", "--rounds", "8", "--jobs", "8"]);
}

#[test]
fn rounds_on_the_model_context_protocol_break_no_guarantee() {
    play(&["--protocol", "mcp", "--seed", "40", "--rounds", "8", "--jobs", "8"]);
}

#[test]
fn rounds_of_mutation_testing_break_no_guarantee() {
    play(&["--protocol", "mutation", "--seed", "1", "--rounds", "6", "--jobs", "4"]);
}

#[test]
fn rounds_with_clients_under_test_break_no_guarantee() {
    play(&["--protocol", "connect", "--seed", "20", "--rounds", "8", "--jobs", "8"]);
}
