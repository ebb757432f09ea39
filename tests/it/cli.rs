//! The command line as users and CI see it: exit codes, output, reports, and options.

use std::collections::BTreeSet;

use quick_xml::events::Event;

use crate::{
    expected::{Expected, GTEST, LIBTEST},
    support::world::{Ran, World, run},
};

const SHORT: &str = "[profile.default]\ntimeout = \"1s\"\ngrace-period = \"200ms\"\nslow-timeout = \"50s\"\n";

/// Replaces everything that differs between runs and machines. The only such table for snapshots.
fn redact(world: &World, text: &str) -> String {
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
    // Test executables have a hash in their names, and run directories the time.
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
fn check_printed(ran: &Ran, expected: &[Expected]) {
    for one in expected {
        let found = ran.stdout.lines().any(|line| {
            let mut words = line.split_whitespace();
            line.trim_start().starts_with(one.label) && words.any(|word| word == one.name)
        });
        assert!(found, "no line says {} {}\n{ran}", one.label, one.name);
    }
}

#[test]
fn every_end_of_a_test_has_its_line_and_failures_their_way_to_repeat_them() {
    let world = World::with_gtest("kinds");
    world.write("heeler.toml", SHORT);
    let ran = world.run(&["run", "kinds", "--status-level", "all"]).code(2);
    check_printed(&ran, GTEST);
    let bad = GTEST.iter().filter(|one| !["passed", "skipped"].contains(&one.state));
    for one in bad.clone() {
        ran.line(&["$ ", &format!("--gtest_filter={}", one.name)]);
    }
    ran.says(&format!("FAILED {} of {} tests in", bad.count(), GTEST.len()));
    assert_eq!(ran.stderr, "");
}

#[test]
fn rust_tests_read_the_same() {
    let world = World::with_libtest();
    world.write("heeler.toml", SHORT);
    let ran = world.run(&["run", "libtest", "--status-level", "all"]).code(2);
    check_printed(&ran, LIBTEST);
    ran.line(&["$ ", "./libtest --exact c_fails --nocapture"]);
}

#[test]
fn the_lines_that_repeat_a_failure_do_repeat_it() {
    let world = World::with_gtest("kinds");
    world.write("heeler.toml", SHORT);
    let ran = world.run(&["run", "./kinds", "-E", "Math.*", "-E", "Crash.Abort", "-E", "Named*"]).code(2);
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
fn a_log_without_a_terminal_reads_well() {
    let world = World::with_gtest("kinds");
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
    insta::assert_snapshot!("plain_log", redact(&world, &ran.code(2).stdout));
}

#[test]
fn all_passed_is_0_and_no_tests_is_8() {
    let world = World::with_gtest("kinds");
    world.run(&["run", "kinds", "-E", "Math.Add"]).code(0).line(&["PASSED", "1 test"]);
    world.run(&["run", "kinds", "-E", "NoSuchTest"]).code(8);
    let world = World::with_fake("lists-nothing");
    world.run(&["run", "lists-nothing"]).code(8);
}

#[test]
fn words_that_nobody_understands_are_5() {
    let world = World::with_gtest("kinds");
    world.run(&["run", "kinds", "--no-such-option"]).code(5).complains("--no-such-option");
    world.run(&["run", "kinds", "--profile", "nobody"]).code(5).complains("nobody");
    world.run(&["run", "kinds", "--timeout", "soon"]).code(5).complains("--timeout");
}

#[test]
fn nothing_to_run_and_a_missing_program_are_4() {
    let world = World::new();
    world.run(&["run"]).code(4).complains("heeler.toml");
    world.run(&["run", "./gone"]).code(4);
}

#[test]
fn a_key_that_heeler_toml_does_not_know_is_told_with_line_and_nearest_key() {
    let world = World::with_gtest("kinds");
    world.write("heeler.toml", "[profile.default]\njobs = 1\nretrys = 2\n");
    let ran = world.run(&["run", "kinds"]).code(5);
    ran.complains("heeler.toml:3").complains("retrys").complains("retries");
}

#[test]
fn the_suites_of_heeler_toml_run_when_nothing_is_named() {
    let world = World::with_gtest("deaths");
    world.fake("plain-fake");
    world.write(
        "heeler.toml",
        "[[suite]]\nname = \"cpp\"\nprograms = [\"dea*\"]\nenv = { HEELER_FIXTURE_DIE_AT = \"exit code 7\" }\n\
         [[suite]]\nname = \"fake\"\nprograms = [\"plain-fake\"]\n",
    );
    let ran = world.run(&["run", "--status-level", "all"]).code(2);
    ran.line(&["PASS", "cpp", "First.One"]);
    ran.line(&["PASS", "fake", "Fake.Four"]);
    ran.line(&["cpp", "(outside any test)"]);
    ran.says("exit code 7").says("1 program outside any test");
}

/// Returns the report's entry of each test: its name, and the element inside.
fn junit(text: &str) -> Vec<(String, String)> {
    let mut reader = quick_xml::Reader::from_str(text);
    let mut cases: Vec<(String, String)> = Vec::new();
    loop {
        match reader.read_event().unwrap() {
            Event::Start(tag) | Event::Empty(tag) => {
                let element = tag.name().as_ref().to_owned();
                let name = tag.try_get_attribute("name").unwrap();
                if element == "testcase" {
                    let name = quick_xml::escape::unescape(&name.unwrap().value).unwrap().into_owned();
                    cases.push((name, "passed".to_owned()));
                } else if ["failure", "error", "skipped"].contains(&element.as_str()) {
                    cases.last_mut().unwrap().1 = element;
                }
            }
            Event::Eof => return cases,
            _ => {}
        }
    }
}

#[test]
fn the_junit_report_holds_every_test_with_its_end() {
    let world = World::with_gtest("kinds");
    world.write("heeler.toml", SHORT);
    world.run(&["run", "kinds", "--junit", "out/junit.xml"]).code(2).says("out/junit.xml");
    let cases = junit(&world.read("out/junit.xml"));
    assert_eq!(cases.len(), GTEST.len());
    for one in GTEST {
        let (_, element) = cases
            .iter()
            .find(|(name, _)| name == one.name || name.starts_with(&format!("{} (", one.name)))
            .unwrap_or_else(|| panic!("{} is missing: {cases:?}", one.name));
        let wanted: &[&str] = match one.state {
            "passed" => &["passed"],
            "skipped" => &["skipped"],
            "failed" => &["failure"],
            _ => &["error", "failure"],
        };
        assert!(wanted.contains(&element.as_str()), "{}: {element}", one.name);
    }
}

#[test]
fn a_test_that_passes_at_the_second_attempt_is_flaky() {
    let world = World::with_gtest("deaths");
    world.env("HEELER_FIXTURE_FLAKY", world.path("flaky").to_str().unwrap());
    let ran = world.run(&["run", "deaths", "--retries", "1"]).code(0);
    ran.line(&["FLAKY 2", "Third.Flaky"]);
    ran.says("1 flaky");
}

#[test]
fn without_retries_the_same_test_fails() {
    let world = World::with_gtest("deaths");
    world.env("HEELER_FIXTURE_FLAKY", world.path("flaky").to_str().unwrap());
    world.run(&["run", "deaths"]).code(2).line(&["FAIL", "Third.Flaky"]);
}

/// Returns the names of the tests that passed.
fn passed(ran: &Ran) -> Vec<&str> {
    let lines = ran.stdout.lines().filter(|line| line.trim_start().starts_with("PASS "));
    lines.map(|line| line.split_whitespace().last().unwrap()).collect()
}

#[test]
fn the_shares_of_a_partition_cover_every_test_once() {
    let world = World::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", "50");
    // Partitions by time are equal only with the same history.
    world.run(&["run", "big"]).code(0);
    for way in ["slice", "hash", "time"] {
        let mut all = Vec::new();
        for share in 1..=3 {
            let state = format!("state-{way}-{share}");
            let copied = run(world.shell(&format!("cp -r .heeler {state}")));
            assert_eq!(copied.code, Some(0), "{copied}");
            let share = format!("{way}:{share}/3");
            let ran = world.run(&["run", "big", "--partition", &share, "--state-dir", &state]);
            assert!([Some(0), Some(8)].contains(&ran.code), "{ran}");
            // Display names carry the parameter: "N/Big.Case/7 (7)".
            all.extend(passed(&ran).into_iter().map(str::to_owned));
        }
        let distinct: BTreeSet<_> = all.iter().collect();
        assert_eq!((all.len(), distinct.len()), (50, 50), "{way}");
    }
}

#[test]
fn isolated_tests_get_a_process_each() {
    let world = World::with_gtest("deaths");
    world.note_starts();
    world.env("HEELER_FIXTURE_DIE_AT", "order");
    // A corrupted process does not affect the next test.
    world.run(&["run", "deaths", "--isolate"]).code(0);
    assert_eq!(world.starts().len(), 7);
}

#[test]
fn one_seed_gives_one_order() {
    let world = World::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", "30");
    let order = |words: &[&str]| {
        let words = [&["run", "big", "-j1", "--isolate", "--no-history"], words].concat();
        passed(&world.run(&words).code(0)).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let (plain, first, again, other) =
        (order(&[]), order(&["--shuffle", "7"]), order(&["--shuffle", "7"]), order(&["--shuffle", "8"]));
    assert_eq!(first, again);
    assert!(first != plain && first != other);
    assert_eq!(first.iter().collect::<BTreeSet<_>>(), plain.iter().collect());
}

#[test]
fn a_run_stops_at_its_limit_of_failures_and_the_rest_is_accounted_for() {
    let world = World::with_gtest("kinds");
    world.write("heeler.toml", SHORT);
    let ran =
        world.run(&["run", "kinds", "-j1", "--isolate", "--max-fail", "2", "--status-level", "all"]).code(13);
    ran.says("not run: the run stopped at its limit of failures");
    let ran = world.run(&["run", "kinds", "-j1", "--isolate", "--fail-fast"]).code(13);
    ran.says("FAILED");
}

#[test]
fn output_is_shown_as_it_comes_when_it_is_not_captured() {
    let world = World::with_gtest("kinds");
    let ran =
        world.run(&["run", "kinds", "--no-capture", "-E", "Noise.NoNewline", "-E", "Noise.Errors"]).code(0);
    ran.says("partial line without newline");
    let all = format!("{}{}", ran.stdout, ran.stderr);
    assert!(all.contains("written to standard error"), "{ran}");
    let ran = world.run(&["run", "kinds", "-E", "Noise.NoNewline"]).code(0);
    assert!(!ran.stdout.contains("partial line"), "{ran}");
}

#[test]
fn colours_come_when_asked_for_and_never_by_themselves_into_a_pipe() {
    let world = World::with_gtest("kinds");
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
fn a_workflow_of_github_gets_groups_and_annotations() {
    let world = World::with_gtest("kinds");
    world.env("GITHUB_ACTIONS", "true");
    let ran = world.run(&["run", "kinds", "-E", "Math.Fail"]).code(2);
    let note = ran.line(&["::error", "Math.Fail"]);
    assert!(note.contains("kinds.cc") && note.contains("line="), "{note}");
    ran.says("::group::").says("::endgroup::");
}

#[test]
fn a_list_tells_tests_with_file_and_line() {
    let world = World::with_gtest("kinds");
    let ran = world.run(&["list", "kinds"]).code(0);
    for one in GTEST {
        ran.line(&[one.name]);
    }
    let line = ran.line(&["Math.Add"]);
    assert!(line.contains("kinds.cc:"), "{line}");
    let ran = world.run(&["list", "kinds", "-E", "Crash.*"]).code(0);
    assert!(ran.stdout.contains("Crash.Segv") && !ran.stdout.contains("Math.Add"), "{ran}");
}

#[test]
fn a_reader_that_leaves_early_does_no_harm() {
    let world = World::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", "2000");
    let program = env!("CARGO_BIN_EXE_heeler");
    let ran = run(world.shell(&format!("{program} run big | head -3; exit ${{PIPESTATUS[0]}}"))).code(0);
    assert_eq!(ran.stdout.lines().count(), 3, "{ran}");
    world.check_tidy();
}

#[test]
fn what_took_long_last_time_goes_first_the_next_time() {
    let world = World::with_gtest("kinds");
    let words = ["run", "kinds", "-j1", "--isolate", "-E", "Math.Add", "-E", "Slow*", "-E", "Noise.N*"];
    world.run(&words).code(0);
    let ran = world.run(&words).code(0);
    assert_eq!(passed(&ran)[0], "Slow.Sleeps300Milliseconds", "{ran}");
}

#[test]
fn the_sample_suite_of_this_repository_runs_and_names_the_guilty() {
    let world = World::new();
    world.env("CARGO_TARGET_DIR", &format!("{}/samples", env!("CARGO_TARGET_TMPDIR")));
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/heeler.toml");
    let ran = world
        .run(&["run", "--config-file", config, "--state-dir", "state", "--status-level", "none"])
        .code(2);
    for (label, test) in [
        ("SIGSEGV", "the_lantern_is_where_it_was_left"),
        ("SIGABRT", "the_watch_book_can_be_trusted"),
        ("SIGABRT", "every_dog_has_an_eldest_ancestor"),
        ("EXIT 0", "the_watchman_stays_until_dawn"),
        ("TIMEOUT", "the_fox_comes_back"),
    ] {
        ran.line(&[label, test]);
    }
    ran.line(&["Summary", " passed", " failed", " crashed", " timed out", " skipped"]);
}

#[test]
fn a_run_that_is_killed_leaves_no_process() {
    let world = World::with_gtest("meet");
    let meet = world.meet();
    let mut command = world.heeler(&["run", "meet", "-E", "Away.Family"]);
    let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let guest = meet.next();
    child.kill().unwrap();
    child.wait().unwrap();
    guest.wait_gone();
}

#[test]
fn a_run_has_a_time_limit_of_its_own() {
    let world = World::with_gtest("meet");
    let _meet = world.meet();
    world.write("heeler.toml", "[profile.default]\nrun-timeout = \"500ms\"\njobs = 1\n");
    let ran = world.run(&["run", "meet", "--status-level", "all"]);
    assert_ne!(ran.code, Some(0), "{ran}");
    ran.says("not run: ");
}

#[test]
fn help_and_version_are_there() {
    let world = World::new();
    world.run(&["--version"]).code(0).says(env!("CARGO_PKG_VERSION"));
    for option in
        ["--partition", "--retries", "--isolate", "--junit", "--max-fail", "--no-capture", "--shuffle"]
    {
        world.run(&["run", "--help"]).code(0).says(option);
    }
}
