//! Goroutine stacks, printed by the Go runtime when a program dies or receives SIGQUIT.

use std::fmt::Write as _;

use crate::{
    runtime_stack::{push_fold, push_frame},
    scan,
};

/// Maximum number of frames shown.
const SHOWN_FRAMES: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Goroutine<'a> {
    /// `goroutine 7 [running]:`
    pub(super) header: &'a str,
    pub(super) frames: Vec<Frame<'a>>,
}

/// A call on a stack. The last frame is the function that started the goroutine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    /// `example.com/m/p.TestX.func1`
    pub(super) function: &'a str,
    pub(super) file: &'a str,
    pub(super) line: u32,
}

impl<'a> Goroutine<'a> {
    /// Returns whether this is the stack of a thread that ran no goroutine.
    pub(super) fn is_of_system(&self) -> bool {
        self.header.starts_with("goroutine 0 ")
    }

    /// Returns the frames of the code under test: those after the last `panic` frame (the earlier ones are
    /// deferred functions that the panic has run) and before `testing.tRunner`.
    pub(super) fn frames_of_code(&self) -> &[Frame<'a>] {
        let start = self.frames.iter().rposition(|frame| frame.function == "panic").map_or(0, |at| at + 1);
        let frames = &self.frames[start..];
        let is_runner = |frame: &Frame<'_>| frame.function.starts_with("testing.tRunner");
        let end = frames.iter().position(is_runner).filter(|end| *end > 0);
        &frames[..end.unwrap_or(frames.len())]
    }
}

impl Frame<'_> {
    /// Returns the name of the enclosing package-level function.
    pub(super) fn outer_function(&self) -> &str {
        let local = self.function.rsplit('/').next().unwrap_or_default();
        let name = local.split_once('.').map_or("", |(_, name)| name);
        name.split(['.', '[']).next().unwrap_or_default()
    }

    /// Returns whether the function is in Go's own library, such as `os.Exit` in `…/src/os/proc.go`.
    pub(super) fn is_of_library(&self) -> bool {
        let after = self.function.rfind('/').map_or(0, |slash| slash + 1);
        let end = self.function[after..].find('.').map_or(self.function.len(), |dot| after + dot);
        let package = &self.function[..end];
        // `panic` is a runtime function without a package.
        let directory = self.file.rsplit_once('/').map_or("", |(directory, _)| directory);
        directory.ends_with(&format!("/src/{package}")) || directory.ends_with("/src/runtime")
    }
}

/// Returns the stacks in a text, in order.
pub(super) fn read(text: &str) -> Vec<Goroutine<'_>> {
    let mut found: Vec<Goroutine<'_>> = Vec::new();
    let mut is_open = false;
    let mut function = None;
    for line in text.lines() {
        if is_header(line) {
            found.push(Goroutine { header: line, frames: Vec::new() });
            (is_open, function) = (true, None);
            continue;
        }
        let Some(goroutine) = found.last_mut().filter(|_| is_open) else { continue };
        if line.is_empty() {
            is_open = false;
            continue;
        }
        match (line.strip_prefix('\t'), function.take()) {
            (Some(place), Some(function)) => {
                if let Some((file, line)) = read_place(place) {
                    goroutine.frames.push(Frame { function, file, line });
                }
            }
            (Some(_), None) => {}
            (None, _) => function = Some(function_of(line)),
        }
    }
    found
}

fn is_header(line: &str) -> bool {
    line.strip_prefix("goroutine ").is_some_and(|rest| {
        rest.starts_with(|first: char| first.is_ascii_digit()) && rest.contains(" [") && rest.ends_with(':')
    })
}

/// Returns the function from `p.TestX(0xc000?)` or `created by p.TestX in goroutine 7`.
fn function_of(line: &str) -> &str {
    if let Some(creator) = line.strip_prefix("created by ") {
        return creator.split(" in goroutine ").next().unwrap_or(creator);
    }
    line.rfind('(').map_or(line, |arguments| &line[..arguments])
}

/// Reads `/w/p_test.go:54 +0x79`.
pub(super) fn read_place(text: &str) -> Option<(&str, u32)> {
    let text = text.split(" +0x").next().unwrap_or(text);
    let text = text.split(" fp=").next().unwrap_or(text);
    let (file, line) = text.rsplit_once(':')?;
    Some((file, line.parse().ok()?))
}

/// Returns the stack of the goroutine that runs the test in the form of captured stacks, and how many others
/// there are. Without such a goroutine, the first one is shown. `None` if the text has no stack.
pub(super) fn stack_text(text: &str, test: &str) -> Option<String> {
    let mut goroutines = read(text);
    goroutines.retain(|goroutine| !goroutine.frames.is_empty() && !goroutine.is_of_system());
    let is_own = |goroutine: &Goroutine<'_>| {
        goroutine.frames.iter().any(|frame| frame.outer_function() == test && !frame.is_of_library())
    };
    let shown = goroutines.iter().find(|one| is_own(one)).or(goroutines.first())?;
    let mut stack = String::new();
    let frames = shown.frames_of_code();
    for (number, frame) in frames.iter().take(SHOWN_FRAMES).enumerate() {
        push_frame(&mut stack, number, scan::truncated(frame.function, 500), frame.file, frame.line);
    }
    push_fold(&mut stack, frames.len().saturating_sub(SHOWN_FRAMES), "callers");
    let others = goroutines.len() - 1;
    if others > 0 {
        let plural = if others == 1 { "" } else { "s" };
        // Writing to a string does not fail.
        let _written = writeln!(stack, "       … {others} other goroutine{plural} …");
    }
    Some(stack)
}

#[cfg(test)]
mod cases {
    use super::*;

    const DUMP: &str = "SIGQUIT: quit\nPC=0x1 m=0 sigcode=0\n\ngoroutine 1 [chan receive]:\ntesting.(*T).Run(0xc00, {0x5?, 0x4?}, 0x5)\n\t/usr/lib/go-1.19/src/testing/testing.go:1494 +0x37a\nmain.main()\n\t_testmain.go:73 +0x1aa\n\ngoroutine 7 gp=0x1 m=3 mp=0x2 [select (no cases)]:\nex.com/m/p.TestHang.func1(...)\n\t/w/p_test.go:13\nruntime.gopark()\n\t/usr/lib/go-1.19/src/runtime/proc.go:8 +0x1 fp=0xc0 sp=0x1 pc=0x2\ncreated by ex.com/m/p.TestHang in goroutine 6\n\t/w/p_test.go:12 +0x5\n\nrax 0x0\n";

    #[test]
    fn frames_have_functions_and_places() {
        let goroutines = read(DUMP);
        assert_eq!(goroutines.len(), 2);
        let frames: Vec<_> = goroutines[1]
            .frames
            .iter()
            .map(|frame| (frame.outer_function(), frame.line, frame.is_of_library()))
            .collect();
        assert_eq!(frames, [("TestHang", 13, false), ("gopark", 8, true), ("TestHang", 12, false)]);
        let functions: Vec<_> = goroutines[0].frames.iter().map(|frame| frame.outer_function()).collect();
        assert_eq!(functions, ["(*T)", "main"]);
        assert!(goroutines[0].frames[0].is_of_library());
    }

    #[test]
    fn goroutine_of_the_test_is_shown_and_others_are_counted() {
        let text = stack_text(DUMP, "TestHang").unwrap();
        let own = "  #0   ex.com/m/p.TestHang.func1 at /w/p_test.go:13\n  #1   runtime.gopark at \
                   /usr/lib/go-1.19/src/runtime/proc.go:8\n  #2   ex.com/m/p.TestHang at /w/p_test.go:12\n       … 1 \
                   other goroutine …\n";
        assert_eq!(text, own);
        let text = stack_text(DUMP, "TestHan").unwrap();
        assert!(text.starts_with("  #0   testing.(*T).Run at ") && !text.contains("rax"), "{text}");
        assert_eq!(stack_text("goroutine leak [x]:\n", "TestHang"), None);
        assert!(stack_text(&DUMP.repeat(100), "").unwrap().ends_with("… 199 other goroutines …\n"));
    }

    #[test]
    fn frames_of_a_panic_begin_where_it_was_raised() {
        let dump = "goroutine 6 [running]:\ntesting.tRunner.func1()\n\t/go/testing.go:7 +0x1\npanic({0x5})\n\t/go/src/runtime/panic.go:8 +0x1\nm/p.TestX(0x3)\n\t/w/p_test.go:5 +0x7\ntesting.tRunner(0xc0, 0x62)\n\t/go/testing.go:2 +0xea\n";
        assert_eq!(stack_text(dump, "TestX").unwrap(), "  #0   m/p.TestX at /w/p_test.go:5\n");
    }
}
