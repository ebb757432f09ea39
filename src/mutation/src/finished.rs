//! Collects the verdicts of a run, and writes the reports.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use heeler_mutant::FoundMutant;
use heeler_mutant_model::{Mutant, MutantResult, MutantStatus};
use heeler_report::mutation::{MutationPhases, TestPlace, mutant_annotations};

use crate::{
    engine::TestedRun,
    error::MutateError,
    found::{FoundMutants, untested},
    kept_reports::KeptReports,
    languages::{GuardedBuild, ServedTests},
    report_files::{ReportFiles, ReportedRun},
    testing::MutantTesting,
    unfinished::Unfinished,
};

/// Maximum number of flaky tests named in a note.
const NAMED_TESTS: usize = 5;

/// The results of a run so far.
#[derive(Debug, Default)]
pub struct FinishedMutants {
    root: PathBuf,
    /// Source texts, by mutant path.
    sources: BTreeMap<Arc<str>, Arc<str>>,
    results: Vec<MutantResult>,
    tests: BTreeMap<Arc<str>, TestPlace>,
    phases: Option<MutationPhases>,
    /// Number of verdicts reused from earlier runs.
    kept: usize,
    /// Warnings about the verdicts for the user.
    notes: Vec<String>,
    /// Why the run ended before all mutants had verdicts.
    unfinished: Option<Unfinished>,
    /// File that lists the written reports for later runs.
    report_list: Option<PathBuf>,
}

impl FinishedMutants {
    pub(crate) fn new(found: &FoundMutants) -> Self {
        Self { root: found.root.clone(), sources: found.texts(), ..Self::default() }
    }

    /// Records the reports in `list`, so later runs know them.
    pub(crate) fn note_reports_in(&mut self, list: PathBuf) {
        self.report_list = Some(list);
    }

    pub(crate) fn add_built(&mut self, build: &GuardedBuild, run: TestedRun) {
        let TestedRun { mut tested, tests, phases, unfinished } = run;
        let results = MutantTesting::all_results(&build.guarded, &mut tested, unfinished);
        self.notes.extend(build.notes.iter().cloned());
        self.notes.extend(flaky_note(&tested.flaky));
        if let Some(error) = &tested.cache_error {
            self.notes
                .push(format!("the next run tests all mutants again: cannot save the verdicts: {error}"));
        }
        self.results.extend(results);
        self.tests.extend(tests);
        self.phases = phases;
        self.kept += tested.kept;
        self.unfinished = self.unfinished.or(unfinished);
    }

    /// Adds the mutants of a cancelled build.
    pub(crate) fn add_unbuilt(&mut self, mutants: Vec<FoundMutant>, unfinished: Unfinished) {
        let why: Arc<str> = unfinished.reason().into();
        let results = mutants.into_iter().map(|found| MutantResult {
            reason: found.ignored.clone().or(Some(Arc::clone(&why))),
            ..untested(&found)
        });
        self.results.extend(results);
        self.unfinished = Some(unfinished);
    }

    pub(crate) fn add_served(&mut self, tested: ServedTests) {
        let named =
            tested.results.iter().flat_map(|result| result.covered_by.iter().chain(&result.killed_by));
        for uid in named {
            if !self.tests.contains_key(uid) {
                // Some test runners begin test names with the file. Otherwise the file is unknown.
                let file =
                    uid.split_once('#').map(|(file, _)| file).filter(|file| self.root.join(file).is_file());
                let place = TestPlace { file: file.unwrap_or_default().to_owned(), line: None };
                self.tests.insert(Arc::clone(uid), place);
            }
        }
        self.results.extend(tested.results);
        self.unfinished = self.unfinished.or(tested.unfinished);
    }

    /// Adds the mutants that remain untested.
    pub(crate) fn add_untested(&mut self, mutants: Vec<Arc<Mutant>>) {
        let why: Option<Arc<str>> = self.unfinished.map(|unfinished| unfinished.reason().into());
        let pending = |mutant| MutantResult::new(mutant, MutantStatus::Pending, why.clone());
        self.results.extend(mutants.into_iter().map(pending));
    }

    pub(crate) fn is_unfinished(&self) -> bool {
        self.unfinished.is_some()
    }

    /// Returns whether there are results that an error must not discard.
    pub(crate) fn has_verdicts(&self) -> bool {
        !self.results.is_empty()
    }

    /// Writes the reports.
    ///
    /// # Errors
    /// A report can't be written.
    pub fn write_reports(mut self, reports: &ReportFiles) -> Result<ReportedMutants, MutateError> {
        let is_undecided =
            |result: &&MutantResult| result.status == MutantStatus::Pending && result.reason.is_some();
        let undecided = self.results.iter().filter(|_| self.unfinished.is_none()).find(is_undecided);
        if let Some(reason) = undecided.and_then(|result| result.reason.as_deref()) {
            self.notes.push(format!("some mutants could not be tested: {reason}"));
        }
        let Self { root, sources, results, tests, phases, kept, notes, unfinished, report_list } = self;
        let reported =
            ReportedRun { results: &results, sources: &sources, root: &root, tests: &tests, phases };
        let files = reported.write_files(reports)?;
        if let Some(list) = report_list.filter(|_| !files.is_empty())
            && let Err(error) = KeptReports::read(&list).add(&reports.paths()).write(&list)
        {
            // Without the list, reports inside the project count as changed sources, so the next run starts
            // anew.
            tracing::warn!(%error, "cannot save the list of reports; the next run may test all mutants again");
        }
        Ok(ReportedMutants { root, results, kept, notes, unfinished, files })
    }
}

/// The results of a run after its reports were written.
#[derive(Debug)]
pub struct ReportedMutants {
    root: PathBuf,
    pub results: Vec<MutantResult>,
    /// Number of verdicts reused from earlier runs.
    pub kept: usize,
    /// Warnings about the verdicts for the user.
    pub notes: Vec<String>,
    /// Why the run ended before all mutants had verdicts.
    pub unfinished: Option<Unfinished>,
    /// The files that were written.
    pub files: Vec<String>,
}

impl ReportedMutants {
    /// Returns one annotation line per surviving or uncovered mutant.
    pub fn annotations(&self) -> Vec<String> {
        let repository = self.root.ancestors().find(|dir| dir.join(".git").exists());
        mutant_annotations(&self.results, &self.root, repository.unwrap_or(&self.root))
    }
}

/// Returns a note that names the tests that are flaky without a mutant.
fn flaky_note(flaky: &[Arc<str>]) -> Option<String> {
    let named: Vec<&str> = flaky.iter().take(NAMED_TESTS).map(|uid| &**uid).collect();
    let more = flaky.len() - named.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!named.is_empty()).then(|| {
        format!(
            "flaky without a mutant, so these tests kill a mutant only if they fail {} times in a row: {}{more}",
            heeler_mutate::CONFIRMED_FAILURES,
            named.join(", "),
        )
    })
}
