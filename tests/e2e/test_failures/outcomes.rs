//! The outcome and time members of a result: every value of `outcome-kind`, and `time.*`.

use serde_json::Value;

use crate::support::{
    checked_run::CheckedRun, process::ProcessRole, process::signal, server::TestServer, uids,
    world::TestWorld,
};

/// Returns the outcome kinds of these tests, in order; an empty string if the result has none.
fn kinds<'b>(checked_run: &'b CheckedRun, uids: &[String]) -> Vec<&'b str> {
    uids.iter().map(|uid| checked_run.test(uid)["outcome-kind"].as_str().unwrap_or_default()).collect()
}

#[test]
fn outcome_kinds_match_results() {
    let world = TestWorld::with_gtest("kinds");
    world.write(
        "heeler.toml",
        "[profile.default]\nidle-timeout = \"300ms\"\ngrace-period = \"200ms\"\njobs = 1\n\
         [[profile.default.override]]\nfilter = \"Sleeps\"\ntimeout = \"50ms\"\n",
    );
    let mut server = TestServer::initialized(&world, &["kinds"]);
    let names =
        ["Math.Add", "Math.Fail", "Math.Skip", "Crash.Segv", "Crash.Exit0", "Leak.Child", "Hang.Forever"];
    let mut selected = uids("kinds", names);
    selected.extend(uids("kinds", ["Slow.Sleeps300Milliseconds", "No.Such"]));
    let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
    let checked_run = server.finish(&run, &selected);
    let expected = ["", "", "", "crashed", "exited-early", "leaky", "idle", "", "not-run"];
    assert_eq!(kinds(&checked_run, &selected), expected, "{checked_run:#?}");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn test_with_lost_process_is_reported_lost() {
    let world = TestWorld::with_gtest("kinds");
    world.write("heeler.toml", "[profile.default]\nisolate = true\njobs = 1\n");
    let mut server = TestServer::initialized(&world, &["kinds"]);
    let selected = uids("kinds", ["Hang.Forever"]);
    let run = server.run(Some(&[&selected[0]]));
    for attempt in 1..=3 {
        server.recorder.wait("the test to begin", |events| {
            let updates = events.iter().filter_map(|event| event.params("testing/testUpdates/tests"));
            let changes = updates.filter_map(|params| params["changes"].as_array()).flatten();
            let begun = changes.filter(|change| change["node"]["execution-state"] == "in-progress").count();
            (begun >= attempt).then_some(())
        });
        signal(server.processes(ProcessRole::Guard)[0], "KILL");
    }
    let checked_run = server.finish(&run, &selected);
    assert_eq!((checked_run.state(&selected[0]), kinds(&checked_run, &selected)), ("error", vec!["lost"]));
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn times_are_ordered_and_only_for_run_tests() {
    let world = TestWorld::with_gtest("kinds");
    world.write("heeler.toml", "[profile.default]\njobs = 1\n");
    let mut server = TestServer::initialized(&world, &["kinds"]);
    let selected = uids("kinds", ["Math.Add", "Math.Fail", "Crash.Segv", "Math.DISABLED_Off", "No.Such"]);
    let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
    let checked_run = server.finish(&run, &selected);
    for uid in &selected {
        let node = checked_run.test(uid);
        let [start, stop] = ["time.start-utc", "time.stop-utc"].map(|name| day_and_milliseconds(&node[name]));
        if uid.ends_with("Off") || uid.ends_with("Such") {
            assert_eq!(start, None, "{node:#}");
            assert!(node["time.duration-ms"].as_f64().is_none_or(|duration| duration == 0.0), "{node:#}");
            continue;
        }
        let ((first_day, start), (last_day, stop)) = (start.unwrap(), stop.unwrap());
        assert!((&first_day, start) <= (&last_day, stop), "{node:#}");
        let duration = node["time.duration-ms"].as_f64().unwrap();
        // Both the framework's clock and the wall-clock time are truncated to milliseconds.
        let is_within = |limit: u32| (0.0..=f64::from(limit) + 2.0).contains(&duration);
        assert!(first_day != last_day || is_within(stop - start), "{node:#}");
    }
    assert_eq!(server.exit(), Some(0));
}

/// Splits a time such as `2026-02-03T04:05:06.789Z` into its date and the milliseconds since midnight.
fn day_and_milliseconds(time: &Value) -> Option<(String, u32)> {
    let time = time.as_str()?;
    let (date, clock) = time.split_once('T').unwrap();
    assert_eq!(
        (date.len(), date.matches('-').count(), clock.len(), &clock[12..]),
        (10, 2, 13, "Z"),
        "{time}"
    );
    let numbers: Vec<u32> = clock[..12].split([':', '.']).map(|number| number.parse().unwrap()).collect();
    Some((date.to_owned(), ((numbers[0] * 60 + numbers[1]) * 60 + numbers[2]) * 1000 + numbers[3]))
}
