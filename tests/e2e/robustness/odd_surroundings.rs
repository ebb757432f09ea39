//! Programs that are not regular files, clocks far in the past or future, and directories removed while in
//! use.

use std::fs;

use crate::support::{
    other_user::UNPRIVILEGED_UID,
    requirement,
    server::TestServer,
    uids,
    world::{TestWorld, run},
};

/// Asserts that a program that is not a regular file is rejected at once and does not affect other programs.
#[track_caller]
fn check_special_program(world: &TestWorld, program: &str, message: &str) {
    let ran = world.run(&["run", program, "deaths", "-E", "First.One", "-E", program]);
    ran.assert_stdout(message).assert_stdout("First.One");
    let alone = world.run(&["run", program]).assert_code(4);
    alone.assert_stdout(message);
}

#[test]
fn pipe_or_device_as_program_is_an_error_at_once() {
    let world = TestWorld::with_gtest("deaths");
    let made = std::process::Command::new("mkfifo").arg(world.path("pipe")).status().unwrap();
    assert!(made.success());
    check_special_program(&world, "pipe", "pipe is a named pipe, not a test program");
    let _listener = std::os::unix::net::UnixListener::bind(world.path("socket")).unwrap();
    check_special_program(&world, "socket", "socket is a socket, not a test program");
    check_special_program(&world, "/dev/zero", "/dev/zero is a device, not a test program");
}

#[test]
fn clock_beyond_the_year_9999_fails_nothing() {
    for seconds in ["252000000000", "9000000000000000", "-9000000000000"] {
        let world = TestWorld::with_gtest("deaths");
        world.env("HEELER_FAIL_CLOCK", seconds);
        let ran = world.run(&["run", "deaths", "-E", "First", "--junit", "a.xml", "--report", "ctrf=b.json"]);
        let ran = ran.assert_code(0);
        assert!(!ran.stderr.contains("panicked"), "{ran}");
        assert!(world.read("a.xml").contains("name=\"One\" classname=\"First\""));
        world.run(&["report"]).assert_code(0).assert_stdout("PASSED 2 tests");
        world.run(&["runs"]).assert_code(0);
    }
}

#[test]
fn server_recovers_when_its_directories_are_removed() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = TestServer::initialized(&world, &["deaths"]);
    let selected = uids("deaths", ["First.One"]);
    let run = server.run(Some(&["deaths::First.One"]));
    server.finish(&run, &selected).assert_all("passed");
    for directory in ["run", ".heeler", "tmp"] {
        for entry in fs::read_dir(world.path(directory)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        }
        for _ in 0..2 {
            let run = server.run(Some(&["deaths::First.One"]));
            server.finish(&run, &selected).assert_all("passed");
        }
    }
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn unmapped_owner_of_the_temporary_directory_is_named_with_the_variable_that_helps() {
    let mut world = TestWorld::with_gtest("deaths");
    if heeler_sys::process::effective_uid() == 0 {
        world.change_owner(UNPRIVILEGED_UID);
    }
    let heeler = world.heeler(&[]).get_program().to_owned();
    let in_namespace = |variable: &str| {
        let command = format!("{} run deaths -E First", heeler.display());
        run(world.shell(&format!("unset XDG_RUNTIME_DIR; exec unshare -Ur env {variable} {command}")))
    };
    if run(world.shell("unshare -Ur true")).code != Some(0) {
        requirement::leave_out("a user namespace", "unshare -Ur must be allowed to this user");
        return;
    }
    let refused = in_namespace("-i");
    assert_ne!(refused.code, Some(0), "{refused}");
    refused
        .assert_stderr("without an ID in this user namespace")
        .assert_stderr("set XDG_RUNTIME_DIR to a directory");
    let own = format!("XDG_RUNTIME_DIR={}", world.path("run").display());
    in_namespace(&own).assert_code(0).assert_stderr("PASSED 2 tests");
}
