//! The environment of a test process as the kernel reports it: variables, descriptors, signals, limits,
//! directory and process group. A test does not inherit anything that Heeler uses internally.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::{Command, Stdio},
};

use heeler_sys::process::{Pid, stat};

use crate::support::{process::wait_until, rendezvous::ConnectedTest, world::TestWorld};

/// Configuration with the suite's environment variables and working directory.
const SUITE: &str = "[profile.default]\njobs = 1\n[[suite]]\nname = \"suite\"\nprograms = [\"PROGRAM\"]\ncwd = \"home\"\n\
    [suite.env]\nADDED = \"by the suite\"\nCHANGED = \"by the suite\"\nREMOVED = false\nGTEST_COLOR = \"yes\"\n";

/// Variables in Heeler's own environment: some would change a framework's output, and tests inherit the
/// others.
const OUTER: [(&str, &str); 10] = [
    ("CHANGED", "outside"),
    ("REMOVED", "outside"),
    ("KEPT", "out\u{e9}side = \"all\" of it\n"),
    ("EMPTY", ""),
    ("GTEST_FILTER", "Nothing.*"),
    ("GTEST_COLOR", "yes"),
    ("GTEST_SHUFFLE", "1"),
    ("RUST_TEST_THREADS", "3"),
    ("RUST_TEST_NOCAPTURE", "1"),
    ("RUST_BACKTRACE", "1"),
];

type ProcessVariables = BTreeMap<String, String>;

fn environment(pid: u32) -> ProcessVariables {
    let bytes = fs::read(format!("/proc/{pid}/environ")).unwrap();
    let pairs = bytes.split(|byte| *byte == 0).filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = std::str::from_utf8(pair).unwrap().split_once('=').unwrap();
        (name.to_owned(), value.to_owned())
    });
    pairs.collect()
}

/// Returns a world with one program as its only suite; the program's tests connect when they run.
fn world(framework: &str, settings: &str) -> TestWorld {
    let (world, program) = if framework == "gtest" {
        (TestWorld::with_gtest("meet"), "meet")
    } else {
        (TestWorld::with_libtest(), "libtest")
    };
    world.write("heeler.toml", &settings.replace("PROGRAM", program));
    for (name, value) in OUTER {
        world.env(name, value);
    }
    world
}

/// Runs the one test that connects, calls `ask` while it runs, and lets it pass.
fn with_running_test<T>(
    world: &TestWorld,
    framework: &str,
    before: &str,
    ask: impl FnOnce(&ConnectedTest) -> T,
) -> T {
    let rendezvous = world.open_rendezvous();
    let heeler = world.heeler(&[]).get_program().to_owned();
    let test = if framework == "gtest" { "Meet.Case/0" } else { "n_meets" };
    let mut shell = world.shell(&format!("{before} exec {} run -E {test}", heeler.display()));
    let mut child = shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let connected = rendezvous.next_test();
    let environment = ask(&connected);
    connected.release();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    environment
}

/// Returns Heeler's own environment.
fn heeler_environment(command: &Command) -> ProcessVariables {
    let text = |value: &std::ffi::OsStr| value.to_str().unwrap().to_owned();
    command.get_envs().filter_map(|(name, value)| Some((text(name), text(value?)))).collect()
}

#[test]
fn test_environment_applies_set_and_unset() {
    for (framework, unset, set) in [
        ("gtest", &["GTEST_FILTER", "GTEST_COLOR", "GTEST_SHUFFLE"][..], None),
        ("libtest", &["RUST_TEST_THREADS", "RUST_TEST_NOCAPTURE"][..], Some(("RUSTC_BOOTSTRAP", "1"))),
    ] {
        let world = world(framework, SUITE);
        let mut found = with_running_test(&world, framework, "", |connected| environment(connected.pid));
        let mut expected = heeler_environment(&world.heeler(&[]));
        // The shell in between changes these variables.
        for name in ["SHLVL", "_", "PWD", "OLDPWD"] {
            expected.remove(name);
            found.remove(name);
        }
        expected.extend(
            [("ADDED", "by the suite"), ("CHANGED", "by the suite"), ("GTEST_COLOR", "yes")].map(owned),
        );
        expected.remove("REMOVED");
        for name in unset {
            expected.remove(*name);
        }
        expected.extend(set.map(owned));
        let run_mark = found.remove("TEST_PREMATURE_EXIT_FILE");
        assert_eq!(run_mark.is_some_and(|mark| mark.ends_with("/gtest-runs")), framework == "gtest");
        assert!(found.remove("TEST_TMPDIR").is_some_and(|path| path.contains("/heeler-")));
        let run_id = found.remove("HEELER_RUN_ID").unwrap();
        assert_eq!(run_id.len(), 36, "{run_id}");
        expected.extend([("HEELER", "1"), ("HEELER_WORKER", "1"), ("HEELER_SLOT", "1")].map(owned));
        assert_eq!(found, expected, "{framework}");
    }
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// Returns a field of a process's status file.
fn field(pid: u32, file: &str, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    let line =
        text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name} in {text}"));
    line.split_whitespace().next().unwrap_or_default().to_owned()
}

#[test]
fn test_has_clean_descriptors_group_and_signals() {
    // Start Heeler with an open descriptor, ignored signals, a umask and resource limits.
    let before = "exec 9</dev/null; trap '' USR1 HUP TERM; umask 027; ulimit -S -n 300; ulimit -c 0;";
    // The Rust runtime ignores SIGPIPE and handles SIGSEGV and SIGBUS to detect stack overflows.
    for (framework, ignored) in [("gtest", 0_u64), ("libtest", 1 << 12)] {
        let world = world(framework, SUITE);
        with_running_test(&world, framework, before, |connected| {
            let pid = connected.pid;
            let link =
                |fd: &str| fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap().display().to_string();
            let fds = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
            let fds: BTreeSet<_> = fds.map(|fd| fd.unwrap().file_name().into_string().unwrap()).collect();
            // The fourth descriptor is the rendezvous connection, which the test itself opened.
            let is_own = |fd: &&String| *fd != "1" && link(fd).starts_with("socket:");
            let own = fds.iter().find(is_own).unwrap().clone();
            let rest: Vec<_> = fds.iter().filter(|fd| **fd != own).map(String::as_str).collect();
            assert_eq!(rest, ["0", "1", "2"], "{framework}");
            assert_eq!(link("0"), "/dev/null");
            assert!(link("1").starts_with("socket:"), "{framework}: its writers are known");
            assert!(link("2").starts_with("pipe:"), "{framework}");
            let mask = |name| u64::from_str_radix(&field(pid, "status", name), 16).unwrap();
            assert_eq!(mask("SigIgn:"), ignored, "{framework}");
            // The C library blocks all signals in a thread while that thread starts another.
            wait_until("no signal is blocked", || mask("SigBlk:") == 0);
            assert_eq!(field(pid, "status", "Umask:"), "0027");
            assert_eq!(field(pid, "limits", "Max open files"), "300");
            assert_eq!(field(pid, "limits", "Max core file size"), "0");
            assert_eq!(field(pid, "status", "NoNewPrivs:"), "0");
            let cwd = fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
            assert_eq!(cwd, fs::canonicalize(world.path("home")).unwrap());
            let pid = Pid(i32::try_from(pid).unwrap());
            assert_eq!(stat(pid).unwrap().group, pid, "{framework}: a group of its own");
        });
    }
}
