//! Another user of the machine tries to read from, inject into, kill or overload a running Heeler. Each
//! attack is tried against Heeler run by an ordinary user and by root.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt as _, chown},
        net::UnixStream,
    },
    path::Path,
    process::Stdio,
};

use heeler_client::{Client, ClientEvent, ClientOptions, EventSource};
use serde_json::json;

use crate::support::{
    callback_listener::ListenerBehaviour,
    checked_run::ExpectedDelivery,
    framing::{MessageReader, write_message},
    other_user::{OTHER_UID, OtherUser, all_below, attacked_users},
    process::{children, signal, wait_until},
    server::{ServerTransport, TestServer},
    uids,
    world::TestWorld,
};

/// The first message of a protocol client.
const INITIALIZE: &str =
    "Content-Length: 60\\r\\n\\r\\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{}   }";

fn world_of(user: u32, programs: &[&str]) -> TestWorld {
    let mut world = TestWorld::new();
    for program in programs {
        world.gtest(program);
    }
    world.change_owner(user);
    world
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn other_user_cannot_read_write_or_kill_run() {
    for user in attacked_users() {
        // A test is running, and the server belongs to `user`.
        let mut world = TestWorld::new();
        world.gtest("meet");
        let rendezvous = world.open_rendezvous();
        chown(&rendezvous.path, Some(user), Some(user)).unwrap();
        world.change_owner(user);
        let mut server = TestServer::with_callback(&world, &["meet"], |_| ListenerBehaviour::Normal);
        let selected = uids("meet", ["N/Meet.Case/0"]);
        let run = server.run(Some(&[&selected[0]]));
        let connected = rendezvous.next_test();
        let mut intruder = OtherUser::new();
        // The intruder cannot use any of the run's files.
        for dir in [world.path("run"), world.path(".heeler")] {
            let below = all_below(&dir);
            assert!(!below.is_empty(), "{}", dir.display());
            for path in &below {
                if path.is_dir() {
                    intruder.assert_denied(&["list", text(path)]);
                    intruder.assert_denied(&["create", text(&path.join("new"))]);
                } else {
                    intruder.assert_denied(&["read", text(path)]);
                    intruder.assert_denied(&["append", text(path)]);
                    intruder.assert_denied(&["connect", text(path)]);
                }
                intruder.assert_denied(&["remove", text(path)]);
                intruder.assert_denied(&["rename", text(path), text(&path.with_extension("away"))]);
            }
        }
        // The intruder can neither signal nor inspect any of the run's processes.
        let mut family = vec![server.pid(), connected.pid];
        family.extend(
            heeler_sys::process::descendants(heeler_sys::process::Pid(server.pid().cast_signed()))
                .iter()
                .map(|pid| pid.0.cast_unsigned()),
        );
        for pid in family {
            intruder.assert_denied(&["signal", &pid.to_string()]);
            for name in ["environ", "mem", "maps", "fd", "auxv", "stack"] {
                let path = format!("/proc/{pid}/{name}");
                let tried = intruder.attempt(&[if name == "fd" { "list" } else { "read" }, &path]);
                assert_eq!(tried, Err("PermissionDenied".to_owned()), "{path}");
            }
        }
        // The attack does not affect the run.
        connected.release();
        server.finish(&run, &selected).assert_all("passed");
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn crash_files_are_private_under_any_umask() {
    for user in attacked_users() {
        let world = world_of(user, &["evidence"]);
        let line = "umask 0; exec ./heeler run evidence -E Crash.One --junit report.xml";
        crate::support::world::run(world.shell(line)).assert_code(2);
        let state = world.path(".heeler");
        let below = all_below(&state);
        assert!(below.iter().any(|path| path.extension().is_some_and(|ending| ending == "dmp")), "{below:?}");
        assert!(below.contains(&state.join("history.sqlite")));
        let mut intruder = OtherUser::new();
        for path in below.iter().chain([&state]) {
            let mode = fs::symlink_metadata(path).unwrap().mode() & 0o077;
            assert_eq!(mode, 0, "{} is open to others", path.display());
        }
        intruder.assert_denied(&["list", text(&state)]);
        for path in &below {
            intruder.assert_denied(&["read", text(path)]);
        }
    }
}

#[test]
fn listening_server_refuses_other_users() {
    for user in attacked_users() {
        let world = world_of(user, &["meet"]);
        let mut server = TestServer::start_over(ServerTransport::Listen, &world, &["meet"]);
        let address = server.connect().peer_addr().unwrap().to_string();
        let mut intruder = OtherUser::new();
        assert_eq!(intruder.perform(&["dial", &address, INITIALIZE]), "");
        // The attacker holds more connections open than the session limit.
        intruder.perform(&["hold", &address, "100"]);
        server.initialize(json!({"testing": {"debuggerProvider": false}}));
        let selected = uids("meet", ["N/Meet.Case/0"]);
        let run = server.run(Some(&[&selected[0]]));
        server.finish(&run, &selected).assert_all("passed");
        // The server's own user can still connect another client.
        let mut second = server.connect();
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
fn other_users_callback_port_receives_nothing() {
    for user in attacked_users() {
        let world = world_of(user, &["meet"]);
        let mut intruder = OtherUser::new();
        let port: u16 = intruder.perform(&["listen", "127.0.0.1:0"]).parse().unwrap();
        let mut server = TestServer::start(&world, &["meet"]);
        let provider = json!({"port": port, "token": "a secret of the client's"});
        server.initialize(json!({"testing": {"debuggerProvider": false, "callbackProvider": provider}}));
        let selected = uids("meet", ["N/Meet.Case/0", "N/Meet.Case/1"]);
        let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
        server.finish_as(&run, &selected, ExpectedDelivery::AtLeastOnce).assert_all("passed");
        assert_eq!(server.exit(), Some(0));
        assert_eq!(intruder.perform(&["received"]), "");
    }
}

#[test]
fn other_users_editor_port_is_not_served() {
    for user in attacked_users() {
        let world = world_of(user, &["meet"]);
        let mut intruder = OtherUser::new();
        let port = intruder.perform(&["listen", "127.0.0.1:0"]);
        let ran = world
            .run(&["meet", "--server", "--client-host", "localhost", "--client-port", &port])
            .assert_code(4);
        ran.assert_stderr(&format!("the peer belongs to user {OTHER_UID}, not to user {user}"));
        assert_eq!(intruder.perform(&["received"]), "");
    }
}

#[test]
fn local_socket_is_private_and_taken_name_reported() {
    for user in attacked_users() {
        let world = world_of(user, &["meet"]);
        let mut intruder = OtherUser::new();
        let socket = world.path("heeler.sock");
        let mut command = world.heeler(&["serve", "--pipe", text(&socket), "meet"]);
        let mut server = command.stderr(Stdio::null()).spawn().unwrap();
        wait_until("the server listens", || socket.exists());
        intruder.assert_denied(&["connect", text(&socket)]);
        signal(server.id(), "TERM");
        server.wait().unwrap();
        let taken = intruder.path("taken.sock");
        intruder.perform(&["bind", text(&taken)]);
        let ran = world.run(&["serve", "--pipe", text(&taken), "meet"]);
        assert_ne!(ran.code, Some(0));
        ran.assert_stderr("listen on the local socket");
    }
}

/// Returns a process's sockets, as `/proc` link targets.
fn sockets_of(pid: u32) -> Vec<String> {
    fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .filter_map(|fd| fs::read_link(fd.ok()?.path()).ok()?.to_str().map(str::to_owned))
        .collect()
}

/// Returns the listening addresses of a process.
fn ports_of(pid: u32) -> Vec<String> {
    let inodes = sockets_of(pid);
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
fn client_library_refuses_other_users_as_workers() {
    if attacked_users().is_empty() {
        return;
    }
    let (client, server) = UnixStream::pair().unwrap();
    let client = std::thread::spawn(move || refused_callbacks(client));
    let initialize = MessageReader::new(&server).next().expect("a client initializes its server");
    let provider = &initialize["params"]["capabilities"]["testing"]["callbackProvider"];
    let address = format!("127.0.0.1:{}", provider["port"]);
    let answer = json!({"jsonrpc": "2.0", "id": initialize["id"], "result": {}});
    write_message(&mut &server, &answer).unwrap();
    let mut intruder = OtherUser::new();
    // The closest possible forgery: only the token is missing, and the client compares all of it.
    let forged = "Content-Length: 2000\\r\\n\\r\\n{\"jsonrpc\":\"2.0\",\"method\":\"$/heeler/hello\"";
    for _ in 0..20 {
        assert_eq!(intruder.perform(&["dial", &address, forged]), "");
    }
    // Hold more connections open than the client accepts at the same time.
    for _ in 0..11 {
        intruder.perform(&["hold", &address, "100"]);
    }
    drop(server);
    let refusals = client.join().unwrap();
    assert_eq!(refusals.len(), 3, "{refusals:?}");
    let names_user = |reason: &String| reason.contains(&format!("the peer belongs to user {OTHER_UID}"));
    assert!(refusals.iter().all(names_user), "{refusals:?}");
}

/// Connects a client with a callback port to its server and waits until the server closes the connection.
/// Returns the client's reasons for refusing callback connections.
fn refused_callbacks(server: UnixStream) -> Vec<String> {
    server.set_nonblocking(true).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::UnixStream::from_std(server).unwrap();
        let options = ClientOptions { callback: true, ..ClientOptions::default() };
        let (_client, mut events) = Client::connect(stream, options).await.unwrap();
        let mut refusals = Vec::new();
        while let Some(event) = events.next().await {
            match event {
                ClientEvent::CallbackRefused { reason } => refusals.push(reason),
                ClientEvent::ConnectionLost { source: EventSource::Main, .. } => break,
                other => panic!("{other:?}"),
            }
        }
        refusals
    })
}

#[test]
fn command_line_listens_at_no_port_and_at_no_socket_without_a_file() {
    let world = TestWorld::new();
    world.gtest("meet");
    let rendezvous = world.open_rendezvous();
    let mut command = world.heeler(&["run", "-v", "meet", "-E", "Meet.Case/0"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = command.spawn().unwrap();
    let connected = rendezvous.next_test();
    assert_eq!(ports_of(running.id()), Vec::<String>::new());
    let inodes = sockets_of(running.id());
    let sockets = fs::read_to_string("/proc/net/unix").unwrap();
    let is_abstract = |line: &&str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let is_own = fields.get(6).is_some_and(|inode| inodes.contains(&format!("socket:[{inode}]")));
        is_own && fields.get(7).is_some_and(|name| name.starts_with('@'))
    };
    assert_eq!(sockets.lines().skip(1).find(is_abstract), None);
    connected.release();
    let ended = running.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn world_readable_process_data_has_no_secret() {
    for user in attacked_users() {
        let mut world = TestWorld::new();
        world.gtest("meet");
        let rendezvous = world.open_rendezvous();
        chown(&rendezvous.path, Some(user), Some(user)).unwrap();
        world.env("A_SECRET_OF_THE_USER", "correct-horse-battery-staple");
        world.change_owner(user);
        let mut server = TestServer::start(&world, &["meet"]);
        let listener =
            crate::support::callback_listener::RecordingListener::new(server.recorder.clone(), |_| {
                ListenerBehaviour::Normal
            });
        let provider = json!({"port": listener.port, "token": "a-token-nobody-knows"});
        server.listener = Some(listener);
        server.initialize(json!({"testing": {"debuggerProvider": false, "callbackProvider": provider}}));
        let selected = uids("meet", ["N/Meet.Case/0"]);
        let run = server.run(Some(&[&selected[0]]));
        let connected = rendezvous.next_test();
        let seen = OtherUser::new().perform(&["command-lines"]);
        assert!(seen.contains("__worker"), "the processes are seen");
        for secret in ["a-token-nobody-knows", "correct-horse-battery-staple"] {
            assert!(!seen.contains(secret), "{secret}");
        }
        // Neither the environment nor the arguments of a test contain the client's token.
        for name in ["environ", "cmdline"] {
            let given = fs::read(format!("/proc/{}/{name}", connected.pid)).unwrap();
            assert!(!String::from_utf8_lossy(&given).contains("a-token-nobody-knows"));
        }
        connected.release();
        server.finish(&run, &selected).assert_all("passed");
        assert_eq!(server.exit(), Some(0));
    }
}

#[test]
fn other_users_configuration_is_ignored() {
    for user in attacked_users() {
        let mut intruder = OtherUser::new();
        let trap = format!(
            "[[suite]]\nname = \"trap\"\nprograms = [\"/bin/true\"]\nbuild = [\"/usr/bin/touch\", \"{}\"]\n",
            text(&intruder.path("sprung"))
        );
        fs::write(intruder.path("trap"), trap).unwrap();
        chown(intruder.path("trap"), Some(OTHER_UID), Some(OTHER_UID)).unwrap();
        intruder.perform(&["rename", text(&intruder.path("trap")), text(&intruder.path("heeler.toml"))]);
        let below = intruder.path("below");
        fs::create_dir(&below).unwrap();
        chown(&below, Some(user), Some(user)).unwrap();
        let world = world_of(user, &["meet"]);
        let mut command = world.heeler(&["run"]);
        command.current_dir(&below);
        let ran = crate::support::world::run(command).assert_code(5);
        ran.assert_stderr(&format!("belongs to another user (uid {OTHER_UID})"));
        assert!(!intruder.path("sprung").exists());
    }
}

#[test]
fn other_users_state_directory_is_refused() {
    for user in attacked_users() {
        let mut intruder = OtherUser::new();
        let world = world_of(user, &["meet"]);
        // A directory like `/tmp`: writable for all users, with the sticky bit.
        let shared = tempfile::tempdir().unwrap();
        fs::set_permissions(shared.path(), std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
        for trap in ["directory", "link to a directory of the victim's"] {
            let state = shared.path().join(".heeler");
            if trap == "directory" {
                intruder.perform(&["make", text(&state)]);
            } else {
                intruder.perform(&["link", text(world.dir()), text(&state)]);
            }
            // The fallback directory belongs to another user, too.
            let taken = world.path("tmp").join(format!("heeler-{user}"));
            fs::create_dir(&taken).unwrap();
            chown(&taken, Some(OTHER_UID), Some(OTHER_UID)).unwrap();
            let program = world.path("meet");
            let mut command = world.heeler(&["run", text(&program), "-E", "Meet.Case/0"]);
            command.current_dir(shared.path());
            let ran = crate::support::world::run(command).assert_code(0);
            ran.line_with(&["Summary", "1 passed"]);
            assert!(!world.path("runs").exists(), "{trap}");
            assert!(!world.path("history.sqlite").exists(), "{trap}");
            let kept: Vec<_> =
                fs::read_dir(world.path("tmp")).unwrap().map(|entry| entry.unwrap().path()).collect();
            assert_eq!(kept.len(), 2, "{kept:?}");
            for path in kept {
                fs::remove_dir_all(path).unwrap();
            }
            if trap == "directory" {
                // Forge more runs than are kept.
                intruder.perform(&["make", text(&state.join("runs"))]);
                for hour in 0..24 {
                    let forged = state.join(format!("runs/20200101T{hour:02}0000000Z-forged"));
                    intruder.perform(&["make", text(&forged)]);
                    intruder.perform(&["text", text(&forged.join("manifest.json")), "{}"]);
                }
                let mut command = world.heeler(&["runs"]);
                command.current_dir(shared.path());
                let ran = crate::support::world::run(command);
                assert!(!ran.stdout.contains("forged"), "{ran}");
            }
            intruder.perform(&["remove", text(&state)]);
        }
    }
}

#[test]
fn other_users_runtime_directories_are_skipped() {
    for user in attacked_users() {
        let intruder = OtherUser::new();
        let world = world_of(user, &["meet"]);
        world.env("XDG_RUNTIME_DIR", text(&intruder.path("")));
        world.env("TMPDIR", text(&intruder.path("")));
        let mut server = TestServer::initialized(&world, &["meet"]);
        let selected = uids("meet", ["N/Meet.Case/0"]);
        let run = server.run(Some(&[&selected[0]]));
        server.finish(&run, &selected).assert_all("passed");
        let below: Vec<_> =
            children(server.pid()).iter().map(|pid| heeler_sys::process::command_line(*pid)).collect();
        assert!(below.iter().any(|line| line.contains("__watchdog /tmp/heeler-")), "{below:?}");
        assert_eq!(server.exit(), Some(0));
        let left: Vec<_> =
            fs::read_dir(intruder.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["intruder"]);
    }
}
