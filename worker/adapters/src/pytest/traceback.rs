//! Python stacks that `faulthandler` writes to standard error when an interpreter dies or is ended.

use crate::runtime_stack::{RuntimeStack, push_fold, push_frame};

/// End of the line before the frames of a thread.
const HEADER_END: &str = "(most recent call first):";
/// Files of pytest, its plugin system and Heeler's plugin. Their functions call every test.
const MACHINERY: [&str; 5] =
    ["/_pytest/", "/pluggy/", "/pytest/__main__.py", "/heeler_pytest_plugin.py", "<frozen "];
/// Native frames shown above the interpreter's own: the C function that was called, and its callees.
const NATIVE_FRAMES: usize = 3;

/// A frame of a Python function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PythonFrame<'a> {
    function: &'a str,
    file: &'a str,
    line: u32,
}

/// Divides standard error into the last report of the faulting thread and the rest. The Python frames come
/// first, then the native frames in `captured` that are above the interpreter's loop. Returns `None` without
/// a report.
pub(super) fn divide(stderr: &str, captured: &str) -> Option<RuntimeStack> {
    let (report, rest) = take_report(stderr)?;
    let (_, current) = report.rsplit_once("Current thread ")?;
    let frames: Vec<_> = current.lines().skip(1).map_while(frame_of).collect();
    // Any other interpreter, such as one that the test started, has no frames of ours. Deep stacks are cut
    // above them.
    let is_ours = frames.iter().any(|frame| is_machinery(frame.file)) || report.contains("\n  ...\n");
    if frames.is_empty() || !is_ours {
        return None;
    }
    let mut stack = String::new();
    let shown = frames.iter().position(|frame| is_machinery(frame.file)).filter(|own| *own > 0);
    let (shown, folded) = frames.split_at(shown.unwrap_or(frames.len()));
    for (number, frame) in shown.iter().enumerate() {
        push_frame(&mut stack, number, frame.function, frame.file, frame.line);
    }
    push_fold(&mut stack, folded.len(), "pytest");
    let native: Vec<&str> = captured.lines().filter(|line| line.trim_start().starts_with('#')).collect();
    let called = native.iter().take_while(|line| !line.contains("PyEval_")).count();
    if called < native.len() {
        stack.push_str("     C code that Python called:\n");
        for line in &native[..called.min(NATIVE_FRAMES)] {
            stack.push_str(line);
            stack.push('\n');
        }
        push_fold(&mut stack, native.len() - called.min(NATIVE_FRAMES), "C code and the interpreter");
    }
    Some(RuntimeStack { stack, stderr: rest })
}

fn is_machinery(file: &str) -> bool {
    MACHINERY.iter().any(|part| file.contains(part))
}

/// Reads `  File "/w/test_a.py", line 18 in test_crash`.
fn frame_of(line: &str) -> Option<PythonFrame<'_>> {
    let (file, rest) = line.strip_prefix("  File \"")?.split_once("\", line ")?;
    let (line, function) = rest.split_once(" in ")?;
    Some(PythonFrame { function, file, line: line.parse().ok()? })
}

/// Takes the lines of the last report with a current thread out of standard error.
fn take_report(stderr: &str) -> Option<(&str, String)> {
    let current = stderr.rfind("Current thread 0x")?;
    let is_line_start = current == 0 || stderr[..current].ends_with('\n');
    let header = stderr[current..].lines().next()?;
    if !is_line_start || !header.ends_with(HEADER_END) {
        return None;
    }
    // The report begins with its cause, or with other threads.
    let mut start = current;
    for line in stderr[..current].split_inclusive('\n').rev() {
        if !is_report_line(line) {
            break;
        }
        start -= line.len();
    }
    let length: usize =
        stderr[current..].split_inclusive('\n').take_while(|line| is_report_line(line)).map(str::len).sum();
    let end = current + length;
    Some((&stderr[start..end], format!("{}{}", &stderr[..start], &stderr[end..])))
}

fn is_report_line(line: &str) -> bool {
    const STARTS: [&str; 8] = [
        "Fatal Python error: ",
        "Current thread 0x",
        "Thread 0x",
        "Current thread's C stack trace",
        "  File \"",
        "  Binary file \"",
        "  <",
        "Extension modules: ",
    ];
    line.trim_end().is_empty()
        || line.trim_end() == "  ..."
        || line.starts_with("Python runtime state: ")
        || STARTS.iter().any(|start| line.starts_with(start))
}

#[cfg(test)]
mod cases {
    use super::*;

    const CRASH: &str = "noise\nFatal Python error: Segmentation fault\n\nThread 0x2 (most recent call first):\n  File \"/usr/lib/threading.py\", line 9 in wait\n\nCurrent thread 0x1 (most recent call first):\n  File \"/usr/lib/ctypes/__init__.py\", line 519 in string_at\n  File \"/w/test_a.py\", line 18 in test_crash\n  File \"/x/site-packages/_pytest/python.py\", line 187 in pytest_pyfunc_call\n  File \"/x/site-packages/pluggy/_callers.py\", line 7 in __call__\n\nExtension modules: a.b (total: 1)\nlater\n";
    const NATIVE: &str = "  #0   strlen at ./strlen.S:79\n  #1   string_at at _ctypes.c:5\n  #2   ?? in libffi.so+0x6\n  #3   ffi_call in libffi.so+0x7\n  #4   _PyEval_EvalFrameDefault at Python/ceval.c:4\n  #5   main at m.c:1\n";

    #[test]
    fn python_frames_come_first_and_machinery_is_folded() {
        let found = divide(CRASH, NATIVE).unwrap();
        assert_eq!(found.stderr, "noise\nlater\n");
        let expected = "  #0   string_at at /usr/lib/ctypes/__init__.py:519\n  #1   test_crash at /w/test_a.py:18\n       … 2 frames of pytest …\n     C code that Python called:\n  #0   strlen at ./strlen.S:79\n  #1   string_at at _ctypes.c:5\n  #2   ?? in libffi.so+0x6\n       … 3 frames of C code and the interpreter …\n";
        assert_eq!(found.stack, expected);
        // Without the interpreter's frames, the captured stack says nothing about Python.
        let found = divide(CRASH, "  #0   f at a.c:1\n").unwrap();
        assert!(found.stack.ends_with("… 2 frames of pytest …\n"), "{}", found.stack);
    }

    #[test]
    fn only_a_report_with_frames_is_taken() {
        for other in [
            "",
            "Current thread 0x1 (most recent call first):\n  <no Python frame>\n",
            "a test prints Current thread 0x1 (most recent call first):\n  File \"a\", line 1 in f\n",
            "Current thread 0x1 is busy\n  File \"a\", line 1 in f\n",
            "Current thread 0x1 (most recent call first):\n  File \"/w/child.py\", line 1 in f\n",
        ] {
            assert_eq!(divide(other, NATIVE), None, "{other}");
        }
        // All frames are pytest's: the process died outside of its tests.
        let own =
            "Current thread 0x1 (most recent call first):\n  File \"/x/_pytest/main.py\", line 7 in run\n";
        assert!(divide(own, "").unwrap().stack.starts_with("  #0   run at /x/_pytest/main.py:7\n"));
    }

    #[test]
    fn report_cut_anywhere_is_read_or_left() {
        for end in 0..CRASH.len() {
            let cut = &CRASH[..end];
            if let Some(found) = divide(cut, NATIVE) {
                assert!(found.stderr.starts_with("noise\n") && found.stack.contains("#0"), "{cut}");
            }
        }
    }
}
