//! Stacks of real programs: the right functions, inlined functions, files and lines, or the facts that lead
//! to them.

use host::spawn::{Spawn, spawn};
use watchdog::stacks::{self, Frame, Stacks};

use crate::{
    standing::{Standing, cpp, line, rust},
    support::until,
    tests,
};

pub(crate) const TESTS: &[(&str, fn())] = tests![
    a_stack_without_frame_pointers_has_functions_inlines_and_lines,
    a_program_linked_statically_is_unwound_and_named_as_well,
    a_signal_handler_is_stepped_over_to_what_it_interrupted,
    a_call_of_nothing_is_blamed_on_its_caller,
    an_overflowed_stack_keeps_both_ends,
    a_stripped_program_gives_offsets_and_its_build_id,
    equal_stacks_are_shown_once,
    a_rust_overflow_leads_through_the_handlers_of_the_standard_library,
    stacks_are_named_when_process_and_program_are_gone,
    processes_that_are_named_together_have_the_names_that_each_has_alone,
    a_process_that_is_gone_is_an_error_that_names_it,
];

/// Returns the functions of the first thread, with whether they are inlined.
fn functions(stacks: &Stacks) -> Vec<(&str, bool)> {
    let name = |frame: &'_ Frame| -> bool { frame.is_inline };
    stacks.threads[0]
        .frames
        .iter()
        .map(|frame| (frame.function.as_deref().unwrap_or("??"), name(frame)))
        .collect()
}

fn lines(stacks: &Stacks) -> Vec<u32> {
    let own = |frame: &&Frame| frame.file.as_ref().is_some_and(|file| file.ends_with("stands.cpp"));
    stacks.threads[0].frames.iter().filter(own).filter_map(|frame| frame.line).collect()
}

fn assert_spins(stacks: &Stacks) {
    let found = functions(stacks);
    let expected = [
        ("spin_here", true),
        ("herd::Pen<Node>::third", false),
        ("second", false),
        ("first", false),
        ("main", false),
    ];
    for ((name, is_inline), (expected, is_expected_inline)) in found.iter().zip(expected) {
        assert!(name.starts_with(expected) && *is_inline == is_expected_inline, "{}", stacks.text());
    }
    assert_eq!(
        lines(stacks)[..4],
        [line("spin"), line("third"), line("second"), line("first")],
        "{}",
        stacks.text()
    );
}

fn a_stack_without_frame_pointers_has_functions_inlines_and_lines() {
    let standing = Standing::start(&cpp("stands-pie", &["-pie", "-fPIE"]), &["spin"]);
    let stacks = standing.stacks_in("spin_here");
    assert_spins(&stacks);
    // The result of a test shows the test, not its callers.
    let text = stacks.crash_text(40);
    assert!(text.contains(&format!("stands.cpp:{}", line("spin"))), "{text}");
    assert!(text.contains("main"), "{text}");
    assert!(!text.contains("__libc_start"), "{text}");
    assert!(text.contains("more …"), "{text}");
    assert_eq!(stacks.crash_text(1).lines().count(), 2, "{}", stacks.crash_text(1));
}

fn a_program_linked_statically_is_unwound_and_named_as_well() {
    let fixed = Standing::start(&cpp("stands-static", &["-static", "-no-pie"]), &["spin"]);
    assert_spins(&fixed.stacks_in("spin_here"));
    let moved = Standing::start(&cpp("stands-static-pie", &["-static-pie", "-fPIE"]), &["spin"]);
    assert_spins(&moved.stacks_in("spin_here"));
}

fn assert_leads_through_handler(stacks: &Stacks, expected: &[&str]) {
    let found = functions(stacks);
    let handler = found.iter().position(|(name, _)| *name == "<signal handler called>");
    let handler = handler.unwrap_or_else(|| panic!("no handler in {}", stacks.text()));
    assert!(found[..handler].iter().any(|(name, _)| name.starts_with("stay")), "{}", stacks.text());
    for ((name, _), expected) in found[handler + 1..].iter().zip(expected) {
        assert!(name.starts_with(expected), "{expected} is missing in {}", stacks.text());
    }
}

fn a_signal_handler_is_stepped_over_to_what_it_interrupted() {
    let standing = Standing::start(&cpp("stands-pie", &["-pie", "-fPIE"]), &["fault"]);
    let stacks = standing.stacks_in("pause");
    assert_leads_through_handler(&stacks, &["follow", "herd::Pen<Node>::third", "second", "first", "main"]);
    assert!(lines(&stacks).contains(&line("follow")), "{}", stacks.text());
}

fn a_call_of_nothing_is_blamed_on_its_caller() {
    let standing = Standing::start(&cpp("stands-pie", &["-pie", "-fPIE"]), &["null-call"]);
    let stacks = standing.stacks_in("pause");
    assert_leads_through_handler(&stacks, &["??", "main"]);
    assert!(stacks.text().contains("?? at 0x0, which is in no program"), "{}", stacks.text());
}

fn an_overflowed_stack_keeps_both_ends() {
    let standing = Standing::start(&cpp("stands-pie", &["-pie", "-fPIE"]), &["overflow"]);
    let stacks = standing.stacks_in("pause");
    assert_leads_through_handler(&stacks, &["descend", "descend", "descend"]);
    let frames = &stacks.threads[0].frames;
    assert!(frames.iter().any(|frame| frame.omitted > 1000), "{}", stacks.text());
    assert!(functions(&stacks).iter().any(|(name, _)| *name == "_start"), "{}", stacks.text());
    assert!(frames.len() < 100, "{}", stacks.text());
}

fn a_stripped_program_gives_offsets_and_its_build_id() {
    let program = cpp("stands-stripped", &["-pie", "-fPIE", "-s", "-Wl,--build-id=0x1234567890abcdef"]);
    let standing = Standing::start(&program, &["spin"]);
    let registers = || {
        let stacks = stacks::name(stacks::unwind(standing.pid, &standing.registers()).unwrap());
        stacks.threads[0].frames[..4].to_vec()
    };
    let is_own = |frame: &Frame| frame.module.as_deref() == Some(program.as_path());
    let frames = until("the program itself", registers, |frames| frames.iter().all(is_own));
    for frame in &frames {
        assert_eq!(frame.function, None);
        assert_eq!(frame.build_id.as_deref(), Some("1234567890abcdef"));
        assert!(frame.offset > 0 && frame.offset < 1 << 20, "{frame:?}");
    }
    let text = stacks::name(stacks::unwind(standing.pid, &standing.registers()).unwrap()).text();
    assert!(text.contains("?? in stands-stripped+0x"), "{text}");
    assert!(text.contains("(build id 1234567890abcdef)"), "{text}");
}

fn equal_stacks_are_shown_once() {
    let standing = Standing::start(&cpp("stands-pie", &["-pie", "-fPIE"]), &["threads", "97"]);
    let text = until(
        "all threads in their places",
        || standing.stacks_in("pause").text(),
        |text| text.contains("97 threads, same stack:"),
    );
    assert_eq!(text.split("\n\n").count(), 2, "{text}");
    assert!(text.starts_with(&format!("thread {} ", standing.pid)), "{text}");
    assert!(text.contains("waits"), "{text}");
    assert!(text.contains("\"waiter\""), "{text}");
}

fn a_rust_overflow_leads_through_the_handlers_of_the_standard_library() {
    let standing = Standing::start(&rust("stands-rust", &["-g", "-O"]), &["overflow"]);
    let stacks = standing.stacks_in("pause");
    let text = stacks.text();
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

fn stacks_are_named_when_process_and_program_are_gone() {
    let original = cpp("stands-pie", &["-pie", "-fPIE"]);
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("short-lived");
    std::fs::copy(original, &copy).unwrap();
    let standing = Standing::start(&copy, &["fault"]);
    standing.stacks_in("pause");
    let raw = stacks::unwind(standing.pid, &standing.registers()).unwrap();
    drop(standing);
    std::fs::remove_file(&copy).unwrap();
    let stacks = stacks::name(raw);
    assert_leads_through_handler(&stacks, &["follow", "herd::Pen<Node>::third", "second", "first", "main"]);
    assert_eq!(stacks.threads[0].frames.last().map(|frame| frame.is_inline), Some(false));
}

fn processes_that_are_named_together_have_the_names_that_each_has_alone() {
    let (first, cpp) = (rust("stands-rust", &["-g", "-O"]), cpp("stands-pie", &["-pie", "-fPIE"]));
    let directory = tempfile::tempdir().unwrap();
    // One program in two processes, another with the same bytes, and one that shares libraries with them.
    let second = directory.path().join("second");
    std::fs::copy(&first, &second).unwrap();
    let programs = [(&first, "overflow"), (&second, "overflow"), (&first, "overflow"), (&cpp, "fault")];
    let all = programs.map(|(program, how)| Standing::start(program, &[how]));
    let alone: Vec<Stacks> = all.iter().map(|standing| standing.stacks_in("pause")).collect();
    let unwind = |one: &Standing| stacks::unwind(one.pid, &one.registers()).unwrap();
    let together = stacks::name_all(all.iter().map(unwind).collect());
    assert_eq!(together, alone);
    for ((program, _), stacks) in programs.iter().zip(&together) {
        let is_own = |frame: &Frame| frame.module.as_ref() == Some(*program) && frame.line.is_some();
        assert!(stacks.threads[0].frames.iter().any(is_own), "{}", stacks.text());
    }
    assert_eq!(stacks::name_all(Vec::new()), []);
}

fn a_process_that_is_gone_is_an_error_that_names_it() {
    let mut child = spawn(Spawn::new("/bin/true")).unwrap();
    let pid = child.pid();
    child.wait().unwrap();
    let error = stacks::unwind(pid, &[]).unwrap_err();
    assert_eq!(error.to_string(), format!("open the memory of process {pid}"));
}
