//! Stack traces as text: all threads for the file next to a dump, and only the blamed thread for a test's
//! result.

use std::{fmt::Write, path::PathBuf};

use super::{
    symbolize::{ProcessStacks, SIGNAL_HANDLER, StackFrame, ThreadStack},
    unwind::MAX_PERIOD,
};

/// Maximum number of threads named for one common stack trace.
const MAX_THREAD_NAMES: usize = 8;

/// Functions with these prefixes belong to a framework or runtime, and so do all their callers.
const RUNTIME_FRAME_PREFIXES: [&str; 19] = [
    "testing::internal::HandleSehExceptionsInMethodIfSupported",
    "testing::internal::HandleExceptionsInMethodIfSupported",
    "testing::Test::Run",
    "testing::TestInfo::Run",
    "Catch::TestInvokerAsFunction::invoke",
    "Catch::RunContext::invokeActiveTestCase",
    "doctest::Context::run",
    "boost::unit_test::",
    "test::__rust_begin_short_backtrace",
    "std::sys::backtrace::__rust_begin_short_backtrace",
    "std::sys_common::backtrace::__rust_begin_short_backtrace",
    "__rust_begin_short_backtrace",
    "std::rt::lang_start",
    "execute_native_thread_routine",
    "__libc_start_call_main",
    "__libc_start_main",
    "start_thread",
    "__clone3",
    "clone3",
];

/// Texts of a process's stack traces, for the evidence file and for a test's result.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StackTexts {
    /// Text of all threads: [`ProcessStacks::to_text`].
    pub all: String,
    /// Text of the blamed thread: [`ProcessStacks::crash_text`].
    pub crash: String,
    /// Code interrupted by a signal handler: `interrupted_text`.
    pub interrupted: String,
}

impl ProcessStacks {
    /// Returns all texts. Texts for results have at most `most_frames` lines.
    #[must_use]
    pub fn texts(&self, most_frames: usize) -> StackTexts {
        StackTexts {
            all: self.to_text(),
            crash: self.crash_text(most_frames),
            interrupted: self.interrupted_text(most_frames),
        }
    }

    /// Returns the stack traces of all threads, the blamed one first. Threads with equal stack traces are
    /// listed together.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut groups: Vec<(&[StackFrame], Vec<&ThreadStack>)> = Vec::new();
        for thread in &self.threads {
            match groups.iter_mut().find(|(frames, _)| *frames == thread.frames) {
                Some((_, threads)) => threads.push(thread),
                None => groups.push((&thread.frames, vec![thread])),
            }
        }
        let mut text = String::new();
        for (frames, threads) in groups {
            if !text.is_empty() {
                text.push('\n');
            }
            append_heading(&mut text, &threads);
            append_frames(&mut text, 0, frames, frames.len(), usize::MAX);
        }
        self.append_problems(&mut text);
        text
    }

    fn append_problems(&self, text: &mut String) {
        for problem in &self.problems {
            append(text, format_args!("       … {problem} …\n"));
        }
    }

    /// Returns the blamed thread's stack trace for a test's result: at most `most_frames` lines, cut where
    /// only the test framework and the runtime remain. Prints the number of frames cut. The top is never cut.
    /// Empty without a stack trace.
    #[must_use]
    pub fn crash_text(&self, most_frames: usize) -> String {
        self.blamed_text(most_frames, 0)
    }

    /// Returns the stack trace of a thread whose signal handler ended the process, like [`Self::crash_text`].
    /// Folds the handler into one line, because the interrupted code is of interest.
    #[must_use]
    pub(crate) fn interrupted_text(&self, most_frames: usize) -> String {
        let frames = self.threads.first().map_or(&[][..], |thread| &thread.frames);
        let handler = frames.iter().position(|frame| frame.function.as_deref() == Some(SIGNAL_HANDLER));
        self.blamed_text(most_frames, handler.map_or(0, |handler| handler + 1))
    }

    fn blamed_text(&self, most_frames: usize, handler: usize) -> String {
        let Some(thread) = self.threads.first() else { return String::new() };
        let aborting = if handler == 0 { abort_frame_count(&thread.frames) } else { 0 };
        let (folded, rest) = thread.frames.split_at(handler.max(aborting));
        let rest: Vec<StackFrame> = rest.iter().map(shorten_rust_path).collect();
        let folded = frame_count(folded);
        let mut text = String::new();
        if folded > 0 {
            let is_abort = |frame: &StackFrame| {
                frame.function.as_deref().is_some_and(|function| function.ends_with("abort"))
            };
            let what = match () {
                () if aborting == 0 => "the signal handler",
                () if thread.frames[..aborting].iter().any(is_abort) => "abort()",
                () => "raise()",
            };
            append(&mut text, format_args!("       … {folded} frames of {what} …\n"));
        }
        append_frames(&mut text, folded, &rest, test_frame_count(&rest), most_frames);
        self.append_problems(&mut text);
        text
    }
}

/// C library functions that raise a fatal signal in their own process.
const ABORT_FUNCTIONS: [&str; 11] = [
    "__pthread_kill_implementation",
    "__pthread_kill_internal",
    "__pthread_kill",
    "___pthread_kill",
    "__GI___pthread_kill",
    "pthread_kill",
    "__GI_raise",
    "raise",
    "gsignal",
    "__GI_abort",
    "abort",
];

/// Returns the number of `abort` frames at the top of a stack trace, which add no information to the signal.
/// Returns 0 if the stack trace consists of `abort` frames only.
fn abort_frame_count(frames: &[StackFrame]) -> usize {
    let is_abort = |frame: &&StackFrame| {
        frame.function.as_deref().is_some_and(|function| ABORT_FUNCTIONS.contains(&function))
    };
    let count = frames.iter().take_while(is_abort).count();
    if count == frames.len() { 0 } else { count }
}

/// Removes the build machine's prefix from the path of a frame in Rust's own libraries.
fn shorten_rust_path(frame: &StackFrame) -> StackFrame {
    let short = frame.file.as_deref().and_then(|file| {
        let file = file.to_str()?;
        let (before, after) = file.split_once("/library/")?;
        let is_ours = before.starts_with("/rustc/") || before.ends_with("/lib/rustlib/src/rust");
        is_ours.then(|| PathBuf::from(format!("<rust>/{after}")))
    });
    StackFrame { file: short.or_else(|| frame.file.clone()), ..frame.clone() }
}

/// Returns the number of frames of the test and of functions that it called.
fn test_frame_count(frames: &[StackFrame]) -> usize {
    let is_below = |frame: &StackFrame| {
        let function = frame.function.as_deref().unwrap_or_default();
        // Generic functions have their return type before their name: "void testing::internal::…".
        let plain = function.strip_prefix("void ").unwrap_or(function);
        // Boost.Test's fixtures are kept, because they distinguish a suite's tear-down from its last test.
        let is_fixture = plain.starts_with("boost::unit_test::")
            && (plain.contains("setup") || plain.contains("teardown"));
        !is_fixture && RUNTIME_FRAME_PREFIXES.iter().any(|name| plain.starts_with(name))
    };
    let own = frames.iter().position(is_below).unwrap_or(frames.len());
    let glue = frames[..own].iter().rev().take_while(|frame| is_call_glue(frame)).count();
    match own - glue {
        0 => frames.len(),
        own => own,
    }
}

/// Returns whether a frame is glue between a framework or runtime and the function passed to it. Glue is
/// irrelevant at the bottom of a stack trace, but elsewhere the test itself may have called it.
fn is_call_glue(frame: &StackFrame) -> bool {
    let function = frame.function.as_deref().unwrap_or_default();
    function.starts_with("core::ops::function::FnOnce::call_once")
        || function.contains(" as core::ops::function::FnOnce<")
        || function.contains("std::__invoke")
        || function.contains("std::thread::_Invoker<")
        || function.contains("std::thread::_State_impl<")
}

fn append_heading(text: &mut String, threads: &[&ThreadStack]) {
    let names: Vec<String> = threads
        .iter()
        .take(MAX_THREAD_NAMES)
        .map(|thread| format!("{} {:?}", thread.tid, thread.name))
        .collect();
    let more = if threads.len() > MAX_THREAD_NAMES { ", …" } else { "" };
    let count = match threads.len() {
        1 => "thread".to_owned(),
        count => format!("{count} threads, same stack:"),
    };
    append(text, format_args!("{count} {}{more}\n", names.join(", ")));
}

/// Appends the first `own` frames, numbered from `first`, in at most `most_lines` lines, and the number of
/// remaining frames. A recursion is printed once, with its number of repetitions.
fn append_frames(text: &mut String, first: usize, frames: &[StackFrame], own: usize, most_lines: usize) {
    let mut number = first;
    let mut place = 0;
    let lines: Vec<String> = frames[..own].iter().map(format_frame).collect();
    let mut left = most_lines.max(1);
    while place < own && left > 0 {
        let recursion = Recursion::find(&frames[place..own], &lines[place..]);
        let period = recursion.as_ref().map_or(1, |found| found.period);
        for (frame, line) in frames[place..].iter().zip(&lines[place..]).take(period.min(left)) {
            match frame.omitted.count {
                0 => append(text, format_args!("  #{number:<3} {line}\n")),
                omitted => append(text, format_args!("       … {} frames omitted …\n", grouped(omitted))),
            }
            number += frame.omitted.count.max(1);
            place += 1;
            left -= 1;
        }
        if let Some(found) = recursion.filter(|_| left > 0) {
            let times = grouped(found.frames / found.period);
            let what = match found.period {
                1 => String::new(),
                period => format!("these {period} frames "),
            };
            append(text, format_args!("       … {what}repeated {times} more times …\n"));
            number += found.frames;
            place += found.lines;
            left -= 1;
        }
    }
    let cut = frame_count(&frames[place..]);
    if cut > 0 {
        append(text, format_args!("       … {} more …\n", grouped(cut)));
    }
}

/// Frames at the start of a stack trace that repeat, beyond their first occurrence.
struct Recursion {
    /// Number of frames in one repetition.
    period: usize,
    /// Number of further lines, and the number of frames they represent.
    lines: usize,
    frames: usize,
}

impl Recursion {
    /// Finds the shortest recursion of at least three rounds. `lines` are the formatted frames.
    fn find(frames: &[StackFrame], lines: &[String]) -> Option<Self> {
        (1..=MAX_PERIOD).find_map(|period| {
            if frames.len() <= period || frames[..period].iter().any(|frame| frame.omitted.count > 0) {
                return None;
            }
            let mut found = Self { period, lines: 0, frames: 0 };
            for (frame, line) in frames.iter().zip(lines).skip(period) {
                let omitted = frame.omitted;
                let repeats = match omitted.count {
                    0 => *line == lines[found.frames % period],
                    _ => omitted.period > 0 && period.is_multiple_of(omitted.period),
                };
                if !repeats {
                    break;
                }
                found.lines += 1;
                found.frames += omitted.count.max(1);
            }
            // An incomplete round belongs to the following frames.
            let rest = found.frames % period;
            let is_cut_by_lines = rest <= found.lines;
            if rest > 0 && is_cut_by_lines {
                found.lines -= rest;
                found.frames -= rest;
            }
            (found.frames >= 2 * period && found.frames.is_multiple_of(period)).then_some(found)
        })
    }
}

/// Returns the number of frames, including omitted ones.
fn frame_count(frames: &[StackFrame]) -> usize {
    frames.iter().map(|frame| frame.omitted.count.max(1)).sum()
}

/// Formats a number with digits grouped by three.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a frame as one line: function and source line if known, otherwise everything that helps to find
/// them.
fn format_frame(frame: &StackFrame) -> String {
    let function = frame.function.as_deref();
    if function == Some(SIGNAL_HANDLER) {
        return SIGNAL_HANDLER.to_owned();
    }
    let mut line = function.unwrap_or("??").to_owned();
    if frame.is_inline {
        line.push_str(" (inlined)");
    }
    if let Some(file) = &frame.file {
        append(&mut line, format_args!(" at {}", file.display()));
        if let Some(number) = frame.line {
            append(&mut line, format_args!(":{number}"));
        }
        return line;
    }
    let Some(module) = &frame.module else {
        append(&mut line, format_args!(" at {:#x} (not in a mapped file)", frame.offset));
        return line;
    };
    let module = module.file_name().unwrap_or(module.as_os_str());
    append(&mut line, format_args!(" in {}+{:#x}", module.to_string_lossy(), frame.offset));
    if let (None, Some(build_id)) = (function, &frame.build_id) {
        append(&mut line, format_args!(" (build id {build_id})"));
    }
    line
}

/// Appends to a string, which cannot fail.
fn append(text: &mut String, words: std::fmt::Arguments<'_>) {
    let _never = text.write_fmt(words);
}

#[cfg(test)]
mod tests {
    use heeler_sys::process::Pid;

    use super::*;
    use crate::stacks::unwind::OmittedFrames;

    fn stacks(functions: &[&str]) -> ProcessStacks {
        let frame =
            |function: &&str| StackFrame { function: Some((*function).to_owned()), ..StackFrame::default() };
        let frames = functions.iter().map(frame).collect();
        let threads = vec![ThreadStack { tid: Pid(7), name: "main".to_owned(), frames }];
        ProcessStacks { threads, ..ProcessStacks::default() }
    }

    #[track_caller]
    fn check(functions: &[&str], expected: &[&str], more: usize) {
        let text = stacks(functions).crash_text(20);
        let found: Vec<&str> = text
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix('#')?.split_whitespace().nth(1))
            .collect();
        assert_eq!(found, expected, "{text}");
        let said = format!("… {more} more …");
        assert_eq!(text.contains(&said), more > 0, "{text}");
    }

    #[test]
    fn stack_is_cut_at_framework_frames() {
        let gtest = "void testing::internal::HandleSehExceptionsInMethodIfSupported<testing::Test,_void>";
        check(
            &["strlen", "Pen_Opens_Test::TestBody()", gtest, "testing::Test::Run()", "main"],
            &["strlen", "Pen_Opens_Test::TestBody()"],
            3,
        );
        let short = "test::__rust_begin_short_backtrace::<core::result::Result<(),_String>>";
        let call = "core::ops::function::FnOnce::call_once";
        check(
            &["graze", "herd::tests::grazes", call, short, "start_thread"],
            &["graze", "herd::tests::grazes"],
            3,
        );
    }

    #[test]
    fn call_glue_between_test_functions_is_kept() {
        let glue = "void std::__invoke_impl<void,_F&>";
        check(&["inner", glue, "outer", "__libc_start_call_main"], &["inner", "void", "outer"], 1);
    }

    #[test]
    fn framework_crash_is_shown_completely() {
        check(&["testing::Test::Run()", "main"], &["testing::Test::Run()", "main"], 0);
        check(&[], &[], 0);
    }

    #[test]
    fn frame_limit_keeps_the_top_frame() {
        let text = stacks(&["a", "b", "c"]).crash_text(0);
        assert!(text.contains("#0   a"), "{text}");
        assert!(text.contains("… 2 more …"), "{text}");
    }

    #[test]
    fn frames_of_abort_are_folded() {
        let text = stacks(&["__pthread_kill_implementation", "__GI_raise", "__GI_abort", "herd", "main"])
            .crash_text(5);
        let shown: Vec<_> = text.lines().map(str::trim_start).collect();
        assert_eq!(shown[0], "… 3 frames of abort() …");
        assert!(shown[1].starts_with("#3   herd"), "{text}");
        assert!(stacks(&["raise", "abort"]).crash_text(5).contains("#0   raise"), "there is nothing else");
    }

    #[test]
    fn recursion_is_printed_once() {
        let text = |functions: &[&str]| {
            stacks(functions).crash_text(20).replace(" at 0x0 (not in a mapped file)", "")
        };
        let deep = [vec!["top"], vec!["d"; 40], vec!["main"]].concat();
        assert_eq!(text(&deep), "  #0   top\n  #1   d\n       … repeated 39 more times …\n  #41  main\n");
        let mutual = [["even", "odd"].repeat(5), vec!["even", "main"]].concat();
        assert_eq!(
            text(&mutual),
            "  #0   even\n  #1   odd\n       … these 2 frames repeated 4 more times …\n  #10  even\n  #11  main\n"
        );
        assert_eq!(text(&["d", "d", "main"]).lines().count(), 3, "twice is shorter than its count");
        // Frames omitted in the middle belong to the recursion only if they were a recursion themselves.
        for period in [1, 0] {
            let mut deep = stacks(&["d", "d", "d", "d", "d", "main"]);
            deep.threads[0].frames[3] =
                StackFrame { omitted: OmittedFrames { count: 43_000, period }, ..StackFrame::default() };
            let text = deep.crash_text(20);
            assert_eq!(text.contains("43,000 frames omitted"), period == 0, "{text}");
            assert_eq!(text.contains("repeated 43,003 more times"), period == 1, "{text}");
        }
    }

    #[test]
    fn signal_handler_frames_are_folded_into_one_line() {
        let frames = ["raise", "abort", "handle", SIGNAL_HANDLER, "deeper", "deeper", "main"];
        let text = stacks(&frames).interrupted_text(2);
        assert_eq!(
            text,
            "       … 4 frames of the signal handler …\n  #4   deeper in ??+0x0\n  #5   deeper in ??+0x0\n       … 1 more …\n"
                .replace(" in ??+0x0", " at 0x0 (not in a mapped file)")
        );
        // Without a signal frame, no code was interrupted.
        assert!(stacks(&["sink", "main"]).interrupted_text(2).contains("#0   sink"));
        assert_eq!(
            stacks(&[SIGNAL_HANDLER]).interrupted_text(2),
            "       … 1 frames of the signal handler …\n"
        );
    }

    #[test]
    fn rust_library_paths_are_shortened() {
        let cases = [
            ("/rustc/59807616e1fa/library/std/src/panicking.rs", "<rust>/std/src/panicking.rs"),
            (
                "/home/a/.rustup/toolchains/x/lib/rustlib/src/rust/library/core/src/cell.rs",
                "<rust>/core/src/cell.rs",
            ),
            ("/home/a/library/shelf.rs", "/home/a/library/shelf.rs"),
        ];
        for (file, expected) in cases {
            let frame = StackFrame { file: Some(file.into()), line: Some(7), ..StackFrame::default() };
            let thread = ThreadStack { tid: Pid(7), name: String::new(), frames: vec![frame] };
            let stacks = ProcessStacks { threads: vec![thread], ..ProcessStacks::default() };
            assert_eq!(stacks.crash_text(5), format!("  #0   ?? at {expected}:7\n"));
            assert!(stacks.to_text().contains(file), "{}", stacks.to_text());
        }
    }
}
