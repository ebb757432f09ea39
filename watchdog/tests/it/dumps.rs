//! Minidumps of real programs: complete, readable, without secrets, within their limits, written completely
//! or not at all.

use std::{os::unix::fs::PermissionsExt, path::Path};

use host::{
    process::{Pid, Signal},
    spawn::{Spawn, Stream, spawn},
};
use watchdog::dump::{self, CrashFacts, DumpError, DumpReason, ReadError};

use crate::{
    standing::{Standing, cpp},
    support::{Feet, until},
    tests,
};

pub(crate) const TESTS: &[(&str, fn())] = tests![
    a_dump_has_all_threads_and_their_stacks,
    a_dump_tells_the_crash_that_it_was_given,
    the_environment_is_found_nowhere_in_a_dump,
    a_dump_above_its_limit_is_not_written,
    a_full_disk_leaves_nothing_behind,
    a_dump_never_replaces_another_one_halfway,
    a_process_that_is_gone_leaves_no_dump,
    what_is_no_dump_is_said_so,
    a_dump_that_breaks_off_anywhere_is_read_or_refused,
];

const SECRET: &str = "hunter2-and-nobody-else-knows";

fn pie() -> std::path::PathBuf {
    cpp("stands-pie", &["-pie", "-fPIE"])
}

fn is_left(directory: &Path) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn a_dump_has_all_threads_and_their_stacks() {
    let standing = Standing::start(&pie(), &["threads", "20"]);
    let summary = until(
        "all threads in their places",
        || standing.dumped(),
        |summary| summary.stacks.text().contains("20 threads, same stack:"),
    );
    assert_eq!(summary.threads.len(), 21);
    assert_eq!(summary.threads[0].tid, standing.pid);
    assert_eq!(summary.threads[1].name, "waiter");
    assert_eq!(summary.reason, DumpReason::Requested);
    assert_eq!(summary.process, Some(standing.pid));
    assert!(summary.command_line.ends_with("stands-pie threads 20"), "{}", summary.command_line);
    let own = summary.modules.iter().find(|module| module.path.ends_with("stands-pie")).unwrap();
    assert!(own.is_here && own.build_id.is_some(), "{own:?}");
    let mode = standing.plan().path.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(is_left(standing.directory.path()), [standing.plan().path]);
}

fn a_dump_tells_the_crash_that_it_was_given() {
    let standing = Standing::start(&pie(), &["spin"]);
    standing.stacks_in("spin_here");
    let blamed = standing.registers().remove(0);
    let mut registers = blamed.registers;
    registers.general.r15 = 0x1234_5678_9abc_def0;
    let crash = CrashFacts { signal: Signal::SEGV, code: 1, address: 0x8, tid: blamed.tid, registers };
    let subject = dump::Subject { crash: Some(crash), ..standing.subject() };
    let mut plan = standing.plan();
    plan.path = standing.directory.path().join("crash.dmp");
    dump::write(&subject, &plan).unwrap();
    let summary = dump::read(&plan.path).unwrap();
    let expected =
        DumpReason::Crash { signal: "SIGSEGV / SEGV_MAPERR".to_owned(), address: 8, tid: standing.pid };
    assert_eq!(summary.reason, expected);
    assert_eq!(summary.threads[0].registers.general.r15, 0x1234_5678_9abc_def0);
    let text = summary.stacks.crash_text(40);
    assert!(text.lines().next().unwrap().contains("spin_here"), "{text}");
}

fn the_environment_is_found_nowhere_in_a_dump() {
    let environment = vec![("HEELER_TEST_TOKEN", SECRET), ("HEELER_TEST_NAME", "value")];
    let standing = Standing::with_environment(&pie(), &["spin"], environment);
    let holds = |path: &Path, words: &str| {
        let bytes = std::fs::read(path).unwrap();
        bytes.windows(words.len()).any(|window| window == words.as_bytes())
    };
    let plan = standing.plan();
    dump::write(&standing.subject(), &plan).unwrap();
    assert!(!holds(&plan.path, SECRET));
    assert!(!holds(&plan.path, "HEELER_TEST"));
    // Without the scrubbing the secret is in the dump, so the check above is meaningful; public text stays in
    // both.
    assert!(holds(&plan.path, "stands-pie"));
    let mut open = standing.plan();
    open.keeps_environment = true;
    open.path = standing.directory.path().join("open.dmp");
    dump::write(&standing.subject(), &open).unwrap();
    assert!(holds(&open.path, SECRET));
    assert!(dump::read(&plan.path).unwrap().stacks.text().contains("main"));
}

fn a_dump_above_its_limit_is_not_written() {
    let standing = Standing::start(&pie(), &["threads", "40"]);
    let mut plan = standing.plan();
    plan.limit_bytes = 16 << 10;
    let error = dump::write(&standing.subject(), &plan).unwrap_err();
    assert!(matches!(error, DumpError::TooLarge { limit_bytes: 16_384, .. }), "{error:?}");
    assert!(is_left(standing.directory.path()).is_empty());
}

/// Plays a process that may only write small files; `directory` receives the dump, standard output the
/// result.
pub(crate) fn dump_into_small_files(directory: &Path) -> std::process::ExitCode {
    let standing = Standing::start(&pie(), &["threads", "20"]);
    let plan = dump::DumpPlan { path: directory.join("test.dmp"), ..standing.plan() };
    match dump::write(&standing.subject(), &plan) {
        Err(DumpError::Write { source, path }) => println!("{} {source}\n", path.display()),
        other => println!("{other:?}\n"),
    }
    std::process::ExitCode::SUCCESS
}

fn a_full_disk_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    pie();
    let (mut feet, writer) = Feet::new();
    // A file size limit fails a write as a full disk does, and needs no privileges.
    let mut start = Spawn::new("/bin/sh");
    let words = "trap '' XFSZ; ulimit -f 8; exec \"$0\" __dump_into_small_files \"$1\"";
    start.args =
        vec!["-c".into(), words.into(), std::env::current_exe().unwrap().into(), directory.path().into()];
    start.stdout = Stream::Fd(writer);
    let mut child = spawn(start).unwrap();
    let said = feet.wait_for_end().to_owned();
    child.wait().unwrap();
    assert!(said.contains("test.dmp File too large"), "{said}");
    assert!(is_left(directory.path()).is_empty());
}

fn a_dump_never_replaces_another_one_halfway() {
    let standing = Standing::start(&pie(), &["spin"]);
    let plan = standing.plan();
    let aside = standing.directory.path().join("test.dmp.part");
    std::fs::write(&aside, "somebody else is writing").unwrap();
    let error = dump::write(&standing.subject(), &plan).unwrap_err();
    assert!(matches!(error, DumpError::Write { .. }), "{error:?}");
    assert_eq!(std::fs::read_to_string(&aside).unwrap(), "somebody else is writing");
    assert!(!plan.path.exists());
}

fn a_process_that_is_gone_leaves_no_dump() {
    let standing = Standing::start(&pie(), &["spin"]);
    let mut child = spawn(Spawn::new("/bin/true")).unwrap();
    let pid = child.pid();
    child.wait().unwrap();
    let subject = dump::Subject { pid, blamed: pid, crash: None };
    let error = dump::write(&subject, &standing.plan()).unwrap_err();
    assert!(error.to_string().contains(&pid.to_string()), "{error}");
    assert!(is_left(standing.directory.path()).is_empty());
    assert_ne!(pid, Pid::own());
}

fn what_is_no_dump_is_said_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("note.txt");
    assert!(matches!(dump::read(&path), Err(ReadError::Open { .. })));
    std::fs::write(&path, "Dear diary").unwrap();
    let error = dump::read(&path).unwrap_err().to_string();
    assert!(error.contains("note.txt as a minidump"), "{error}");
}

fn a_dump_that_breaks_off_anywhere_is_read_or_refused() {
    let standing = Standing::start(&pie(), &["spin"]);
    let plan = standing.plan();
    dump::write(&standing.subject(), &plan).unwrap();
    let bytes = std::fs::read(&plan.path).unwrap();
    let part = standing.directory.path().join("part.dmp");
    let mut refused = 0;
    for length in (0..bytes.len()).step_by(bytes.len() / 200) {
        std::fs::write(&part, &bytes[..length]).unwrap();
        refused += usize::from(dump::read(&part).is_err());
    }
    assert!(refused > 0);
}
