//! Named units of resources, slots of processes, and CTest's resource groups.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use super::pytest;
use crate::support::{
    fixtures::{fixtures, succeed},
    world::TestWorld,
};

#[test]
fn processes_have_units_and_slots_of_their_own() {
    let world = TestWorld::new();
    // A test fails if another one has its unit or slot. The first tests wait for each other, so that both
    // units are in use at the same time.
    let one = "#!/bin/sh\nmkdir unit-$HEELER_UNIT_MY_GPU slot-$HEELER_SLOT || exit 1\ntouch seen-$HEELER_UNIT_MY_GPU\n\
               until test -e seen-a && test -e seen-b; do sleep 0.01; done\nsleep 0.02\n\
               echo $HEELER_UNIT_MY_GPU $HEELER_SLOT >> log\nrmdir unit-$HEELER_UNIT_MY_GPU slot-$HEELER_SLOT\n";
    for number in 0..8 {
        world.write_program(&format!("one-{number}"), one);
    }
    world.write_program(
        "both",
        "#!/bin/sh\nmkdir unit-a unit-b slot-$HEELER_SLOT || exit 1\nsleep 0.02\n\
         echo $HEELER_UNIT_MY_GPU $HEELER_SLOT >> log\nrmdir unit-a unit-b slot-$HEELER_SLOT\n",
    );
    for number in 0..4 {
        world.write_program(
            &format!("free-{number}"),
            "#!/bin/sh\nmkdir slot-$HEELER_SLOT || exit 1\nsleep 0.02\nrmdir slot-$HEELER_SLOT\n\
             echo none $HEELER_SLOT >> log\ntest -z \"${HEELER_UNIT_MY_GPU+set}\"\n",
        );
    }
    world.write(
        "heeler.toml",
        "[[resource]]\nname = \"my-gpu\"\nunits = [\"a\", \"b\"]\n\
         [[suite]]\nname = \"scripts\"\npattern = [\"one-*\", \"both\", \"free-*\"]\ntimeout = \"60s\"\n\
         [[profile.default.override]]\nfilter = \"test(one)\"\nuses = [\"my-gpu=1\"]\npriority = 1\n\
         [[profile.default.override]]\nfilter = \"test(both)\"\nuses = [\"my-gpu\"]\n",
    );
    world.run(&["run", "-j4", "--no-history"]).assert_code(0).assert_stdout("13 passed");
    let log = world.read("log");
    let lines: Vec<(&str, usize)> = log
        .lines()
        .map(|line| line.split_once(' ').map(|(unit, slot)| (unit, slot.parse().unwrap())).unwrap())
        .collect();
    let units: BTreeSet<&str> = lines.iter().map(|(unit, _)| *unit).collect();
    assert_eq!(units, BTreeSet::from(["a", "b", "a,b", "none"]), "{log}");
    assert!(lines.len() == 13 && lines.iter().all(|(_, slot)| (1..=4).contains(slot)), "{log}");
}

#[test]
fn process_that_runs_several_batches_keeps_its_unit() {
    let Some(python) = pytest::python() else { return };
    let world = TestWorld::new();
    world.write(
        "test_units.py",
        "import os, pytest, time\n\n@pytest.mark.parametrize('n', range(60))\ndef test(n):\n    \
         unit, slot = os.environ['HEELER_UNIT_GPU'], os.environ['HEELER_SLOT']\n    \
         os.mkdir('unit-' + unit)\n    time.sleep(0.01)\n    os.rmdir('unit-' + unit)\n    \
         with open('log', 'a') as log:\n        print(os.getpid(), unit, slot, file=log)\n",
    );
    world.write(
        "heeler.toml",
        &format!(
            "[[resource]]\nname = \"gpu\"\nunits = [\"0\", \"1\"]\n\
             [[suite]]\nname = \"py\"\npytest = \".\"\npython = \"{}\"\nuses = [\"gpu=1\"]\n",
            python.display()
        ),
    );
    world.run(&["run", "-j4", "--no-history"]).assert_code(0).assert_stdout("60 passed");
    let log = world.read("log");
    let mut of_process: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in log.lines() {
        let (pid, held) = line.split_once(' ').unwrap();
        of_process.entry(pid).or_default().insert(held);
    }
    assert!(of_process.values().all(|held| held.len() == 1), "{log}");
}

/// Units of each resource in [`RESOURCE_SPEC`], with their slots.
const RESOURCES: [(&str, &str, u32); 3] = [("GPUS", "0", 2), ("GPUS", "1", 4), ("CORES", "7", 8)];
const RESOURCE_SPEC: &str = r#"{"version": {"major": 1, "minor": 0}, "local": [{
    "gpus": [{"id": "0", "slots": 2}, {"id": "1", "slots": 4}], "cores": [{"id": "7", "slots": 8}]}]}"#;

/// Returns a project whose tests record their variables and when they begin and end.
fn project_with_groups(world: &TestWorld) -> String {
    world.write_program(
        "use",
        "#!/bin/sh\nheld=$(env | grep '^CTEST_RESOURCE_GROUP' | sort | tr '\\n' '|')\n\
         echo \"begin $1 $held\" >> log\nsleep 0.03\necho \"end $1 $held\" >> log\n",
    );
    let program = world.path("use");
    let test = |name: &str, groups: Option<&str>| {
        let groups = groups.map_or_else(String::new, |groups| {
            format!("set_tests_properties({name} PROPERTIES RESOURCE_GROUPS \"{groups}\")\n")
        });
        format!("add_test({name} \"{}\" \"{name}\")\n{groups}", program.display())
    };
    let small = (0..6).map(|number| test(&format!("small-{number}"), Some("gpus:1,cores:4")));
    let others = [
        test("twice", Some("2,gpus:2,cores:1")),
        test("mixed", Some("gpus:2;gpus:1,gpus:3")),
        test("large", Some("gpus:4")),
        test("empty", Some("2")),
        test("without", None),
    ];
    others.into_iter().chain(small).collect()
}

/// Takes the recorded lines. Returns the variables of each test, without the ids of units, after checking
/// that no unit had too many users at any time.
fn take_records(world: &TestWorld) -> BTreeMap<String, Vec<String>> {
    let log = world.read("log");
    std::fs::remove_file(world.path("log")).unwrap();
    let mut taken: BTreeMap<(String, String), i64> = BTreeMap::new();
    let mut variables = BTreeMap::new();
    for line in log.lines() {
        let [event, name, held] = line.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
        let mut of_test = Vec::new();
        for (variable, value) in held.split('|').filter_map(|one| one.split_once('=')) {
            let kind = variable.rsplit('_').next().unwrap();
            let units = value.split(';').filter_map(|unit| unit.strip_prefix("id:")?.split_once(",slots:"));
            let mut amounts = Vec::new();
            for (id, amount) in units {
                let sign = if event == "begin" { 1 } else { -1 };
                let of_unit = taken.entry((kind.to_owned(), id.to_owned())).or_default();
                *of_unit += sign * amount.parse::<i64>().unwrap();
                amounts.push(amount);
            }
            let value = if amounts.is_empty() { value.to_owned() } else { format!("{amounts:?}") };
            of_test.push(format!("{variable}={value}"));
        }
        for ((kind, id), amount) in &taken {
            let known = RESOURCES.iter().find(|(one, unit, _)| one == kind && unit == id);
            let (_, _, most) = known.unwrap_or_else(|| panic!("{kind} {id}: {log}"));
            assert!(*amount <= i64::from(*most), "{kind} {id} has {amount}: {log}");
        }
        variables.insert(name.to_owned(), of_test);
    }
    variables
}

#[test]
fn resource_groups_are_given_as_by_ctest() {
    let world = TestWorld::new();
    let project = project_with_groups(&world);
    let ctest = |words: &[&str]| {
        succeed(&mut world.command(Command::new("ctest"), words), "is ctest there?");
        take_records(&world)
    };
    let run = |passed: &str| {
        world.run(&["run", "-j8", "--no-history"]).assert_code(0).assert_stdout(passed);
        take_records(&world)
    };
    let suite = "[[suite]]\nname = \"project\"\nctest = \".\"\n";
    // Without a spec file, CTest ignores the groups.
    world.write("CTestTestfile.cmake", &project);
    world.write("heeler.toml", suite);
    let expected = ctest(&["-j8"]);
    assert!(expected.values().all(Vec::is_empty), "{expected:?}");
    assert_eq!(run("11 passed"), expected);
    // The file is named on the command line, and then in the project.
    world.write("spec.json", RESOURCE_SPEC);
    world.write("heeler.toml", &format!("{suite}ctest-args = [\"--resource-spec-file\", \"spec.json\"]\n"));
    let expected = ctest(&["-j8", "--resource-spec-file", "spec.json"]);
    assert_eq!(expected["without"], ["CTEST_RESOURCE_GROUP_COUNT=0"]);
    assert_eq!(expected["twice"].len(), 7);
    assert_eq!(run("11 passed"), expected);
    let setting = format!("set(CTEST_RESOURCE_SPEC_FILE \"{}\")\n", world.path("spec.json").display());
    world.write("CTestTestfile.cmake", &format!("{setting}{project}"));
    world.write("heeler.toml", suite);
    assert_eq!(ctest(&["-j8"]), expected);
    assert_eq!(run("11 passed"), expected);
}

#[test]
fn test_whose_groups_exceed_the_resources_is_not_run() {
    let world = TestWorld::new();
    let tests = "add_test(large \"true\")\nset_tests_properties(large PROPERTIES RESOURCE_GROUPS \"gpus:5\")\n\
                 add_test(unknown \"true\")\nset_tests_properties(unknown PROPERTIES RESOURCE_GROUPS \"tpus:1\")\n\
                 add_test(fits \"true\")\nset_tests_properties(fits PROPERTIES RESOURCE_GROUPS \"gpus:4\")\n";
    let setting = format!("set(CTEST_RESOURCE_SPEC_FILE \"{}\")\n", world.path("spec.json").display());
    world.write("CTestTestfile.cmake", &format!("{setting}{tests}"));
    world.write("spec.json", RESOURCE_SPEC);
    let ctest = world.command(Command::new("ctest"), &[]).output().unwrap();
    let text = String::from_utf8_lossy(&ctest.stdout);
    assert!(text.contains("1 - large (Not Run)") && text.contains("2 - unknown (Not Run)"), "{text}");
    assert!(text.contains("2 tests failed out of 3"), "{text}");
    let ran = world.run(&["run", ".", "--no-history"]);
    ran.assert_stdout("insufficient resources: needs 5 of \"gpus\", but the units have 2 + 4");
    ran.assert_stdout("insufficient resources: there is no \"tpus\"");
    ran.assert_stdout("1 passed");
}

#[test]
fn process_that_has_listed_its_tests_runs_none_that_need_a_unit() {
    let world = TestWorld::new();
    world.write_program(
        "application",
        &format!(
            "#!/bin/sh\necho ${{HEELER_UNIT_GPU-none}} ${{HEELER_SLOT-none}} >> {}\nexec python3 {} no-location \"$@\"\n",
            world.path("starts").display(),
            fixtures().join("mtp/application.py").display()
        ),
    );
    let starts = |uses: &str| {
        let resource = "[[resource]]\nname = \"gpu\"\nunits = [\"a\"]\n";
        let suite = "[[suite]]\nname = \"application\"\nmtp = \"./application\"\n";
        world.write("heeler.toml", &format!("{resource}{suite}{uses}"));
        // The last of the six tests fails.
        world.run(&["run", "-j1", "--no-history"]).assert_stdout("5 passed");
        let starts = world.read("starts");
        std::fs::remove_file(world.path("starts")).unwrap();
        starts
    };
    assert_eq!(starts(""), "none none\n", "one process lists and runs");
    assert_eq!(starts("uses = [\"gpu\"]\n"), "none none\na 1\n");
}
