//! Stress runs: all tests are repeated until a duration has elapsed or the run is cancelled.

use std::{collections::BTreeMap, process::Stdio};

use crate::support::{process, world::TestWorld};

#[test]
fn stress_run_goes_round_and_a_failure_names_its_iteration() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    let words = ["run", "meet", "-j", "1", "--isolate", "-E", "N/Meet.Case/0", "-E", "N/Meet.Case/1"];
    let mut heeler = world.heeler(&[&words[..], &["--stress-count", "infinite"]].concat());
    heeler.stderr(Stdio::piped());
    let mut running = heeler.spawn().unwrap();
    let mut times = BTreeMap::<String, u32>::new();
    for _ in 0..7 {
        let test = rendezvous.next_test();
        let seen = times.entry(test.test_name.clone()).or_default();
        *seen += 1;
        if test.test_name.ends_with("Case/0") && *seen == 3 {
            test.send_command(b'f');
        } else {
            test.release();
        }
    }
    // The failed test is reported, and the other test continues.
    assert_eq!(times.into_values().collect::<Vec<_>>(), [3, 4], "in turn");
    let last = rendezvous.next_test();
    assert!(last.test_name.ends_with("Case/1"), "{}", last.test_name);
    process::signal(running.id(), "INT");
    let output = std::io::read_to_string(running.stderr.take().unwrap()).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(3), "{output}");
    assert!(output.contains("in iteration 3: "), "{output}");
    assert!(output.contains("1 failed"), "{output}");
}

#[test]
fn stress_run_ends_when_its_time_has_elapsed() {
    let world = TestWorld::with_gtest("kinds");
    world.note_starts();
    let words = ["run", "kinds", "-E", "Math.Add", "--isolate", "-j", "1"];
    let ran = world.run(&[&words[..], &["--stress-duration", "300ms"]].concat()).assert_code(0);
    ran.assert_stdout("1 passed");
    assert!(world.starts().len() > 1, "{ran}");
    // The duration has elapsed by the end of the first iteration.
    world.write("starts", "");
    world.run(&[&words[..], &["--stress-duration", "1ms"]].concat()).assert_code(0);
    assert_eq!(world.starts().len(), 1, "each test runs at least once");
    let ran = world.run(&["run", "kinds", "--stress-duration", "1s", "--repeat", "2"]).assert_code(5);
    ran.assert_stderr("cannot be used with");
    world.run(&["run", "kinds", "-E", "Math.Add", "--repeat", "until-fail:3"]).assert_code(0);
    let ran = world.run(&["run", "kinds", "--repeat", "until-pass:3"]).assert_code(5);
    ran.assert_stderr("--retries N");
}
