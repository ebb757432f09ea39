//! Invalid user input: each mistake leads to one clear error or one clear result, and no results are lost.

use serde_json::json;

use crate::support::{
    checked_run::CheckedRun,
    server::{TestServer, run_id},
    uids,
    world::TestWorld,
};

/// Runs all tests of one program.
fn run_all(world: &TestWorld, program: &str, selected: &[String]) -> CheckedRun {
    let mut server = TestServer::initialized(world, &[program]);
    let run = server.run(None);
    let checked_run = server.finish(&run, selected);
    assert_eq!(server.exit(), Some(0));
    checked_run
}

/// Lists a program that cannot be listed; returns the only error message.
#[track_caller]
fn listing_error(world: &TestWorld, program: &str) -> String {
    let checked_run = run_all(world, program, &[program.to_owned()]);
    assert_eq!(
        (checked_run.state(program), &checked_run.test(program)["outcome-kind"]),
        ("error", &json!("not-run"))
    );
    checked_run.message(program).to_owned()
}

#[test]
fn non_test_program_yields_one_error() {
    let world = TestWorld::new();
    std::os::unix::fs::symlink("/bin/true", world.path("true")).unwrap();
    let message = listing_error(&world, "true");
    assert!(message.contains("true"), "{message}");
    world.write("script", "#!/bin/sh\necho hello\n");
    let message = listing_error(&executable(world, "script"), "script");
    assert!(message.contains("script"), "{message}");
}

fn executable(world: TestWorld, name: &str) -> TestWorld {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(world.path(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    world
}

#[test]
fn non_executable_file_yields_one_error() {
    let world = TestWorld::new();
    world.write("text", "no program at all\n");
    let message = listing_error(&world, "text");
    assert!(message.contains("is not executable"), "{message}");
    world.write("formatless", "\u{1}\u{2}no format that the system knows");
    let message = listing_error(&executable(world, "formatless"), "formatless");
    assert!(message.contains("formatless"), "{message}");
}

#[test]
fn program_removed_after_listing_is_reported() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = TestServer::initialized(&world, &["deaths"]);
    let id = server.request("testing/discoverTests", json!({"runId": run_id(1)}));
    server.wait_response(id);
    std::fs::remove_file(world.path("deaths")).unwrap();
    let run = server.run(Some(&["deaths::First.One"]));
    let checked_run = server.finish(&run, &uids("deaths", ["First.One"]));
    assert_eq!(checked_run.state("deaths::First.One"), "error");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn failed_listing_yields_one_error_with_output() {
    let message = listing_error(&TestWorld::with_fake("fails-in-listing"), "fails-in-listing");
    assert!(message.contains("the licence server does not answer") && message.contains('3'), "{message}");
    let message = listing_error(&TestWorld::with_fake("crashes-in-listing"), "crashes-in-listing");
    assert!(message.contains("SIGABRT"), "{message}");
    let message = listing_error(&TestWorld::with_fake("lists-garbage"), "lists-garbage");
    assert!(message.contains("lists-garbage"), "{message}");
}

#[test]
fn hanging_listing_times_out() {
    let world = TestWorld::with_fake("hangs-in-listing");
    world.write("heeler.toml", "[profile.default]\nlist-timeout = \"300ms\"\n");
    let message = listing_error(&world, "hangs-in-listing");
    assert!(message.contains("0.3 s"), "{message}");
}

#[test]
fn working_listing_gets_the_same_time_once_more() {
    let world = TestWorld::with_gtest("faults");
    let program = |name: &str, seconds: u32| {
        let wait = format!("end=$((SECONDS + {seconds})); while [ $SECONDS -lt $end ]; do :; done");
        world.write_program(name, &format!("#!/bin/bash\n{wait}\nexec ./faults \"$@\"\n"));
    };
    // `slow` takes longer than the timeout, but less than twice as long; `endless` takes much longer.
    program("slow", 4);
    program("endless", 1000);
    world.write(
        "heeler.toml",
        "[profile.default]\nlist-timeout = \"3s\"\n\
         [[suite]]\nname = \"slow\"\nprograms = [\"slow\"]\nframework = \"gtest\"\n\
         [[suite]]\nname = \"endless\"\nprograms = [\"endless\"]\nframework = \"gtest\"\n",
    );
    let ran = world.run(&["list"]);
    ran.assert_stdout("N/Fault.Case/0").assert_stderr("timed out after 3 s");
}

#[test]
fn run_with_possibly_matching_unlisted_program_fails() {
    let world = TestWorld::with_fake("crashes-in-listing");
    world.gtest("deaths");
    let words = ["run", "./crashes-in-listing", "./deaths", "--no-history", "-E"];
    world.run(&[&words[..], &["First"]].concat()).assert_code(2).assert_stdout("crashes-in-listing");
    world.run(&[&words[..], &["suite(deaths) & test(First)"]].concat()).assert_code(0);
}

#[test]
fn killed_listing_is_retried_once() {
    let world = TestWorld::with_fake("crashes-in-its-first-listing");
    world.env("HEELER_FIXTURE_FLAKY", world.path("was-there").to_str().unwrap());
    world.run(&["run", "./crashes-in-its-first-listing"]).assert_code(0).assert_stdout("4 passed");
}

#[test]
fn broken_program_does_not_block_others() {
    let world = TestWorld::with_fake("crashes-in-listing");
    world.gtest("deaths");
    let ran = world.run(&["run", "./crashes-in-listing", "./deaths"]).assert_code(2);
    ran.line_with(&["PASS", "First.One"]);
    ran.assert_stdout("crashes-in-listing");
}

#[test]
fn tests_of_one_name_each_have_a_result() {
    let world = TestWorld::with_fake("lists-duplicates");
    let selected = uids("lists-duplicates", ["Fake.One", "Fake.Duplicate", "Fake.Duplicate#2", "Fake.Last"]);
    let checked_run = run_all(&world, "lists-duplicates", &selected);
    checked_run.assert_all("passed").assert_no_program_failures();
}

/// The names in `odd_names.cc`, in the same order.
fn odd_names() -> Vec<String> {
    let names = [
        "with space",
        "quo\"te'",
        "st*r",
        "que?",
        "co:lon",
        "da-sh",
        "-leading",
        "new\nline",
        "ünï 名",
        "dot.dot",
        "sl/ash",
        "$HOME `id`;",
        "<xml&>",
        "tab\t",
        "back\\slash",
        "#hash",
        "per%cent",
        "stxr",
        "que!",
        "co!lon",
    ];
    names
        .into_iter()
        .map(str::to_owned)
        .chain([format!("Odd.{}", "m".repeat(1 << 20))[4..].to_owned()])
        .collect()
}

#[test]
fn odd_names_run_with_their_own_results() {
    let world = TestWorld::with_gtest("odd_names");
    let names: Vec<String> = odd_names().iter().map(|name| format!("Odd.{name}")).collect();
    let selected = uids("odd_names", names.iter().map(String::as_str));
    let checked_run = run_all(&world, "odd_names", &selected);
    for (number, uid) in selected.iter().enumerate() {
        let short: String = uid.chars().take(60).collect();
        assert_eq!(checked_run.state(uid), "passed", "{short}");
        assert_eq!(checked_run.test(uid)["standardOutput"], format!("number {number}\n"), "{short}");
    }
    checked_run.assert_no_program_failures();
}

#[test]
fn odd_names_can_be_selected_singly() {
    let world = TestWorld::with_gtest("odd_names");
    let mut server = TestServer::initialized(&world, &["odd_names"]);
    for (number, name) in odd_names().iter().enumerate() {
        let uid = format!("odd_names::Odd.{name}");
        let run = server.run(Some(&[&uid]));
        let checked_run = server.finish(&run, std::slice::from_ref(&uid));
        let short: String = uid.chars().take(60).collect();
        assert_eq!(checked_run.state(&uid), "passed", "{short}");
        // GoogleTest filter patterns have no escapes, so the pattern for one test may match another one.
        let output = checked_run.test(&uid)["standardOutput"].as_str().unwrap();
        assert!(output.starts_with(&format!("number {number}\n")), "{short}: {output}");
    }
}

#[test]
fn odd_names_are_escaped_in_display_and_report() {
    let world = TestWorld::with_gtest("odd_names");
    let ran =
        world.run(&["run", "odd_names", "--junit", "junit.xml", "--status-level", "all"]).assert_code(0);
    assert!(ran.stdout.len() < 100_000, "a megabyte of name is not printed");
    ran.line_with(&["PASS", r"Odd.new\nline"]);
    let report = world.read("junit.xml");
    assert!(report.contains("name=\"&lt;xml&amp;&gt;\" classname=\"Odd\""), "names are escaped");
}

#[test]
fn non_utf8_output_is_kept_lossily() {
    let world = TestWorld::with_gtest("output");
    let names = [
        "Output.Flood",
        "Output.OneLineWithoutEnd",
        "Output.NotUtf8",
        "Output.FailsNotUtf8",
        "Output.Nul",
        "Output.Escapes",
        "Output.Last",
    ];
    let checked_run = run_all(&world, "output", &uids("output", names));
    let output = |name: &str| {
        checked_run.test(&format!("output::Output.{name}"))["standardOutput"].as_str().unwrap_or_default()
    };
    assert_eq!(output("NotUtf8"), "before \u{fffd}\u{fffd}\u{fffd} after\n");
    assert_eq!(output("Nul"), "nul \0 byte\n");
    assert!(output("Escapes").contains("\u{1b}[31mred"));
    assert_eq!(checked_run.state("output::Output.FailsNotUtf8"), "failed");
    let message = checked_run.message("output::Output.FailsNotUtf8");
    assert!(message.contains("in the message"), "{message}");
    assert_eq!(checked_run.state("output::Output.Last"), "passed");
    // Terminal output must not contain a test's escape sequences, which could move the cursor.
    let ran = world
        .run(&["run", "output", "-E", "FailsNotUtf8", "-E", "Escapes", "--junit", "j.xml"])
        .assert_code(2);
    assert!(!ran.stdout.contains('\u{1b}') && !world.read("j.xml").contains('\u{1b}'));
}

#[test]
fn large_output_keeps_head_and_tail() {
    let world = TestWorld::with_gtest("output");
    world.env("HEELER_FIXTURE_FLOOD_MIB", "256");
    world.write("heeler.toml", "[profile.default]\njobs = 1\noutput-limit = \"64KiB\"\n");
    let mut server = TestServer::initialized(&world, &["output"]);
    let selected = uids("output", ["Output.Flood", "Output.Last"]);
    let run = server.run(Some(&["output::Output.Flood", "output::Output.Last"]));
    let checked_run = server.finish(&run, &selected);
    checked_run.assert_all("passed");
    let text = checked_run.test("output::Output.Flood")["standardOutput"].as_str().unwrap();
    assert!(text.starts_with("the very first line\n"), "{}", &text[..100]);
    assert!(text.ends_with("the very last line\n"), "{}", &text[text.len() - 100..]);
    assert!(text.contains("bytes cut ...]") && text.len() < 70 << 10, "{} bytes", text.len());
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn endless_line_is_truncated() {
    let world = TestWorld::with_gtest("output");
    world.env("HEELER_FIXTURE_FLOOD_MIB", "64");
    world.write("heeler.toml", "[profile.default]\noutput-limit = \"64KiB\"\n");
    let mut server = TestServer::initialized(&world, &["output"]);
    let run = server.run(Some(&["output::Output.OneLineWithoutEnd"]));
    let checked_run = server.finish(&run, &uids("output", ["Output.OneLineWithoutEnd"]));
    checked_run.assert_all("passed");
    assert!(
        checked_run.test("output::Output.OneLineWithoutEnd")["standardOutput"].as_str().unwrap().len()
            < 70 << 10
    );
}

#[test]
fn test_leaves_no_children_behind() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    let mut server = TestServer::initialized(&world, &["meet"]);
    let run = server.run(Some(&["meet::Away.Family"]));
    let connected = rendezvous.next_test();
    connected.send_command(b'.');
    let checked_run = server.finish(&run, &uids("meet", ["Away.Family"]));
    checked_run.assert_all("passed");
    connected.wait_gone();
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn huge_request_is_accepted() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = TestServer::initialized(&world, &["deaths"]);
    let uids: Vec<String> = (0..50_000).map(|n| format!("deaths::Gone.{n}")).collect();
    let run = server.run(Some(&uids.iter().map(String::as_str).collect::<Vec<_>>()));
    let checked_run = server.finish(&run, &uids);
    checked_run.assert_all("error");
    assert_eq!(server.exit(), Some(0));
}
