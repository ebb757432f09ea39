//! Standard error of a Go program that dies by itself: a panic, a fatal runtime error or a signal, with the
//! stack of the goroutine that caused it.

use super::goroutines::{self, Goroutine};
use crate::{DeathCause, runtime_stack::RuntimeStack, scan};
use heeler_core::RuntimeDeath;

/// Maximum length of a shown message.
const MESSAGE_BYTES: usize = 2000;
/// A fatal error that no single goroutine caused.
const DEADLOCK: &str = "fatal error: all goroutines are asleep";

/// Why a program died.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeathReport {
    /// With the detail `panic: on purpose, at /w/p_test.go:54`.
    pub(super) cause: DeathCause,
    /// Functions on the stack of the goroutine that caused the death, innermost first.
    pub(super) functions: Vec<String>,
}

/// Returns the offset and the first line of the last report in standard error; `None` if no report has a
/// stack.
fn last_report(stderr: &str) -> Option<(usize, &str)> {
    let mut found = None;
    let mut at = 0;
    for line in stderr.split_inclusive('\n') {
        if is_cause(line) && !goroutines::read(tail(stderr, at)).is_empty() {
            found = Some((at, line.trim_end()));
        }
        at += line.len();
    }
    found
}

/// Divides standard error of a process that died or was ended into the stack of the test and the output
/// before the report, which is the last output of a Go process. `captured`, the stack captured by Heeler or
/// read from the whole report, takes precedence: the test's standard error may be shortened.
pub(super) fn divide(stderr: &str, captured: &str, test: &str) -> Option<RuntimeStack> {
    let (at, _) = last_report(stderr)?;
    let stack = match captured {
        "" => goroutines::stack_text(tail(stderr, at), test)?,
        _ => captured.to_owned(),
    };
    Some(RuntimeStack { stack, stderr: stderr[..at].to_owned() })
}

/// Reads the last report in standard error; `None` if no report has a stack.
pub(super) fn read(stderr: &str) -> Option<DeathReport> {
    let (at, cause) = last_report(stderr)?;
    let text = tail(stderr, at);
    let stacks = goroutines::read(text);
    let has_own = !cause.starts_with(DEADLOCK) && !is_sent_signal(text);
    let own = stacks.iter().find(|goroutine| !goroutine.is_of_system()).filter(|_| has_own);
    let message = cause.strip_suffix(" [recovered, repanicked]").unwrap_or(cause);
    let message = message.strip_suffix(" [recovered]").unwrap_or(message);
    let cause = cause_of(scan::truncated(message, MESSAGE_BYTES), text, own.and_then(place).as_deref());
    let functions = own.into_iter().flat_map(|goroutine| &goroutine.frames);
    Some(DeathReport { cause, functions: functions.map(|frame| frame.outer_function().to_owned()).collect() })
}

/// Returns the cause of a report. `message` is its first line, `report` the whole text.
fn cause_of(message: &str, report: &str, place: Option<&str>) -> DeathCause {
    let located = |what: &str| place.map_or_else(|| what.to_owned(), |place| format!("{what}, at {place}"));
    let of_signal = |signal: &str, what: &str| DeathCause {
        signal: Some(signal.to_owned()),
        runtime: None,
        detail: located(what),
    };
    let runtime = if message.starts_with("panic: ") {
        RuntimeDeath::Panic
    } else if message.starts_with(DEADLOCK) {
        RuntimeDeath::Deadlock
    } else if let Some((signal, what)) = signal_in_c(message, report) {
        return of_signal(signal, what);
    } else if message.starts_with("fatal error: ") {
        RuntimeDeath::FatalError
    } else {
        let (signal, what) = message.split_once(": ").unwrap_or((message, ""));
        return of_signal(signal, what);
    };
    DeathCause { detail: located(message), runtime: Some(runtime), signal: None }
}

/// Returns the name and the description of a signal in C code. Go before 1.20 reports it in the second line:
/// `[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x5]`.
fn signal_in_c<'a>(message: &str, report: &'a str) -> Option<(&'a str, &'a str)> {
    let second = report.lines().nth(1).filter(|_| message.starts_with("fatal error: unexpected signal"))?;
    let (signal, rest) = second.strip_prefix("[signal ")?.split_once(": ")?;
    Some((signal, rest.split(" code=").next().unwrap_or(rest)))
}

/// Bytes after a cause line that are searched for stacks.
const REPORT_BYTES: usize = 64 << 10;

fn tail(text: &str, at: usize) -> &str {
    scan::truncated(&text[at..], REPORT_BYTES)
}

fn is_cause(line: &str) -> bool {
    let is_signal = || {
        let name = line.split(": ").next().unwrap_or_default();
        name.len() > 3 && name.starts_with("SIG") && name.bytes().all(|byte| byte.is_ascii_uppercase())
    };
    line.starts_with("panic: ") || line.starts_with("fatal error: ") || is_signal()
}

/// Returns whether another process sent the signal. If so, the receiving thread is not to blame.
fn is_sent_signal(text: &str) -> bool {
    let second = text.lines().nth(1).unwrap_or_default();
    text.starts_with("SIG") && second.split(' ').any(|word| word == "sigcode=0")
}

/// Returns the location in the user's code.
fn place(goroutine: &Goroutine<'_>) -> Option<String> {
    let own = goroutine.frames_of_code().iter().find(|frame| !frame.is_of_library())?;
    Some(format!("{}:{}", own.file, own.line))
}

#[cfg(test)]
mod cases {
    use super::*;

    const RUNNER: &str = "testing.tRunner(0xc0, 0x62)\n\t/go/src/testing/testing.go:2036 +0xea\ncreated by testing.(*T).Run in goroutine 1\n\t/go/src/testing/testing.go:2101 +0x4c5\n";

    #[test]
    fn panic_has_a_message_a_place_and_a_stack() {
        let text = format!(
            "noise\npanic: on purpose: 2 [recovered]\n\tpanic: on purpose: 2\n\ngoroutine 6 [running]:\ntesting.tRunner.func1()\n\t/go/src/testing/testing.go:1977 +0x349\npanic({{0x5, 0x3}})\n\t/go/src/runtime/panic.go:860 +0x13a\nos.Exit(0x0)\n\t/go/src/os/proc.go:67 +0x51\nm/p.TestPanics(0x3)\n\t/w/p_test.go:54 +0x79\n{RUNNER}"
        );
        let report = read(&text).unwrap();
        assert_eq!(report.cause.detail, "panic: on purpose: 2, at /w/p_test.go:54");
        assert!(report.functions.contains(&"TestPanics".to_owned()), "{report:?}");
        assert_eq!(read("panic: without a stack\n"), None);
        let again = format!("{text}\npanic: later\n\ngoroutine 9 [running]:\nm/p.f()\n\t/w/f.go:1\n");
        assert_eq!(read(&again).unwrap().cause.detail, "panic: later, at /w/f.go:1");
    }

    #[test]
    fn deadlock_and_sent_signal_blame_no_goroutine() {
        let stack = format!("\ngoroutine 6 [x]:\nm/p.TestX(0x3)\n\t/w/p_test.go:5 +0x7\n{RUNNER}");
        for (cause, detail, is_blamed) in [
            (
                "fatal error: all goroutines are asleep - deadlock!\n",
                "fatal error: all goroutines are asleep - deadlock!",
                false,
            ),
            (
                "fatal error: unexpected signal during runtime execution\n[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x5]\n",
                "segmentation violation, at /w/p_test.go:5",
                true,
            ),
            (
                "fatal error: concurrent map writes\n",
                "fatal error: concurrent map writes, at /w/p_test.go:5",
                true,
            ),
            (
                "SIGSEGV: segmentation violation\nPC=0x4 m=0 sigcode=0 addr=0x1\n",
                "segmentation violation",
                false,
            ),
            (
                "SIGSEGV: segmentation violation\nPC=0x4 m=0 sigcode=1 addr=0x0\n\ngoroutine 0 gp=0x1 m=0 [idle]:\nc()\n\tc:1\n",
                "segmentation violation, at /w/p_test.go:5",
                true,
            ),
        ] {
            let report = read(&format!("{cause}{stack}")).unwrap();
            assert_eq!(report.cause.detail, detail);
            let is_signal = cause.contains("SIGSEGV");
            assert_eq!(report.cause.signal.as_deref() == Some("SIGSEGV"), is_signal);
            assert_eq!(report.cause.runtime.is_none(), is_signal);
            assert_eq!(report.functions.contains(&"TestX".to_owned()), is_blamed, "{cause}");
        }
    }
}
