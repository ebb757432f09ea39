//! English texts for outcomes, shown to users by every protocol and report.

use std::{borrow::Cow, fmt::Write as _};

use crate::{
    Attempt, ExitReason, Failure, GuardLoss, LeakedProcess, NotRunReason, Outcome, ProcessFacts, TestResult,
};

/// Characters of a command line in reports; enough to recognise a process.
const COMMAND_CHARS: usize = 60;

/// Describes how the process of a running test ended.
#[must_use]
pub fn exit_reason_text(exit: &ExitReason) -> String {
    let text = text_without_iteration(exit);
    match exit.iteration {
        Some(iteration) => format!("{text} in {iteration}"),
        None => text,
    }
}

fn text_without_iteration(exit: &ExitReason) -> String {
    if let Some(cause) = &exit.cause {
        return cause.clone();
    }
    // The runtime's own report says what happened; the exit code adds nothing.
    if let (Some(_), Some(report)) = (exit.runtime, &exit.detail) {
        return report.clone();
    }
    match (exit.signal.as_deref(), exit.code) {
        (Some(signal @ ("SIGKILL" | "SIGTERM" | "SIGINT" | "SIGHUP")), _) => format!("killed by {signal}"),
        (Some(signal), _) => match &exit.detail {
            Some(detail) => format!("crashed with {signal} ({detail})"),
            None => format!("crashed with {signal}"),
        },
        (None, Some(code)) => {
            let text = format!("the process exited with code {code} before the test ended");
            match &exit.detail {
                None => text,
                // A sanitizer's report is the message; the exit is only its consequence.
                Some(detail) if detail.contains("Sanitizer: ") => format!("{detail}\n{text}"),
                Some(detail) => format!("{text} ({detail})"),
            }
        }
        (None, None) => {
            exit.detail.clone().unwrap_or_else(|| "the process was lost before the test ended".to_owned())
        }
    }
}

/// Returns the outcome of a test whose process died.
#[must_use]
pub fn outcome_of_exit(exit: &ExitReason) -> Outcome {
    match (&exit.cause, &exit.signal, exit.code) {
        (Some(_), _, _) => Outcome::OutOfMemory,
        (None, None, _) if exit.runtime.is_some() => Outcome::Crashed,
        (None, Some(_), _) => Outcome::Crashed,
        (None, None, Some(_)) => Outcome::ExitedEarly,
        (None, None, None) => Outcome::Lost,
    }
}

/// Describes why a test was never run.
#[must_use]
pub fn not_run_text(reason: NotRunReason) -> String {
    match reason {
        NotRunReason::Unrunnable => "not run".to_owned(),
        NotRunReason::Cancelled => "not run: the run was cancelled".to_owned(),
        NotRunReason::TooManyFailures => "not run: the run stopped at its failure limit".to_owned(),
        NotRunReason::TimeLimitReached => {
            "not run: the run stopped at its time limit (run-timeout)".to_owned()
        }
        NotRunReason::ProgramGivenUp { deaths } => {
            format!("not run: the program died outside any test {deaths} times in a row")
        }
        NotRunReason::StartTimedOut { attempts } => format!(
            "not run: the program started no test within its startup-timeout in {attempts} attempts, each with twice \
             the time of the previous one"
        ),
        NotRunReason::NeverStarted => {
            "not run: the program kept exiting without running this test".to_owned()
        }
        NotRunReason::WorkerDied => "not completed: the worker died each time this test ran".to_owned(),
        NotRunReason::GuardLost { losses, loss, has_begun } => {
            let effect = if has_begun { "not completed" } else { "not run" };
            format!("{effect}: {} in each of {losses} attempts", guard_loss_text(loss))
        }
        NotRunReason::ProgramGuardsLost { losses, loss } => format!(
            "not run: {} in {losses} processes of the program in a row, before any test had started",
            guard_loss_text(loss)
        ),
        NotRunReason::PrerequisiteFailed { .. } => "not run: a test that it depends on failed".to_owned(),
        NotRunReason::NoWorker => "not run: no worker stayed alive to run it".to_owned(),
        NotRunReason::RunInterrupted => "not run: the run was interrupted".to_owned(),
    }
}

/// Describes how a guard was lost.
#[must_use]
pub fn guard_loss_text(loss: GuardLoss) -> String {
    match loss {
        GuardLoss::Killed { signal } => format!("Heeler's guard was killed by signal {signal}"),
        GuardLoss::Exited { code } => format!("Heeler's guard exited with code {code}"),
        GuardLoss::ForkServerKilled { signal } => {
            format!("Heeler's fork server was killed by signal {signal}")
        }
        GuardLoss::ForkServerExited { code } => format!("Heeler's fork server exited with code {code}"),
        GuardLoss::Unknown => "Heeler's guard was lost".to_owned(),
    }
}

/// Returns one line for each attempt: `attempt 1 (failed): message`.
#[must_use]
pub fn attempts_text(attempts: &[Attempt]) -> String {
    let mut text = String::new();
    for (index, attempt) in attempts.iter().enumerate() {
        let message = if attempt.message.is_empty() { "no message" } else { attempt.message.trim_end() };
        // Writing to a string does not fail.
        let _written = writeln!(text, "attempt {} ({}): {message}", index + 1, attempt.outcome.label());
    }
    text
}

/// Line before the messages of earlier attempts.
const EARLIER_ATTEMPTS: &str = "earlier attempts:\n";

/// Returns a [`shown_message`] without the messages of earlier attempts.
#[must_use]
pub fn without_earlier_attempts(message: &str) -> &str {
    message.split_once(EARLIER_ATTEMPTS).map_or(message, |(own, _)| own)
}

/// Returns the message of a result, followed by the messages of its earlier attempts. A flaky test shows them
/// in its output instead ([`shown_stdout`]).
#[must_use]
pub fn shown_message(result: &TestResult) -> Option<Cow<'_, str>> {
    let message = result.message();
    if result.attempts.is_empty() || result.outcome == Outcome::Flaky {
        return message;
    }
    let mut text = message.unwrap_or_default().into_owned();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(EARLIER_ATTEMPTS);
    text.push_str(attempts_text(&result.attempts).trim_end());
    Some(text.into())
}

/// Returns the standard output of a result. For a flaky test, the messages of its earlier attempts come
/// first.
#[must_use]
pub fn shown_stdout(result: &TestResult) -> Option<Cow<'_, str>> {
    let text: Cow<'_, str> = if result.outcome == Outcome::Flaky {
        (attempts_text(&result.attempts) + &result.stdout).into()
    } else {
        result.stdout.as_str().into()
    };
    (!text.is_empty()).then_some(text)
}

/// Returns the standard error of a result, followed by a note on leaked processes. The note is here because
/// every client shows standard error.
#[must_use]
pub fn shown_stderr(result: &TestResult) -> Option<Cow<'_, str>> {
    let stderr = result.stderr.as_str();
    if result.leaked.is_empty() {
        return (!stderr.is_empty()).then_some(stderr.into());
    }
    let border = if stderr.is_empty() || stderr.ends_with('\n') { "" } else { "\n" };
    Some(format!("{stderr}{border}{}", leak_note(&result.leaked)).into())
}

/// Returns the stack trace of a failure if there is one, otherwise the captured stack trace. Without either,
/// returns the locations of the failures, one per line, if there are several or the test's own location is
/// known.
#[must_use]
pub fn shown_stack(result: &TestResult, is_test_located: bool) -> Option<Cow<'_, str>> {
    let of_failure = result.failures.iter().find_map(|failure| failure.stack.as_deref());
    let captured = result.diagnostics.as_deref().map(|diagnostics| diagnostics.stack.as_str());
    if let Some(stack) = of_failure.or(captured.filter(|stack| !stack.is_empty())) {
        return Some(stack.into());
    }
    let places = result.failures.iter().filter_map(Failure::place);
    let mut places: Vec<_> = places.map(|place| place.to_string()).collect();
    places.dedup();
    let are_needed = is_test_located || places.len() > 1;
    (are_needed && !places.is_empty()).then(|| places.join("\n").into())
}

/// Returns the name of a process's program, given its command line and, if known, the name that the kernel
/// reports for it. Reports omit the arguments by default, because arguments often contain secrets.
#[must_use]
pub fn program_name(command: &str, name: Option<&str>) -> String {
    let program = command.split(' ').next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default();
    match name {
        // A path may contain spaces, and the kernel reports a script by its own name, truncated.
        Some(name) if !name.is_empty() && !program.trim_start_matches('[').starts_with(name) => {
            name.to_owned()
        }
        Some(_) | None => program.to_owned(),
    }
}

/// Returns the note about leaked processes that is added to their test's standard error.
#[must_use]
pub(crate) fn leak_note(processes: &[LeakedProcess]) -> String {
    format!("[heeler: the test {}]\n", leak_text(processes))
}

/// Describes processes that outlived their test, and whether they could be killed.
#[must_use]
pub fn leak_text(processes: &[LeakedProcess]) -> String {
    let name = |one: &LeakedProcess| {
        let what = process_text(one.pid, &one.command, one.facts.as_ref());
        format!("{} ({what})", truncate_command(&one.command))
    };
    let of_fate = |is_running: bool| {
        let names: Vec<_> = processes.iter().filter(|one| one.is_running == is_running).map(name).collect();
        let (what, were) = if names.len() == 1 { ("a process", "was") } else { ("processes", "were") };
        let fate = if is_running { RUNNING_LEAK.to_owned() } else { format!("{were} killed") };
        (!names.is_empty()).then(|| format!("leaked {what}, which {fate}: {}", names.join(", ")))
    };
    [of_fate(false), of_fate(true)].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Text after "which" for a leaked process that is still running.
pub const RUNNING_LEAK: &str = "could not be killed and is still running";

/// Describes a process in parentheses after its command line: `pid 7, 3 s old, 1.2 MiB`.
#[must_use]
pub fn process_text(pid: u32, command: &str, facts: Option<&ProcessFacts>) -> String {
    facts.map_or_else(|| format!("pid {pid}"), |facts| facts.describe(pid, command))
}

fn truncate_command(command: &str) -> String {
    let mut text: String = command.chars().take(COMMAND_CHARS).collect();
    if text.len() < command.len() {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(outcome: Outcome, message: &str) -> Attempt {
        Attempt::new(outcome, message)
    }

    #[test]
    fn earlier_attempts_follow_the_message_or_precede_the_output() {
        let attempts = vec![attempt(Outcome::Failed, "one\n"), attempt(Outcome::OutOfMemory, "")];
        let failed = TestResult { attempts, ..TestResult::with_reason(Outcome::Failed, "two") };
        let lines = "attempt 1 (failed): one\nattempt 2 (out of memory): no message";
        assert_eq!(shown_message(&failed).unwrap(), format!("two\nearlier attempts:\n{lines}"));
        assert_eq!(without_earlier_attempts(&shown_message(&failed).unwrap()), "two\n");
        assert_eq!(shown_stdout(&failed), None);
        let flaky = TestResult { outcome: Outcome::Flaky, reason: None, stdout: "out".into(), ..failed };
        assert_eq!(shown_message(&flaky), None);
        assert_eq!(shown_stdout(&flaky).unwrap(), format!("{lines}\nout"));
    }

    #[test]
    fn stack_without_frames_is_the_places_of_failures() {
        let at = |line| Failure { file: Some("a.cc".into()), line: Some(line), ..Failure::default() };
        let failed = |failures| TestResult { failures, ..TestResult::new(Outcome::Failed) };
        let one = failed(vec![at(7)]);
        assert_eq!(shown_stack(&one, true).as_deref(), Some("a.cc:7"));
        assert_eq!(shown_stack(&one, false), None, "the test is located there");
        let several = failed(vec![at(7), Failure::default(), at(9)]);
        assert_eq!(shown_stack(&several, true).as_deref(), Some("a.cc:7\na.cc:9"));
        assert_eq!(shown_stack(&several, false), shown_stack(&several, true));
    }

    #[test]
    fn program_is_named_without_directory_and_arguments() {
        for (command, name, expected) in [
            ("/usr/bin/sleep --token=/a/b 9", Some("sleep"), "sleep"),
            ("/usr/bin/sleep --token=/a/b 9", None, "sleep"),
            ("/bin/a_program_with_a_long_name x", Some("a_program_with_"), "a_program_with_a_long_name"),
            ("/bin/bash ./serve.sh secret", Some("serve.sh"), "serve.sh"),
            ("/home/a user/bin/tool secret", Some("tool"), "tool"),
            ("[kworker/0:1]", Some("kworker/0:1"), "kworker/0:1"),
            ("[sleep]", Some("sleep"), "[sleep]"),
            ("", Some(""), ""),
            ("", None, ""),
        ] {
            assert_eq!(program_name(command, name), expected, "{command} with the name {name:?}");
        }
    }

    #[test]
    fn leaked_processes_are_named_with_truncated_commands() {
        let process = LeakedProcess { pid: 7, command: "x".repeat(500), ..LeakedProcess::default() };
        let result =
            TestResult { leaked: vec![process], stderr: "e".into(), ..TestResult::new(Outcome::Passed) };
        let text = shown_stderr(&result).unwrap();
        assert!(text.starts_with("e\n[heeler: the test leaked a process, which was killed: xxx"), "{text}");
        assert!(text.len() < 200 && text.ends_with("… (pid 7)]\n"), "{text}");
        let facts = Some(ProcessFacts { name: "sleep".into(), age_s: 130, memory_kib: 900 });
        let process = LeakedProcess { pid: 7, command: "sleep 9".into(), facts, ..LeakedProcess::default() };
        let text = leak_text(&[process]);
        assert!(text.ends_with(": sleep 9 (pid 7, 2 min old, 900 KiB)"), "{text}");
    }
}
