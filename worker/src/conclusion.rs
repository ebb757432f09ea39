//! Decides the result of one test from how it ended and from what happened before: earlier attempts, or the
//! crash that an isolated rerun checks. Pure; the messages that users read about crashes are here.

use std::{fmt::Write as _, time::Duration};

use wire::{
    control::{Attempt, Death, Evidence, LeasedTest},
    mtp::ExecutionState,
};

use crate::{adapter::Verdict, output::cut_text, parcel::Held};

/// An attempt travels to the coordinator and comes back with the next lease, so its texts are truncated
/// again.
const ATTEMPT_TEXT_BYTES: u64 = 64 << 10;

/// How a test ended.
#[derive(Debug)]
pub(crate) enum Seen {
    /// Its framework reported a result.
    Verdict(Verdict),
    /// Its process ended while it was running.
    Died {
        death: Death,
        /// Its framework wrote an end marker for it, but no later output confirmed that.
        is_after_end_marker: bool,
    },
    /// It exceeded its time limit.
    TimedOut(Duration),
    /// It exceeded its idle timeout.
    Silent(Duration),
    /// The user cancelled it.
    Cancelled,
}

/// Output and evidence of a test.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Outputs {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Dumps and stacks captured while its process died or hung.
    pub(crate) evidence: Option<Box<Evidence>>,
}

/// A terminal result, without the test that it belongs to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) state: ExecutionState,
    pub(crate) kind: Option<&'static str>,
    pub(crate) message: Option<String>,
    pub(crate) stacktrace: Option<String>,
    pub(crate) actual: Option<String>,
    pub(crate) expected: Option<String>,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
    pub(crate) outputs: Outputs,
    pub(crate) death: Option<Death>,
    /// How the isolated rerun of the crashed test ended.
    pub(crate) alone: Option<&'static str>,
    /// Number of the attempt that decided, from 1.
    pub(crate) attempt: usize,
}

impl Outcome {
    fn new(state: ExecutionState, outputs: Outputs) -> Self {
        Self {
            state,
            kind: None,
            message: None,
            stacktrace: None,
            actual: None,
            expected: None,
            file: None,
            line: None,
            outputs,
            death: None,
            alone: None,
            attempt: 1,
        }
    }

    /// Returns the result of a test that its framework would skip.
    pub(crate) fn skipped(reason: &str) -> Self {
        Self { message: Some(reason.to_owned()), ..Self::new(ExecutionState::Skipped, Outputs::default()) }
    }

    /// Returns the result of a test that could not be run.
    pub(crate) fn not_run(reason: &str) -> Self {
        Self {
            kind: Some("not-run"),
            message: Some(format!("not run: {reason}")),
            ..Self::new(ExecutionState::Error, Outputs::default())
        }
    }

    /// Returns whether the test did not pass and a retry may replace the result.
    fn is_bad(&self) -> bool {
        matches!(self.state, ExecutionState::Failed | ExecutionState::TimedOut | ExecutionState::Error)
    }
}

/// The decision about a result.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Conclusion {
    /// The result is final.
    Settle(Box<Outcome>),
    /// The result is provisional.
    Hold(Box<Attempt>, Held),
}

/// The policy for the test.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules<'a> {
    /// The test, with its earlier attempts or the crash that this run checks.
    pub(crate) test: &'a LeasedTest,
    /// Whether a crash is final, because the test was the only one in its process.
    pub(crate) is_alone: bool,
    pub(crate) duration: Duration,
}

/// Decides the result of an ended test.
pub(crate) fn conclude(rules: Rules<'_>, seen: Seen, outputs: Outputs) -> Conclusion {
    if !rules.is_alone && matches!(seen, Seen::Died { .. }) {
        let outcome = alone_or_not(seen, outputs);
        return Conclusion::Hold(Box::new(attempt_of(outcome, rules.duration)), Held::Died);
    }
    let is_cancelled = matches!(seen, Seen::Cancelled);
    let outcome = match &rules.test.death {
        None => alone_or_not(seen, outputs),
        Some(first) => checked(first, seen, outputs),
    };
    if rules.test.is_failure_held && outcome.is_bad() && !is_cancelled {
        return Conclusion::Hold(Box::new(attempt_of(outcome, rules.duration)), Held::Failed);
    }
    Conclusion::Settle(Box::new(with_attempts(outcome, &rules.test.attempts)))
}

/// Returns the result of one run of a test, without regard to earlier runs.
fn alone_or_not(seen: Seen, outputs: Outputs) -> Outcome {
    match seen {
        Seen::Verdict(verdict) => Outcome {
            message: verdict.message,
            stacktrace: verdict.stacktrace,
            actual: verdict.actual,
            expected: verdict.expected,
            file: verdict.file,
            line: verdict.line,
            ..Outcome::new(verdict.state, outputs)
        },
        Seen::Died { death, is_after_end_marker } => {
            let mut message = death_text(&death);
            if is_after_end_marker {
                message.push_str(" after its end marker: in the test's own tear-down or its suite's");
            }
            Outcome {
                kind: Some(death_kind(&death)),
                message: Some(message),
                death: Some(death),
                ..Outcome::new(ExecutionState::Error, outputs)
            }
        }
        Seen::TimedOut(limit) => Outcome {
            message: Some(format!("timed out after {}", seconds(limit))),
            ..Outcome::new(ExecutionState::TimedOut, outputs)
        },
        Seen::Silent(limit) => Outcome {
            kind: Some("silent"),
            message: Some(format!("gave no sign for {}, and was ended", seconds(limit))),
            ..Outcome::new(ExecutionState::TimedOut, outputs)
        },
        Seen::Cancelled => Outcome {
            message: Some("cancelled while it ran".into()),
            ..Outcome::new(ExecutionState::Cancelled, outputs)
        },
    }
}

/// Returns the result of a test whose process died while it ran among others, and that has now been rerun in
/// isolation. The first crash remains the result, whatever the isolated rerun did: it happened.
fn checked(first: &Attempt, seen: Seen, lone: Outputs) -> Outcome {
    let mut death = first.death.clone().unwrap_or_default();
    if let Seen::Died { death: again, .. } = &seen
        && (&again.signal, again.code) == (&death.signal, death.code)
    {
        // The isolated rerun may have been traced more closely.
        death.detail = death.detail.or_else(|| again.detail.clone());
    }
    let what = death_text(&death);
    let after_others = match death.signal {
        Some(_) => format!("{what} when run after other tests"),
        None => format!("{what}, when run after other tests"),
    };
    let (message, alone) = match &seen {
        Seen::Died { death: again, .. } if (&again.signal, again.code) == (&death.signal, death.code) => {
            let again = if death.signal.is_some() { "crashes alone as well" } else { "alone as well" };
            (format!("{what}; {again}"), Some("crashes-alone"))
        }
        Seen::Died { death: again, .. } => {
            (format!("{what}; alone: {}", death_text(again)), Some("crashes-alone"))
        }
        Seen::TimedOut(limit) => {
            (format!("{after_others}; times out alone (after {})", seconds(*limit)), Some("hangs-alone"))
        }
        Seen::Silent(limit) => {
            (format!("{after_others}; hangs alone (no sign for {})", seconds(*limit)), Some("hangs-alone"))
        }
        Seen::Cancelled => (format!("{what}; the check alone was cancelled"), None),
        Seen::Verdict(verdict) => match verdict.state {
            ExecutionState::Passed => {
                (format!("{after_others}; passes alone (order-dependent?)"), Some("passes-alone"))
            }
            ExecutionState::Skipped => (format!("{after_others}; is skipped alone"), Some("passes-alone")),
            _ => {
                let message = verdict.message.as_deref().unwrap_or("it gave no message");
                (format!("{after_others}; fails alone: {message}"), Some("fails-alone"))
            }
        },
    };
    let outputs = Outputs {
        stdout: both(&first.stdout, &lone.stdout),
        stderr: both(&first.stderr, &lone.stderr),
        // The first crash remains the result; evidence of the isolated rerun repeats it, or is the only
        // evidence.
        evidence: first
            .evidence
            .clone()
            .filter(|first| has_stack(first) || lone.evidence.is_none())
            .or(lone.evidence),
    };
    let own = alone_or_not(seen, Outputs::default());
    Outcome {
        kind: Some(death_kind(&death)),
        message: Some(message),
        alone,
        death: Some(death),
        stacktrace: own.stacktrace,
        ..Outcome::new(ExecutionState::Error, outputs)
    }
}

fn has_stack(evidence: &Evidence) -> bool {
    !evidence.stack.is_empty()
}

/// Joins the output of the first crash and of the isolated rerun, where they differ.
fn both(first: &str, lone: &str) -> String {
    if lone.is_empty() || lone == first {
        return first.to_owned();
    }
    let border = if first.is_empty() || first.ends_with('\n') { "" } else { "\n" };
    format!("{first}{border}--- when run alone ---\n{lone}")
}

fn with_attempts(mut outcome: Outcome, attempts: &[Attempt]) -> Outcome {
    if attempts.is_empty() {
        return outcome;
    }
    outcome.attempt = attempts.len() + 1;
    let mut told = String::new();
    for (index, attempt) in attempts.iter().enumerate() {
        let message = if attempt.message.is_empty() { "no message" } else { attempt.message.trim_end() };
        writeln!(told, "attempt {} ({}): {message}", index + 1, attempt.state).expect("a String takes all");
    }
    if outcome.state == ExecutionState::Passed {
        outcome.kind = Some("passed-with-retries");
        outcome.outputs.stdout.insert_str(0, &told);
    } else {
        let message = outcome.message.get_or_insert_default();
        if !message.is_empty() && !message.ends_with('\n') {
            message.push('\n');
        }
        message.push_str("earlier attempts:\n");
        message.push_str(told.trim_end());
    }
    outcome
}

fn attempt_of(outcome: Outcome, duration: Duration) -> Attempt {
    Attempt {
        state: outcome.state,
        message: cut_text(outcome.message.unwrap_or_default(), ATTEMPT_TEXT_BYTES),
        death: outcome.death,
        stdout: cut_text(outcome.outputs.stdout, ATTEMPT_TEXT_BYTES),
        stderr: cut_text(outcome.outputs.stderr, ATTEMPT_TEXT_BYTES),
        evidence: outcome.outputs.evidence,
        duration_us: microseconds(duration),
    }
}

/// Returns whole microseconds.
pub(crate) fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Describes how the process of a running test ended.
pub(crate) fn death_text(death: &Death) -> String {
    if let Some(cause) = &death.cause {
        return cause.clone();
    }
    match (death.signal.as_deref(), death.code) {
        (Some(signal @ ("SIGKILL" | "SIGTERM" | "SIGINT" | "SIGHUP")), _) => format!("killed by {signal}"),
        (Some(signal), _) => match &death.detail {
            Some(detail) => format!("crashed with {signal} ({detail})"),
            None => format!("crashed with {signal}"),
        },
        (None, Some(code)) => {
            let left = format!("the process left with exit code {code} before the test ended");
            death.detail.as_ref().map_or(left.clone(), |detail| format!("{left} ({detail})"))
        }
        (None, None) => {
            death.detail.clone().unwrap_or_else(|| "the process was lost before the test ended".to_owned())
        }
    }
}

fn death_kind(death: &Death) -> &'static str {
    if death.cause.is_some() {
        return "out-of-memory";
    }
    match (&death.signal, death.code) {
        (Some(_), _) => "crashed",
        (None, Some(_)) => "exited",
        (None, None) => "lost",
    }
}

/// Formats a limit as users write it: `2 s`, `0.5 s`.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn test() -> LeasedTest {
        samples::leased(0)
    }

    fn death(signal: Option<&str>, code: Option<i32>) -> Death {
        Death { signal: signal.map(str::to_owned), code, ..Death::default() }
    }

    fn verdict(state: ExecutionState, message: Option<&str>) -> Seen {
        Seen::Verdict(Verdict { message: message.map(str::to_owned), ..samples::verdict(state) })
    }

    fn died(death: Death) -> Seen {
        Seen::Died { death, is_after_end_marker: false }
    }

    fn attempt(state: ExecutionState, message: &str, death: Option<Death>) -> Attempt {
        Attempt {
            state,
            message: message.into(),
            death,
            stdout: "first out".into(),
            stderr: "first err".into(),
            evidence: None,
            duration_us: 1,
        }
    }

    fn out(stdout: &str) -> Outputs {
        Outputs { stdout: stdout.into(), ..Outputs::default() }
    }

    fn conclusion(test: &LeasedTest, is_alone: bool, seen: Seen) -> Conclusion {
        conclude(Rules { test, is_alone, duration: Duration::from_micros(7) }, seen, out("lone out"))
    }

    fn settled(test: &LeasedTest, seen: Seen) -> Outcome {
        match conclusion(test, true, seen) {
            Conclusion::Settle(outcome) => *outcome,
            held @ Conclusion::Hold(..) => panic!("{held:?}"),
        }
    }

    fn checking(first: Death) -> LeasedTest {
        LeasedTest { death: Some(attempt(ExecutionState::Error, "", Some(first))), ..test() }
    }

    #[test]
    fn the_lone_check_of_a_crash_says_what_both_runs_did() {
        let segv = || death(Some("SIGSEGV"), None);
        let cases = [
            (died(segv()), "crashed with SIGSEGV; crashes alone as well", "crashes-alone"),
            (
                died(death(Some("SIGABRT"), None)),
                "crashed with SIGSEGV; alone: crashed with SIGABRT",
                "crashes-alone",
            ),
            (
                verdict(ExecutionState::Passed, None),
                "crashed with SIGSEGV when run after other tests; passes alone (order-dependent?)",
                "passes-alone",
            ),
            (
                verdict(ExecutionState::Failed, Some("1 is not 2")),
                "crashed with SIGSEGV when run after other tests; fails alone: 1 is not 2",
                "fails-alone",
            ),
            (
                Seen::TimedOut(Duration::from_secs(2)),
                "crashed with SIGSEGV when run after other tests; times out alone (after 2 s)",
                "hangs-alone",
            ),
        ];
        for (seen, message, alone) in cases {
            let outcome = settled(&checking(segv()), seen);
            assert_eq!(outcome.message.as_deref(), Some(message));
            assert_eq!((outcome.state, outcome.kind), (ExecutionState::Error, Some("crashed")));
            assert_eq!(outcome.alone, Some(alone));
            assert_eq!(outcome.death, Some(segv()));
            assert_eq!(outcome.outputs.stdout, "first out\n--- when run alone ---\nlone out");
            assert_eq!(outcome.outputs.stderr, "first err");
        }
    }

    #[test]
    fn what_only_the_lone_check_has_seen_is_told() {
        let seen =
            |detail: Option<&str>| Death { detail: detail.map(str::to_owned), ..death(None, Some(139)) };
        let evidence =
            |stack: &str| Some(Box::new(Evidence { stack: stack.to_owned(), ..Evidence::default() }));
        let outcome = |first: Option<Box<Evidence>>| {
            let mut test = checking(seen(None));
            test.death.as_mut().unwrap().evidence = first;
            let rules = Rules { test: &test, is_alone: true, duration: Duration::ZERO };
            let outputs = Outputs { evidence: evidence("lone"), ..Outputs::default() };
            match conclude(rules, died(seen(Some("SIGSEGV in its child"))), outputs) {
                Conclusion::Settle(outcome) => *outcome,
                held @ Conclusion::Hold(..) => panic!("{held:?}"),
            }
        };
        let told = outcome(None);
        let left = "the process left with exit code 139 before the test ended";
        assert_eq!(told.message, Some(format!("{left} (SIGSEGV in its child); alone as well")));
        assert_eq!(told.outputs.evidence, evidence("lone"));
        assert_eq!(outcome(evidence("")).outputs.evidence, evidence("lone"));
        assert_eq!(outcome(evidence("first")).outputs.evidence, evidence("first"));
    }

    #[test]
    fn the_lone_check_of_an_exit_says_what_both_runs_did() {
        let exit = || death(None, Some(0));
        let outcome = settled(&checking(exit()), died(exit()));
        assert_eq!(
            outcome.message.as_deref(),
            Some("the process left with exit code 0 before the test ended; alone as well")
        );
        assert_eq!(outcome.kind, Some("exited"));
        let outcome = settled(&checking(exit()), verdict(ExecutionState::Passed, None));
        assert_eq!(
            outcome.message.as_deref(),
            Some(
                "the process left with exit code 0 before the test ended, when run after other tests; passes alone (order-dependent?)"
            )
        );
    }

    #[test]
    fn a_cancelled_check_leaves_the_crash_standing() {
        let test = LeasedTest { is_failure_held: true, ..checking(death(Some("SIGBUS"), None)) };
        let outcome = settled(&test, Seen::Cancelled);
        assert_eq!(outcome.state, ExecutionState::Error);
        assert_eq!(outcome.message.as_deref(), Some("crashed with SIGBUS; the check alone was cancelled"));
        assert_eq!(outcome.alone, None);
    }

    #[test]
    fn a_death_among_others_is_held_and_a_death_alone_is_final() {
        let seen = || died(death(Some("SIGSEGV"), None));
        let Conclusion::Hold(held, Held::Died) = conclusion(&test(), false, seen()) else { panic!() };
        assert_eq!((held.state, held.message.as_str()), (ExecutionState::Error, "crashed with SIGSEGV"));
        assert_eq!((held.stdout.as_str(), held.duration_us), ("lone out", 7));
        let outcome = settled(&test(), seen());
        assert_eq!((outcome.state, outcome.kind), (ExecutionState::Error, Some("crashed")));
        assert_eq!(settled(&test(), died(death(None, None))).kind, Some("lost"));
    }

    #[test]
    fn only_bad_results_are_held_for_a_retry() {
        let test = LeasedTest { is_failure_held: true, ..test() };
        for seen in [
            verdict(ExecutionState::Failed, None),
            Seen::TimedOut(Duration::from_secs(1)),
            died(death(None, Some(3))),
        ] {
            assert!(matches!(conclusion(&test, true, seen), Conclusion::Hold(_, Held::Failed)));
        }
        for seen in
            [verdict(ExecutionState::Passed, None), verdict(ExecutionState::Skipped, None), Seen::Cancelled]
        {
            assert!(matches!(conclusion(&test, true, seen), Conclusion::Settle(_)));
        }
    }

    #[test]
    fn a_pass_after_failures_tells_them() {
        let attempts = vec![
            attempt(ExecutionState::Failed, "1 is not 2\n", None),
            attempt(ExecutionState::TimedOut, "", None),
        ];
        let outcome = settled(&LeasedTest { attempts, ..test() }, verdict(ExecutionState::Passed, None));
        assert_eq!((outcome.kind, outcome.attempt), (Some("passed-with-retries"), 3));
        assert_eq!(
            outcome.outputs.stdout,
            "attempt 1 (failed): 1 is not 2\nattempt 2 (timed-out): no message\nlone out"
        );
        assert_eq!(outcome.message, None);
    }

    #[test]
    fn a_last_failure_tells_all_attempts() {
        let attempts = vec![attempt(ExecutionState::Failed, "first", None)];
        let test = LeasedTest { attempts, ..test() };
        let outcome = settled(&test, verdict(ExecutionState::Failed, Some("last")));
        assert_eq!(outcome.message.as_deref(), Some("last\nearlier attempts:\nattempt 1 (failed): first"));
        assert_eq!((outcome.state, outcome.attempt), (ExecutionState::Failed, 2));
    }

    #[test]
    fn a_timeout_says_its_limit() {
        let message = |ms| settled(&test(), Seen::TimedOut(Duration::from_millis(ms))).message.unwrap();
        assert_eq!(message(2000), "timed out after 2 s");
        assert_eq!(message(500), "timed out after 0.5 s");
    }

    #[test]
    fn a_kill_is_not_called_a_crash() {
        assert_eq!(death_text(&death(Some("SIGKILL"), None)), "killed by SIGKILL");
        assert_eq!(
            death_text(&death(None, Some(0))),
            "the process left with exit code 0 before the test ended"
        );
    }
}
