//! The tests without a mutant: each in a process of its own, in which is noted what it reaches, or in a child
//! of a process of several; and all tests of a program in one process, as mutants are tested.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};

use heeler_core::{Outcome, TestResult};
use heeler_mutate::{
    Baseline, BaselineProgram, CONFIRMED_FAILURES, Coverage, ForeignModule, GuardMode, KeptBaseline,
    StepOutcome, TestIndex, coverage_file_bytes, foreign_modules, guard_environment,
};
use heeler_protocol::control::{OsText, TestProgram};
use heeler_server::variants::{ListedProgram, Variant, VariantEvent, VariantLimits, VariantSlots};

use super::{
    error::MutateError,
    session::{LeftAtOnce, MutantSession},
};

/// Limits of tests without a mutant. They are generous: nothing is known of them yet.
const LIMITS: VariantLimits =
    VariantLimits { silence: Duration::from_secs(300), total: Duration::from_secs(1800) };
/// Number of failed tests that an error names.
const NAMED_TESTS: usize = 10;
/// What a test takes, for the order of processes, before it has run.
const UNKNOWN_DURATION: Duration = Duration::from_millis(1);

/// Where programs note what they reach.
pub(super) struct CoverageFiles {
    dir: PathBuf,
    /// Number of mutants.
    total: u32,
}

/// What a process has measured in its children.
struct TakenTests {
    is_any_measured: bool,
    /// The test that has failed in a child.
    failed: Option<usize>,
}

/// How the measurement ended, unless with an error.
pub(super) enum MeasuredBaseline {
    Green(Baseline),
    /// The user has ended it.
    Cancelled,
    Left(LeftAtOnce),
}

impl CoverageFiles {
    /// Makes the directory, without the files of an earlier run.
    pub(super) fn create(dir: PathBuf, total: u32) -> Result<Self, MutateError> {
        let made = match fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => fs::create_dir_all(&dir),
        };
        made.map_err(|source| MutateError::MakeDirectory { path: dir.clone(), source })?;
        Ok(Self { dir, total })
    }

    /// Has programs note what they reach while they list their tests: what they reach outside of any.
    pub(super) fn watch_listings(&self, programs: &mut [TestProgram]) -> Result<(), MutateError> {
        for (place, program) in programs.iter_mut().enumerate() {
            program.env.extend(variables(&GuardMode::Counting { file: self.create_file(place, None)? }));
        }
        Ok(())
    }

    fn path(&self, program: usize, test: Option<usize>) -> PathBuf {
        let test = test.map_or_else(|| "outside".to_owned(), |test| test.to_string());
        self.dir.join(format!("{program}-{test}"))
    }

    fn create_file(&self, program: usize, test: Option<usize>) -> Result<PathBuf, MutateError> {
        let path = self.path(program, test);
        self.write_zeros(&path)?;
        Ok(path)
    }

    fn write_zeros(&self, path: &Path) -> Result<(), MutateError> {
        fs::write(path, coverage_file_bytes(self.total))
            .map_err(|source| MutateError::WriteFile { path: path.to_owned(), source })
    }

    /// Returns these tests of each program, divided among as many processes as there are slots, which fork a
    /// child for each test.
    fn forked_variants(
        &self,
        open: &[Vec<usize>],
        slots: NonZeroUsize,
        round: usize,
    ) -> Result<Vec<Variant>, MutateError> {
        let mut variants = Vec::new();
        for (program, tests) in open.iter().enumerate() {
            for (group, tests) in tests.chunks(tests.len().div_ceil(slots.get()).max(1)).enumerate() {
                let name = format!("forked-{round}-{program}-{group}");
                let each = self.dir.join(&name);
                let file = self.dir.join(format!("{name}-all"));
                self.write_zeros(&file)?;
                let env = variables(&GuardMode::CountingEach { file, each });
                let (tests, limits, weight) = (tests.to_vec(), LIMITS, UNKNOWN_DURATION);
                variants.push(Variant { name, program, env, tests, limits, weight });
            }
        }
        Ok(variants)
    }

    /// Takes what the children of a process have counted: each that has ended well.
    fn take_forked(
        &self,
        variant: &Variant,
        results: &BTreeMap<String, Box<TestResult>>,
        baseline: &mut Baseline,
    ) -> Result<TakenTests, MutateError> {
        let program = &mut baseline.programs[variant.program];
        let result = results.get(&variant.name);
        let failed = result.and_then(|result| result.parts.last()).map(|part| part.name.clone());
        let is_failed = |test: &usize| failed.as_ref() == Some(&program.names[*test]);
        let failed = variant.tests.iter().copied().find(is_failed);
        let mut of_tests = Duration::ZERO;
        for (index, &test) in variant.tests.iter().enumerate() {
            let counted = self.dir.join(format!("{}-{index}", variant.name));
            let took = fs::read_to_string(counted.with_extension("time"));
            let took = took.ok().and_then(|text| text.trim().parse().ok()).map(Duration::from_micros);
            let Some(took) = took.filter(|_| failed != Some(test)) else { continue };
            let path = self.path(variant.program, Some(test));
            fs::rename(&counted, &path).map_err(|source| MutateError::Coverage { path: counted, source })?;
            of_tests += took;
            program.durations[test] = Some(took);
        }
        let all = result.and_then(|result| result.duration_us).map(Duration::from_micros);
        program.start = program.start.max(all.unwrap_or_default().saturating_sub(of_tests));
        Ok(TakenTests { is_any_measured: of_tests > Duration::ZERO, failed })
    }

    /// Refuses tests that import what has mutants from elsewhere.
    fn check_imports(&self) -> Result<(), MutateError> {
        let found = foreign_modules(&self.dir);
        let found = found.map_err(|source| MutateError::Coverage { path: self.dir.clone(), source })?;
        match found.into_iter().next() {
            Some(ForeignModule { name, path, source }) => {
                Err(MutateError::ForeignImport { name, path, source_path: source })
            }
            None => Ok(()),
        }
    }

    /// Adds what tests have reached, and what so many programs have reached outside of them.
    fn read(
        &self,
        run: &BTreeSet<TestIndex>,
        programs: usize,
        coverage: &mut Coverage,
    ) -> Result<(), MutateError> {
        let tests = run.iter().map(|one| (one.program, Some(one.test)));
        for (program, test) in tests.chain((0..programs).map(|program| (program, None))) {
            let path = self.path(program, test);
            let bytes =
                fs::read(&path).map_err(|source| MutateError::Coverage { path: path.clone(), source })?;
            coverage.add(program, test, &bytes);
        }
        Ok(())
    }
}

impl Drop for CoverageFiles {
    fn drop(&mut self) {
        // They are removed by the next run at the latest.
        let _stays = fs::remove_dir_all(&self.dir);
    }
}

/// Returns the variables of a process as its program takes them.
pub(super) fn variables(mode: &GuardMode) -> Vec<(OsText, Option<OsText>)> {
    let variables = guard_environment(mode).into_iter();
    variables.map(|(name, value)| (OsText::from(name), value.map(OsText::from))).collect()
}

fn is_run(program: &ListedProgram, test: usize) -> bool {
    program.tests[test].skip.is_none() && program.tests[test].broken.is_none()
}

/// Runs the tests without a mutant. A test that fails and then passes is flaky.
///
/// # Errors
/// A test fails again and again, or what they reach can't be read.
///
/// Cancel safe: no, because the tests go on.
pub(super) async fn measure(
    session: &mut MutantSession,
    programs: &[ListedProgram],
    files: &CoverageFiles,
    kept: &KeptBaseline,
    forking_slots: Option<NonZeroUsize>,
) -> Result<MeasuredBaseline, MutateError> {
    let mut baseline =
        Baseline { programs: programs.iter().map(unmeasured).collect(), ..Baseline::default() };
    let run = take_kept(programs, kept, &mut baseline);
    if let Some(slots) = forking_slots
        && let Some(left) = measure_forked(session, programs, files, slots, &mut baseline).await?
    {
        return Ok(MeasuredBaseline::Left(left));
    }
    if session.is_cancelled {
        return Ok(MeasuredBaseline::Cancelled);
    }
    if let Some(ended) = run_alone(session, programs, files, &run, &mut baseline).await? {
        return Ok(ended);
    }
    files.read(&run, programs.len(), &mut baseline.coverage)?;
    baseline.coverage.share();
    let ended = run_together(session, programs, &run, &mut baseline).await?;
    Ok(ended.unwrap_or(MeasuredBaseline::Green(baseline)))
}

/// Takes over what tests took and reached in an earlier run. Returns the tests that run.
fn take_kept(
    programs: &[ListedProgram],
    kept: &KeptBaseline,
    baseline: &mut Baseline,
) -> BTreeSet<TestIndex> {
    let mut run = BTreeSet::new();
    for (program, listed) in programs.iter().enumerate() {
        baseline.programs[program].start = kept.start(&listed.suite);
        for test in (0..listed.tests.len()).filter(|&test| is_run(listed, test)) {
            let index = TestIndex { program, test };
            let Some(kept) = kept.test(&listed.uids[test]) else {
                run.insert(index);
                continue;
            };
            baseline.programs[program].durations[test] = Some(kept.duration);
            baseline.coverage.add_counts(program, test, kept.steps, kept.reached.iter().copied());
            if kept.is_flaky {
                baseline.flaky.insert(index);
            }
        }
    }
    run
}

/// Runs each test alone, and those that fail again. Returns how the measurement ended, if it has.
async fn run_alone(
    session: &mut MutantSession,
    programs: &[ListedProgram],
    files: &CoverageFiles,
    run: &BTreeSet<TestIndex>,
    baseline: &mut Baseline,
) -> Result<Option<MeasuredBaseline>, MutateError> {
    // Also what has failed in a child: threads that were there before are not in it.
    let mut waiting = alone_variants(run, files, baseline)?;
    let mut red = Vec::new();
    for round in 0..CONFIRMED_FAILURES {
        let mut results = match run_all(session, &waiting).await? {
            Ok(results) => results,
            Err(left) => return Ok(Some(MeasuredBaseline::Left(left))),
        };
        if session.is_cancelled {
            return Ok(Some(MeasuredBaseline::Cancelled));
        }
        red.clear();
        waiting.retain(|variant| {
            let (program, test) = (variant.program, variant.tests[0]);
            let uid = &programs[program].uids[test];
            let Some(result) = results.remove(&variant.name) else {
                red.push(format!("{uid}: it has no result"));
                return true;
            };
            let took = Duration::from_micros(result.duration_us.unwrap_or_default());
            baseline.programs[program].durations[test] = Some(took);
            if let Some(failure) = failure(uid, &result) {
                red.push(failure);
                return true;
            }
            if round > 0 {
                baseline.flaky.insert(TestIndex { program, test });
            }
            false
        });
        if waiting.is_empty() {
            break;
        }
    }
    files.check_imports()?;
    stop_if_red(red)?;
    Ok(None)
}

/// Runs all tests of each program in one process, where one of them has run, and those of which one failed
/// again. Returns how the measurement ended, if it has.
async fn run_together(
    session: &mut MutantSession,
    programs: &[ListedProgram],
    run: &BTreeSet<TestIndex>,
    baseline: &mut Baseline,
) -> Result<Option<MeasuredBaseline>, MutateError> {
    let mut waiting = together_variants(baseline);
    waiting.retain(|variant| {
        variant.tests.iter().any(|&test| run.contains(&TestIndex { program: variant.program, test }))
    });
    let mut failures: BTreeMap<TestIndex, u32> = BTreeMap::new();
    while !waiting.is_empty() {
        let mut results = match run_all(session, &waiting).await? {
            Ok(results) => results,
            Err(left) => return Ok(Some(MeasuredBaseline::Left(left))),
        };
        if session.is_cancelled {
            return Ok(Some(MeasuredBaseline::Cancelled));
        }
        let mut red = Vec::new();
        waiting.retain(|variant| {
            let program = &programs[variant.program];
            let what = format!("{}, with all of its tests in one process", program.suite);
            let Some(result) = results.remove(&variant.name) else { return false };
            let Some(failure) = failure(&what, &result) else { return false };
            let test = match StepOutcome::of(&result) {
                StepOutcome::Failed { test, .. } => {
                    variant.tests.iter().copied().find(|&one| program.tests[one].name == test)
                }
                _ => None,
            };
            let test = test.map(|test| TestIndex { program: variant.program, test });
            let count = test.map_or(CONFIRMED_FAILURES, |test| {
                let count = failures.entry(test).or_default();
                *count += 1;
                *count
            });
            if count >= CONFIRMED_FAILURES {
                red.push(failure);
            }
            true
        });
        stop_if_red(red)?;
    }
    // All have passed in the end.
    baseline.flaky.extend(failures.into_keys());
    Ok(None)
}

/// Measures tests in forked children. Those that fail there, and what never ran because of them, stay open.
///
/// Cancel safe: no, because the tests go on.
async fn measure_forked(
    session: &mut MutantSession,
    programs: &[ListedProgram],
    files: &CoverageFiles,
    slots: NonZeroUsize,
    baseline: &mut Baseline,
) -> Result<Option<LeftAtOnce>, MutateError> {
    let mut failed = BTreeSet::new();
    for round in 0.. {
        let is_open = |program: usize, test: usize| {
            baseline.programs[program].durations[test].is_none()
                && is_run(&programs[program], test)
                && !failed.contains(&(program, test))
        };
        let open: Vec<Vec<usize>> = (0..programs.len())
            .map(|program| {
                (0..programs[program].tests.len()).filter(|&test| is_open(program, test)).collect()
            })
            .collect();
        let forked = files.forked_variants(&open, slots, round)?;
        if forked.is_empty() || session.is_cancelled {
            break;
        }
        let results = match run_all(session, &forked).await? {
            Ok(results) => results,
            Err(left) => return Ok(Some(left)),
        };
        files.check_imports()?;
        let mut is_any_measured = false;
        for variant in &forked {
            let taken = files.take_forked(variant, &results, baseline)?;
            is_any_measured |= taken.is_any_measured;
            failed.extend(taken.failed.map(|test| (variant.program, test)));
        }
        if !is_any_measured {
            break;
        }
    }
    Ok(None)
}

fn unmeasured(program: &ListedProgram) -> BaselineProgram {
    let limit = program.selection_limit;
    BaselineProgram {
        names: program.tests.iter().map(|test| test.name.clone()).collect(),
        durations: vec![None; program.tests.len()],
        selection_costs: program
            .tests
            .iter()
            .map(|test| limit.map_or(0, |limit| limit.cost(&test.name)))
            .collect(),
        selection_budget: limit.map(|limit| limit.budget_bytes),
        ..BaselineProgram::default()
    }
}

/// Returns each test alone that has not been measured.
fn alone_variants(
    run: &BTreeSet<TestIndex>,
    files: &CoverageFiles,
    measured: &Baseline,
) -> Result<Vec<Variant>, MutateError> {
    let mut variants = Vec::with_capacity(run.len());
    let is_open = |one: &&TestIndex| measured.programs[one.program].durations[one.test].is_none();
    for &TestIndex { program, test } in run.iter().filter(is_open) {
        let file = files.create_file(program, Some(test))?;
        variants.push(Variant {
            name: format!("alone-{program}-{test}"),
            program,
            env: variables(&GuardMode::Counting { file }),
            tests: vec![test],
            limits: LIMITS,
            weight: UNKNOWN_DURATION,
        });
    }
    Ok(variants)
}

/// Returns all tests of each program together, in as many processes as one command line has names for.
fn together_variants(baseline: &Baseline) -> Vec<Variant> {
    let mut variants = Vec::new();
    for (program, groups) in baseline.all_groups().into_iter().enumerate() {
        for (group, tests) in groups.into_iter().enumerate() {
            variants.push(Variant {
                name: format!("together-{program}-{group}"),
                program,
                env: variables(&GuardMode::Original),
                weight: baseline.expected(program, &tests),
                tests,
                limits: LIMITS,
            });
        }
    }
    variants
}

/// Runs variants to their ends; returns the results by name.
async fn run_all(
    session: &mut MutantSession,
    variants: &[Variant],
) -> Result<Result<BTreeMap<String, Box<TestResult>>, LeftAtOnce>, MutateError> {
    let mut results = BTreeMap::new();
    if variants.is_empty() {
        return Ok(Ok(results));
    }
    session.run(variants, VariantSlots::All).await?;
    loop {
        match session.next_event().await? {
            Ok(VariantEvent::Ended { name, result, .. }) => {
                results.insert(name, result);
            }
            Ok(VariantEvent::RunEnded { .. }) => return Ok(Ok(results)),
            Ok(VariantEvent::Warning(_)) => {}
            Err(left) => return Ok(Err(left)),
        }
    }
}

/// Returns how a test failed, if it did.
fn failure(what: &str, result: &TestResult) -> Option<String> {
    let reason = match StepOutcome::of(result) {
        StepOutcome::Passed => return None,
        StepOutcome::Failed { test, reason } if !what.ends_with(&test) => format!("{test}: {reason}"),
        StepOutcome::Failed { reason, .. }
        | StepOutcome::Silent { reason }
        | StepOutcome::DiedEarly { reason }
        | StepOutcome::Unknown { reason } => reason,
        StepOutcome::HitLimit { .. } | StepOutcome::StepLimit { .. } => {
            Outcome::ExitedEarly.label().to_owned()
        }
    };
    Some(format!("  {what}: {}", reason.lines().next().unwrap_or_default()))
}

fn stop_if_red(mut red: Vec<String>) -> Result<(), MutateError> {
    if red.is_empty() {
        return Ok(());
    }
    let more = red.len().saturating_sub(NAMED_TESTS);
    red.truncate(NAMED_TESTS);
    if more > 0 {
        red.push(format!("  and {more} more"));
    }
    Err(MutateError::RedTests { tests: red })
}

/// Returns where the tests begin, by uid, with paths relative to the workspace.
pub(super) fn test_places(
    programs: &[ListedProgram],
    tree: &Path,
) -> BTreeMap<std::sync::Arc<str>, heeler_report::mutation::TestPlace> {
    let place = |(test, uid): (&std::sync::Arc<heeler_protocol::control::ListedTest>, &String)| {
        let file = Path::new(test.file.as_ref()?);
        let below = file.strip_prefix(tree).unwrap_or(file).to_string_lossy().into_owned();
        let place = heeler_report::mutation::TestPlace { file: below, line: test.line };
        Some((std::sync::Arc::from(uid.as_str()), place))
    };
    programs.iter().flat_map(|program| program.tests.iter().zip(&program.uids).filter_map(place)).collect()
}
