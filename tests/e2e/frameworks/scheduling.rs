//! Tests that take slots and resources, by the properties of CTest and by `heeler.toml`. Each test of these
//! projects fails if another one runs beside it that must not, so a run at full width tells.

use std::{collections::BTreeSet, process::Command};

use super::pytest;
use crate::support::{fixtures::succeed, terminal::TerminalCommand, world::TestWorld};

/// Tests that fail side by side, unless their properties keep them apart:
/// - `lock-*` need the directory `locked` for themselves;
/// - `wide-*` take all four slots, and `serial` runs alone, so no other test is in `running`;
/// - `last` needs the files of `first` and of `middle`, which needs that of `first`.
const PROJECT: &str = r#"
add_test(last "sh" "-c" "test -e made-by-first && test -e made-by-middle")
set_tests_properties(last PROPERTIES DEPENDS "first;middle")
add_test(middle "sh" "-c" "test -e made-by-first && touch made-by-middle")
set_tests_properties(middle PROPERTIES DEPENDS "first")
add_test(first "sh" "-c" "sleep 0.3; touch made-by-first")
"#;

/// Returns the project, with these numbers of locked and of wide tests.
fn project(locked: usize, wide: usize) -> String {
    let lock = |number: usize| {
        format!(
            "add_test(lock-{number} \"sh\" \"-c\" \"mkdir locked && sleep 0.1 && rmdir locked\")\n\
             set_tests_properties(lock-{number} PROPERTIES RESOURCE_LOCK \"directory;other-{number}\")\n"
        )
    };
    let alone = |name: String, properties: &str| {
        // The test sees itself only, for as long as it runs.
        format!(
            "add_test({name} \"sh\" \"-c\" \"mkdir running-{name} && sleep 0.1 && test \\$(ls -d running-* | wc -l) = 1; \
             code=\\$?; rmdir running-{name}; exit \\$code\")\n\
             set_tests_properties({name} PROPERTIES {properties})\n"
        )
    };
    let beside = |number: usize| {
        format!(
            "add_test(beside-{number} \"sh\" \"-c\" \"mkdir running-{number} && sleep 0.1 && rmdir running-{number}\")\n"
        )
    };
    let locks = (0..locked).map(lock);
    let wides = (0..wide).map(|number| alone(format!("wide-{number}"), "PROCESSORS 4"));
    let serial = alone("serial".to_owned(), "RUN_SERIAL TRUE");
    let besides = (0..wide * 2).map(beside);
    [PROJECT.to_owned(), serial].into_iter().chain(locks).chain(wides).chain(besides).collect()
}

#[test]
fn locks_processors_serial_tests_and_dependencies_hold_as_in_ctest() {
    let world = TestWorld::new();
    world.write("CTestTestfile.cmake", &project(5, 3));
    let ctest = succeed(&mut world.command(Command::new("ctest"), &["-j4"]), "is ctest there?");
    assert!(String::from_utf8_lossy(&ctest).contains("100% tests passed"));
    for name in ["made-by-first", "made-by-middle"] {
        std::fs::remove_file(world.path(name)).unwrap();
    }
    let ran = world.run(&["run", ".", "-j4", "--no-history"]).assert_code(0);
    ran.assert_stdout("18 passed");
    assert!(!ran.stdout.contains("unsupported CTest property"), "{}", ran.stdout);
}

#[test]
fn costly_tests_start_first() {
    let world = TestWorld::new();
    let test = |name: &str, cost: u32| {
        format!(
            "add_test({name} \"sh\" \"-c\" \"echo {name} >> order\")\n\
             set_tests_properties({name} PROPERTIES COST {cost})\n"
        )
    };
    world.write("CTestTestfile.cmake", &[test("cheap", 1), test("dear", 30), test("fair", 5)].concat());
    let order = "dear\nfair\ncheap\n";
    world.run(&["run", ".", "-j1", "--no-history"]).assert_code(0);
    assert_eq!(world.read("order"), order);
    std::fs::remove_file(world.path("order")).unwrap();
    // With one job, CTest keeps the order of the file. With two, the cheap test waits for another one's end.
    succeed(&mut world.command(Command::new("ctest"), &["-j2"]), "is ctest there?");
    assert!(!world.read("order").starts_with("cheap\n"));
}

#[test]
fn configured_resources_weights_and_priorities_hold() {
    let world = TestWorld::new();
    // Four tests use one of two units, and each sees at most one other; the last runs alone.
    let counted =
        "#!/bin/sh\nmkdir in-$$ || exit 1\nsleep 0.1\nn=$(ls -d in-* | wc -l)\nrmdir in-$$\ntest $n -le ";
    for number in 0..4 {
        world.write_program(&format!("shared-{number}"), &format!("{counted}2\n"));
    }
    world.write_program("alone", &format!("{counted}1\n"));
    world.write(
        "heeler.toml",
        "[[resource]]\nname = \"port\"\ncapacity = 2\n\
         [[suite]]\nname = \"scripts\"\npattern = [\"shared-*\", \"alone\"]\nuses = [\"port:read\"]\n\
         [[profile.default.override]]\nfilter = \"test(alone)\"\nuses = [\"port\"]\npriority = 10\n\
         [[profile.default.override]]\nfilter = \"test(shared-0)\"\nweight = 4\n",
    );
    let ran = world.run(&["run", "-j4", "--no-history", "--status-level", "pass"]).assert_code(0);
    ran.assert_stdout("5 passed");
    let place = |name: &str| ran.stdout.find(name).unwrap();
    assert!(place("alone") < place("shared-"), "the test with the highest priority is first: {}", ran.stdout);
    world.write("heeler.toml", "[[suite]]\nname = \"scripts\"\npattern = [\"alone\"]\nuses = [\"prot\"]\n");
    world
        .run(&["run"])
        .assert_code(5)
        .assert_stderr("unknown resource \"prot\"; declare it in a [[resource]] table");
}

#[test]
fn tests_that_belong_together_share_a_process() {
    let Some(python) = pytest::python() else { return };
    let world = TestWorld::new();
    let class = |number: usize| {
        format!(
            "class Test{number}:\n    @pytest.mark.parametrize('n', range(7))\n    def test(self, n):\n        \
             note('Test{number}', n)\n"
        )
    };
    let head = "import os, pytest, time\n\ndef note(*what):\n    time.sleep(0.01)\n    with open('log', 'a') as log:\n        \
                print(*what, os.getpid(), file=log)\n\n\
                @pytest.mark.parametrize('n', range(9))\ndef test_named(n): note('named', n)\n\n\
                @pytest.mark.parametrize('n', range(9))\ndef test_plain(n): note('plain', n)\n\n\
                @pytest.mark.parametrize('n', range(9))\ndef test_also_named(n): note('named', n + 9)\n\n";
    world.write("test_bonds.py", &(head.to_owned() + &(0..5).map(class).collect::<String>()));
    world.write(
        "heeler.toml",
        &format!(
            "[[suite]]\nname = \"py\"\npytest = \".\"\npython = \"{}\"\n\
             [[profile.default.override]]\nfilter = \"Test\"\ntogether = \"class\"\n\
             [[profile.default.override]]\nfilter = \"named\"\ntogether = \"names\"\n",
            python.display()
        ),
    );
    world.run(&["run", "-j4", "--no-history"]).assert_code(0).assert_stdout("62 passed");
    let log = world.read("log");
    for bond in ["Test0", "Test1", "Test2", "Test3", "Test4", "named"] {
        let own: Vec<Vec<&str>> = log
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>())
            .filter(|words| words[0] == bond)
            .collect();
        let pids: BTreeSet<&str> = own.iter().map(|words| words[2]).collect();
        assert_eq!(pids.len(), 1, "{bond}: {log}");
        let order: Vec<usize> = own.iter().map(|words| words[1].parse().unwrap()).collect();
        assert!(order.is_sorted(), "{bond}: {order:?}");
    }
}

#[test]
fn tests_whose_recorded_memory_does_not_fit_run_one_after_the_other() {
    let world = TestWorld::new();
    // Each test sees only itself, except in the first run, whose results are not looked at.
    let counted =
        "#!/bin/sh\nmkdir in-$$ || exit 1\nsleep 0.1\nn=$(ls -d in-* | wc -l)\nrmdir in-$$\ntest $n = 1\n";
    for number in 0..4 {
        world.write_program(&format!("large-{number}"), counted);
    }
    world.write("heeler.toml", "[[suite]]\nname = \"scripts\"\npattern = [\"large-*\"]\n");
    world.run(&["run", "-j1"]).assert_code(0);
    // More memory than any machine has.
    let enlarge = "import sqlite3; db = sqlite3.connect('.heeler/history.sqlite'); \
                   db.execute('UPDATE test SET peak_kib = 1 << 40'); db.commit()";
    succeed(&mut world.command(Command::new("python3"), &["-c", enlarge]), "is the history a database?");
    world.run(&["run", "-j4"]).assert_code(0).assert_stdout("4 passed");
}

#[test]
fn terminal_names_what_tests_wait_for_while_slots_are_idle() {
    let world = TestWorld::new();
    let test = |name: &str, line: &str, properties: &str| {
        format!(
            "add_test({name} \"sh\" \"-c\" \"{line}\")\nset_tests_properties({name} PROPERTIES {properties})\n"
        )
    };
    let until = |file: &str| format!("until test -e {file}; do sleep 0.02; done");
    let tests = [
        test("start-server", &until("server"), "FIXTURES_SETUP server"),
        test("user-1", "true", "FIXTURES_REQUIRED server"),
        test("user-2", "true", "FIXTURES_REQUIRED server"),
        test("migrate", &until("migrated"), "RESOURCE_LOCK database"),
        test("import", &until("migrated"), "RESOURCE_LOCK database"),
    ];
    world.write("CTestTestfile.cmake", &tests.concat());
    world.env("TERM", "xterm");
    let heeler = env!("CARGO_BIN_EXE_heeler");
    let mut run = TerminalCommand::start(&world, &format!("{heeler} run . -j4 --no-history --color never"));
    run.wait_for("2 wait for start-server, 1 for database");
    world.write("server", "");
    run.wait_for("1 waits for database");
    world.write("migrated", "");
    assert!(run.ends_well());
    assert!(run.text().contains("5 passed"));
}

/// Returns a duration such as `0.123s` in milliseconds.
fn milliseconds(text: &str) -> Option<i64> {
    let (seconds, rest) = text.strip_suffix('s')?.split_once('.')?;
    Some(seconds.trim_start_matches('-').parse::<i64>().ok()? * 1000 + rest.parse::<i64>().ok()?)
}

#[test]
fn explanation_names_what_was_lost_and_adds_up() {
    let world = TestWorld::new();
    let test = |name: &str, seconds: &str, properties: &str| {
        format!(
            "add_test({name} \"sleep\" \"{seconds}\")\nset_tests_properties({name} PROPERTIES {properties})\n"
        )
    };
    let tests = [
        test("server", "0.2", "FIXTURES_SETUP server"),
        test("client", "0.05", "FIXTURES_REQUIRED server"),
        test("import", "0.3", "RESOURCE_LOCK database"),
        test("export", "0.3", "RESOURCE_LOCK database"),
    ];
    world.write("CTestTestfile.cmake", &tests.concat());
    let ran = world.run(&["run", ".", "-j4", "--explain"]).assert_code(0);
    let begin = ran.stdout.find("        Took").unwrap_or_else(|| panic!("{}", ran.stdout));
    let explained = &ran.stdout[begin..];
    for part in ["on 4 slots", "At least", "waiting for database; longest: ", "build and listing"] {
        assert!(explained.contains(part), "{part}: {explained}");
    }
    assert!(explained.contains("Chain") && explained.contains("server"), "{explained}");
    // Losses and the least possible duration add up; each printed number is rounded down.
    let lines = explained.lines().take_while(|line| !line.contains("Chain"));
    let times: Vec<i64> = lines.filter_map(|line| line.split_whitespace().find_map(milliseconds)).collect();
    let [took, rest @ ..] = times.as_slice() else { panic!("{explained}") };
    assert!((took - rest.iter().sum::<i64>()).abs() <= 15, "{explained}");
    let report = world.run(&["report", "latest", "--explain"]).assert_code(0);
    assert!(report.stdout.contains(explained.trim_end()), "{}", report.stdout);
    world.run(&["run", ".", "--no-run", "--explain"]).assert_code(5);
}

#[test]
fn group_of_two_runs_two_tests_at_a_time() {
    let world = TestWorld::new();
    // Tests come in pairs: each waits until a second one runs, and fails if it sees a third one.
    let member = "#!/bin/sh\nmkdir in-$$ || exit 1\n\
                  until test $(ls -d in-* | wc -l) -ge 2 -o -e met; do sleep 0.02; done\n\
                  touch met\nn=$(ls -d in-* | wc -l)\nsleep 0.1\nrmdir in-$$\ntest $n -le 2\n";
    for number in 0..6 {
        world.write_program(&format!("member-test-{number}"), member);
    }
    world.write(
        "heeler.toml",
        "[[resource]]\nname = \"group\"\ncapacity = 2\n\
         [[suite]]\nname = \"scripts\"\npattern = [\"member-test-*\"]\nuses = [\"group=1\"]\n",
    );
    world.run(&["run", "-j6", "--no-history"]).assert_code(0).assert_stdout("6 passed");
}

#[test]
fn readers_share_a_resource_and_a_writer_has_it_alone() {
    let world = TestWorld::new();
    // Each reader waits until the other one runs, so both must run at the same time.
    let reader = |own: &str, other: &str| {
        format!(
            "#!/bin/sh\ntest -e writing && exit 1\ntouch reading-{own}\n\
             until test -e reading-{other} -o -e read-{other}; do sleep 0.02; done\n\
             touch read-{own}; rm reading-{own}\n"
        )
    };
    world.write_program("read-1", &reader("a", "b"));
    world.write_program("read-2", &reader("b", "a"));
    let writer =
        "#!/bin/sh\ntouch writing\nls reading-* && exit 1\nsleep 0.1\nls reading-* && exit 1\nrm writing\n";
    world.write_program("write-1", writer);
    world.write_program("write-2", &format!("{writer}exit 0\n"));
    world.write(
        "heeler.toml",
        "[[resource]]\nname = \"table\"\ncapacity = 9\n\
         [[suite]]\nname = \"scripts\"\npattern = [\"read-?\", \"write-?\"]\nuses = [\"table\"]\n\
         [[profile.default.override]]\nfilter = \"test(read)\"\nuses = [\"table:read\"]\n",
    );
    world.run(&["run", "-j4", "--no-history"]).assert_code(0).assert_stdout("4 passed");
}

#[test]
fn amounts_of_a_resource_and_a_weight_beyond_the_slots_hold() {
    let world = TestWorld::new();
    // Two tests with two of three units exclude each other. One unit is left for the third test, which waits
    // for one of them to run.
    let pair = "#!/bin/sh\nmkdir pair || exit 1\ntouch a-pair\nsleep 0.1\nrmdir pair\n";
    world.write_program("pair-1", pair);
    world.write_program("pair-2", pair);
    world.write_program("single", "#!/bin/sh\nuntil test -e a-pair; do sleep 0.02; done\n");
    // The last test runs alone, although it uses no resource.
    world.write_program("exclusive", "#!/bin/sh\nsleep 0.1\ntest ! -e pair\n");
    world.write(
        "heeler.toml",
        "[[resource]]\nname = \"gpu\"\ncapacity = 3\n\
         [[suite]]\nname = \"scripts\"\npattern = [\"pair-?\", \"single\", \"exclusive\"]\n\
         [[profile.default.override]]\nfilter = \"test(pair)\"\nuses = [\"gpu=2\"]\n\
         [[profile.default.override]]\nfilter = \"test(single)\"\nuses = [\"gpu=1\"]\n\
         [[profile.default.override]]\nfilter = \"test(exclusive)\"\nweight = 9999\n",
    );
    world.run(&["run", "-j4", "--no-history"]).assert_code(0).assert_stdout("4 passed");
}
