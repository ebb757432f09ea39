//! Output of a run: its contents, order and streams.

use super::commands::SHORT;
use crate::support::{terminal::TerminalCommand, world::TestWorld};

#[test]
fn results_go_to_standard_error_and_the_product_of_a_command_to_standard_output() {
    let world = TestWorld::with_gtest("kinds");
    let ran = world.run_with_separate_outputs(&["run", "kinds", "-E", "Math.*"]).assert_code(2);
    assert_eq!(ran.stdout, "");
    for text in ["Running ", "Math.Fail", "Summary", "FAILED"] {
        ran.assert_stderr(text);
    }
    let reported = world.run_with_separate_outputs(&["report"]).assert_code(0);
    reported.assert_stdout("Summary");
    assert_eq!(reported.stderr, "");
    // With `--no-capture`, the tests' output and the results go to different streams.
    let words = ["run", "kinds", "-E", "Math.*", "--no-capture"];
    let ran = world.run_with_separate_outputs(&words).assert_code(2);
    assert!(!ran.stdout.contains("Summary") && !ran.stdout.is_empty(), "{ran}");
}

const WRITTEN: &str = "written to standard error";

/// Runs three tests and returns the results: a passing test that writes to its output, one that does not, and
/// a failing test.
fn run_with(options: &[&str]) -> String {
    let world = TestWorld::with_gtest("kinds");
    let filters = ["-E", "Noise.Errors", "-E", "Math.Add", "-E", "Noise.ForgesItsOwnEnd"];
    world.run(&[&["run", "kinds", "-j1", "--isolate"], &filters[..], options].concat()).assert_code(2).stderr
}

#[track_caller]
fn check_order(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let (_, after) = rest.split_once(part).unwrap_or_else(|| panic!("{part:?} is not next in\n{text}"));
        rest = after;
    }
}

#[test]
fn output_of_passed_tests_is_printed_when_success_output_says() {
    let with = |when| run_with(&["--success-output", when, "--status-level", "fail"]);
    assert!(!with("never").contains(WRITTEN));
    assert!(!run_with(&[]).contains(WRITTEN));
    // Output of passed tests is shown with the test's line, at any status level.
    let immediate = with("immediate");
    check_order(&immediate, &["PASS", "Noise.Errors", "stderr", WRITTEN, "────────────\n", "Summary"]);
    assert!(!immediate.contains("Math.Add"), "{immediate}");
    let last = with("final");
    check_order(&last, &["and yet it fails", "PASS", "Noise.Errors", WRITTEN, "────────────\n", "Summary"]);
    assert_eq!(last.matches(WRITTEN).count(), 1, "{last}");
    assert_eq!(with("immediate-final").matches(WRITTEN).count(), 2);
}

#[test]
fn output_of_failed_tests_is_printed_when_failure_output_says() {
    const LAST: &str = "Noise.FakeMarker";
    let with = |options: &[&str]| {
        run_with(&[&["-E", LAST, "--shuffle", "1", "--success-output", "immediate"], options].concat())
    };
    let count = |text: &str| text.matches("stdout ────────").count();
    // One passing test and the failing test write to standard output.
    assert_eq!(count(&with(&[])), 2);
    assert_eq!(count(&with(&["--failure-output", "immediate-final"])), 3);
    let never = with(&["--failure-output", "never"]);
    assert_eq!(count(&never), 1, "{never}");
    check_order(&never, &["FAIL", "Noise.ForgesItsOwnEnd", "and yet it fails", "────────────\n"]);
    let last = with(&["--failure-output", "final"]);
    assert_eq!(count(&last), 2, "{last}");
    // The failing test's line comes first, its output after all lines, and the summary last.
    let rest = last.rsplit_once("3/4").map(|(_, rest)| rest.split_once("4/4").unwrap().1).unwrap();
    check_order(rest, &["FAIL", "Noise.ForgesItsOwnEnd", "stdout ──", "again", "────────────\n", "Summary"]);
}

#[test]
fn final_status_level_selects_what_is_listed_at_the_end() {
    let world = TestWorld::with_gtest("kinds");
    world.write("heeler.toml", SHORT);
    let listed = |level: &str| {
        let filters = ["-E", "Math.*", "-E", "Slow.*"];
        let words =
            [&["run", "kinds", "--final-status-level", level, "--slow-timeout", "200ms"], &filters[..]];
        let ran = world.run(&words.concat()).assert_code(2);
        let (_, end) = ran.stderr.split_once("────────────\n").unwrap_or_else(|| panic!("{ran}"));
        ["Math.Fail", "Slow.Sleeps", "Math.Skip", "Math.Add"].map(|name| end.contains(name))
    };
    assert_eq!(listed("none"), [false, false, false, false]);
    assert_eq!(listed("fail"), [true, false, false, false]);
    assert_eq!(listed("flaky"), [true, false, false, false]);
    assert_eq!(listed("slow"), [true, true, false, false]);
    assert_eq!(listed("skip"), [true, true, true, false]);
    assert_eq!(listed("pass"), [true, true, true, true]);
    assert_eq!(listed("all"), [true, true, true, true]);
}

#[test]
fn shown_results_are_configured_and_apply_to_reports() {
    let world = TestWorld::with_gtest("kinds");
    world.write(
        "heeler.toml",
        "[profile.default]\nsuccess-output = \"final\"\nfinal-status-level = \"pass\"\n",
    );
    for words in [&["run", "kinds", "--isolate", "-E", "Noise.Errors", "-E", "Math.Add"][..], &["report"]] {
        let ran = world.run(words).assert_code(0);
        check_order(&ran.stdout, &["Noise.Errors", WRITTEN, "────────────\n", "PASS", "Summary"]);
        assert!(ran.stdout.split_once("────────────\n").unwrap().1.contains("Math.Add"), "{ran}");
    }
    // The command line takes precedence over the configuration.
    let ran = world.run(&["report", "--success-output", "never"]).assert_code(0);
    assert!(!ran.stdout.contains(WRITTEN), "{ran}");
}

#[test]
fn last_line_counts_failed_tests_and_those_not_run() {
    let world = TestWorld::with_gtest("kinds");
    let ran = world.run(&["run", "kinds", "-j1", "--isolate", "--fail-fast", "-E", "Math.*"]).assert_code(13);
    let last = ran.stderr.lines().last().unwrap();
    let (_, counts) = last.split_once("FAILED 1 of 5 tests in ").unwrap_or_else(|| panic!("{ran}"));
    assert!(counts.ends_with(" not run"), "{ran}");
}

#[test]
fn programs_that_cannot_be_listed_are_not_counted_as_tests() {
    let world = TestWorld::with_gtest("kinds");
    world.fake("crashes-in-listing");
    let words = ["run", "kinds", "crashes-in-listing", "-E", "Math.Add", "-E", "crashes-in-listing"];
    let ran = world.run(&words).assert_code(2);
    ran.line_with(&["Running 1 test of"]);
    ran.line_with(&["PASS", "1/1", "Math.Add"]);
}

#[test]
fn enter_prints_the_state_and_leaves_no_copy_of_the_progress_bar() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    let heeler = env!("CARGO_BIN_EXE_heeler");
    world.env("TERM", "xterm");
    let mut terminal = TerminalCommand::start(
        &world,
        &format!("{heeler} run meet --color never -j1 -E N/Meet.Case/0 -E N/Meet.Case/1"),
    );
    let connected = rendezvous.next_test();
    terminal.wait_for("worker 1");
    terminal.type_in("\n");
    terminal.wait_for("Running 0/2 (0%)");
    let text = terminal.text();
    // The status replaces the progress bar. The cursor moves up one row more because of the echoed newline.
    let (before, _) = text.split_once("Running 0/2 (0%)").unwrap();
    let (_, moves) = before.rsplit_once("\u{1b}[?2026h").unwrap();
    assert!(moves.starts_with("\u{1b}[3A\r\u{1b}[J"), "{moves:?}");
    connected.release();
    rendezvous.next_test().release();
    assert!(terminal.ends_well());
}

#[test]
fn flaky_test_is_listed_with_the_reason_of_each_failed_attempt() {
    let world = TestWorld::with_gtest("deaths");
    world.env("HEELER_FIXTURE_FLAKY", world.path("flaky").to_str().unwrap());
    let ran = world.run(&["run", "deaths", "--retries", "1"]).assert_code(0);
    check_order(&ran.stderr, &["────────────\n", "Flaky", "Third.Flaky", "attempt 1 failed: ", "Summary"]);
}

#[test]
fn lines_of_prose_are_wrapped_at_blanks_of_a_narrow_terminal() {
    let world = TestWorld::with_gtest("kinds");
    let heeler = env!("CARGO_BIN_EXE_heeler");
    world.env("TERM", "xterm");
    let line = format!("stty rows 20 cols 40; {heeler} run kinds --color never -E Math.Add");
    let mut terminal = TerminalCommand::start(&world, &line);
    terminal.wait_for("PASSED");
    let text = terminal.text();
    // The second line of the header is aligned with the text of the first.
    let is_second = |line: &str| line.starts_with(&" ".repeat(13)) && line.contains("filtered");
    assert!(text.lines().any(is_second), "{text}");
    assert!(terminal.ends_well());
}

#[test]
fn agent_sees_failures_once_and_no_passes() {
    let world = TestWorld::with_gtest("kinds");
    world.env("CLAUDECODE", "1");
    let words = ["run", "kinds", "-E", "test(Math.*) - test(Throws)"];
    let ran = world.run_with_separate_outputs(&words).assert_code(2);
    let text = format!("{}{}", ran.stdout, ran.stderr);
    assert!(text.len() <= 800 && !text.contains("PASS "), "{text}");
    assert_eq!(text.matches("FAIL  ").count(), 1, "{text}");
    check_order(
        &text,
        &["Math.Fail", "More heeler report ", "heeler run --rerun failed", "Summary", "FAILED"],
    );
    // The commands work as they are printed.
    let (_, commands) = text.split_once("More heeler ").unwrap();
    let (report, rerun) = commands.lines().next().unwrap().split_once("; heeler ").unwrap();
    let shown = world.run(&report.split(' ').collect::<Vec<_>>()).assert_code(0);
    shown.assert_stdout("PASS ");
    let again = world.run(&rerun.split(' ').collect::<Vec<_>>()).assert_code(2);
    again.assert_stdout("1 failed");
    // An option says what to show.
    let chosen = world.run(&[&words[..], &["--status-level", "pass"]].concat()).assert_code(2);
    chosen.assert_stdout("PASS ");
}

#[test]
fn job_on_github_gets_a_summary() {
    let world = TestWorld::with_gtest("kinds");
    let summary = world.path("summary.md");
    world.env("GITHUB_STEP_SUMMARY", summary.to_str().unwrap());
    world.run(&["run", "kinds", "-E", "Math.*"]).assert_code(2);
    assert!(!summary.exists(), "only on GitHub Actions");
    world.env("GITHUB_ACTIONS", "true");
    world.write("summary.md", "# earlier\n");
    world.run(&["run", "kinds", "-E", "Math.*"]).assert_code(2);
    let text = world.read("summary.md");
    check_order(
        &text,
        &["# earlier\n### FAILED 2 of ", "| result | test | place | message |", "Math.Fail", "kinds.cc"],
    );
}
