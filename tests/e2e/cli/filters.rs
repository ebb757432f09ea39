//! Filters on the command line, in `heeler.toml` and in requests, with the real program.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{
    server::{RequestedRun, TestServer, run_id},
    world::TestWorld,
};

const CRASHES: [&str; 6] = ["Abort", "Exit0", "ForgesItsEndAndDies", "Killed", "QuickExit0", "Segv"];

/// Returns a world with two programs.
fn two_programs() -> TestWorld {
    let world = TestWorld::with_gtest("kinds");
    world.gtest("meet");
    world
}

/// Returns the uids that `heeler list` prints with these filters.
#[track_caller]
fn listed(world: &TestWorld, filters: &[&str]) -> BTreeSet<String> {
    let mut words = vec!["list", "kinds", "meet", "--format", "names"];
    for filter in filters {
        words.extend(["-E", filter]);
    }
    let ran = world.run(&words).assert_code(0);
    ran.stdout.lines().map(str::to_owned).collect()
}

fn set<S: AsRef<str>>(uids: &[S]) -> BTreeSet<String> {
    uids.iter().map(|uid| uid.as_ref().to_owned()).collect()
}

#[test]
fn expression_selects_by_name_suite_and_program() {
    let world = two_programs();
    let crashes = set(&CRASHES.map(|name| format!("kinds::Crash.{name}")));
    let without_segv: BTreeSet<_> = crashes.iter().filter(|uid| !uid.ends_with("Segv")).cloned().collect();
    let rendezvous = set(&[
        "Away.Deaf",
        "Away.Family",
        "N/Meet.Case/0",
        "N/Meet.Case/1",
        "N/Meet.Case/2",
        "N/Meet.Case/3",
    ]
    .map(|name| format!("meet::{name}")));
    let path = world.path("meet");
    for (filter, expected) in [
        ("test(Crash.)", &crashes),
        ("test(#Crash.*)", &crashes),
        ("test(/::Crash\\./)", &crashes),
        ("suite(kinds) & test(Crash.)", &crashes),
        ("suite(kinds) and test(Crash.) - test(=Crash.Segv)", &without_segv),
        ("test(Crash.) & not test(/Seg[vx]$/)", &without_segv),
        ("tag(value_param=2) & suite(meet)", &set(&["meet::N/Meet.Case/2"])),
        ("tag(disabled)", &set(&["kinds::Math.DISABLED_Off"])),
        ("suite(meet)", &rendezvous),
        ("program(meet)", &rendezvous),
        (&format!("program(={})", path.display()), &rendezvous),
        ("!suite(kinds)", &rendezvous),
        ("none() | (all() & suite(me?t))", &rendezvous),
        ("state(new) & suite(meet)", &rendezvous),
    ] {
        assert_eq!(&listed(&world, &[filter]), expected, "{filter}");
    }
    let both: BTreeSet<_> = crashes.union(&rendezvous).cloned().collect();
    assert_eq!(listed(&world, &["Crash.*", "suite(meet)"]), both, "any one of several filters is enough");
}

#[test]
fn state_filter_selects_last_failures() {
    let world = TestWorld::with_gtest("kinds");
    let names = |filter: &str| {
        let ran = world.run(&["list", "kinds", "--format", "names", "-E", filter]);
        set(&ran.stdout.lines().collect::<Vec<_>>())
    };
    world.run(&["run", "kinds", "-E", "Math.*", "-E", "Crash.Segv"]).assert_code(2);
    assert_eq!(names("state(failed)"), set(&["kinds::Math.Fail", "kinds::Math.Throws"]));
    assert_eq!(names("state(crashed)"), set(&["kinds::Crash.Segv"]));
    assert_eq!(names("state(passed)"), set(&["kinds::Math.Add"]));
    assert_eq!(names("state(skipped)"), set(&["kinds::Math.DISABLED_Off", "kinds::Math.Skip"]));
    assert_eq!(names("state(new) & test(Math)"), set::<&str>(&[]));
    assert!(names("state(never-run)").contains("kinds::Noise.Errors"));
    let ran = world.run(&["run", "kinds", "-E", "state(failed) | state(crashed)"]).assert_code(2);
    ran.line_with(&["FAILED", "3 of 3 tests"]);
    let ran = world.run(&["run", "kinds", "--no-history", "-E", "state(failed)"]).assert_code(5);
    ran.assert_stderr("the filter \"state(failed)\" needs the history, which is off");
}

#[test]
fn empty_filter_result_has_own_exit_code() {
    let world = TestWorld::with_gtest("kinds");
    for filter in
        ["NoSuchTest", "test(NoSuchTest)", "none()", "all() & !all()", "tag(nobody=has)", "state(failed)"]
    {
        let ran = world.run(&["run", "kinds", "-E", filter]).assert_code(8);
        ran.assert_stdout("no test matches -E ");
        world.run(&["list", "kinds", "-E", filter]).assert_code(8);
    }
}

#[test]
fn invalid_filter_is_reported_with_position() {
    let world = TestWorld::with_gtest("kinds");
    world.note_starts();
    let ran = world.run(&["run", "kinds", "-E", "tset(x)"]).assert_code(5);
    ran.assert_stderr("unknown function \"tset\"; did you mean \"test\"?\n  tset(x)\n  ^^^^\n");
    let ran = world.run(&["list", "kinds", "-E", "all() & test(/(x/)"]).assert_code(5);
    ran.assert_stderr(
        "invalid regular expression: unclosed group\n  all() & test(/(x/)\n                ^^\n",
    );
    let ran = world.run(&["run", "kinds", "-E", "test(a) test(b)"]).assert_code(5);
    ran.assert_stderr("expected an operator (&, |, -, and, or) or the end of the filter, found \"t\"\n");
    let deep = format!("{}all(){}", "(".repeat(5_000), ")".repeat(5_000));
    world.run(&["run", "kinds", "-E", &deep]).assert_code(5).assert_stderr("nested deeper than 64 levels");
    world.write("heeler.toml", "[[profile.default.override]]\nfilter = 'test(a) & tset(x)'\nretries = 1\n");
    let ran = world.run(&["run", "kinds"]).assert_code(5);
    ran.assert_stderr(
        "heeler.toml:2:21: expected a substring of a name, a glob or a filter expression for \"filter\"",
    );
    ran.assert_stderr("unknown function \"tset\"; did you mean \"test\"?");
    assert!(world.starts().is_empty(), "nothing was started");
}

#[test]
fn override_accepts_expression() {
    let world = two_programs();
    let text = "[profile.default]\ntimeout = \"1s\"\ngrace-period = \"200ms\"\n\
                [[profile.default.override]]\nfilter = 'suite(kinds) & test(#Math.*) - test(=Math.Throws)'\nretries = 2\n";
    world.write("heeler.toml", text);
    let ran = world.run(&["run", "kinds", "-E", "Math.Fail"]).assert_code(2);
    ran.assert_stdout("attempt 2 (failed)");
    let ran = world.run(&["run", "kinds", "-E", "Math.Throws"]).assert_code(2);
    assert!(!ran.stdout.contains("attempt 1"), "{ran}");
}

/// Returns the uids that a discovery with these parameters reports.
#[track_caller]
fn discovered(server: &mut TestServer<'_>, number: u64, mut params: Value) -> BTreeSet<String> {
    let run_id = run_id(number);
    params["runId"] = json!(run_id);
    let answer = server.request_and_wait("testing/discoverTests", params);
    assert!(answer.get("error").is_none(), "{answer}");
    let events = server.recorder.events();
    let updates = events.iter().filter_map(|event| event.params("testing/testUpdates/tests"));
    let changes =
        updates.filter(|update| update["runId"] == run_id).filter_map(|update| update["changes"].as_array());
    let nodes = changes.flatten().map(|change| &change["node"]);
    let tests = nodes.filter(|node| node["node-type"] == "action");
    tests.map(|node| node["uid"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn graph_query_selects_in_discovery_by_path() {
    let world = two_programs();
    let mut server = TestServer::initialized(&world, &["kinds", "meet"]);
    let works = set(&[0, 1, 2].map(|number| format!("kinds::Inst/P.Works/{number}")));
    let crashes = set(&CRASHES.map(|name| format!("kinds::Crash.{name}")));
    let dies = set(&["kinds::Crash.ForgesItsEndAndDies", "kinds::ADeathTest.Dies"]);
    let nothing = set::<&str>(&[]);
    for (number, (filter, expected)) in [
        ("/kinds/Crash/*", &crashes),
        ("/kinds/Crash/**", &crashes),
        ("/(!meet)/Cr*sh/**", &crashes),
        (r"/kinds/Inst\/P/Works\/*", &works),
        ("/kinds/Inst%2FP/Works%2F*", &works),
        ("/kinds/(*Death*)|(Crash)/(*Dies)&(!Is*)", &dies),
        ("/kinds/Crash", &nothing),
        ("/kinds/**[speed=fast]", &nothing),
        ("/kinds/Crash/**[speed!=fast]", &crashes),
        ("/nobody/**", &nothing),
    ]
    .into_iter()
    .enumerate()
    {
        let found = discovered(&mut server, 100 + number as u64, json!({"filter": filter}));
        assert_eq!(&found, expected, "{filter}");
    }
    let some = json!([{"uid": "kinds::Crash.Segv"}, {"uid": "kinds::Math.Add"}]);
    let both = json!({"tests": some, "filter": "/kinds/Crash/**"});
    assert_eq!(discovered(&mut server, 200, both), set(&["kinds::Crash.Segv"]), "named and taken");
    assert_eq!(discovered(&mut server, 201, json!({"filter": ""})).len(), 38, "an empty one takes all");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn graph_query_selects_by_framework_properties() {
    let world = two_programs();
    let mut server = TestServer::initialized(&world, &["meet"]);
    let found = discovered(&mut server, 1, json!({"filter": "/**[value_param=2]"}));
    assert_eq!(found, set(&["meet::N/Meet.Case/2"]));
    let found = discovered(&mut server, 2, json!({"filter": "/meet/**[type_param=*]"}));
    assert_eq!(found, BTreeSet::new());
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn graph_query_selects_in_rust_modules() {
    let world = TestWorld::with_libtest();
    let mut server = TestServer::initialized(&world, &["libtest"]);
    let found = discovered(&mut server, 1, json!({"filter": "/libtest/deep/down/*"}));
    assert_eq!(found, set(&["libtest::deep::down::is_found"]));
    let found = discovered(&mut server, 2, json!({"filter": "/libtest/(a_*)|(b_*)"}));
    assert_eq!(found, set(&["libtest::a_adds", "libtest::b_prints"]));
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn run_intersects_selection_and_filter() {
    let world = TestWorld::with_gtest("kinds");
    let mut server = TestServer::initialized(&world, &["kinds"]);
    let run = |server: &mut TestServer<'_>, number: u64, mut params: Value| {
        let run_id = run_id(number);
        params["runId"] = json!(run_id);
        RequestedRun { request: server.request("testing/runTests", params), run_id }
    };
    let typed = ["kinds::Typed/0.Default", "kinds::Typed/1.Default"].map(str::to_owned);
    let all = run(&mut server, 1, json!({"filter": "/kinds/Typed*/Default"}));
    server.finish(&all, &typed).assert_all("passed");
    let tests = json!([{"uid": "kinds::Typed/1.Default"}, {"uid": "kinds::Math.Add"}]);
    let both = run(&mut server, 2, json!({"tests": tests, "filter": "/kinds/Typed*/Default"}));
    server.finish(&both, &typed[1..]).assert_all("passed");
    let none = run(&mut server, 3, json!({"filter": "/kinds/Typed*/Nothing"}));
    server.finish(&none, &[]);
    // As on Microsoft Testing Platform, `/` selects nothing and matching ignores case.
    let lone = run(&mut server, 4, json!({"filter": "/"}));
    server.finish(&lone, &[]);
    let any_case = run(&mut server, 5, json!({"filter": "/KINDS/typed*/default"}));
    server.finish(&any_case, &typed).assert_all("passed");
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn invalid_graph_query_is_parameter_error_with_column() {
    let world = TestWorld::with_gtest("kinds");
    let mut server = TestServer::initialized(&world, &["kinds"]);
    server.skip_schema_checks();
    let deep = "/".to_owned() + &"(".repeat(10_000);
    for (filter, message) in [
        ("/kinds/**/Name", "column 8: \"**\" is allowed only at the end of the path"),
        ("kinds", "column 1: expected \"/\" at the start of the query, found \"k\""),
        ("/kinds[speed]", "column 13: expected \"=\" or \"!=\" after the trait name, found \"]\""),
        (&deep, "column 67: the filter is nested deeper than 64 levels"),
    ] {
        for method in ["testing/discoverTests", "testing/runTests"] {
            let answer = server.request_and_wait(method, json!({"runId": run_id(9), "filter": filter}));
            assert_eq!(answer["error"]["code"], -32602, "{answer}");
            assert_eq!(answer["error"]["message"], format!("invalid graph query in filter: {message}"));
        }
    }
    let answer = server.request_and_wait("testing/runTests", json!({"runId": run_id(9), "filter": 7}));
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    assert_eq!(
        discovered(&mut server, 10, json!({"filter": "/kinds/Math/Add"})).len(),
        1,
        "the session lives on"
    );
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn unlistable_program_is_reported_if_filter_may_match() {
    let world = TestWorld::with_gtest("kinds");
    let mut server = TestServer::initialized(&world, &["kinds", "missing"]);
    for (number, (filter, is_reported)) in
        [("/missing/A/*", true), ("/*/Math/Add", true), ("/kinds/**", false)].into_iter().enumerate()
    {
        let found = discovered(&mut server, number as u64, json!({"filter": filter}));
        assert_eq!(found.contains("missing"), is_reported, "{filter}: {found:?}");
    }
    assert_eq!(server.exit(), Some(0));
}

/// Returns a world with a suite of two programs, a suite of commands, and a suite that fails to build.
fn three_suites() -> TestWorld {
    let world = two_programs();
    world.write(
        "heeler.toml",
        "[[suite]]\nname = \"native\"\nprograms = [\"kinds\", \"meet\"]\n\
         [[suite]]\nname = \"scripts\"\ncommand = \"sh\"\npattern = [\"checks/*.sh\"]\n\
         [[suite]]\nname = \"broken\"\nprograms = [\"none\"]\nbuild = [\"false\"]\n",
    );
    std::fs::create_dir(world.path("checks")).unwrap();
    world.write("checks/a.sh", "exit 0\n");
    world
}

#[test]
fn only_chosen_suites_are_built_and_listed() {
    let world = three_suites();
    let listed = |words: &[&str]| {
        let ran = world.run(&[&["list", "--format", "names"], words].concat()).assert_code(0);
        ran.stdout.lines().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let script = set(&["scripts::checks/a.sh"]);
    for words in [&["--suite", "scripts"][..], &["-E", "suite(scripts)"], &["-E", "suite(s*) & test(a)"]] {
        assert_eq!(listed(words), script, "{words:?}");
    }
    let native = listed(&["--suite", "native"]);
    assert!(native.contains("native::kinds::Crash.Segv") && native.contains("native::meet::Away.Deaf"));
    assert_eq!(listed(&["-E", "suite(native)"]), native);
    assert_eq!(listed(&["-E", "not suite(broken)"]), native.union(&script).cloned().collect());
    // Tests of any suite may match this filter.
    let all = world.run(&["list", "-E", "suite(scripts) | test(a)"]).assert_code(4);
    all.assert_stderr("failed to build the suite \"broken\"");
    world.run(&["run", "--suite", "scripts"]).assert_code(0);
    world.run(&["run", "--suite", "script"]).assert_code(5).assert_stderr("did you mean \"scripts\"?");
    world.run(&["run", "--suite", "scripts", "kinds"]).assert_code(5).assert_stderr("(kinds)");
}
