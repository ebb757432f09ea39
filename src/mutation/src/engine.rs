//! From compiled programs to verdicts: starts the session, runs the baseline, and tests the mutants.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use heeler_config::{ResolvedSettings, filter::FilterSubject};
use heeler_mutate::{KeptBaseline, ProgramUids, names_for_later_runs};
use heeler_protocol::control::ListedTest;
use heeler_report::mutation::{MutationPhases, TestPlace};
use heeler_server::variants::ListedProgram;
use heeler_sys::memory::return_freed_memory;

use crate::{
    baseline::{CoverageFiles, MeasuredBaseline, MeasuredPrograms, measure},
    error::MutateError,
    languages::{GuardedBuild, TestCounting},
    observer::MutationObserver,
    one_test_programs::with_commands,
    session::MutantSession,
    testing::{MutantTesting, TestedMutants},
    unfinished::Unfinished,
    work_place::WorkPlace,
};

pub(crate) struct MutantEngine<'a> {
    pub(crate) settings: &'a ResolvedSettings,
    pub(crate) place: &'a WorkPlace,
    /// Time spent on finding mutants and building.
    pub(crate) setup: Duration,
}

/// The result of testing.
#[derive(Default)]
pub(crate) struct TestedRun {
    pub(crate) tested: TestedMutants,
    /// Where each test is defined, by uid.
    pub(crate) tests: BTreeMap<Arc<str>, TestPlace>,
    pub(crate) phases: Option<MutationPhases>,
    /// Why the run ended before all mutants had verdicts.
    pub(crate) unfinished: Option<Unfinished>,
}

impl MutantEngine<'_> {
    /// Tests the mutants. Returns `None` if the observer will not wait for running processes, which then end
    /// with this process.
    ///
    /// # Errors
    /// The tests fail without a mutant, can't be listed, or can't be run.
    ///
    /// Cancel safe: no, because unwritten verdicts are lost; running processes are ended.
    pub(crate) async fn test(
        &self,
        build: &mut GuardedBuild,
        observer: &mut dyn MutationObserver,
    ) -> Result<Option<TestedRun>, MutateError> {
        // Return the memory of the guarded sources and compiler messages.
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
        // Programs that turn out to be one test each are listed again as commands.
        let mut listed = session.list().await;
        if let Ok(first) = &listed
            && let Some(again) = with_commands(session.programs(), first)
        {
            let observer = session.shut_down().await;
            session = MutantSession::start(self.settings, &state_dir, again, observer).await?;
            listed = session.list().await;
        }
        // Run the tests, then end the session.
        let tested = match listed {
            Ok(_) if session.is_ended() => Ok(Some(TestedRun::default())),
            Ok(listed) => self.test_in(&mut session, listed, build, &files, slots).await,
            Err(error) => Err(error),
        };
        if matches!(tested, Ok(None)) {
            return Ok(None);
        }
        let unfinished = session.unfinished;
        session.shut_down().await;
        return_freed_memory();
        // Only files that could not be removed are left.
        let _stays = std::fs::remove_dir_all(&state_dir);
        Ok(tested?.map(|tested| TestedRun { unfinished, ..tested }))
    }

    /// Runs the tests without a mutant and with each mutant; `None` if the observer does not wait for the
    /// end.
    async fn test_in(
        &self,
        session: &mut MutantSession<'_>,
        mut programs: Vec<ListedProgram>,
        build: &GuardedBuild,
        files: &CoverageFiles,
        forking_slots: Option<NonZeroUsize>,
    ) -> Result<Option<TestedRun>, MutateError> {
        // Select the tests.
        let began = Instant::now();
        session.check_listed(&programs)?;
        leave_out_unselected(&mut programs, self.settings)?;
        let tests = test_places(&programs, &self.place.tree());
        // Measure the baseline, or reuse the measurements of an earlier run.
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
            session.observer.warn(&format!(
                "the next run measures all tests again: cannot write {}: {error}",
                file.display()
            ));
        }
        return_freed_memory();
        let initial_run = began.elapsed();
        // Test the mutants.
        let verdicts = self.place.verdicts();
        let testing = MutantTesting::new(&build.guarded, &measured, &baseline, build.fingerprint, &verdicts);
        let began = Instant::now();
        let (tested, left) = testing.run(session).await?;
        let phases = MutationPhases { setup: self.setup, initial_run, mutation: began.elapsed() };
        let run = TestedRun { tested, tests, phases: Some(phases), unfinished: None };
        Ok(left.is_none().then_some(run))
    }
}

/// Marks the tests that the user's filters exclude as skipped.
fn leave_out_unselected(
    programs: &mut [ListedProgram],
    settings: &ResolvedSettings,
) -> Result<(), MutateError> {
    if let Some(filter) = settings.filters.iter().find(|filter| filter.depends_on_history()) {
        return Err(MutateError::HistoryFilter { filter: filter.to_string() });
    }
    let mut selected = 0_usize;
    let mut all = 0_usize;
    for program in programs {
        for (test, uid) in program.tests.iter_mut().zip(&program.uids) {
            let subject = FilterSubject {
                uid,
                suite: &program.suite,
                config_suite: None,
                program: program.path.as_str().into(),
                tags: test.traits.iter().map(|one| (one.name.as_str(), one.value.as_str())).collect(),
                last: None,
            };
            let is_selected = settings.is_selected(&subject);
            all += 1;
            selected += usize::from(is_selected);
            if !is_selected {
                Arc::make_mut(test).skip = Some("not selected".to_owned());
            }
        }
    }
    if all > 0 && selected == 0 { Err(MutateError::NoTestSelected { tests: all }) } else { Ok(()) }
}

/// Returns where each test is defined, by uid, with paths relative to the workspace.
fn test_places(programs: &[ListedProgram], tree: &Path) -> BTreeMap<Arc<str>, TestPlace> {
    let place = |(test, uid): (&Arc<ListedTest>, &String)| {
        let file = Path::new(test.file.as_ref()?);
        let below = file.strip_prefix(tree).unwrap_or(file).to_string_lossy().into_owned();
        let place = TestPlace { file: below, line: test.line };
        Some((Arc::from(uid.as_str()), place))
    };
    programs.iter().flat_map(|program| program.tests.iter().zip(&program.uids).filter_map(place)).collect()
}
