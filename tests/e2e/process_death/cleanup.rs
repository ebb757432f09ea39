//! Clean-up: no process or file of Heeler's outlives a run, however tests try to escape and whichever of
//! Heeler's processes is killed. Files that tests leave behind remain.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::support::{
    callback_listener::ListenerBehaviour,
    checked_run::ExpectedDelivery,
    process::{ProcessRole, signal, wait_until},
    server::TestServer,
    uids,
    world::TestWorld,
};

/// One slot, a memory limit that a control group enforces if possible, and timeouts short enough for a test.
const SETTINGS: &str = "[profile.default]\njobs = 1\nmax-memory = \"2GiB\"\nclient-stall-timeout = \"1s\"\n\
     drain-timeout = \"500ms\"\ngrace-period = \"200ms\"\n";

fn world() -> TestWorld {
    let world = TestWorld::with_gtest("strays");
    world.write("heeler.toml", SETTINGS);
    world
}

/// Returns the process's control group if Heeler created it.
fn group_of(pid: u32) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let name = groups.lines().find_map(|line| line.strip_prefix("0::")?.rsplit('/').next())?;
    let place = heeler_sys::cgroup::CgroupParent::find().ok()?;
    name.starts_with("heeler-").then(|| place.dir().join(name))
}

#[derive(Debug, Clone, Copy)]
enum KilledProcess {
    Coordinator,
    Role(ProcessRole),
}

fn kill_mid_run(victim: KilledProcess, name: &str) {
    let world = world();
    let rendezvous = world.open_rendezvous();
    let mut server = TestServer::with_callback(&world, &["strays"], |_| ListenerBehaviour::Normal);
    let selected = uids("strays", [name]);
    let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
    let connected = rendezvous.next_test();
    let group = group_of(connected.pid);
    match victim {
        KilledProcess::Coordinator => signal(server.pid(), "KILL"),
        KilledProcess::Role(role) => signal(server.processes(role)[0], "KILL"),
    }
    // All processes in the test's tree hold the connection open.
    connected.wait_gone();
    match victim {
        KilledProcess::Coordinator => drop(server.wait_gone()),
        KilledProcess::Role(_) => {
            server.release_tests_until_done(&rendezvous, &[&run]);
            server.finish_as(&run, &selected, ExpectedDelivery::AtLeastOnce);
            assert_eq!(server.exit(), Some(0), "{victim:?}");
        }
    }
    world.check_tidy();
    assert!(!group.as_ref().is_some_and(|group| group.exists()), "{victim:?} leaves {group:?}");
}

#[test]
fn any_killed_process_leaves_nothing_behind() {
    let roles = [ProcessRole::Watchdog, ProcessRole::Worker, ProcessRole::ForkServer, ProcessRole::Guard]
        .map(KilledProcess::Role);
    for victim in roles.into_iter().chain([KilledProcess::Coordinator]) {
        for name in ["Strays.GetAway", "Strays.Multiply"] {
            kill_mid_run(victim, name);
        }
    }
}

#[test]
fn stray_processes_are_killed_and_test_is_leaky() {
    for name in ["Strays.GetAway", "Strays.Multiply"] {
        let world = world();
        let rendezvous = world.open_rendezvous();
        let mut server = TestServer::with_callback(&world, &["strays"], |_| ListenerBehaviour::Normal);
        let uid = format!("strays::{name}");
        let run = server.run(Some(&[&uid]));
        let connected = rendezvous.next_test();
        connected.send_command(b'p');
        connected.wait_gone();
        let checked_run = server.finish(&run, std::slice::from_ref(&uid));
        assert_eq!(
            (checked_run.state(&uid), &checked_run.test(&uid)["outcome-kind"]),
            ("passed", &"leaky".into())
        );
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn daemon_holding_output_open_delays_nothing() {
    let world = world();
    let ran = world
        .run(&["run", "strays", "-E", "Strays.KeepTheOutput", "-E", "Z.IsLast", "-j1", "--show-env"])
        .assert_code(0);
    ran.line_with(&["Summary", "2 passed", "(1 leaky)"]);
    ran.assert_stdout("sleep 1021");
}

fn directory_entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn test_files_stay_and_ours_are_removed() {
    let world = world();
    let shared = PathBuf::from(format!("/dev/shm/left-by-a-test-{}", std::process::id()));
    let temporary = world.path("tmp").join("left-by-a-test");
    world.env("HEELER_FIXTURE_SHARED_FILE", shared.to_str().unwrap());
    world.env("HEELER_FIXTURE_TEMPORARY_FILE", temporary.to_str().unwrap());
    let mut server = TestServer::with_callback(&world, &["strays"], |_| ListenerBehaviour::Normal);
    let run = server.run(Some(&["strays::Strays.LeaveFiles"]));
    // While Heeler is running, its sockets are in this directory.
    server.finish(&run, &uids("strays", ["Strays.LeaveFiles"])).assert_all("passed");
    let sockets = directory_entries(&world.path("run"));
    assert!(!sockets.is_empty());
    signal(server.pid(), "TERM");
    server.wait_gone();
    wait_until("everything of ours is gone", || directory_entries(&world.path("run")).is_empty());
    assert_eq!(directory_entries(&world.path("tmp")), [temporary]);
    fs::remove_file(&shared).unwrap();
    let is_ours = |path: &PathBuf| path.to_str().is_some_and(|path| path.contains("heeler"));
    assert_eq!(directory_entries(Path::new("/dev/shm")).into_iter().filter(is_ours).count(), 0);
}
