//! One million test executions in one session. Measures memory and descriptors of the server's processes and
//! the duration of runs in each tenth; fails if any of them grows.
//!
//! `cargo bench --bench soak` (needs g++ and GoogleTest); `cargo bench --bench soak -- 200000` runs fewer.

#![expect(clippy::unwrap_used, reason = "a bench that fails may panic")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use heeler_client::{Client, ClientEvent, ClientOptions, EventStream, RunAggregate, TestRequest};
use heeler_sys::{
    process::{Pid, command_line, descendants},
    spawn::{ChildStdio, SpawnOptions, SpawnedChild, spawn},
};
use tokio::net::TcpListener;

const EXECUTIONS: usize = 1_000_000;
/// Number of test cases in each of the two GoogleTest programs, and in the libtest program.
const GTEST_CASES: usize = 4_000;
const LIBTEST_CASES: usize = 2_000;
const TESTS: usize = 2 * GTEST_CASES + LIBTEST_CASES;
/// One case of each GoogleTest program crashes in every run.
const CRASHES: usize = 2;
const CRASH_AT: usize = 137;
const TENTHS: usize = 10;
/// Accepted relative growth from the beginning to the end.
const TOLERANCE: f64 = 0.10;
/// Time limit for releasing the resources of a finished run.
const SETTLE: Duration = Duration::from_secs(10);

/// Resource usage of one server process.
#[derive(Debug, Clone, Copy, Default)]
struct ServerProcessUsage {
    resident_kib: u64,
    descriptors: usize,
}

/// Measurements at the end of a tenth; processes by role.
struct SoakTenth {
    median_run: Duration,
    roles: BTreeMap<String, ServerProcessUsage>,
}

fn main() -> ExitCode {
    let asked = std::env::args().filter_map(|word| word.parse().ok()).next();
    let runs = (asked.unwrap_or(EXECUTIONS) / TENTHS).div_ceil(TESTS).max(1);
    let dir = tempfile::tempdir().unwrap();
    let programs = build_programs(dir.path());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let tenths = runtime.block_on(soak(dir.path(), &programs, runs));
    let faults = find_growth(&tenths);
    for fault in &faults {
        println!("not flat: {fault}");
    }
    println!(
        "soak: {} executions, {}",
        TENTHS * runs * TESTS,
        if faults.is_empty() { "flat" } else { "NOT flat" }
    );
    ExitCode::from(u8::from(!faults.is_empty()))
}

/// Builds two real GoogleTest programs and a real Rust one.
fn build_programs(dir: &Path) -> Vec<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gtest/big.cc");
    let (big, other) = (dir.join("big"), dir.join("other"));
    let mut args = vec!["-std=c++17".into(), "-O1".into(), "-o".into(), big.clone().into(), source.into()];
    args.extend(["-lgtest_main", "-lgtest", "-lpthread"].map(Into::into));
    build(found_in_path("g++"), args);
    fs::copy(&big, &other).unwrap();
    let (source, rust) = (dir.join("tests.rs"), dir.join("rust"));
    let test = |number| format!("#[test] fn case_{number}() {{}}\n");
    fs::write(&source, (0..LIBTEST_CASES).map(test).collect::<String>()).unwrap();
    let rustc = std::env::var_os("RUSTC").map_or_else(|| found_in_path("rustc"), PathBuf::from);
    build(rustc, vec!["--test".into(), "-o".into(), rust.clone().into(), source.into()]);
    vec![big, other, rust]
}

fn build(compiler: PathBuf, args: Vec<std::ffi::OsString>) {
    let ended = spawn(SpawnOptions { args, ..SpawnOptions::new(compiler) }).unwrap().wait().unwrap();
    assert_eq!(ended.code, Some(0));
}

fn found_in_path(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.exists()).unwrap()
}

async fn soak(dir: &Path, programs: &[PathBuf], runs: usize) -> Vec<SoakTenth> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let mut server = start(dir, programs, listener.local_addr().unwrap().port());
    let (stream, _) = listener.accept().await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (client, mut events) = Client::connect(stream, ClientOptions::default()).await.unwrap();
    let mut tenths: Vec<SoakTenth> = Vec::new();
    for number in 1..=TENTHS {
        let mut took = Vec::new();
        for _ in 0..runs {
            let begun = Instant::now();
            let (answer, ()) = tokio::join!(client.run(TestRequest::all()), follow_run(&mut events));
            answer.unwrap();
            took.push(begun.elapsed());
        }
        took.sort();
        let roles = wait_settled(server.pid(), tenths.first()).await;
        let tenth = SoakTenth { median_run: took[took.len() / 2], roles };
        show(number, &tenth);
        tenths.push(tenth);
    }
    drop(events);
    client.exit(tokio::time::Instant::now() + Duration::from_secs(10)).await.unwrap();
    assert_eq!(server.wait().unwrap().code, Some(0));
    tenths
}

fn start(dir: &Path, programs: &[PathBuf], port: u16) -> SpawnedChild {
    let mut args: Vec<_> = programs.iter().map(Into::into).collect();
    args.extend(["--server".into(), "--client-port".into(), port.to_string().into()]);
    let own = [("HEELER_FIXTURE_CASES", GTEST_CASES), ("HEELER_FIXTURE_CRASH_AT", CRASH_AT)];
    let own = own.map(|(name, value)| (name.into(), value.to_string().into()));
    spawn(SpawnOptions {
        args,
        cwd: Some(dir.to_owned()),
        env: Some(std::env::vars_os().chain(own).collect()),
        stdout: ChildStdio::Null,
        ..SpawnOptions::new(env!("CARGO_BIN_EXE_heeler"))
    })
    .unwrap()
}

/// Follows one run to its completion, and checks that every test has its result by then.
async fn follow_run(events: &mut EventStream) {
    let mut tests = RunAggregate::default();
    loop {
        match events.next().await.unwrap() {
            ClientEvent::Changes { changes, .. } => {
                for change in changes {
                    assert!(!tests.apply(change).is_protocol_violation());
                }
            }
            ClientEvent::Completed { .. } => break,
            _ => {}
        }
    }
    let counts = tests.counts();
    assert_eq!((counts.ended(), counts.passed), (TESTS, TESTS - CRASHES), "{counts:?}");
}

/// Waits until no process holds more descriptors than at the end of the first tenth: the cleanup after a run
/// may take a moment.
async fn wait_settled(server: Pid, first: Option<&SoakTenth>) -> BTreeMap<String, ServerProcessUsage> {
    let deadline = Instant::now() + SETTLE;
    loop {
        let roles = usage_by_role(server);
        let is_more = |(role, holding): (&String, &ServerProcessUsage)| {
            first.is_some_and(|first| {
                holding.descriptors > first.roles.get(role).map_or(0, |one| one.descriptors)
            })
        };
        let is_waiting = first.is_none() || roles.iter().any(is_more);
        if !is_waiting || Instant::now() >= deadline {
            return roles;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Returns the resources of all server processes. Workers are distinguished by number.
fn usage_by_role(server: Pid) -> BTreeMap<String, ServerProcessUsage> {
    let mut roles = BTreeMap::new();
    for pid in std::iter::once(server).chain(descendants(server)) {
        let command = command_line(pid);
        let mut words = command.split_whitespace().skip_while(|word| !word.starts_with("__"));
        let role = match words.next() {
            None => "coordinator".to_owned(),
            Some("__worker") => format!("worker {}", words.nth(1).unwrap_or("?")),
            Some(hidden) => hidden.trim_start_matches('_').to_owned(),
        };
        let holding: &mut ServerProcessUsage = roles.entry(role).or_default();
        holding.resident_kib += resident_kib(pid);
        holding.descriptors += fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    }
    roles
}

fn resident_kib(pid: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

fn show(number: usize, tenth: &SoakTenth) {
    let show = |(role, holding): (&String, &ServerProcessUsage)| {
        format!("{role} {:.1} MiB, {} descriptors", holding.resident_kib as f64 / 1024.0, holding.descriptors)
    };
    let roles: Vec<_> = tenth.roles.iter().map(show).collect();
    println!("tenth {number}: median run {:.0?} · {}", tenth.median_run, roles.join(" · "));
}

/// Compares the end with the first tenth, and the speed of the last tenth with the second. Returns the
/// measurements that grew.
fn find_growth(tenths: &[SoakTenth]) -> Vec<String> {
    let (first, second, last) = (&tenths[0], &tenths[1], &tenths[TENTHS - 1]);
    let mut faults = Vec::new();
    for (role, now) in &last.roles {
        let Some(then) = first.roles.get(role) else {
            faults.push(format!("{role} was not there after the first tenth"));
            continue;
        };
        let growth = now.resident_kib as f64 / then.resident_kib as f64 - 1.0;
        if growth > TOLERANCE {
            faults.push(format!("{role} has grown by {:.0} %, to {} KiB", growth * 100.0, now.resident_kib));
        }
        if now.descriptors > then.descriptors {
            faults.push(format!("{role} holds {} descriptors, {} before", now.descriptors, then.descriptors));
        }
    }
    let slow_down = last.median_run.as_secs_f64() / second.median_run.as_secs_f64() - 1.0;
    if slow_down > TOLERANCE {
        faults.push(format!(
            "runs of the last tenth take {:.0} % longer than of the second",
            slow_down * 100.0
        ));
    }
    faults
}
