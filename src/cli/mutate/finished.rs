//! What a command has found out about its mutants: reports, summary and exit code.

use std::{collections::BTreeMap, io::Write as _, path::PathBuf, sync::Arc, time::Duration};

use heeler_mutant::FoundMutant;
use heeler_mutant_model::{MutantResult, MutantStatus, MutationCounts};
use heeler_report::mutation::{MutationPhases, TestPlace};

use super::{
    build::GuardedBuild,
    engine::TestedRun,
    error::MutateError,
    find::untested,
    found::FoundMutants,
    kept_reports::KeptReports,
    report_files::ReportedRun,
    stryker::{StrykerMutants, TestedByStryker},
    testing::MutantTesting,
    unfinished::Unfinished,
};
use crate::cli::{
    arguments::MutateArguments,
    display::{
        DisplayKind,
        mutation::{MutationDisplay, MutationEnding},
    },
    exit::CliExitCode,
};

/// Number of flaky tests that a note names.
const NAMED_TESTS: usize = 5;

/// What is known of the mutants of a command.
#[derive(Debug, Default)]
pub(super) struct FinishedMutants {
    root: PathBuf,
    /// Texts of the sources, by the paths of their mutants.
    sources: BTreeMap<Arc<str>, Arc<str>>,
    results: Vec<MutantResult>,
    tests: BTreeMap<Arc<str>, TestPlace>,
    phases: Option<MutationPhases>,
    /// Number of verdicts of earlier runs.
    kept: usize,
    /// What the user should know of the verdicts.
    notes: Vec<String>,
    /// Why the run ended before all mutants had verdicts.
    unfinished: Option<Unfinished>,
    /// The list of reports for later runs.
    report_list: Option<PathBuf>,
}

impl FinishedMutants {
    pub(super) fn new(found: &FoundMutants) -> Self {
        Self { root: found.root.clone(), sources: found.texts(), ..Self::default() }
    }

    /// Notes the reports in a list for later runs.
    pub(super) fn note_reports_in(&mut self, list: PathBuf) {
        self.report_list = Some(list);
    }

    pub(super) fn add_built(&mut self, build: &GuardedBuild, run: TestedRun) {
        let TestedRun { mut tested, tests, phases, unfinished } = run;
        let results = MutantTesting::all_results(&build.guarded, &mut tested, unfinished);
        self.notes.extend(build.notes.iter().cloned());
        self.notes.extend(flaky_note(&tested.flaky));
        if let Some(error) = &tested.cache_error {
            self.notes.push(format!("the next run begins anew: failed to write the verdicts: {error}"));
        }
        self.results.extend(results);
        self.tests.extend(tests);
        self.phases = phases;
        self.kept += tested.kept;
        self.unfinished = self.unfinished.or(unfinished);
    }

    /// Adds mutants of a build that was ended.
    pub(super) fn add_unbuilt(&mut self, mutants: Vec<FoundMutant>, unfinished: Unfinished) {
        let why: Arc<str> = unfinished.reason().into();
        let results = mutants.into_iter().map(|found| MutantResult {
            reason: found.ignored.clone().or(Some(Arc::clone(&why))),
            ..untested(&found)
        });
        self.results.extend(results);
        self.unfinished = Some(unfinished);
    }

    pub(super) fn add_stryker(&mut self, tested: TestedByStryker) {
        let named =
            tested.results.iter().flat_map(|result| result.covered_by.iter().chain(&result.killed_by));
        for uid in named {
            if !self.tests.contains_key(uid) {
                // Some test runners begin names with the file; of others it is not known.
                let file =
                    uid.split_once('#').map(|(file, _)| file).filter(|file| self.root.join(file).is_file());
                let place = TestPlace { file: file.unwrap_or_default().to_owned(), line: None };
                self.tests.insert(Arc::clone(uid), place);
            }
        }
        self.results.extend(tested.results);
        self.unfinished = self.unfinished.or(tested.unfinished);
    }

    /// Adds the selected mutants, which are not tested any more.
    pub(super) fn add_untested(&mut self, mutants: &StrykerMutants) {
        let why: Option<Arc<str>> = self.unfinished.map(|unfinished| unfinished.reason().into());
        let pending =
            |mutant: &Arc<_>| MutantResult::new(Arc::clone(mutant), MutantStatus::Pending, why.clone());
        self.results.extend(mutants.selected().map(pending));
    }

    pub(super) fn is_unfinished(&self) -> bool {
        self.unfinished.is_some()
    }

    /// Returns whether anything is known that would be lost with an error.
    pub(super) fn has_verdicts(&self) -> bool {
        !self.results.is_empty()
    }

    /// Writes the reports and the summary; returns the exit code.
    ///
    /// # Errors
    /// A report can't be written.
    pub(super) fn report(
        mut self,
        arguments: &MutateArguments,
        display: &mut MutationDisplay,
        took: Duration,
    ) -> Result<CliExitCode, MutateError> {
        let is_undecided =
            |result: &&MutantResult| result.status == MutantStatus::Pending && result.reason.is_some();
        let undecided = self.results.iter().filter(|_| self.unfinished.is_none()).find(is_undecided);
        if let Some(reason) = undecided.and_then(|result| result.reason.as_deref()) {
            self.notes.push(format!("some mutants could not be tested: {reason}"));
        }
        let Self { root, sources, results, tests, phases, kept, notes, unfinished, report_list } = self;
        let reported =
            ReportedRun { results: &results, sources: &sources, root: &root, tests: &tests, phases };
        let files = reported.write_files(arguments)?;
        if let Some(list) = report_list.filter(|_| !files.is_empty())
            && let Err(error) = KeptReports::read(&list).add(&arguments.report_files()).write(&list)
        {
            // The next run begins anew if the reports are in the project.
            tracing::warn!(%error, "the list of reports can't be written");
        }
        let ending =
            MutationEnding { took, kept, unfinished: unfinished.map(Unfinished::summary), notes, files };
        display.end(&results, &ending);
        if arguments.is_github || display.kind() == DisplayKind::GitHub {
            let mut text = reported.annotations().join("\n");
            if !text.is_empty() {
                text.push('\n');
            }
            // A closed pipe is no error.
            let _closed = std::io::stdout().write_all(text.as_bytes());
        }
        Ok(exit_code(&results, arguments.min_score, unfinished.is_some()))
    }
}

/// Says which tests are flaky without a mutant.
fn flaky_note(flaky: &[Arc<str>]) -> Option<String> {
    let named: Vec<&str> = flaky.iter().take(NAMED_TESTS).map(|uid| &**uid).collect();
    let more = flaky.len() - named.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!named.is_empty()).then(|| {
        format!(
            "tests that also fail now and then without a mutant killed one only where they failed {} times in a row: \
             {}{more}",
            heeler_mutate::CONFIRMED_FAILURES,
            named.join(", "),
        )
    })
}

fn exit_code(results: &[MutantResult], min_score: Option<f64>, is_unfinished: bool) -> CliExitCode {
    let counts: MutationCounts = results.iter().map(|result| result.status).collect();
    let is_below = min_score.is_some_and(|least| counts.score().is_some_and(|score| score < least));
    if is_unfinished {
        CliExitCode::Aborted
    } else if counts.of(MutantStatus::Pending) > 0 {
        CliExitCode::Internal
    } else if is_below {
        CliExitCode::TestsFailed
    } else {
        CliExitCode::Success
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use heeler_mutant_model::{ForeignMutant, ForeignSource, Language, Position};

    use super::*;

    fn result(status: MutantStatus) -> MutantResult {
        let position = Position { line: 1, column: 1 };
        let source =
            ForeignSource { path: "src/lib.rs".into(), language: Language::Rust, text: "true".into() };
        let found = ForeignMutant {
            start: position,
            end: position,
            mutator: "BooleanLiteral".to_owned(),
            replacement: "false".to_owned(),
            description: None,
        };
        MutantResult::new(Arc::new(source.mutants(vec![found]).unwrap().remove(0)), status, None)
    }

    #[test]
    fn exit_code_says_whether_the_score_is_reached() {
        use MutantStatus::{Ignored, Killed, Pending, Survived};
        for (statuses, least, is_unfinished, expected) in [
            (vec![Killed, Survived], None, false, CliExitCode::Success),
            (vec![Killed, Survived], Some(50.0), false, CliExitCode::Success),
            (vec![Killed, Survived], Some(50.1), false, CliExitCode::TestsFailed),
            (vec![Ignored], Some(100.0), false, CliExitCode::Success),
            (vec![Survived, Pending], Some(50.0), false, CliExitCode::Internal),
            (vec![Survived, Pending], Some(50.0), true, CliExitCode::Aborted),
        ] {
            let results: Vec<_> = statuses.iter().map(|status| result(*status)).collect();
            assert_eq!(exit_code(&results, least, is_unfinished), expected, "{statuses:?}");
        }
    }
}
