//! Invalid user input: each case yields one clear error or one clear result, and nothing is lost.

use serde_json::json;

use crate::support::{
    books::Books,
    server::{Server, run_id},
    uids,
    world::World,
};

/// Runs everything of one program.
fn run_all(world: &World, program: &str, selected: &[String]) -> Books {
    let mut server = Server::ready(world, &[program]);
    let run = server.run(None);
    let books = server.finish(&run, selected);
    assert_eq!(server.exit(), Some(0));
    books
}

/// Runs a program that cannot be listed; returns its only message.
#[track_caller]
fn broken(world: &World, program: &str) -> String {
    let books = run_all(world, program, &[program.to_owned()]);
    assert_eq!((books.state(program), &books.test(program)["outcome-kind"]), ("error", &json!("not-run")));
    books.message(program).to_owned()
}

#[test]
fn a_program_that_is_no_test_is_one_clear_error() {
    let world = World::new();
    std::os::unix::fs::symlink("/bin/true", world.path("true")).unwrap();
    let message = broken(&world, "true");
    assert!(message.contains("true"), "{message}");
    world.write("script", "#!/bin/sh\necho hello\n");
    let message = broken(&executable(world, "script"), "script");
    assert!(message.contains("script"), "{message}");
}

fn executable(world: World, name: &str) -> World {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(world.path(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    world
}

#[test]
fn a_file_that_cannot_be_executed_is_one_clear_error() {
    let world = World::new();
    world.write("text", "no program at all\n");
    let message = broken(&world, "text");
    assert!(message.contains("is not executable"), "{message}");
    world.write("noise", "\u{1}\u{2}no format that the system knows");
    let message = broken(&executable(world, "noise"), "noise");
    assert!(message.contains("noise"), "{message}");
}

#[test]
fn a_program_that_vanishes_after_its_listing_is_told() {
    let world = World::with_gtest("deaths");
    let mut server = Server::ready(&world, &["deaths"]);
    let id = server.request("testing/discoverTests", json!({"runId": run_id(1)}));
    server.answer(id);
    std::fs::remove_file(world.path("deaths")).unwrap();
    let run = server.run(Some(&["deaths::First.One"]));
    let books = server.finish(&run, &uids("deaths", ["First.One"]));
    assert_eq!(books.state("deaths::First.One"), "error");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn a_listing_that_fails_is_one_clear_error_with_what_the_program_said() {
    let message = broken(&World::with_fake("fails-in-listing"), "fails-in-listing");
    assert!(message.contains("the licence server does not answer") && message.contains('3'), "{message}");
    let message = broken(&World::with_fake("crashes-in-listing"), "crashes-in-listing");
    assert!(message.contains("SIGABRT"), "{message}");
    let message = broken(&World::with_fake("lists-garbage"), "lists-garbage");
    assert!(message.contains("lists-garbage"), "{message}");
}

#[test]
fn a_listing_that_hangs_is_given_up() {
    let world = World::with_fake("hangs-in-listing");
    world.write("heeler.toml", "[profile.default]\nlist-timeout = \"300ms\"\n");
    let message = broken(&world, "hangs-in-listing");
    assert!(message.contains("0.3 s"), "{message}");
}

#[test]
fn a_run_whose_filter_may_mean_tests_that_nobody_could_list_has_not_passed() {
    let world = World::with_fake("crashes-in-listing");
    world.gtest("deaths");
    let words = ["run", "./crashes-in-listing", "./deaths", "--no-history", "-E"];
    world.run(&[&words[..], &["First"]].concat()).code(2).says("crashes-in-listing");
    world.run(&[&words[..], &["suite(deaths) & test(First)"]].concat()).code(0);
}

#[test]
fn a_program_that_is_killed_while_it_lists_is_asked_once_more() {
    let world = World::with_fake("crashes-in-its-first-listing");
    world.env("HEELER_FIXTURE_FLAKY", world.path("was-there").to_str().unwrap());
    world.run(&["run", "./crashes-in-its-first-listing"]).code(0).says("4 passed");
}

#[test]
fn one_broken_program_does_not_keep_the_others_from_running() {
    let world = World::with_fake("crashes-in-listing");
    world.gtest("deaths");
    let ran = world.run(&["run", "./crashes-in-listing", "./deaths"]).code(2);
    ran.line(&["PASS", "First.One"]);
    ran.says("crashes-in-listing");
}

#[test]
fn of_two_tests_with_one_name_the_first_is_run_and_the_second_told_why_not() {
    let world = World::with_fake("lists-twins");
    let selected = uids("lists-twins", ["Fake.One", "Fake.Twin", "Fake.Twin#2", "Fake.Last"]);
    let books = run_all(&world, "lists-twins", &selected);
    for name in ["One", "Twin", "Last"] {
        assert_eq!(books.state(&format!("lists-twins::Fake.{name}")), "passed");
    }
    let message = books.message("lists-twins::Fake.Twin#2");
    assert!(message.contains("2 tests of this name"), "{message}");
}

/// The names of `odd_names.cc`, in its order.
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
fn names_that_no_sane_person_gives_run_and_keep_their_own_results() {
    let world = World::with_gtest("odd_names");
    let names: Vec<String> = odd_names().iter().map(|name| format!("Odd.{name}")).collect();
    let selected = uids("odd_names", names.iter().map(String::as_str));
    let books = run_all(&world, "odd_names", &selected);
    for (number, uid) in selected.iter().enumerate() {
        let short: String = uid.chars().take(60).collect();
        assert_eq!(books.state(uid), "passed", "{short}");
        assert_eq!(books.test(uid)["standardOutput"], format!("number {number}\n"), "{short}");
    }
    books.no_charges();
}

#[test]
fn each_odd_name_can_be_run_alone() {
    let world = World::with_gtest("odd_names");
    let mut server = Server::ready(&world, &["odd_names"]);
    for (number, name) in odd_names().iter().enumerate() {
        let uid = format!("odd_names::Odd.{name}");
        let run = server.run(Some(&[&uid]));
        let books = server.finish(&run, std::slice::from_ref(&uid));
        let short: String = uid.chars().take(60).collect();
        assert_eq!(books.state(&uid), "passed", "{short}");
        // GoogleTest has no escapes: a pattern may also select a neighbour before or after the intended test.
        let output = books.test(&uid)["standardOutput"].as_str().unwrap();
        assert!(output.starts_with(&format!("number {number}\n")), "{short}: {output}");
    }
}

#[test]
fn odd_names_do_no_harm_to_the_display_and_the_report() {
    let world = World::with_gtest("odd_names");
    let ran = world.run(&["run", "odd_names", "--junit", "junit.xml", "--status-level", "all"]).code(0);
    assert!(ran.stdout.len() < 100_000, "a megabyte of name is not printed");
    ran.line(&["PASS", r"Odd.new\nline"]);
    let report = world.read("junit.xml");
    assert!(report.contains("Odd.&lt;xml&amp;&gt;"), "names are escaped");
}

#[test]
fn output_that_is_no_text_is_kept_as_well_as_it_can_be() {
    let world = World::with_gtest("output");
    let names = [
        "Output.Flood",
        "Output.OneLineWithoutEnd",
        "Output.NotUtf8",
        "Output.FailsNotUtf8",
        "Output.Nul",
        "Output.Escapes",
        "Output.Last",
    ];
    let books = run_all(&world, "output", &uids("output", names));
    let output = |name: &str| {
        books.test(&format!("output::Output.{name}"))["standardOutput"].as_str().unwrap_or_default()
    };
    assert_eq!(output("NotUtf8"), "before \u{fffd}\u{fffd}\u{fffd} after\n");
    assert_eq!(output("Nul"), "nul \0 byte\n");
    assert!(output("Escapes").contains("\u{1b}[31mred"));
    assert_eq!(books.state("output::Output.FailsNotUtf8"), "failed");
    let message = books.message("output::Output.FailsNotUtf8");
    assert!(message.contains("in the message"), "{message}");
    assert_eq!(books.state("output::Output.Last"), "passed");
    // On the command line no part of the name may move the cursor.
    let ran =
        world.run(&["run", "output", "-E", "FailsNotUtf8", "-E", "Escapes", "--junit", "j.xml"]).code(2);
    assert!(!ran.stdout.contains('\u{1b}') && !world.read("j.xml").contains('\u{1b}'));
}

#[test]
fn a_flood_of_output_is_capped_and_its_head_and_tail_are_kept() {
    let world = World::with_gtest("output");
    world.env("HEELER_FIXTURE_FLOOD_MIB", "1024");
    world.write("heeler.toml", "[profile.default]\njobs = 1\noutput-limit = \"64KiB\"\n");
    let mut server = Server::ready(&world, &["output"]);
    let selected = uids("output", ["Output.Flood", "Output.Last"]);
    let run = server.run(Some(&["output::Output.Flood", "output::Output.Last"]));
    let books = server.finish(&run, &selected);
    books.all("passed");
    let text = books.test("output::Output.Flood")["standardOutput"].as_str().unwrap();
    assert!(text.starts_with("the very first line\n"), "{}", &text[..100]);
    assert!(text.ends_with("the very last line\n"), "{}", &text[text.len() - 100..]);
    assert!(text.contains("bytes cut ...]") && text.len() < 70 << 10, "{} bytes", text.len());
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn one_endless_line_is_capped_too() {
    let world = World::with_gtest("output");
    world.env("HEELER_FIXTURE_FLOOD_MIB", "64");
    world.write("heeler.toml", "[profile.default]\noutput-limit = \"64KiB\"\n");
    let mut server = Server::ready(&world, &["output"]);
    let run = server.run(Some(&["output::Output.OneLineWithoutEnd"]));
    let books = server.finish(&run, &uids("output", ["Output.OneLineWithoutEnd"]));
    books.all("passed");
    assert!(
        books.test("output::Output.OneLineWithoutEnd")["standardOutput"].as_str().unwrap().len() < 70 << 10
    );
}

#[test]
fn a_test_leaves_no_children_behind() {
    let world = World::with_gtest("meet");
    let meet = world.meet();
    let mut server = Server::ready(&world, &["meet"]);
    let run = server.run(Some(&["meet::Away.Family"]));
    let guest = meet.next();
    guest.say(b'.');
    let books = server.finish(&run, &uids("meet", ["Away.Family"]));
    books.all("passed");
    guest.wait_gone();
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn a_huge_request_is_no_trouble() {
    let world = World::with_gtest("deaths");
    let mut server = Server::ready(&world, &["deaths"]);
    let uids: Vec<String> = (0..50_000).map(|n| format!("deaths::Gone.{n}")).collect();
    let run = server.run(Some(&uids.iter().map(String::as_str).collect::<Vec<_>>()));
    let books = server.finish(&run, &uids);
    books.all("error");
    assert_eq!(server.exit(), Some(0));
}
