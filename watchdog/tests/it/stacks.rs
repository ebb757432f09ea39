//! Stack traces of real programs: correct functions, inlined functions, files and lines, or the facts needed
//! to find them.

use heeler_crash::stacks::{self, ProcessStacks, StackFrame};
use heeler_sys::spawn::{SpawnOptions, spawn};

use crate::{
    blocked_program::{BlockedProgram, build_cpp, build_rust, marked_line},
    support::wait_until,
    tests,
};

pub(crate) const TESTS: &[(&str, fn())] = tests![
    stack_without_frame_pointers_is_symbolized,
    static_program_is_unwound_and_symbolized,
    unwinding_continues_through_signal_handler,
    null_call_is_blamed_on_its_caller,
    overflowed_stack_keeps_both_ends,
    stripped_program_gives_offsets_and_build_id,
    equal_stacks_are_printed_once,
    rust_overflow_unwinds_through_std_handlers,
    stacks_are_symbolized_after_program_is_deleted,
    batch_symbolization_equals_single_symbolization,
    exited_process_error_contains_its_pid,
];

/// Returns the functions of the first thread, and whether they are inlined.
fn functions(stacks: &ProcessStacks) -> Vec<(&str, bool)> {
    let name = |frame: &'_ StackFrame| -> bool { frame.is_inline };
    stacks.threads[0]
        .frames
        .iter()
        .map(|frame| (frame.function.as_deref().unwrap_or("??"), name(frame)))
        .collect()
}

fn lines(stacks: &ProcessStacks) -> Vec<u32> {
    let own = |frame: &&StackFrame| frame.file.as_ref().is_some_and(|file| file.ends_with("stands.cpp"));
    stacks.threads[0].frames.iter().filter(own).filter_map(|frame| frame.line).collect()
}

fn assert_spins(stacks: &ProcessStacks) {
    let found = functions(stacks);
    let expected = [
        ("spin_here", true),
        ("herd::Pen<Node>::third", false),
        ("second", false),
        ("first", false),
        ("main", false),
    ];
    for ((name, is_inline), (expected, is_expected_inline)) in found.iter().zip(expected) {
        assert!(name.starts_with(expected) && *is_inline == is_expected_inline, "{}", stacks.to_text());
    }
    assert_eq!(
        lines(stacks)[..4],
        [marked_line("spin"), marked_line("third"), marked_line("second"), marked_line("first")],
        "{}",
        stacks.to_text()
    );
}

fn stack_without_frame_pointers_is_symbolized() {
    let standing = BlockedProgram::start(&build_cpp("stands-pie", &["-pie", "-fPIE"]), &["spin"]);
    let stacks = standing.stacks_once_in("spin_here");
    assert_spins(&stacks);
    // The result of a test shows the test, not its callers.
    let text = stacks.crash_text(40);
    assert!(text.contains(&format!("stands.cpp:{}", marked_line("spin"))), "{text}");
    assert!(text.contains("main"), "{text}");
    assert!(!text.contains("__libc_start"), "{text}");
    assert!(text.contains("more …"), "{text}");
    assert_eq!(stacks.crash_text(1).lines().count(), 2, "{}", stacks.crash_text(1));
}

fn static_program_is_unwound_and_symbolized() {
    let fixed = BlockedProgram::start(&build_cpp("stands-static", &["-static", "-no-pie"]), &["spin"]);
    assert_spins(&fixed.stacks_once_in("spin_here"));
    let moved = BlockedProgram::start(&build_cpp("stands-static-pie", &["-static-pie", "-fPIE"]), &["spin"]);
    assert_spins(&moved.stacks_once_in("spin_here"));
}

fn assert_leads_through_handler(stacks: &ProcessStacks, expected: &[&str]) {
    let found = functions(stacks);
    let handler = found.iter().position(|(name, _)| *name == "<signal handler called>");
    let handler = handler.unwrap_or_else(|| panic!("no handler in {}", stacks.to_text()));
    assert!(found[..handler].iter().any(|(name, _)| name.starts_with("stay")), "{}", stacks.to_text());
    for ((name, _), expected) in found[handler + 1..].iter().zip(expected) {
        assert!(name.starts_with(expected), "{expected} is missing in {}", stacks.to_text());
    }
}

fn unwinding_continues_through_signal_handler() {
    let standing = BlockedProgram::start(&build_cpp("stands-pie", &["-pie", "-fPIE"]), &["fault"]);
    let stacks = standing.stacks_once_in("pause");
    assert_leads_through_handler(&stacks, &["follow", "herd::Pen<Node>::third", "second", "first", "main"]);
    assert!(lines(&stacks).contains(&marked_line("follow")), "{}", stacks.to_text());
}

fn null_call_is_blamed_on_its_caller() {
    let standing = BlockedProgram::start(&build_cpp("stands-pie", &["-pie", "-fPIE"]), &["null-call"]);
    let stacks = standing.stacks_once_in("pause");
    assert_leads_through_handler(&stacks, &["??", "main"]);
    assert!(stacks.to_text().contains("?? at 0x0 (not in a mapped file)"), "{}", stacks.to_text());
}

fn overflowed_stack_keeps_both_ends() {
    let standing = BlockedProgram::start(&build_cpp("stands-pie", &["-pie", "-fPIE"]), &["overflow"]);
    let stacks = standing.stacks_once_in("pause");
    assert_leads_through_handler(&stacks, &["descend", "descend", "descend"]);
    let frames = &stacks.threads[0].frames;
    assert!(frames.iter().any(|frame| frame.omitted.count > 1000), "{}", stacks.to_text());
    assert!(functions(&stacks).iter().any(|(name, _)| *name == "_start"), "{}", stacks.to_text());
    assert!(frames.len() < 100, "{}", stacks.to_text());
}

fn stripped_program_gives_offsets_and_build_id() {
    let program = build_cpp("stands-stripped", &["-pie", "-fPIE", "-s", "-Wl,--build-id=0x1234567890abcdef"]);
    let standing = BlockedProgram::start(&program, &["spin"]);
    let registers = || {
        let stacks = stacks::symbolize(stacks::unwind(standing.pid, &standing.registers()).unwrap());
        stacks.threads[0].frames[..4].to_vec()
    };
    let is_own = |frame: &StackFrame| frame.module.as_deref() == Some(program.as_path());
    let frames = wait_until("the program itself", registers, |frames| frames.iter().all(is_own));
    for frame in &frames {
        assert_eq!(frame.function, None);
        assert_eq!(frame.build_id.as_deref(), Some("1234567890abcdef"));
        assert!(frame.offset > 0 && frame.offset < 1 << 20, "{frame:?}");
    }
    let text = stacks::symbolize(stacks::unwind(standing.pid, &standing.registers()).unwrap()).to_text();
    assert!(text.contains("?? in stands-stripped+0x"), "{text}");
    assert!(text.contains("(build id 1234567890abcdef)"), "{text}");
}

fn equal_stacks_are_printed_once() {
    let standing = BlockedProgram::start(&build_cpp("stands-pie", &["-pie", "-fPIE"]), &["threads", "97"]);
    let text = wait_until(
        "all threads in their places",
        || standing.stacks_once_in("pause").to_text(),
        |text| text.contains("97 threads, same stack:"),
    );
    assert_eq!(text.split("\n\n").count(), 2, "{text}");
    assert!(text.starts_with(&format!("thread {} ", standing.pid)), "{text}");
    assert!(text.contains("waits"), "{text}");
    assert!(text.contains("\"waiter\""), "{text}");
}

fn rust_overflow_unwinds_through_std_handlers() {
    let standing = BlockedProgram::start(&build_rust("stands-rust", &["-g", "-O"]), &["overflow"]);
    let stacks = standing.stacks_once_in("pause");
    let text = stacks.to_text();
    // The handler of SIGABRT, abort, the handler of SIGSEGV, then the overflowed frames.
    assert_eq!(text.matches("<signal handler called>").count(), 2, "{text}");
    let overflowed = text.rsplit("<signal handler called>").next().unwrap();
    assert!(
        overflowed.lines().take(4).any(|line| line.contains("Sheep as stands::Grazes>::graze")),
        "{text}"
    );
    assert!(overflowed.contains("stands.rs:"), "{text}");
    assert!(overflowed.contains("main"), "{text}");
}

fn stacks_are_symbolized_after_program_is_deleted() {
    let original = build_cpp("stands-pie", &["-pie", "-fPIE"]);
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("short-lived");
    std::fs::copy(original, &copy).unwrap();
    let standing = BlockedProgram::start(&copy, &["fault"]);
    standing.stacks_once_in("pause");
    let raw = stacks::unwind(standing.pid, &standing.registers()).unwrap();
    drop(standing);
    std::fs::remove_file(&copy).unwrap();
    let stacks = stacks::symbolize(raw);
    assert_leads_through_handler(&stacks, &["follow", "herd::Pen<Node>::third", "second", "first", "main"]);
    assert_eq!(stacks.threads[0].frames.last().map(|frame| frame.is_inline), Some(false));
}

fn batch_symbolization_equals_single_symbolization() {
    let (first, cpp) =
        (build_rust("stands-rust", &["-g", "-O"]), build_cpp("stands-pie", &["-pie", "-fPIE"]));
    let directory = tempfile::tempdir().unwrap();
    // One program in two processes, another one with the same bytes, and one that shares libraries with them.
    let second = directory.path().join("second");
    std::fs::copy(&first, &second).unwrap();
    let programs = [(&first, "overflow"), (&second, "overflow"), (&first, "overflow"), (&cpp, "fault")];
    let all = programs.map(|(program, how)| BlockedProgram::start(program, &[how]));
    let separately: Vec<ProcessStacks> =
        all.iter().map(|standing| standing.stacks_once_in("pause")).collect();
    let unwind = |one: &BlockedProgram| stacks::unwind(one.pid, &one.registers()).unwrap();
    let together = stacks::symbolize_all(all.iter().map(unwind).collect());
    assert_eq!(together, separately);
    for ((program, _), stacks) in programs.iter().zip(&together) {
        let is_own = |frame: &StackFrame| frame.module.as_ref() == Some(*program) && frame.line.is_some();
        assert!(stacks.threads[0].frames.iter().any(is_own), "{}", stacks.to_text());
    }
    assert_eq!(stacks::symbolize_all(Vec::new()), []);
}

fn exited_process_error_contains_its_pid() {
    let mut child = spawn(SpawnOptions::new("/bin/true")).unwrap();
    let pid = child.pid();
    child.wait().unwrap();
    let error = stacks::unwind(pid, &[]).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot open the memory of process {pid}"));
}
