//! The command line as users and CI see it: exit codes, output, reports and options.

use std::collections::BTreeSet;

use crate::{
    expected::{ExpectedResult, GTEST, LIBTEST},
    support::{
        process,
        world::{FinishedCommand, TestWorld, run},
    },
};

pub(super) const SHORT: &str =
    "[profile.default]\ntimeout = \"1s\"\ngrace-period = \"200ms\"\nslow-timeout = \"50s\"\n";

/// Replaces everything that differs between runs and machines. All snapshots use this one redaction.
fn redact(world: &TestWorld, text: &str) -> String {
    let dir = world.dir().to_str().unwrap();
    let manifest = env!("CARGO_MANIFEST_DIR");
    let mut out = String::new();
    for line in text.replace(dir, "<world>").replace(manifest, "<repository>").lines() {
        let words: Vec<String> = line.split(' ').map(redact_word).collect();
        let line = words.join(" ");
        // The number of stack frames below the test's body depends on the C library.
        let is_count = line.trim_start().starts_with('…') && line.ends_with("more …");
        out.push_str(if is_count { "           … <frames> more …" } else { line.trim_end() });
        out.push('\n');
    }
    out
}

fn redact_word(word: &str) -> String {
    let digits = word.strip_suffix('s').unwrap_or_default();
    let is_time = digits.contains('.') && digits.chars().all(|char| char.is_ascii_digit() || char == '.');
    let run = word.trim_end_matches(')');
    let is_run = run.len() == 8 && run.chars().all(|char| char.is_ascii_hexdigit());
    // Test executable names contain a hash, run directory names a time.
    let is_offset = word.contains("+0x");
    let evidence = word.strip_prefix(".heeler/runs/").and_then(|rest| rest.split_once('/'));
    match () {
        () if is_offset => "<program>+<offset>".to_owned(),
        () if evidence.is_some() => evidence.map(|(_, file)| format!("<run>/{file}")).unwrap_or_default(),
        () if is_time => "<time>".to_owned(),
        () if is_run => word.replace(run, "<run>"),
        () => word.to_owned(),
    }
}

#[track_caller]
fn check_printed(ran: &FinishedCommand, expected: &[ExpectedResult]) {
    for one in expected {
        let found = ran.stdout.lines().any(|line| {
            let mut words = line.split_whitespace();
            // The leak may be found before the result is sent; the line then begins with LEAK.
            let is_leak = one.name == "Leak.Child" && line.trim_start().starts_with("LEAK");
            (is_leak || line.trim_start().starts_with(one.label)) && words.any(|word| word == one.name)
        });
        assert!(found, "no line says {} {}\n{ran}", one.label, one.name);
    }
}

#[test]
fn every_outcome_has_line_and_rerun_command() {
    let world = TestWorld::with_gtest("kinds");
    world.write("heeler.toml", SHORT);
    let ran = world.run(&["run", "kinds", "--status-level", "all"]).assert_code(2);
    check_printed(&ran, GTEST);
    let bad = GTEST.iter().filter(|one| !["passed", "skipped"].contains(&one.state));
    for one in bad.clone() {
        ran.line_with(&["$ ", &format!("--gtest_filter={}", one.name)]);
    }
    ran.assert_stdout(&format!("FAILED {} of {} tests in", bad.count(), GTEST.len()));
    assert!(!ran.stderr.contains("error:"), "{ran}");
}

#[test]
fn libtest_outcomes_are_displayed_alike() {
    let world = TestWorld::with_libtest();
    world.write("heeler.toml", SHORT);
    let ran = world.run(&["run", "libtest", "--status-level", "all"]).assert_code(2);
    check_printed(&ran, LIBTEST);
    ran.line_with(&["$ ", "./libtest --exact c_fails --nocapture"]);
}

#[test]
fn rerun_commands_reproduce_failures() {
    let world = TestWorld::with_gtest("kinds");
    world.write("heeler.toml", SHORT);
    let ran =
        world.run(&["run", "./kinds", "-E", "Math.*", "-E", "Crash.Abort", "-E", "Named*"]).assert_code(2);
    let commands: BTreeSet<_> =
        ran.stdout.lines().filter_map(|line| line.split_once("$ ")).map(|(_, c)| c).collect();
    assert_eq!(commands.len(), 4, "{ran}");
    for command in commands {
        let again = run(world.shell(command));
        assert!(
            again.code != Some(0) && again.stdout.contains("Running 1 test from 1 test suite"),
            "{command}\n{again}"
        );
    }
}

#[test]
fn plain_log_matches_snapshot() {
    let world = TestWorld::with_gtest("kinds");
    world.write("heeler.toml", SHORT);
    let ran = world.run(&[
        "run",
        "kinds",
        "-j1",
        "-E",
        "Math.*",
        "-E",
        "Crash.Segv",
        "-E",
        "Noise.N*",
        "--no-history",
    ]);
    insta::assert_snapshot!("plain_log", redact(&world, &ran.assert_code(2).stdout));
}

#[test]
fn exit_code_is_8_without_tests() {
    let world = TestWorld::with_gtest("kinds");
    world.run(&["run", "kinds", "-E", "Math.Add"]).assert_code(0).line_with(&["PASSED", "1 test"]);
    world.run(&["run", "kinds", "-E", "NoSuchTest"]).assert_code(8);
    let world = TestWorld::with_fake("lists-nothing");
    world.run(&["run", "lists-nothing"]).assert_code(8);
}

#[test]
fn unknown_arguments_exit_with_5() {
    let world = TestWorld::with_gtest("kinds");
    world.run(&["run", "kinds", "--no-such-option"]).assert_code(5).assert_stderr("--no-such-option");
    world.run(&["run", "kinds", "--profile", "nobody"]).assert_code(5).assert_stderr("nobody");
    world.run(&["run", "kinds", "--timeout", "soon"]).assert_code(5).assert_stderr("--timeout");
}

#[test]
fn missing_program_exits_with_4() {
    let world = TestWorld::new();
    world.run(&["run"]).assert_code(4).assert_stderr("heeler.toml");
    world.run(&["run", "./gone"]).assert_code(4);
}

#[test]
fn unknown_config_key_names_line_and_nearest_key() {
    let world = TestWorld::with_gtest("kinds");
    world.write("heeler.toml", "[profile.default]\njobs = 1\nretrys = 2\n");
    let ran = world.run(&["run", "kinds"]).assert_code(5);
    ran.assert_stderr("heeler.toml:3").assert_stderr("retrys").assert_stderr("retries");
}

#[test]
fn configured_suites_run_by_default() {
    let world = TestWorld::with_gtest("deaths");
    world.fake("plain-fake");
    world.write(
        "heeler.toml",
        "[[suite]]\nname = \"cpp\"\nprograms = [\"dea*\"]\nenv = { HEELER_FIXTURE_DIE_AT = \"exit code 7\" }\n\
         [[suite]]\nname = \"fake\"\nprograms = [\"plain-fake\"]\n",
    );
    let ran = world.run(&["run", "--status-level", "all"]).assert_code(2);
    ran.line_with(&["PASS", "cpp", "First.One"]);
    ran.line_with(&["PASS", "fake", "Fake.Four"]);
    ran.line_with(&["cpp", "(outside any test)"]);
    ran.assert_stdout("exited with code 7").assert_stdout(" 1 program in ");
}

#[test]
fn test_passing_on_retry_is_flaky() {
    let world = TestWorld::with_gtest("deaths");
    world.env("HEELER_FIXTURE_FLAKY", world.path("flaky").to_str().unwrap());
    let ran = world.run(&["run", "deaths", "--retries", "1"]).assert_code(0);
    ran.line_with(&["FLAKY 2", "Third.Flaky"]);
    ran.assert_stdout("1 flaky");
}

#[test]
fn flaky_test_fails_without_retries() {
    let world = TestWorld::with_gtest("deaths");
    world.env("HEELER_FIXTURE_FLAKY", world.path("flaky").to_str().unwrap());
    world.run(&["run", "deaths"]).assert_code(2).line_with(&["FAIL", "Third.Flaky"]);
}

/// Returns the names of the tests that passed.
fn passed(ran: &FinishedCommand) -> Vec<&str> {
    let lines = ran.stdout.lines().filter(|line| line.trim_start().starts_with("PASS "));
    lines.map(|line| line.split_whitespace().last().unwrap()).collect()
}

#[test]
fn partition_shares_cover_every_test_once() {
    let world = TestWorld::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", "50");
    // Each partition gets a copy of the same history, because `time` partitions are complete only then.
    world.run(&["run", "big"]).assert_code(0);
    for way in ["slice", "hash", "time"] {
        let mut all = Vec::new();
        for share in 1..=3 {
            let state = format!("state-{way}-{share}");
            let copied = run(world.shell(&format!("cp -r .heeler {state}")));
            assert_eq!(copied.code, Some(0), "{copied}");
            let share = format!("{way}:{share}/3");
            let ran = world.run(&["run", "big", "--partition", &share, "--state-dir", &state]);
            assert!([Some(0), Some(8)].contains(&ran.code), "{ran}");
            // Display names include the parameter: "N/Big.Case/7 (7)".
            all.extend(passed(&ran).into_iter().map(str::to_owned));
        }
        let distinct: BTreeSet<_> = all.iter().collect();
        assert_eq!((all.len(), distinct.len()), (50, 50), "{way}");
    }
}

#[test]
fn isolated_tests_get_own_processes() {
    let world = TestWorld::with_gtest("deaths");
    world.note_starts();
    world.env("HEELER_FIXTURE_DIE_AT", "order");
    // Some tests corrupt their process. With `--isolate`, the next test is not affected.
    world.run(&["run", "deaths", "--isolate"]).assert_code(0);
    assert_eq!(world.starts().len(), 7);
}

#[test]
fn shuffle_seed_determines_order() {
    let world = TestWorld::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", "30");
    let order = |words: &[&str]| {
        let words = [&["run", "big", "-j1", "--isolate", "--no-history"], words].concat();
        passed(&world.run(&words).assert_code(0)).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let (plain, first, again, other) =
        (order(&[]), order(&["--shuffle", "7"]), order(&["--shuffle", "7"]), order(&["--shuffle", "8"]));
    assert_eq!(first, again);
    assert!(first != plain && first != other);
    assert_eq!(first.iter().collect::<BTreeSet<_>>(), plain.iter().collect());
}

#[test]
fn max_fail_ends_run_and_accounts_for_rest() {
    let world = TestWorld::with_gtest("kinds");
    world.write("heeler.toml", SHORT);
    let ran = world
        .run(&["run", "kinds", "-j1", "--isolate", "--max-fail", "2", "--status-level", "all"])
        .assert_code(13);
    ran.assert_stdout("not run: the run stopped at its failure limit");
    let ran = world.run(&["run", "kinds", "-j1", "--isolate", "--fail-fast"]).assert_code(13);
    ran.assert_stdout("FAILED");
}

/// Runs a test that fails while another test runs; returns the summary.
fn run_with_failure_beside_running_test(fail_fast: &str) -> String {
    let world = TestWorld::with_fake("fails-while-another-runs");
    world.env("HEELER_FIXTURE_FLAKY", world.path("second-test-runs").to_str().unwrap());
    world.write(
        "heeler.toml",
        "[profile.default]\ngrace-period = \"200ms\"\n[[profile.default.override]]\nfilter = \"Two\"\ntimeout = \"2s\"\n",
    );
    let words = ["run", "fails-while-another-runs", "-j2", "--isolate", "--status-level", "all", fail_fast];
    world.run(&words).assert_code(13).stdout.clone()
}

#[test]
fn fail_fast_lets_running_test_finish_and_does_not_run_rest() {
    for option in ["--fail-fast", "--max-fail=1"] {
        let stdout = run_with_failure_beside_running_test(option);
        assert!(stdout.contains("2 s") && !stdout.contains("cancelled"), "{stdout}");
        assert_eq!(stdout.matches("NOT RUN ").count(), 2, "{stdout}");
    }
}

#[test]
fn fail_fast_immediate_cancels_running_test() {
    let stdout = run_with_failure_beside_running_test("--fail-fast=immediate");
    assert!(stdout.contains("cancelled"), "{stdout}");
    assert_eq!(stdout.matches("NOT RUN ").count(), 2, "{stdout}");
}

#[test]
fn no_capture_shows_output_live() {
    let world = TestWorld::with_gtest("kinds");
    let ran = world
        .run(&["run", "kinds", "--no-capture", "-E", "Noise.NoNewline", "-E", "Noise.Errors"])
        .assert_code(0);
    ran.assert_stdout("partial line without newline");
    assert!(ran.stderr.contains("       START  Noise.NoNewline\n"), "{ran}");
    assert!(!ran.stderr.contains("stdout ───"), "{ran}");
    let framework = ["[======", "[------", "[ RUN", "Running main()", "[  PASSED"];
    assert!(framework.iter().all(|line| !ran.stdout.contains(line)), "{ran}");
    let all = format!("{}{}", ran.stdout, ran.stderr);
    assert!(all.contains("written to standard error"), "{ran}");
    let ran = world.run(&["run", "kinds", "-E", "Noise.NoNewline"]).assert_code(0);
    assert!(!ran.stdout.contains("partial line"), "{ran}");
}

#[test]
fn no_capture_names_tests_that_run_side_by_side() {
    let world = TestWorld::with_gtest("kinds");
    let noises = ["-E", "Noise.NoNewline", "-E", "Noise.Errors"];
    let words = [&["run", "kinds", "--no-capture", "-j", "2", "--isolate"], &noises[..]].concat();
    let ran = world.run(&words).assert_code(0);
    ran.assert_stdout("Noise.NoNewline | partial line without newline");
    assert!(ran.stderr.contains("Noise.Errors | written to standard error"), "{ran}");
}

#[test]
fn no_capture_shows_what_rust_tests_print_and_nothing_of_their_framework() {
    let world = TestWorld::with_libtest();
    let words = ["run", "libtest", "--no-capture", "-E", "test(/prints|a_adds/)"];
    let ran = world.run(&words).assert_code(0);
    ran.assert_stdout("some output");
    assert!(!ran.stdout.contains("\"type\""), "{ran}");
    assert!(ran.stderr.contains("       START  "), "{ran}");
}

#[test]
fn colours_are_off_in_pipes_by_default() {
    let world = TestWorld::with_gtest("kinds");
    let words = ["run", "kinds", "-E", "Math.Add"];
    assert!(!world.run(&words).stdout.contains('\u{1b}'));
    let always = [&words[..], &["--color", "always"]].concat();
    assert!(world.run(&always).stdout.contains("\u{1b}["));
    let never = [&words[..], &["--color", "never"]].concat();
    assert!(!world.run(&never).stdout.contains('\u{1b}'));
    world.env("NO_COLOR", "1");
    assert!(!world.run(&words).stdout.contains('\u{1b}'));
}

#[test]
fn github_workflow_gets_groups_and_annotations() {
    let world = TestWorld::with_gtest("kinds");
    world.env("GITHUB_ACTIONS", "true");
    let ran = world.run(&["run", "kinds", "-E", "Math.Fail"]).assert_code(2);
    let note = ran.line_with(&["::error", "Math.Fail"]);
    assert!(note.contains("kinds.cc") && note.contains("line="), "{note}");
    ran.assert_stdout("::group::").assert_stdout("::endgroup::");
}

#[test]
fn list_has_file_and_line_of_tests() {
    let world = TestWorld::with_gtest("kinds");
    let ran = world.run(&["list", "kinds"]).assert_code(0);
    for one in GTEST {
        ran.line_with(&[one.name]);
    }
    let line = ran.line_with(&["Math.Add"]);
    assert!(line.contains("kinds.cc:"), "{line}");
    let ran = world.run(&["list", "kinds", "-E", "Crash.*"]).assert_code(0);
    assert!(ran.stdout.contains("Crash.Segv") && !ran.stdout.contains("Math.Add"), "{ran}");
}

#[test]
fn closed_output_pipe_does_not_disturb_run() {
    let world = TestWorld::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", "2000");
    let program = env!("CARGO_BIN_EXE_heeler");
    let ran = run(world.shell(&format!("{program} run big 2>&1 | head -3; exit ${{PIPESTATUS[0]}}")))
        .assert_code(0);
    assert_eq!(ran.stdout.lines().count(), 3, "{ran}");
    world.check_tidy();
}

#[test]
fn slowest_tests_of_last_run_start_first() {
    let world = TestWorld::with_gtest("kinds");
    let words = ["run", "kinds", "-j1", "--isolate", "-E", "Math.Add", "-E", "Slow*", "-E", "Noise.N*"];
    world.run(&words).assert_code(0);
    let ran = world.run(&words).assert_code(0);
    assert_eq!(passed(&ran)[0], "Slow.Sleeps300Milliseconds", "{ran}");
}

#[test]
fn sample_suite_reports_its_failures() {
    let world = TestWorld::new();
    world.env("CARGO_TARGET_DIR", &format!("{}/samples", env!("CARGO_TARGET_TMPDIR")));
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/heeler.toml");
    let ran = world
        .run(&["run", "--config-file", config, "--state-dir", "state", "--status-level", "none"])
        .assert_code(2);
    for (label, test) in [
        ("SIGSEGV", "the_lantern_is_where_it_was_left"),
        ("SIGABRT", "the_watch_book_can_be_trusted"),
        ("SIGABRT", "every_dog_has_an_eldest_ancestor"),
        ("EXIT 0", "the_watchman_stays_until_dawn"),
        ("TIMEOUT", "the_fox_comes_back"),
    ] {
        ran.line_with(&[label, test]);
    }
    ran.line_with(&["Summary", " passed", " failed", " crashed", " timed out", " skipped"]);
}

#[test]
fn killed_run_leaves_no_process() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    let mut command = world.heeler(&["run", "meet", "-E", "Away.Family"]);
    let mut child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    let connected = rendezvous.next_test();
    child.kill().unwrap();
    child.wait().unwrap();
    connected.wait_gone();
}

#[test]
fn run_timeout_ends_run() {
    let world = TestWorld::with_gtest("meet");
    let _meet = world.open_rendezvous();
    world.write("heeler.toml", "[profile.default]\nrun-timeout = \"500ms\"\njobs = 1\n");
    let ran = world.run(&["run", "meet", "--status-level", "all"]);
    ran.assert_code(14).assert_stdout("not run: ");
}

#[test]
fn help_and_version_are_printed() {
    let world = TestWorld::new();
    let version = env!("CARGO_PKG_VERSION");
    world.run(&["--version"]).assert_code(0).assert_stdout(&format!("heeler {version} ("));
    world.run(&["--version"]).assert_stdout(" build for ");
    assert_eq!(world.run(&["-V"]).assert_code(0).stdout, format!("heeler {version}\n"));
    for option in
        ["--partition", "--retries", "--isolate", "--junit", "--max-fail", "--no-capture", "--shuffle"]
    {
        world.run(&["run", "--help"]).assert_code(0).assert_stdout(option);
    }
}

#[test]
fn daemon_that_a_build_leaves_behind_does_not_hold_the_output() {
    let world = TestWorld::new();
    // The daemon keeps both output pipes open, and lives longer than Heeler waits for output.
    world.write_program("build.sh", "#!/bin/sh\nsetsid sleep 1000 &\necho $! > daemon\necho is built >&2\n");
    world.write("heeler.toml", "[[suite]]\nname = \"s\"\ncommand = \"true\"\nbuild = [\"./build.sh\"]\n");
    let ran = world.run_with_separate_outputs(&["run"]);
    let daemon = world.read("daemon").trim().parse().unwrap();
    assert!(process::signal_if_there(daemon, "KILL"), "the run has waited for it");
    let ran = ran.assert_code(0);
    ran.assert_stderr("is built");
}
