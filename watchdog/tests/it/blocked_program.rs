//! Programs blocked in known stacks: builds them from `fixtures`, starts them, and waits until they have
//! reached the expected place.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use heeler_crash::dump::{self, DumpPlan, DumpSummary, DumpTarget};
use heeler_crash::stacks::{self, ProcessStacks, ThreadRegisters};
use heeler_sys::{
    process::{Pid, Signal},
    spawn::{ChildStdio, SpawnOptions, SpawnedChild, spawn},
};

use crate::support::{HeldPipe, wait_until};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
const BUILT: &str = env!("CARGO_TARGET_TMPDIR");

/// A program that blocks in a known stack. Killed with the test.
pub(crate) struct BlockedProgram {
    child: SpawnedChild,
    pub(crate) pid: Pid,
    _stdout: HeldPipe,
    pub(crate) directory: tempfile::TempDir,
}

impl Drop for BlockedProgram {
    fn drop(&mut self) {
        self.child.signal(Signal::KILL).unwrap();
        self.child.wait().unwrap();
    }
}

impl BlockedProgram {
    /// Starts `program` and waits until it reports that it has reached its place.
    pub(crate) fn start(program: &Path, args: &[&str]) -> Self {
        Self::with_environment(program, args, Vec::new())
    }

    pub(crate) fn with_environment(program: &Path, args: &[&str], env: Vec<(&str, &str)>) -> Self {
        let (mut feet, writer) = HeldPipe::new();
        let mut start = SpawnOptions::new(program);
        start.args = args.iter().map(Into::into).collect();
        start.env = Some(env.into_iter().map(|(name, value)| (name.into(), value.into())).collect());
        start.stdout = ChildStdio::Fd(writer);
        start.stderr = ChildStdio::Null;
        let child = spawn(start).unwrap();
        feet.wait_for("ready\n");
        Self { pid: child.pid(), child, _stdout: feet, directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn dump_target(&self) -> DumpTarget {
        DumpTarget { pid: self.pid, blamed: self.pid, crash: None }
    }

    pub(crate) fn dump_plan(&self) -> DumpPlan {
        DumpPlan {
            path: self.directory.path().join("test.dmp"),
            limit_bytes: 64 << 20,
            keeps_environment: false,
            stop_timeout: Duration::from_secs(5),
        }
    }

    pub(crate) fn dump_and_read(&self) -> DumpSummary {
        let plan = self.dump_plan();
        // Dumps are repeated until the program has reached the expected place.
        let _absent = std::fs::remove_file(&plan.path);
        let file = dump::write(&self.dump_target(), &plan).unwrap();
        assert!(file.threads > 0, "{file:?}");
        dump::read(&plan.path).unwrap()
    }

    /// Returns the registers of the program's threads. They do not change while the threads are blocked.
    pub(crate) fn registers(&self) -> Vec<ThreadRegisters> {
        self.dump_and_read().threads.into_iter().map(registers_of).collect()
    }

    /// Returns the program's stack traces once the innermost function is `top`.
    pub(crate) fn stacks_once_in(&self, top: &str) -> ProcessStacks {
        let stacks = || stacks::symbolize(stacks::unwind(self.pid, &self.registers()).unwrap());
        wait_until(top, stacks, |stacks| {
            stacks.threads[0].frames[0].function.as_deref().is_some_and(|name| name.contains(top))
        })
    }
}

/// Builds the C++ program with `arguments`, unless it exists and is newer than its source.
pub(crate) fn build_cpp(name: &str, arguments: &[&str]) -> PathBuf {
    let mut all = vec!["-g", "-O2", "-fomit-frame-pointer", "-pthread"];
    all.extend(arguments);
    build("/usr/bin/g++", "stands.cpp", name, &all)
}

pub(crate) fn build_rust(name: &str, arguments: &[&str]) -> PathBuf {
    let compiler = std::env::var_os("RUSTC").map_or_else(|| in_path("rustc"), PathBuf::from);
    build(compiler.to_str().unwrap(), "stands.rs", name, arguments)
}

fn in_path(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path).map(|place| place.join(program)).find(|file| file.is_file()).unwrap()
}

fn build(compiler: &str, source: &str, name: &str, arguments: &[&str]) -> PathBuf {
    let source = Path::new(FIXTURES).join(source);
    let program = Path::new(BUILT).join(name);
    let changed = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    if changed(&program) > changed(&source) {
        return program;
    }
    let mut start = SpawnOptions::new(compiler);
    start.args = arguments.iter().map(Into::into).collect();
    start.args.extend(["-o".into(), program.clone().into(), source.into()]);
    assert!(spawn(start).unwrap().wait().unwrap().code == Some(0), "{compiler} failed");
    program
}

/// Returns the line number of the mark `LINE word`.
pub(crate) fn marked_line(word: &str) -> u32 {
    let source = std::fs::read_to_string(Path::new(FIXTURES).join("stands.cpp")).unwrap();
    let mark = format!("// LINE {word}");
    let index = source.lines().position(|line| line.ends_with(&mark)).unwrap();
    u32::try_from(index + 1).unwrap()
}

/// Prints the time to dump, unwind and symbolize a process: the process with this id, or a new one with 100
/// threads.
pub(crate) fn measure(pid: Option<&String>) -> ExitCode {
    const ROUNDS: usize = 15;
    let pid = pid.map(|pid| Pid(pid.parse().unwrap()));
    let own = pid
        .is_none()
        .then(|| BlockedProgram::start(&build_cpp("stands-pie", &["-pie", "-fPIE"]), &["threads", "99"]));
    let pid = pid.or(own.as_ref().map(|own| own.pid)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut times: [Vec<Duration>; 4] = Default::default();
    let mut facts = String::new();
    for round in 0..ROUNDS {
        let path = directory.path().join(format!("{round}.dmp"));
        let stop_timeout = Duration::from_secs(5);
        let plan = DumpPlan { path, limit_bytes: 256 << 20, keeps_environment: false, stop_timeout };
        let started = Instant::now();
        let file = dump::write(&DumpTarget { pid, blamed: pid, crash: None }, &plan).unwrap();
        times[0].push(started.elapsed());
        let started = Instant::now();
        let summary = dump::read(&plan.path).unwrap();
        times[1].push(started.elapsed());
        let registers: Vec<ThreadRegisters> = summary.threads.into_iter().map(registers_of).collect();
        let started = Instant::now();
        let raw = stacks::unwind(pid, &registers).unwrap();
        times[2].push(started.elapsed());
        let started = Instant::now();
        let stacks = stacks::symbolize(raw);
        times[3].push(started.elapsed());
        let frames: usize = stacks.threads.iter().map(|thread| thread.frames.len()).sum();
        facts = format!("{} bytes, {} threads, {frames} frames", file.bytes, file.threads);
    }
    println!("{facts}");
    for (name, mut times) in
        ["write", "read (unwinds and names too)", "unwind", "name"].into_iter().zip(times)
    {
        times.sort();
        println!("{name}: median {:.1?}, worst {:.1?}", times[ROUNDS / 2], times[ROUNDS - 1]);
    }
    ExitCode::SUCCESS
}

fn registers_of(thread: dump::DumpThread) -> ThreadRegisters {
    ThreadRegisters { tid: thread.tid, registers: thread.registers, name: thread.name }
}
