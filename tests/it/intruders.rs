//! Another user of the machine against a running Heeler: what they can read, inject, kill or fill up. Each
//! attack is carried out as another user, against a user's Heeler and against root's.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, chown},
    path::Path,
    process::Stdio,
};

use serde_json::json;

use crate::support::{
    books::Delivery,
    intruder::{INTRUDER, Intruder, all_below, victims},
    listener::Behaviour,
    process::{children, signal, wait_until},
    server::{Server, Transport},
    uids,
    world::World,
};

/// The first message of a client of the protocol.
const INITIALIZE: &str =
    "Content-Length: 60\\r\\n\\r\\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{}   }";

fn world_of(user: u32, programs: &[&str]) -> World {
    let mut world = World::new();
    for program in programs {
        world.gtest(program);
    }
    world.give_to(user);
    world
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn another_user_reads_writes_and_kills_nothing_of_a_run() {
    for user in victims("a run under attack") {
        let mut world = World::new();
        world.gtest("meet");
        let meet = world.meet();
        chown(&meet.path, Some(user), Some(user)).unwrap();
        world.give_to(user);
        let mut server = Server::with_callback(&world, &["meet"], |_| Behaviour::Normal);
        let selected = uids("meet", ["N/Meet.Case/0"]);
        let run = server.run(Some(&[&selected[0]]));
        let guest = meet.next();
        let mut intruder = Intruder::new();
        for dir in [world.path("run"), world.path(".heeler")] {
            let below = all_below(&dir);
            assert!(!below.is_empty(), "{}", dir.display());
            for path in &below {
                if path.is_dir() {
                    intruder.may_not(&["list", text(path)]);
                    intruder.may_not(&["create", text(&path.join("new"))]);
                } else {
                    intruder.may_not(&["read", text(path)]);
                    intruder.may_not(&["append", text(path)]);
                    intruder.may_not(&["connect", text(path)]);
                }
                intruder.may_not(&["remove", text(path)]);
                intruder.may_not(&["rename", text(path), text(&path.with_extension("away"))]);
            }
        }
        let mut family = vec![server.pid(), guest.pid];
        family.extend(
            host::process::descendants(host::process::Pid(server.pid().cast_signed()))
                .iter()
                .map(|pid| pid.0.cast_unsigned()),
        );
        for pid in family {
            intruder.may_not(&["signal", &pid.to_string()]);
            for name in ["environ", "mem", "maps", "fd", "auxv", "stack"] {
                let path = format!("/proc/{pid}/{name}");
                let tried = intruder.tries(&[if name == "fd" { "list" } else { "read" }, &path]);
                assert_eq!(tried, Err("PermissionDenied".to_owned()), "{path}");
            }
        }
        guest.let_go();
        server.finish(&run, &selected).all("passed");
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn what_a_crash_leaves_is_for_its_owner_alone_whatever_the_umask() {
    for user in victims("evidence under attack") {
        let world = world_of(user, &["evidence"]);
        let line = "umask 0; exec ./heeler run evidence -E Crash.One --junit report.xml";
        crate::support::world::run(world.shell(line)).code(2);
        let state = world.path(".heeler");
        let below = all_below(&state);
        assert!(below.iter().any(|path| path.extension().is_some_and(|ending| ending == "dmp")), "{below:?}");
        assert!(below.contains(&state.join("history.sqlite")));
        let mut intruder = Intruder::new();
        for path in below.iter().chain([&state]) {
            let mode = fs::symlink_metadata(path).unwrap().mode() & 0o077;
            assert_eq!(mode, 0, "{} is open to others", path.display());
        }
        intruder.may_not(&["list", text(&state)]);
        for path in &below {
            intruder.may_not(&["read", text(path)]);
        }
    }
}

#[test]
fn a_listening_server_serves_no_other_user_and_keeps_its_room() {
    for user in victims("a listening server under attack") {
        let world = world_of(user, &["meet"]);
        let mut server = Server::start_over(Transport::Listen, &world, &["meet"]);
        let address = server.dial().peer_addr().unwrap().to_string();
        let mut intruder = Intruder::new();
        assert_eq!(intruder.does(&["dial", &address, INITIALIZE]), "");
        // More than the session limit, and held open by that side.
        intruder.does(&["hold", &address, "100"]);
        server.initialize(json!({"testing": {"debuggerProvider": false}}));
        let selected = uids("meet", ["N/Meet.Case/0"]);
        let run = server.run(Some(&[&selected[0]]));
        server.finish(&run, &selected).all("passed");
        // One more client of the own user is still accepted.
        let mut second = server.dial();
        let hello = INITIALIZE.replace("\\r\\n", "\r\n");
        std::io::Write::write_all(&mut second, hello.as_bytes()).unwrap();
        let mut answer = [0; 16];
        std::io::Read::read_exact(&mut second, &mut answer).unwrap();
        assert_eq!(&answer, b"Content-Length: ");
        drop(second);
        signal(server.pid(), "TERM");
        server.wait_gone();
    }
}

#[test]
fn a_callback_port_that_another_user_has_taken_hears_nothing() {
    for user in victims("a callback port under attack") {
        let world = world_of(user, &["meet"]);
        let mut intruder = Intruder::new();
        let port: u16 = intruder.does(&["listen", "127.0.0.1:0"]).parse().unwrap();
        let mut server = Server::start(&world, &["meet"]);
        let provider = json!({"port": port, "token": "a secret of the client's"});
        server.initialize(json!({"testing": {"debuggerProvider": false, "callbackProvider": provider}}));
        let selected = uids("meet", ["N/Meet.Case/0", "N/Meet.Case/1"]);
        let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
        server.finish_as(&run, &selected, Delivery::AtLeastOnce).all("passed");
        assert_eq!(server.exit(), Some(0));
        assert_eq!(intruder.does(&["heard"]), "");
    }
}

#[test]
fn an_editor_port_that_another_user_has_taken_is_not_served() {
    for user in victims("an editor's port under attack") {
        let world = world_of(user, &["meet"]);
        let mut intruder = Intruder::new();
        let port = intruder.does(&["listen", "127.0.0.1:0"]);
        let ran =
            world.run(&["meet", "--server", "--client-host", "localhost", "--client-port", &port]).code(4);
        ran.complains(&format!("it belongs to user {INTRUDER}, not to user {user}"));
        assert_eq!(intruder.does(&["heard"]), "");
    }
}

#[test]
fn a_named_socket_is_for_its_own_user_and_a_taken_name_is_told() {
    for user in victims("a named socket under attack") {
        let world = world_of(user, &["meet"]);
        let mut intruder = Intruder::new();
        let socket = world.path("heeler.sock");
        let mut command = world.heeler(&["serve", "--pipe", text(&socket), "meet"]);
        let mut server = command.stderr(Stdio::null()).spawn().unwrap();
        wait_until("the server listens", || socket.exists());
        intruder.may_not(&["connect", text(&socket)]);
        signal(server.id(), "TERM");
        server.wait().unwrap();
        let taken = intruder.path("taken.sock");
        intruder.does(&["bind", text(&taken)]);
        let ran = world.run(&["serve", "--pipe", text(&taken), "meet"]);
        assert_ne!(ran.code, Some(0));
        ran.complains("listen on the local socket");
    }
}

/// Returns the addresses of this machine at which a process listens.
fn ports_of(pid: u32) -> Vec<String> {
    let inodes: Vec<_> = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .filter_map(|fd| fs::read_link(fd.ok()?.path()).ok()?.to_str().map(str::to_owned))
        .collect();
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
    let address = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let is_listening =
            fields.get(3) == Some(&"0A") && inodes.contains(&format!("socket:[{}]", fields[9]));
        let port = u16::from_str_radix(fields[1].split_once(':')?.1, 16).ok()?;
        is_listening.then(|| format!("127.0.0.1:{port}"))
    };
    sockets.lines().skip(1).filter_map(address).collect()
}

#[test]
fn the_client_library_lets_no_other_user_in_as_a_worker() {
    for user in victims("a client's callback port under attack") {
        let mut world = World::new();
        world.gtest("meet");
        let meet = world.meet();
        chown(&meet.path, Some(user), Some(user)).unwrap();
        world.give_to(user);
        let mut command = world.heeler(&["run", "-v", "meet", "-E", "Meet.Case/0"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let client = command.spawn().unwrap();
        let guest = meet.next();
        let ports = ports_of(client.id());
        assert_eq!(ports.len(), 1, "the callback port");
        let mut intruder = Intruder::new();
        // The most plausible forgery: the token is compared as a whole.
        let forged = "Content-Length: 2000\\r\\n\\r\\n{\"jsonrpc\":\"2.0\",\"method\":\"$/heeler/hello\"";
        for _ in 0..20 {
            assert_eq!(intruder.does(&["dial", &ports[0], forged]), "");
        }
        // More than the client accepts at the same time.
        for _ in 0..11 {
            intruder.does(&["hold", &ports[0], "100"]);
        }
        guest.let_go();
        let ended = client.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(0), "{said}");
        let told = said.matches(&format!("it belongs to user {INTRUDER}")).count();
        assert!((1..=6).contains(&told), "{told} times\n{said}");
    }
}

#[test]
fn no_secret_stands_in_what_everybody_may_read_of_processes() {
    for user in victims("secrets of processes") {
        let mut world = World::new();
        world.gtest("meet");
        let meet = world.meet();
        chown(&meet.path, Some(user), Some(user)).unwrap();
        world.env("A_SECRET_OF_THE_USER", "correct-horse-battery-staple");
        world.give_to(user);
        let mut server = Server::start(&world, &["meet"]);
        let listener =
            crate::support::listener::Listener::new(server.recorder.clone(), |_| Behaviour::Normal);
        let provider = json!({"port": listener.port, "token": "a-token-nobody-knows"});
        server.listener = Some(listener);
        server.initialize(json!({"testing": {"debuggerProvider": false, "callbackProvider": provider}}));
        let selected = uids("meet", ["N/Meet.Case/0"]);
        let run = server.run(Some(&[&selected[0]]));
        let guest = meet.next();
        let seen = Intruder::new().does(&["command-lines"]);
        assert!(seen.contains("__worker"), "the processes are seen");
        for secret in ["a-token-nobody-knows", "correct-horse-battery-staple"] {
            assert!(!seen.contains(secret), "{secret}");
        }
        // The client's token does not reach a test's environment or arguments either.
        for name in ["environ", "cmdline"] {
            let given = fs::read(format!("/proc/{}/{name}", guest.pid)).unwrap();
            assert!(!String::from_utf8_lossy(&given).contains("a-token-nobody-knows"));
        }
        guest.let_go();
        server.finish(&run, &selected).all("passed");
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn a_configuration_that_another_user_has_left_above_is_not_obeyed() {
    for user in victims("a configuration under attack") {
        let mut intruder = Intruder::new();
        let trap = format!(
            "[[suite]]\nname = \"trap\"\nprograms = [\"/bin/true\"]\nbuild = [\"/usr/bin/touch\", \"{}\"]\n",
            text(&intruder.path("sprung"))
        );
        fs::write(intruder.path("trap"), trap).unwrap();
        chown(intruder.path("trap"), Some(INTRUDER), Some(INTRUDER)).unwrap();
        intruder.does(&["rename", text(&intruder.path("trap")), text(&intruder.path("heeler.toml"))]);
        let below = intruder.path("below");
        fs::create_dir(&below).unwrap();
        chown(&below, Some(user), Some(user)).unwrap();
        let world = world_of(user, &["meet"]);
        let mut command = world.heeler(&["run"]);
        command.current_dir(&below);
        let ran = crate::support::world::run(command).code(5);
        ran.complains(&format!("which belongs to user {INTRUDER}"));
        assert!(!intruder.path("sprung").exists());
    }
}

#[test]
fn a_state_directory_that_another_user_has_laid_out_is_not_used() {
    for user in victims("a state directory under attack") {
        let mut intruder = Intruder::new();
        let world = world_of(user, &["meet"]);
        // Like `/tmp`: writable by everybody, with the sticky bit.
        let shared = tempfile::tempdir().unwrap();
        fs::set_permissions(shared.path(), std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
        for trap in ["directory", "link to a directory of the victim's"] {
            let state = shared.path().join(".heeler");
            if trap == "directory" {
                intruder.does(&["make", text(&state)]);
            } else {
                intruder.does(&["link", text(world.dir()), text(&state)]);
            }
            // The fallback directory is taken, too.
            let taken = world.path("tmp").join(format!("heeler-{user}"));
            fs::create_dir(&taken).unwrap();
            chown(&taken, Some(INTRUDER), Some(INTRUDER)).unwrap();
            let program = world.path("meet");
            let mut command = world.heeler(&["run", text(&program), "-E", "Meet.Case/0"]);
            command.current_dir(shared.path());
            let ran = crate::support::world::run(command).code(0);
            ran.line(&["Summary", "1 passed"]);
            assert!(!world.path("runs").exists(), "{trap}");
            assert!(!world.path("history.sqlite").exists(), "{trap}");
            let kept: Vec<_> =
                fs::read_dir(world.path("tmp")).unwrap().map(|entry| entry.unwrap().path()).collect();
            assert_eq!(kept.len(), 2, "{kept:?}");
            for path in kept {
                fs::remove_dir_all(path).unwrap();
            }
            if trap == "directory" {
                // Invented runs, more than are kept.
                intruder.does(&["make", text(&state.join("runs"))]);
                for hour in 0..24 {
                    let forged = state.join(format!("runs/20200101T{hour:02}0000000Z-forged"));
                    intruder.does(&["make", text(&forged)]);
                    intruder.does(&["text", text(&forged.join("manifest.json")), "{}"]);
                }
                let mut command = world.heeler(&["runs"]);
                command.current_dir(shared.path());
                let ran = crate::support::world::run(command);
                assert!(!ran.stdout.contains("forged"), "{ran}");
            }
            intruder.does(&["remove", text(&state)]);
        }
    }
}

#[test]
fn runtime_and_temporary_directories_of_another_user_are_passed_over() {
    for user in victims("hostile directories") {
        let intruder = Intruder::new();
        let world = world_of(user, &["meet"]);
        world.env("XDG_RUNTIME_DIR", text(&intruder.path("")));
        world.env("TMPDIR", text(&intruder.path("")));
        let mut server = Server::ready(&world, &["meet"]);
        let selected = uids("meet", ["N/Meet.Case/0"]);
        let run = server.run(Some(&[&selected[0]]));
        server.finish(&run, &selected).all("passed");
        let below: Vec<_> =
            children(server.pid()).iter().map(|pid| host::process::command_line(*pid)).collect();
        assert!(below.iter().any(|line| line.contains("__watchdog /tmp/heeler-")), "{below:?}");
        assert_eq!(server.exit(), Some(0));
        let left: Vec<_> =
            fs::read_dir(intruder.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["intruder"]);
    }
}
