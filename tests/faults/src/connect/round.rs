//! One round and its checks: every case gets exactly one answer in time. The answer must come from the case's
//! client unless a fault killed the client.

use std::{
    collections::BTreeMap,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use super::{
    judge::Judge,
    messages::CaseAnswer,
    plan::{ConnectPlan, ExpectedAnswer},
};
use crate::{
    injector::{RoundProgress, RoundStage},
    planned_faults::{FaultTarget, InjectedAction},
    round::{FaultRound, is_own_panic},
    suites,
    support::process::signal_if_there,
    test_results::{PermittedLosses, check_run_files},
    traffic_record::Traffic,
};

/// The real judge aborts its run if it receives nothing for this long.
const JUDGE_PATIENCE: Duration = Duration::from_secs(20);
/// Start of the error that Heeler reports for a case that its client did not answer.
const FAILURE: &str = "the client under test";

/// Plays a round.
pub(crate) fn play(plan: &ConnectPlan, round: &mut FaultRound<'_>) {
    suites::prepare(round.dir, &[], &plan.settings);
    let judge = Judge::start(plan, round.dir, &round.mark);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut asked = Vec::new();
        round.with_faults(&plan.faults, &judge, |round, progress| {
            asked = run_session(plan, &judge, round, progress);
        });
        check_guarantees(plan, &judge, &asked, round);
    }));
    round.errors = judge.process.errors();
    if outcome.is_err() {
        fs::write(round.dir.join("answers.txt"), judge.record.text()).ok();
        fs::write(round.dir.join("stderr.txt"), judge.process.errors()).ok();
        std::panic::resume_unwind(Box::new(()));
    }
}

/// Plays the judge until the relay has exited; returns the times of its writes.
fn run_session(
    plan: &ConnectPlan,
    judge: &Judge,
    round: &mut FaultRound<'_>,
    progress: &RoundProgress,
) -> Vec<Instant> {
    progress.reach(RoundStage::Requested);
    let mut asked = Vec::new();
    for (cases, pause) in &plan.writes {
        asked.push(Instant::now());
        judge.ask(cases.iter().map(|case| case.name.as_str()));
        std::thread::park_timeout(*pause);
    }
    round.measure(judge.relay());
    if plan.judge.terminates {
        signal_if_there(judge.relay(), "TERM");
    } else {
        if plan.judge.waits_for_answers {
            let count = plan.cases().count();
            let has_all = |traffic: &[Traffic<CaseAnswer>]| (traffic.len() >= count).then_some(());
            judge.record.wait("the answers to all cases", has_all);
        }
        judge.close_output();
    }
    if !judge.record.is_left() {
        judge.record.wait_closed();
    }
    progress.reach(RoundStage::Leaving);
    judge.close_output();
    assert!(judge.process.wait_gone(), "processes of Heeler's own are left\n{}", judge.process.errors());
    asked
}

/// Checks every guarantee; panics at the first violation.
fn check_guarantees(plan: &ConnectPlan, judge: &Judge, asked: &[Instant], round: &FaultRound<'_>) {
    round.check_nothing_left();
    let errors = judge.process.errors();
    assert!(!errors.lines().any(is_own_panic), "{errors}");
    let is_relay_killed = round.is_killed(FaultTarget::Coordinator);
    let is_judge_gone = round
        .hits()
        .any(|hit| matches!(hit.fault.action, InjectedAction::Disconnect | InjectedAction::KillClient));
    let traffic = judge.record.wait_closed();
    let received: Vec<_> = traffic
        .iter()
        .filter_map(|one| match one {
            Traffic::Received(answer) => Some(answer),
            Traffic::Sent(_) | Traffic::Closed => None,
        })
        .collect();
    let mut answers = BTreeMap::new();
    for answer in &received {
        let is_asked = plan.cases().any(|case| case.name == answer.name);
        assert!(is_asked, "an answer to {:?}, which was not asked", answer.name);
        assert!(answers.insert(&answer.name, *answer).is_none(), "{} is answered twice", answer.name);
    }
    let losses = PermittedLosses::new(round.hits());
    check_answers(plan, &answers, &losses);
    let is_cut_short = is_relay_killed || is_judge_gone || plan.judge.terminates;
    if !is_cut_short {
        let code = judge.process.exit_code();
        assert_eq!(code, Some(0), "the exit code\n{errors}");
        let missing = plan.cases().filter(|case| !answers.contains_key(&case.name));
        let missing: Vec<_> = missing.map(|case| &case.name).collect();
        assert!(missing.is_empty(), "cases without an answer: {missing:?}");
        check_silence(&received, asked, round);
    }
    check_run_files(round.dir, &[]);
    round.check_peaks();
}

/// Checks the received answers.
fn check_answers(plan: &ConnectPlan, answers: &BTreeMap<&String, &CaseAnswer>, losses: &PermittedLosses) {
    let mut lost = Vec::new();
    for case in plan.cases() {
        let Some(answer) = answers.get(&case.name) else { continue };
        let is_failure = answer.error.as_ref().is_some_and(|error| error.starts_with(FAILURE));
        match (case.answer, &answer.error) {
            (ExpectedAnswer::Response, None) => {}
            (ExpectedAnswer::OwnError, Some(error)) if error == "no" => {}
            (ExpectedAnswer::Failure, Some(_)) if is_failure => {}
            (ExpectedAnswer::Response | ExpectedAnswer::OwnError, Some(_)) if is_failure => lost.push(answer),
            (expected, _) => panic!("{answer} instead of {expected:?}"),
        }
    }
    let permitted = losses.tests;
    assert!(
        plan.judge.terminates || losses.is_stopped || losses.may_hide_a_program() || lost.len() <= permitted,
        "{} cases are lost, and at most {permitted} may be: {lost:#?}",
        lost.len()
    );
}

/// Checks that the judge never waited longer than its patience while cases were open.
fn check_silence(received: &[&CaseAnswer], asked: &[Instant], round: &FaultRound<'_>) {
    let pauses: Duration = round
        .hits()
        .map(|hit| match hit.fault.action.equivalent() {
            InjectedAction::Stop(_, pause) | InjectedAction::StopReadingMain(pause) => pause,
            _ => Duration::ZERO,
        })
        .sum();
    let mut events: Vec<Instant> =
        received.iter().map(|answer| answer.at).chain(asked.iter().copied()).collect();
    events.sort();
    let longest = events.windows(2).map(|two| two[1] - two[0]).max().unwrap_or_default();
    assert!(longest <= JUDGE_PATIENCE + pauses, "the judge has waited for {longest:?}");
}
