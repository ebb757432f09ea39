//! Resource usage of test processes: memory and CPU time, wherever people and tools read them.

use crate::support::{callback_listener::ListenerBehaviour, server::TestServer, uids, world::TestWorld};

/// More memory than a process uses without the test's allocation, but less than the fixture's test uses.
const HOG_KIB: u64 = 40 << 10;

#[test]
fn single_test_process_reports_usage() {
    let world = TestWorld::with_gtest("resources");
    world.write("heeler.toml", "[profile.default]\nisolate = true\n");
    let mut server = TestServer::with_callback(&world, &["resources"], |_| ListenerBehaviour::Normal);
    let run = server.run(None);
    let checked_run = server.finish(&run, &uids("resources", ["Takes.Little", "Takes.Memory", "Takes.Time"]));
    let peak = |name: &str| {
        checked_run.test(&format!("resources::{name}"))["heeler.peak-memory-kib"].as_u64().unwrap()
    };
    let cpu = |name: &str| checked_run.test(&format!("resources::{name}"))["heeler.cpu-ms"].as_f64().unwrap();
    assert!(peak("Takes.Memory") > HOG_KIB && peak("Takes.Little") < HOG_KIB);
    assert!(cpu("Takes.Time") >= 50.0 && cpu("Takes.Time") > cpu("Takes.Little"));
    assert!(checked_run.response["result"]["heeler.largest"].is_null());
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn batch_usage_is_reported_once() {
    let world = TestWorld::with_gtest("resources");
    world.write("heeler.toml", "[profile.default]\njobs = 1\n");
    let mut server = TestServer::initialized(&world, &["resources"]);
    let run = server.run(None);
    let checked_run = server.finish(&run, &uids("resources", ["Takes.Little", "Takes.Memory", "Takes.Time"]));
    assert!(checked_run.test("resources::Takes.Memory")["heeler.peak-memory-kib"].is_null());
    let largest = &checked_run.response["result"]["heeler.largest"][0];
    assert_eq!((&largest["suite"], &largest["tests"]), (&"resources".into(), &3.into()));
    assert!(largest["peak-memory-kib"].as_u64().unwrap() > HOG_KIB, "{largest}");
    assert!(largest["cpu-ms"].as_f64().unwrap() >= 50.0, "{largest}");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn summary_names_largest_tests_on_request() {
    let world = TestWorld::with_gtest("resources");
    let words = ["run", "resources", "-j1", "--junit", "report.xml"];
    let quiet = world.run(&words).assert_code(0);
    assert!(!quiet.stdout.contains("Largest"), "{quiet}");
    let together = world.run(&[&words[..], &["--status-level", "all"]].concat()).assert_code(0);
    together.line_with(&["Largest", "MiB", "resources", "(process with 3 tests)"]);
    let isolated = world.run(&[&words[..], &["--status-level", "all", "--isolate"]].concat()).assert_code(0);
    isolated.line_with(&["Largest", "MiB", "Takes.Memory"]);
    let report = world.read("report.xml");
    assert_eq!(report.matches("heeler.peak-memory-kib").count(), 3, "{report}");
    assert_eq!(report.matches("heeler.cpu-ms").count(), 3, "{report}");
    let history = rusqlite::Connection::open(world.path(".heeler/history.sqlite")).unwrap();
    let sql = "SELECT count(*), max(peak_kib), max(cpu_us) FROM test WHERE peak_kib IS NOT NULL";
    let read: (i64, i64, i64) =
        history.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    assert!(read.0 == 3 && read.1 > HOG_KIB.cast_signed() && read.2 >= 50_000, "{read:?}");
}
