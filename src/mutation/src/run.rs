//! Tests all mutants: first the mutants in sources that Heeler builds, then the mutants of a mutation server.

use std::time::Instant;

use heeler_config::ResolvedSettings;
use heeler_core::error_chain;
use heeler_mutant::FoundMutant;

use crate::{
    building::{BuildEnd, FollowedBuild, build_followed},
    engine::MutantEngine,
    error::MutateError,
    finished::FinishedMutants,
    found::FoundMutants,
    languages::{FoundProject, ServedMutants},
    observer::MutationObserver,
    report_files::ReportFiles,
    test_finder::TestFinder,
    work_place::WorkPlace,
};

/// A run of mutants.
pub struct MutantRun<'a> {
    pub settings: &'a ResolvedSettings,
    pub finder: &'static dyn TestFinder,
    /// The report files to write at the end.
    pub reports: &'a ReportFiles,
    pub began: Instant,
}

/// The observer will not wait for running processes, which end with this process.
struct Left;

impl MutantRun<'_> {
    /// Tests the mutants that were found; `None` if the observer will not wait for running processes.
    ///
    /// # Errors
    /// The tests can't be built or run, or fail without a mutant.
    ///
    /// Cancel safe: no, because unwritten verdicts are lost; running processes are ended.
    pub async fn test(
        &self,
        found: FoundMutants,
        observer: &mut dyn MutationObserver,
    ) -> Result<Option<FinishedMutants>, MutateError> {
        let mut finished = FinishedMutants::new(&found);
        let (built, served) = found.into_selected().await;
        if let Some(project) = built
            && let Err(Left) = self.test_built(project, observer, &mut finished).await?
        {
            return Ok(None);
        }
        if let Some(mutants) = served
            && let Err(Left) = test_served(mutants, observer, &mut finished).await?
        {
            return Ok(None);
        }
        Ok(Some(finished))
    }

    /// Tests the mutants in sources that Heeler builds itself.
    async fn test_built(
        &self,
        project: FoundProject,
        observer: &mut dyn MutationObserver,
        finished: &mut FinishedMutants,
    ) -> Result<Result<(), Left>, MutateError> {
        let mut place = WorkPlace::open(&self.settings.state_dir, &project.mutated.root)?;
        place.leave_out_reports(self.reports.paths());
        finished.note_reports_in(place.reports());
        let sources = &project.mutated.sources;
        let found: Vec<FoundMutant> = sources.iter().flat_map(|source| source.mutants().cloned()).collect();
        let request = FollowedBuild { project, place, finder: self.finder };
        let (mut build, place) = match build_followed(request, observer).await? {
            BuildEnd::Built(build, place) => (build, place),
            BuildEnd::Ended(why) => {
                finished.add_unbuilt(found, why);
                return Ok(Ok(()));
            }
            BuildEnd::Left => return Ok(Err(Left)),
        };
        drop(found);
        observer.show_phase("Testing", "the unmutated code, to record what each test reaches");
        let engine = MutantEngine { settings: self.settings, place: &place, setup: self.began.elapsed() };
        let Some(tested) = engine.test(&mut build, observer).await? else { return Ok(Err(Left)) };
        finished.add_built(&build, tested);
        Ok(Ok(()))
    }
}

/// Tests the mutants of a mutation server, unless the run has ended.
async fn test_served(
    mutants: Box<dyn ServedMutants>,
    observer: &mut dyn MutationObserver,
    finished: &mut FinishedMutants,
) -> Result<Result<(), Left>, MutateError> {
    if finished.is_unfinished() {
        finished.add_untested(mutants.selected());
        mutants.end().await;
        return Ok(Ok(()));
    }
    let Some(mut tested) = mutants.test(observer).await else { return Ok(Err(Left)) };
    if let Some(error) = tested.error.take() {
        if !finished.has_verdicts() && !tested.has_verdicts() {
            return Err(error);
        }
        observer.warn(&error_chain(&error));
    }
    finished.add_served(tested);
    Ok(Ok(()))
}
