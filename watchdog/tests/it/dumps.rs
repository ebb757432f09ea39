//! Minidumps of real programs: complete, readable, without secrets, within their limits, and written
//! completely or not at all.

use std::{os::unix::fs::PermissionsExt, path::Path};

use heeler_crash::dump::{self, CrashFacts, DumpError, DumpReadError, DumpReason};
use heeler_sys::{
    process::{Pid, Signal},
    spawn::{ChildStdio, SpawnOptions, spawn},
};

use crate::{
    blocked_program::{BlockedProgram, build_cpp},
    support::{HeldPipe, wait_until},
    tests,
};

pub(crate) const TESTS: &[(&str, fn())] = tests![
    dump_has_all_threads_and_stacks,
    dump_records_the_given_crash,
    dump_contains_no_environment,
    dump_above_its_limit_is_not_written,
    full_disk_leaves_no_partial_dump,
    dump_does_not_overwrite_a_partial_one,
    exited_process_leaves_no_dump,
    non_dump_file_is_refused,
    truncated_dump_is_read_or_refused,
];

const SECRET: &str = "hunter2-and-nobody-else-knows";

fn pie_program() -> std::path::PathBuf {
    build_cpp("stands-pie", &["-pie", "-fPIE"])
}

fn remaining_files(directory: &Path) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn dump_has_all_threads_and_stacks() {
    let standing = BlockedProgram::start(&pie_program(), &["threads", "20"]);
    let summary = wait_until(
        "all threads in their places",
        || standing.dump_and_read(),
        |summary| summary.stacks.to_text().contains("20 threads, same stack:"),
    );
    assert_eq!(summary.threads.len(), 21);
    assert_eq!(summary.threads[0].tid, standing.pid);
    assert_eq!(summary.threads[1].name, "waiter");
    assert_eq!(summary.reason, DumpReason::Requested);
    assert_eq!(summary.process, Some(standing.pid));
    assert!(summary.command_line.ends_with("stands-pie threads 20"), "{}", summary.command_line);
    let own = summary.modules.iter().find(|module| module.path.ends_with("stands-pie")).unwrap();
    assert!(own.is_available && own.build_id.is_some(), "{own:?}");
    let mode = standing.dump_plan().path.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(remaining_files(standing.directory.path()), [standing.dump_plan().path]);
}

fn dump_records_the_given_crash() {
    let standing = BlockedProgram::start(&pie_program(), &["spin"]);
    standing.stacks_once_in("spin_here");
    let blamed = standing.registers().remove(0);
    let mut registers = blamed.registers;
    registers.general.r15 = 0x1234_5678_9abc_def0;
    let crash = CrashFacts { signal: Signal::SEGV, code: 1, address: 0x8, tid: blamed.tid, registers };
    let subject = dump::DumpTarget { crash: Some(crash), ..standing.dump_target() };
    let mut plan = standing.dump_plan();
    plan.path = standing.directory.path().join("crash.dmp");
    dump::write(&subject, &plan).unwrap();
    let summary = dump::read(&plan.path).unwrap();
    let expected =
        DumpReason::Crash { signal: "SIGSEGV / SEGV_MAPERR".to_owned(), address: Some(8), tid: standing.pid };
    assert_eq!(summary.reason, expected);
    assert_eq!(summary.threads[0].registers.general.r15, 0x1234_5678_9abc_def0);
    let text = summary.stacks.crash_text(40);
    assert!(text.lines().next().unwrap().contains("spin_here"), "{text}");
}

fn dump_contains_no_environment() {
    let environment = vec![("HEELER_TEST_TOKEN", SECRET), ("HEELER_TEST_NAME", "value")];
    let standing = BlockedProgram::with_environment(&pie_program(), &["spin"], environment);
    let holds = |path: &Path, words: &str| {
        let bytes = std::fs::read(path).unwrap();
        bytes.windows(words.len()).any(|window| window == words.as_bytes())
    };
    let plan = standing.dump_plan();
    dump::write(&standing.dump_target(), &plan).unwrap();
    assert!(!holds(&plan.path, SECRET));
    assert!(!holds(&plan.path, "HEELER_TEST"));
    // Without scrubbing, the secret is in the dump, so the check above is meaningful. Public text stays in
    // both dumps.
    assert!(holds(&plan.path, "stands-pie"));
    let mut open = standing.dump_plan();
    open.keeps_environment = true;
    open.path = standing.directory.path().join("open.dmp");
    dump::write(&standing.dump_target(), &open).unwrap();
    assert!(holds(&open.path, SECRET));
    assert!(dump::read(&plan.path).unwrap().stacks.to_text().contains("main"));
}

fn dump_above_its_limit_is_not_written() {
    let standing = BlockedProgram::start(&pie_program(), &["threads", "40"]);
    let mut plan = standing.dump_plan();
    plan.limit_bytes = 16 << 10;
    let error = dump::write(&standing.dump_target(), &plan).unwrap_err();
    assert!(matches!(error, DumpError::TooLarge { limit_bytes: 16_384, .. }), "{error:?}");
    assert!(remaining_files(standing.directory.path()).is_empty());
}

/// Plays a process that can only write small files. Writes the dump to `directory` and the result to standard
/// output.
pub(crate) fn dump_into_small_files(directory: &Path) -> std::process::ExitCode {
    let standing = BlockedProgram::start(&pie_program(), &["threads", "20"]);
    let plan = dump::DumpPlan { path: directory.join("test.dmp"), ..standing.dump_plan() };
    match dump::write(&standing.dump_target(), &plan) {
        Err(DumpError::Write { source, path }) => println!("{} {source}\n", path.display()),
        other => println!("{other:?}\n"),
    }
    std::process::ExitCode::SUCCESS
}

fn full_disk_leaves_no_partial_dump() {
    let directory = tempfile::tempdir().unwrap();
    pie_program();
    let (mut feet, writer) = HeldPipe::new();
    // A file size limit makes a write fail like a full disk does, and needs no privileges.
    let mut start = SpawnOptions::new("/bin/sh");
    let words = "trap '' XFSZ; ulimit -f 8; exec \"$0\" __dump_into_small_files \"$1\"";
    start.args =
        vec!["-c".into(), words.into(), std::env::current_exe().unwrap().into(), directory.path().into()];
    start.stdout = ChildStdio::Fd(writer);
    let mut child = spawn(start).unwrap();
    let said = feet.wait_for_end().to_owned();
    child.wait().unwrap();
    assert!(said.contains("test.dmp File too large"), "{said}");
    assert!(remaining_files(directory.path()).is_empty());
}

fn dump_does_not_overwrite_a_partial_one() {
    let standing = BlockedProgram::start(&pie_program(), &["spin"]);
    let plan = standing.dump_plan();
    let aside = standing.directory.path().join("test.dmp.part");
    std::fs::write(&aside, "somebody else is writing").unwrap();
    let error = dump::write(&standing.dump_target(), &plan).unwrap_err();
    assert!(matches!(error, DumpError::Write { .. }), "{error:?}");
    assert_eq!(std::fs::read_to_string(&aside).unwrap(), "somebody else is writing");
    assert!(!plan.path.exists());
}

fn exited_process_leaves_no_dump() {
    let standing = BlockedProgram::start(&pie_program(), &["spin"]);
    let mut child = spawn(SpawnOptions::new("/bin/true")).unwrap();
    let pid = child.pid();
    child.wait().unwrap();
    let subject = dump::DumpTarget { pid, blamed: pid, crash: None };
    let error = dump::write(&subject, &standing.dump_plan()).unwrap_err();
    assert!(error.to_string().contains(&pid.to_string()), "{error}");
    assert!(remaining_files(standing.directory.path()).is_empty());
    assert_ne!(pid, Pid::own());
}

fn non_dump_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("note.txt");
    assert!(matches!(dump::read(&path), Err(DumpReadError::Open { .. })));
    std::fs::write(&path, "Dear diary").unwrap();
    let error = dump::read(&path).unwrap_err().to_string();
    assert!(error.contains("note.txt as a minidump"), "{error}");
}

fn truncated_dump_is_read_or_refused() {
    let standing = BlockedProgram::start(&pie_program(), &["spin"]);
    let plan = standing.dump_plan();
    dump::write(&standing.dump_target(), &plan).unwrap();
    let bytes = std::fs::read(&plan.path).unwrap();
    let part = standing.directory.path().join("part.dmp");
    let mut refused = 0;
    for length in (0..bytes.len()).step_by(bytes.len() / 200) {
        std::fs::write(&part, &bytes[..length]).unwrap();
        refused += usize::from(dump::read(&part).is_err());
    }
    assert!(refused > 0);
}
