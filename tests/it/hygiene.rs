//! Cleanup: no process or file of ours outlives a run, whatever its tests do to escape and whichever of our
//! processes is killed; files that tests leave remain.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::support::{
    books::Delivery,
    listener::Behaviour,
    process::{Role, signal, wait_until},
    server::Server,
    uids,
    world::World,
};

/// One slot, a memory limit that a control group enforces where that is possible, and deadlines short enough
/// for a test.
const SETTINGS: &str = "[profile.default]\njobs = 1\nmax-memory = \"2GiB\"\nstall-timeout = \"1s\"\n\
     drain-timeout = \"500ms\"\ngrace-period = \"200ms\"\n";

fn world() -> World {
    let world = World::with_gtest("strays");
    world.write("heeler.toml", SETTINGS);
    world
}

/// Returns the control group of a process, if it is one of ours.
fn group_of(pid: u32) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let name = groups.lines().find_map(|line| line.strip_prefix("0::")?.rsplit('/').next())?;
    let place = host::cgroup::Place::find().ok()?;
    name.starts_with("heeler-").then(|| place.dir().join(name))
}

/// The process that is killed.
#[derive(Debug, Clone, Copy)]
enum Victim {
    Coordinator,
    Role(Role),
}

fn kill_in_the_middle(victim: Victim, name: &str) {
    let world = world();
    let meet = world.meet();
    let mut server = Server::with_callback(&world, &["strays"], |_| Behaviour::Normal);
    let selected = uids("strays", [name]);
    let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
    let guest = meet.next();
    let group = group_of(guest.pid);
    match victim {
        Victim::Coordinator => signal(server.pid(), "KILL"),
        Victim::Role(role) => signal(server.processes(role)[0], "KILL"),
    }
    // All of its process tree hold the connection.
    guest.wait_gone();
    match victim {
        Victim::Coordinator => drop(server.wait_gone()),
        Victim::Role(_) => {
            server.let_go_until_answered(&meet, &[&run]);
            server.finish_as(&run, &selected, Delivery::AtLeastOnce);
            assert_eq!(server.exit(), Some(0), "{victim:?}");
        }
    }
    world.check_tidy();
    assert!(!group.as_ref().is_some_and(|group| group.exists()), "{victim:?} leaves {group:?}");
}

#[test]
fn nothing_is_left_of_strays_or_of_us_whoever_is_killed() {
    let roles = [Role::Watchdog, Role::Worker, Role::Nursery, Role::Guard].map(Victim::Role);
    for victim in roles.into_iter().chain([Victim::Coordinator]) {
        for name in ["Strays.GetAway", "Strays.Multiply"] {
            kill_in_the_middle(victim, name);
        }
    }
}

#[test]
fn strays_of_a_test_that_ends_are_killed_and_it_is_leaky() {
    for name in ["Strays.GetAway", "Strays.Multiply"] {
        let world = world();
        let meet = world.meet();
        let mut server = Server::with_callback(&world, &["strays"], |_| Behaviour::Normal);
        let uid = format!("strays::{name}");
        let run = server.run(Some(&[&uid]));
        let guest = meet.next();
        guest.say(b'p');
        guest.wait_gone();
        let books = server.finish(&run, std::slice::from_ref(&uid));
        assert_eq!((books.state(&uid), &books.test(&uid)["outcome-kind"]), ("passed", &"leaky".into()));
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn a_daemon_that_keeps_the_output_open_stalls_nothing() {
    let world = world();
    let ran = world.run(&["run", "strays", "-E", "Strays.KeepTheOutput", "-E", "Z.IsLast", "-j1"]).code(0);
    ran.line(&["Summary", "2 passed", "(1 leaky)"]);
    ran.says("sleep 1021");
}

/// Returns the entries of a directory.
fn names(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn files_that_a_test_leaves_stay_and_none_of_ours_lie_beside_them() {
    let world = world();
    let shared = PathBuf::from(format!("/dev/shm/left-by-a-test-{}", std::process::id()));
    let temporary = world.path("tmp").join("left-by-a-test");
    world.env("HEELER_FIXTURE_SHARED_FILE", shared.to_str().unwrap());
    world.env("HEELER_FIXTURE_TEMPORARY_FILE", temporary.to_str().unwrap());
    let mut server = Server::with_callback(&world, &["strays"], |_| Behaviour::Normal);
    let run = server.run(Some(&["strays::Strays.LeaveFiles"]));
    // While it runs, it has files of its own there.
    server.finish(&run, &uids("strays", ["Strays.LeaveFiles"])).all("passed");
    let sockets = names(&world.path("run"));
    assert!(!sockets.is_empty());
    signal(server.pid(), "TERM");
    server.wait_gone();
    wait_until("everything of ours is gone", || names(&world.path("run")).is_empty());
    assert_eq!(names(&world.path("tmp")), [temporary]);
    fs::remove_file(&shared).unwrap();
    let is_ours = |path: &PathBuf| path.to_str().is_some_and(|path| path.contains("heeler"));
    assert_eq!(names(Path::new("/dev/shm")).into_iter().filter(is_ours).count(), 0);
}
