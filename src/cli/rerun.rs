//! `heeler run --rerun`: resolves the earlier run, the tests to rerun and their programs.

use std::collections::HashSet;

use heeler_protocol::{
    control::OsText,
    manifest::{RerunSet, RunOrigin},
    mtp::LogLevel,
};

use super::{arguments::ProgramArguments, display::RunDisplay, exit::CommandError, sources::NamedSources};
use heeler_config::ResolvedSettings;
use heeler_run_store::{self, Provenance, RerunSelector, RunOwnership};
use heeler_server::discovery::{Catalogue, TestRef};

/// Framework name in runs of `heeler connect`. Defined here, because this build may lack that feature.
const CONNECT_FRAMEWORK: &str = "connect";
/// Maximum number of names listed of tests that no longer exist.
const MAX_NAMES: usize = 5;

/// An earlier run whose tests are rerun.
pub(super) struct RerunPlan {
    selector: RerunSelector,
    run: String,
    origin: RunOrigin,
    ownership: RunOwnership,
    /// Name of the run's directory.
    name: String,
    rerun_set: RerunSet,
}

impl RerunPlan {
    /// Resolves `--rerun`; returns `None` without it.
    pub(super) fn resolve(
        wanted: Option<&RerunSelector>,
        settings: &ResolvedSettings,
    ) -> Result<Option<Self>, CommandError> {
        let Some(wanted) = wanted.cloned() else { return Ok(None) };
        let all = heeler_run_store::list_runs(&settings.state_dir);
        let dir = settings.state_dir.join(heeler_run_store::DIR_NAME).display().to_string();
        let run =
            heeler_run_store::resolve_run(&all, wanted.run_word(), &dir).map_err(CommandError::ResolveRun)?;
        let story = heeler_run_store::read_recorded_run(run).map_err(CommandError::ReadRun)?;
        for loss in &story.losses {
            eprintln!("warning: {loss}");
        }
        let left = heeler_run_store::rerun_set(&story);
        if wanted.select(&left).is_empty() {
            return Err(CommandError::NothingToRerun {
                what: describe_empty_rerun(&wanted, &left, &run.name),
            });
        }
        let head = story.manifest.head;
        Ok(Some(Self {
            selector: wanted,
            run: head.run,
            origin: head.origin,
            ownership: story.ownership,
            name: run.name.clone(),
            rerun_set: left,
        }))
    }

    /// Checks that the earlier run ran test programs.
    ///
    /// # Errors
    /// The tests are cases of a conformance suite, which `heeler run` does not run.
    pub(super) fn check_programs(&self) -> Result<(), CommandError> {
        if self.origin.framework.as_deref() != Some(CONNECT_FRAMEWORK) {
            return Ok(());
        }
        let run: String = self.run.chars().take(8).collect();
        let what = format!("run {run} was recorded by heeler connect run; use heeler connect run --rerun");
        Err(CommandError::NothingToRerun { what })
    }

    /// Returns the arguments that name tests: without any on the command line, the earlier run's suites. The
    /// suites of a copied run are not used, as its sources.
    pub(super) fn program_arguments(&self, given: &ProgramArguments) -> ProgramArguments {
        let mut arguments = given.clone();
        let named = NamedSources::from_arguments(given);
        if named.requests.is_empty() && named.suites.is_empty() && self.ownership == RunOwnership::Own {
            arguments.suites.names.clone_from(&self.origin.suites);
        }
        arguments
    }

    /// Returns the sources to run: the command line's, otherwise the earlier run's. The sources of a copied
    /// run are not used, because whoever made the copy could choose which programs start here.
    pub(super) fn sources(&self, named: NamedSources) -> NamedSources {
        if !named.requests.is_empty() || self.ownership == RunOwnership::Copied {
            return named;
        }
        NamedSources {
            requests: self.origin.sources.clone(),
            framework: named.framework.or_else(|| self.origin.framework.clone()),
            program_args: match named.program_args.is_empty() {
                true => self.origin.program_args.clone(),
                false => named.program_args,
            },
            suites: named.suites,
        }
    }

    /// Returns the error for a rerun without anything to run.
    pub(super) fn nothing_to_run(&self) -> CommandError {
        match self.ownership {
            RunOwnership::Own => CommandError::NothingToRun,
            RunOwnership::Copied => CommandError::CopiedRun { run: self.name.clone() },
        }
    }

    /// Keeps the tests to rerun, and logs tests that no longer exist. A program that could not be listed
    /// represents all its tests.
    ///
    /// # Errors
    /// None of the tests exists any more; the text is the complete message.
    pub(super) fn select_tests(
        &self,
        catalogue: &Catalogue,
        tests: Vec<TestRef>,
        display: &mut RunDisplay,
    ) -> Result<Vec<TestRef>, String> {
        // Match the tests by uid, and unlisted programs by suite.
        let wanted = self.selector.select(&self.rerun_set);
        let mut found: HashSet<&str> = HashSet::new();
        let mut chosen = Vec::new();
        for test in tests {
            let suite = catalogue.suite(test);
            let by = wanted.get(catalogue.uid(test)).or_else(|| wanted.get(suite)).copied();
            if let Some(by) = by {
                found.insert(by);
                chosen.push(test);
            }
        }
        // Report the tests that no longer exist.
        let mut gone: Vec<&str> = wanted.difference(&found).copied().collect();
        gone.sort_unstable();
        if chosen.is_empty() {
            let names = join_names(&gone);
            return Err(match gone.len() {
                1 => format!("the remaining test of that run no longer exists: {names}"),
                count => {
                    format!("the {count} remaining tests of that run no longer exist: {names}")
                }
            });
        }
        if !gone.is_empty() {
            let text = match gone.len() {
                1 => format!("skipping a test of that run that no longer exists: {}", join_names(&gone)),
                count => {
                    format!("skipping {count} tests of that run that no longer exist: {}", join_names(&gone))
                }
            };
            display.log(LogLevel::Warning, &text);
        }
        Ok(chosen)
    }

    /// Returns the note printed when the run begins.
    pub(super) fn describe(&self) -> String {
        let run: String = self.run.chars().take(8).collect();
        match (&self.selector, self.ownership) {
            (RerunSelector::Failed, _) => format!("failed tests of run {run}"),
            (RerunSelector::NotRun, _) => format!("tests without a result of run {run}"),
            (RerunSelector::Run(_), RunOwnership::Own) => format!("remaining tests of run {run}"),
            (RerunSelector::Run(_), RunOwnership::Copied) => {
                format!("remaining tests of run {run} (a copy: only its test names are used)")
            }
        }
    }
}

fn join_names(uids: &[&str]) -> String {
    let names: Vec<_> =
        uids.iter().take(MAX_NAMES).map(|uid| heeler_report::sanitise::one_line(uid)).collect();
    let more = if uids.len() > MAX_NAMES { ", …" } else { "" };
    format!("{}{more}", names.join(", "))
}

fn describe_empty_rerun(wanted: &RerunSelector, left: &RerunSet, run: &str) -> String {
    match wanted {
        RerunSelector::Failed if !left.not_run.is_empty() => {
            format!(
                "no test failed in run {run}; {} without a result: use --rerun not-run",
                left.not_run.len()
            )
        }
        RerunSelector::NotRun if !left.failed.is_empty() => {
            format!("every test of run {run} has a result; {} failed: use --rerun failed", left.failed.len())
        }
        RerunSelector::Failed | RerunSelector::NotRun | RerunSelector::Run(_) => {
            format!("every test of run {run} passed or was skipped")
        }
    }
}

/// Returns the provenance of a session's runs.
pub(super) fn provenance(sources: &NamedSources, rerun: Option<&RerunPlan>) -> Provenance {
    let origin = RunOrigin {
        command: std::env::args_os().map(|word| OsText::from(word.as_os_str())).collect(),
        // The path stays empty if the directory no longer exists.
        cwd: OsText::from(std::env::current_dir().unwrap_or_default().as_path()),
        sources: sources.requests.clone(),
        suites: sources.suites.clone(),
        framework: sources.framework.clone(),
        program_args: sources.program_args.clone(),
        continues: rerun.map(|rerun| rerun.run.clone()),
    };
    let inherited_rerun_set = rerun.map(|rerun| rerun.rerun_set.clone()).unwrap_or_default();
    Provenance { origin, inherited_rerun_set, ..Provenance::default() }
}
