//! Goroutine stacks, printed by the Go runtime when a program dies or receives SIGQUIT.

use crate::scan;

/// Maximum number of goroutines shown, and of lines for each.
const SHOWN_GOROUTINES: usize = 64;
const SHOWN_LINES: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Goroutine<'a> {
    /// `goroutine 7 [running]:`
    pub(super) header: &'a str,
    pub(super) frames: Vec<Frame<'a>>,
    lines: Vec<&'a str>,
}

/// A call on a stack. The last frame is the function that started the goroutine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    /// `example.com/m/p.TestX.func1`
    pub(super) function: &'a str,
    pub(super) file: &'a str,
    pub(super) line: u32,
}

impl Goroutine<'_> {
    /// Returns whether this is the stack of a thread that ran no goroutine.
    pub(super) fn is_of_system(&self) -> bool {
        self.header.starts_with("goroutine 0 ")
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
            found.push(Goroutine { header: line, frames: Vec::new(), lines: Vec::new() });
            (is_open, function) = (true, None);
            continue;
        }
        let Some(goroutine) = found.last_mut().filter(|_| is_open) else { continue };
        if line.is_empty() {
            is_open = false;
            continue;
        }
        goroutine.lines.push(line);
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

/// Returns readable stacks, starting with those that contain the test.
pub(super) fn stacks_text(report: &[u8], test: Option<&str>) -> Option<String> {
    let text = String::from_utf8_lossy(report);
    let mut goroutines = read(&text);
    goroutines.retain(|goroutine| !goroutine.frames.is_empty());
    let is_own = |goroutine: &Goroutine<'_>| {
        test.is_some_and(|test| goroutine.frames.iter().any(|frame| frame.outer_function() == test))
    };
    goroutines.sort_by_key(|goroutine| !is_own(goroutine));
    let count = goroutines.len();
    let mut shown = String::new();
    for goroutine in goroutines.iter().take(SHOWN_GOROUTINES) {
        if !shown.is_empty() {
            shown.push('\n');
        }
        shown.push_str(&format!("{}\n", scan::truncated(goroutine.header, 500)));
        for line in goroutine.lines.iter().take(SHOWN_LINES) {
            shown.push_str(&format!("{}\n", scan::truncated(line, 500)));
        }
    }
    if count > SHOWN_GOROUTINES {
        shown.push_str(&format!("\n{} more goroutines\n", count - SHOWN_GOROUTINES));
    }
    (!shown.is_empty()).then_some(shown)
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
    fn goroutines_of_the_test_come_first() {
        let text = stacks_text(DUMP.as_bytes(), Some("TestHang")).unwrap();
        assert!(text.starts_with("goroutine 7 gp") && text.contains("\ngoroutine 1 [chan"), "{text}");
        let text = stacks_text(DUMP.as_bytes(), Some("TestHan")).unwrap();
        assert!(text.starts_with("goroutine 1 ") && !text.contains("rax"), "{text}");
        assert_eq!(stacks_text(b"goroutine leak [x]:\n", None), None);
        let many = DUMP.repeat(100);
        assert!(stacks_text(many.as_bytes(), None).unwrap().ends_with("136 more goroutines\n"));
    }
}
