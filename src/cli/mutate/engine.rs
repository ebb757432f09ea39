//! From the built programs to the verdicts: the session, the tests without a mutant, and the tests with each.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use heeler_config::ResolvedSettings;
use heeler_mutate::{KeptBaseline, ProgramUids, names_for_later_runs};
use heeler_report::mutation::{MutationPhases, TestPlace};
use heeler_sys::memory::return_freed_memory;

use super::{
    baseline::{CoverageFiles, MeasuredBaseline, MeasuredPrograms, measure, test_places},
    build::{GuardedBuild, TestCounting, WorkPlace},
    error::MutateError,
    observer::MutationObserver,
    session::MutantSession,
    testing::{MutantTesting, TestedMutants},
};

/// Tests the mutants of built programs.
pub(super) struct MutantEngine<'a> {
    pub(super) settings: &'a ResolvedSettings,
    pub(super) place: &'a WorkPlace,
    /// How long finding the mutants and building took.
    pub(super) setup: Duration,
}

/// What the tests have shown.
#[derive(Default)]
pub(super) struct TestedRun {
    pub(super) tested: TestedMutants,
    /// Where the tests begin, by uid.
    pub(super) tests: BTreeMap<Arc<str>, TestPlace>,
    pub(super) phases: Option<MutationPhases>,
    /// The observer has ended it before all mutants had verdicts.
    pub(super) is_cancelled: bool,
}

/// How the tests ended.
pub(super) enum EngineEnd {
    /// Nothing runs any more.
    Over(Box<TestedRun>, MutationObserver),
    /// The observer does not wait for the end of what runs, which ends with this process.
    Left,
}

impl MutantEngine<'_> {
    /// Tests the mutants.
    ///
    /// # Errors
    /// The tests fail without a mutant, can't be listed, or can't be run.
    ///
    /// Cancel safe: no, because verdicts that are not written are lost; what runs ends.
    pub(super) async fn test(
        &self,
        build: &mut GuardedBuild,
        observer: MutationObserver,
    ) -> Result<EngineEnd, MutateError> {
        // That of the guarded sources and of the compiler's messages.
        return_freed_memory();
        let files = CoverageFiles::create(self.place.coverage(), build.guarded.total())?;
        let slots = match build.counting {
            TestCounting::Alone => None,
            TestCounting::Forked => Some(self.settings.run.jobs.slots()),
        };
        let mut programs = std::mem::take(&mut build.programs);
        files.watch_listings(&mut programs)?;
        let state_dir = self.place.session();
        let mut session = MutantSession::start(self.settings, &state_dir, programs, observer).await?;
        let tested = self.test_in(&mut session, build, &files, slots).await;
        if matches!(tested, Ok(None)) {
            return Ok(EngineEnd::Left);
        }
        let is_cancelled = session.is_cancelled;
        let observer = session.shut_down().await;
        return_freed_memory();
        // Nothing of it is left but what could not be removed.
        let _stays = std::fs::remove_dir_all(&state_dir);
        let tested = tested?.unwrap_or_default();
        Ok(EngineEnd::Over(Box::new(TestedRun { is_cancelled, ..tested }), observer))
    }

    /// Runs the tests without a mutant and with each; `None` if the observer does not wait for the end.
    async fn test_in(
        &self,
        session: &mut MutantSession,
        build: &GuardedBuild,
        files: &CoverageFiles,
        forking_slots: Option<NonZeroUsize>,
    ) -> Result<Option<TestedRun>, MutateError> {
        let began = Instant::now();
        let programs = session.list().await?;
        let tests = test_places(&programs, &self.place.tree());
        let mut kept = KeptBaseline::read(&self.place.baseline(), build.fingerprint, &build.guarded);
        let kept_names: Vec<_> = programs.iter().map(|one| names_for_later_runs(&one.uids)).collect();
        let measured = MeasuredPrograms {
            programs: &programs,
            kept_names: &kept_names,
            may_fail: build.doctests.clone(),
        };
        let baseline = match measure(session, &measured, files, &mut kept, forking_slots).await? {
            MeasuredBaseline::Green(baseline) => baseline,
            MeasuredBaseline::Cancelled => return Ok(Some(TestedRun::default())),
            MeasuredBaseline::Left(_) => return Ok(None),
        };
        let uids = programs.iter().zip(&kept_names);
        let uids: Vec<_> = uids.map(|(one, uids)| ProgramUids { suite: &one.suite, uids }).collect();
        let file = self.place.baseline();
        if let Err(error) = kept.write(&file, build.fingerprint, &build.guarded, &uids, &baseline) {
            session
                .observer
                .warn(&format!("the next run begins anew: failed to write {}: {error}", file.display()));
        }
        return_freed_memory();
        let initial_run = began.elapsed();
        let verdicts = self.place.verdicts();
        let testing = MutantTesting::new(&build.guarded, &measured, &baseline, build.fingerprint, &verdicts);
        let began = Instant::now();
        let (tested, left) = testing.run(session).await?;
        let phases = MutationPhases { setup: self.setup, initial_run, mutation: began.elapsed() };
        let run = TestedRun { tested, tests, phases: Some(phases), is_cancelled: false };
        Ok(left.is_none().then_some(run))
    }
}
