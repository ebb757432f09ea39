//! Unusual GoogleTest programs: several tests with the same name, a program that checks that all its tests
//! ran, and output before the listing.

use crate::support::{checked_run::CheckedRun, server::TestServer, uids, world::TestWorld};

const SAME: [&str; 3] = ["same_names::Same.Name", "same_names::Same.Name#2", "same_names::Same.Name#3"];

fn run_same(settings: &str, bad: usize, selected: &[&str]) -> CheckedRun {
    let world = TestWorld::with_gtest("same_names");
    world.env("HEELER_FIXTURE_BAD", &bad.to_string());
    world.write("heeler.toml", &format!("[profile.default]\njobs = 1\n{settings}"));
    let mut server = TestServer::initialized(&world, &["same_names"]);
    let run = server.run(Some(selected));
    let selected: Vec<_> = selected.iter().map(|uid| (*uid).to_owned()).collect();
    let checked_run = server.finish(&run, &selected);
    assert_eq!(server.exit(), Some(0));
    checked_run
}

#[test]
fn each_test_of_one_name_has_its_own_result() {
    for settings in ["", "isolate = true\n"] {
        for bad in 0..=3 {
            for selected in [&SAME[..], &SAME[1..], &SAME[1..2]] {
                let checked_run = run_same(settings, bad, selected);
                for (place, uid) in (1..).zip(SAME).filter(|(_, uid)| selected.contains(uid)) {
                    let expected = if place == bad { "failed" } else { "passed" };
                    assert_eq!(checked_run.state(uid), expected, "{settings} {bad}: {checked_run:#?}");
                    let output = checked_run.test(uid)["standardOutput"].as_str().unwrap();
                    assert!(output.starts_with(&format!("place {place}\n")), "{output}");
                }
                checked_run.assert_no_program_failures();
            }
        }
    }
}

#[test]
fn whole_program_runs_without_filter() {
    let world = TestWorld::with_gtest("whole");
    world.write("heeler.toml", "[profile.default]\njobs = 1\n");
    let all = uids("whole", ["Whole.One", "Whole.Two", "Whole.DISABLED_Three", "Other.One"]);
    let mut server = TestServer::initialized(&world, &["whole"]);
    let run = server.run(None);
    let checked_run = server.finish(&run, &all);
    checked_run.assert_no_program_failures();
    for uid in &all {
        let expected = if uid.contains("DISABLED") { "skipped" } else { "passed" };
        assert_eq!(checked_run.state(uid), expected, "{checked_run:#?}");
    }
    let some = [all[0].as_str(), all[1].as_str()];
    let run = server.run(Some(&some));
    let checked_run = server.finish(&run, &all[..2]);
    let message = checked_run.programs["whole"]["error.message"].as_str().unwrap();
    assert!(message.contains("ran"), "a part of it fails as it does without Heeler: {message}");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn program_that_reads_flags_by_abseil_and_crashes_after_its_listing_is_listed() {
    // The first listing does not write the file, because Abseil does not support `--gtest_flagfile`.
    let script = r#"#!/bin/sh
for word; do
    case $word in --gtest_output=xml:*) file=${word#--gtest_output=xml:} ;; esac
done
printf 'a banner of the program\nSuite.\n  Case\n'
if [ -n "$file" ]; then
    echo '<testsuites tests="1" name="AllTests"><testsuite name="Suite" tests="1">' > "$file"
    echo '<testcase name="Case" file="x.cc" line="3" /></testsuite></testsuites>' >> "$file"
fi
kill -ABRT $$
"#;
    let world = TestWorld::new();
    world.write_program("crashing", script);
    let ran = world.run(&["list", "crashing", "--framework", "gtest"]).assert_code(0);
    ran.assert_stdout("Suite.Case");
    ran.assert_stderr("SIGABRT");
}
