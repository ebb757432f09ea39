//! Runs that share the slots of the machine. Each test process takes one of as many locks as there are slots,
//! and fails if all are taken: so a run of which every test passes proves that no slot was taken twice.

use std::{
    fs,
    process::{Child, Stdio},
};

use crate::support::{
    has_long_forms,
    process::{ProcessRole, processes_of_role, signal, wait_until},
    terminal::TerminalCommand,
    world::TestWorld,
};

/// Slots of the machine in these tests.
const SLOTS: usize = 2;

/// Returns a world whose runs share the slots.
fn shared_world() -> TestWorld {
    let world = TestWorld::new();
    world.env("HEELER_MACHINE_SLOTS", &SLOTS.to_string());
    // A process is recorded in `began` before it takes a lock.
    let directory = world.dir().display();
    world.write_program(
        "witness",
        &format!(
            "#!/bin/sh\ncd {directory} && echo $1 >> began\n\
             for lock in $(seq {SLOTS}); do flock -n lock$lock sleep 0.03 && exit 0; done\nexit 1\n"
        ),
    );
    // Takes all locks, so it fails beside any other test process.
    world.write_program(
        "alone",
        &format!(
            "#!/bin/sh\ncd {directory} && echo $1 >> began\n\
             exec flock -n lock1 flock -n lock2 sleep 0.03\n"
        ),
    );
    world
}

/// Adds a CTest project with this many tests. Every third takes all slots if `has_heavy`.
fn add_project(world: &TestWorld, name: &str, tests: usize, has_heavy: bool) {
    let test = |number: usize| match has_heavy && number.is_multiple_of(3) {
        true => format!(
            "add_test(t{number} ../alone {name})\n\
             set_tests_properties(t{number} PROPERTIES PROCESSORS {SLOTS})\n"
        ),
        false => format!("add_test(t{number} ../witness {name})\n"),
    };
    fs::create_dir(world.path(name)).unwrap();
    world.write(&format!("{name}/CTestTestfile.cmake"), &(0..tests).map(test).collect::<String>());
}

/// Starts a run of a project. Its output goes to the file `output` of the project.
fn start(world: &TestWorld, project: &str, options: &[&str]) -> Child {
    let mut command = world.heeler(&[&["run", ".", "--no-history"], options].concat());
    let output = fs::File::create(world.path(&format!("{project}/output"))).unwrap();
    command.current_dir(world.path(project)).stdin(Stdio::null());
    command.stderr(output.try_clone().unwrap()).stdout(output);
    command.spawn().unwrap()
}

/// Waits for the end of a run of which every test must pass.
fn end_well(world: &TestWorld, project: &str, mut run: Child) {
    let mut exit = None;
    wait_until(&format!("{project} ends"), || {
        exit = run.try_wait().unwrap();
        exit.is_some()
    });
    let output = world.read(&format!("{project}/output"));
    assert_eq!(exit.and_then(|exit| exit.code()), Some(0), "{project}: {output}");
}

/// Returns the number of test processes that have begun.
fn begun(world: &TestWorld) -> usize {
    fs::read_to_string(world.path("began")).unwrap_or_default().lines().count()
}

#[test]
fn runs_at_once_have_no_more_processes_than_the_machine_has_slots() {
    let world = shared_world();
    let projects = ["p1", "p2", "p3", "p4", "p5", "p6"];
    projects.iter().for_each(|name| add_project(&world, name, 8, false));
    let runs = projects.map(|name| (name, start(&world, name, &["-j4"])));
    runs.into_iter().for_each(|(name, run)| end_well(&world, name, run));
    assert_eq!(begun(&world), 8 * projects.len());
    world.check_tidy();
}

#[test]
fn runs_take_turns() {
    let world = shared_world();
    // The long run has begun when the short ones start, and still has tests when they have ended.
    add_project(&world, "long", 60, false);
    let names = ["short1", "short2", "short3"];
    names.iter().for_each(|name| add_project(&world, name, 2, false));
    let long = start(&world, "long", &[]);
    wait_until("the long run has begun", || begun(&world) > 0);
    let short = names.map(|name| (name, start(&world, name, &[])));
    short.into_iter().for_each(|(name, run)| end_well(&world, name, run));
    end_well(&world, "long", long);
    let began = world.read("began");
    let order: Vec<_> = began.lines().collect();
    let last_short = order.iter().rposition(|name| *name != "long").unwrap();
    assert!(last_short < order.len() - 1, "the short runs wait until the long one ends: {order:?}");
}

#[test]
fn heavy_leases_of_several_runs_get_their_slots() {
    let world = shared_world();
    let names = ["p1", "p2", "p3"];
    names.iter().for_each(|name| add_project(&world, name, 9, true));
    let runs = names.map(|name| (name, start(&world, name, &["-j2"])));
    runs.into_iter().for_each(|(name, run)| end_well(&world, name, run));
    assert_eq!(begun(&world), 9 * names.len());
}

#[test]
fn killed_holder_loses_no_slot_and_no_slot_is_taken_twice() {
    let world = shared_world();
    ["killed", "other"].iter().for_each(|name| add_project(&world, name, 6, false));
    let rounds = if has_long_forms() { 1000 } else { 30 };
    for round in 0..rounds {
        drop(fs::remove_file(world.path("began")));
        let mut killed = start(&world, "killed", &["-j2"]);
        let other = start(&world, "other", &["-j2"]);
        wait_until("some tests have begun", || begun(&world) > round % 6);
        match processes_of_role(killed.id(), ProcessRole::Watchdog)[..] {
            // The coordinator continues with another watchdog.
            [watchdog] if round % 3 == 0 => {
                crate::support::process::signal_if_there(watchdog, "KILL");
                end_well(&world, "killed", killed);
            }
            _ => {
                // The run may have ended already; its process has not been reaped.
                signal(killed.id(), "KILL");
                killed.wait().unwrap();
            }
        }
        end_well(&world, "other", other);
    }
    // Tests that take all slots run only if no slot is lost.
    add_project(&world, "all", 3, true);
    end_well(&world, "all", start(&world, "all", &["-j2"]));
}

#[test]
fn run_below_a_test_has_the_slot_of_the_test() {
    let world = shared_world();
    add_project(&world, "inner", 3, false);
    let heeler = crate::support::heeler();
    let test = |name: &str| {
        let words = "run . --no-history --machine-slots 1 --state-dir";
        let directory = world.path("inner").display().to_string();
        format!("add_test({name} sh \"-c\" \"cd {directory} && {} {words} {name}\")\n", heeler.display())
    };
    fs::create_dir(world.path("outer")).unwrap();
    world.write("outer/CTestTestfile.cmake", &[test("first"), test("second")].concat());
    end_well(&world, "outer", start(&world, "outer", &["--machine-slots", "1"]));
    assert_eq!(begun(&world), 6);
}

#[test]
fn run_alone_gets_the_jobs_that_its_user_asks_for() {
    let world = TestWorld::new();
    let jobs = std::thread::available_parallelism().unwrap().get() + 2;
    // Each test waits until all of them run.
    let meet = format!("touch here-$$; until [ $(ls here-* | wc -l) -ge {jobs} ]; do sleep 0.01; done");
    let test = |number: usize| format!("add_test(t{number} sh \"-c\" [[{meet}]])\n");
    world.write("CTestTestfile.cmake", &(0..jobs).map(test).collect::<String>());
    let run = format!("unset HEELER_MACHINE_SLOTS; exec $0 run . --no-history -j{jobs}");
    let mut command = world.shell(&run);
    command.arg(crate::support::heeler());
    crate::support::world::run(command).assert_code(0).assert_stderr(&format!("{jobs} passed"));
}

#[test]
fn waiting_run_names_the_runs_that_it_waits_for() {
    let world = shared_world();
    world.env("HEELER_MACHINE_SLOTS", "1");
    fs::create_dir(world.path("holder")).unwrap();
    let wait = format!("touch began; until [ -e {} ]; do sleep 0.01; done", world.path("end").display());
    world.write("holder/CTestTestfile.cmake", &format!("add_test(t sh \"-c\" [[{wait}]])\n"));
    add_project(&world, "waiting", 1, false);
    let holder = start(&world, "holder", &[]);
    wait_until("the holder has its slot", || world.path("holder/began").exists());
    let heeler = crate::support::heeler();
    let line = format!("cd waiting && {} run . --no-history", heeler.display());
    let mut waiting = TerminalCommand::start(&world, &line);
    waiting.wait_for("waiting for 1 slot: 1 other run on this machine (heeler run in ");
    let doctor = world.run_with_separate_outputs(&["doctor"]);
    doctor.line_with(&["slots", "1 held, 1 wanted by heeler run in ", "/holder (pid "]);
    doctor.line_with(&["slots", "0 held, 1 wanted by heeler run in ", "/waiting (pid "]);
    world.write("end", "");
    end_well(&world, "holder", holder);
    assert!(waiting.ends_well(), "{}", waiting.text());
    let doctor = world.run_with_separate_outputs(&["doctor", "--machine-slots", "off"]);
    doctor.line_with(&["slots", "off: runs on this machine do not wait for each other"]);
}
