//! Runs the tests without a mutant. Each test runs alone, or in a forked child, to count what it reaches;
//! then all tests of a program run in one process, as they do for mutants.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    num::NonZeroUsize,
    ops::Range,
    path::{Path, PathBuf},
    time::Duration,
};

use heeler_core::TestResult;
use heeler_mutate::{
    Baseline, BaselineProgram, CONFIRMED_FAILURES, Coverage, ForeignModule, GuardMode, KeptBaseline,
    StepOutcome, TestIndex, coverage_file_bytes, foreign_modules, guard_environment,
};
use heeler_protocol::control::{ForkPoint, OsText, TestProgram};
use heeler_server::variants::{ListedProgram, Variant, VariantLimits};

use crate::{
    error::MutateError,
    red_tests::{RedTests, failure},
    session::{LeftAtOnce, MutantSession},
};

/// Time limits without a mutant. Generous, because no test has been measured yet.
const LIMITS: VariantLimits =
    VariantLimits { silence: Duration::from_secs(300), total: Duration::from_secs(1800) };
/// Assumed duration of unmeasured tests, which orders the processes.
const UNKNOWN_DURATION: Duration = Duration::from_millis(1);

/// The coverage files, where programs count what they reach.
pub(crate) struct CoverageFiles {
    dir: PathBuf,
    total: u32,
}

/// Result of a process that measured tests in forked children.
struct TakenTests {
    is_any_measured: bool,
    /// The test that failed in a child.
    failed: Option<usize>,
}

pub(crate) struct MeasuredPrograms<'a> {
    pub(crate) programs: &'a [ListedProgram],
    /// Test names that stay stable between runs, by program.
    pub(crate) kept_names: &'a [Vec<String>],
    /// Indices of programs whose failing tests are left out instead of ending the run.
    pub(crate) may_fail: Range<usize>,
}

/// How the measurement ended.
pub(crate) enum MeasuredBaseline {
    Green(Baseline),
    /// The user ended the run.
    Cancelled,
    Left(LeftAtOnce),
}

impl CoverageFiles {
    /// Creates the directory, and removes files of an earlier run.
    pub(crate) fn create(dir: PathBuf, total: u32) -> Result<Self, MutateError> {
        let made = match fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => fs::create_dir_all(&dir),
        };
        made.map_err(|source| MutateError::MakeDirectory { path: dir.clone(), source })?;
        Ok(Self { dir, total })
    }

    /// Makes programs count what they reach while they list their tests, which is outside of any test.
    pub(crate) fn watch_listings(&self, programs: &mut [TestProgram]) -> Result<(), MutateError> {
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

    /// Returns the process that runs one test alone and counts what it reaches.
    fn alone(&self, TestIndex { program, test }: TestIndex) -> Variant {
        let file = self.path(program, Some(test));
        Variant {
            name: format!("alone-{program}-{test}"),
            program,
            env: variables(&GuardMode::Counting { file }),
            tests: vec![test],
            limits: LIMITS,
            fork_point: None,
            weight: UNKNOWN_DURATION,
        }
    }

    fn write_zeros(&self, path: &Path) -> Result<(), MutateError> {
        fs::write(path, coverage_file_bytes(self.total))
            .map_err(|source| MutateError::WriteFile { path: path.to_owned(), source })
    }

    /// Returns processes that fork a child per test. The tests of each program are divided among as many
    /// processes as there are slots.
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
                let fork_point = None;
                variants.push(Variant { name, program, env, tests, limits, fork_point, weight });
            }
        }
        Ok(variants)
    }

    /// Takes durations and counts from each child that exited successfully.
    fn take_forked(
        &self,
        variant: &Variant,
        result: Option<&TestResult>,
        baseline: &mut Baseline,
    ) -> Result<TakenTests, MutateError> {
        let program = &mut baseline.programs[variant.program];
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

    /// Fails if tests imported mutated sources from outside the copy.
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

    /// Reads the counts of these tests, and of the first `programs` programs outside of their tests.
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
        // The next run removes a leftover directory.
        let _stays = fs::remove_dir_all(&self.dir);
    }
}

pub(crate) fn variables(mode: &GuardMode) -> Vec<(OsText, Option<OsText>)> {
    let variables = guard_environment(mode).into_iter();
    variables.map(|(name, value)| (OsText::from(name), value.map(OsText::from))).collect()
}

fn is_run(program: &ListedProgram, test: usize) -> bool {
    program.tests[test].skip.is_none() && program.tests[test].broken.is_none()
}

/// Runs the tests without a mutant. A test that fails and then passes is flaky.
///
/// # Errors
/// A test fails repeatedly, or the counts can't be read.
///
/// Cancel safe: no, because the tests keep running.
pub(crate) async fn measure(
    session: &mut MutantSession<'_>,
    measured: &MeasuredPrograms<'_>,
    files: &CoverageFiles,
    kept: &mut KeptBaseline,
    forking_slots: Option<NonZeroUsize>,
) -> Result<MeasuredBaseline, MutateError> {
    let programs = measured.programs;
    let mut baseline =
        Baseline { programs: programs.iter().map(unmeasured).collect(), ..Baseline::default() };
    for (program, listed) in baseline.programs.iter_mut().zip(programs) {
        program.is_forkable = forking_slots.is_some();
        program.fails_in_forks = kept.is_unforkable(&listed.suite);
    }
    let run = take_kept(measured, kept, &mut baseline);
    session.observer.begin_original(run.len());
    if let Some(slots) = forking_slots
        && let Some(left) = measure_forked(session, programs, files, slots, &mut baseline).await?
    {
        return Ok(MeasuredBaseline::Left(left));
    }
    if session.is_ended() {
        return Ok(MeasuredBaseline::Cancelled);
    }
    if let Some(ended) = run_alone(session, measured, files, &run, &mut baseline).await? {
        return Ok(ended);
    }
    files.read(&run, programs.len(), &mut baseline.coverage)?;
    let ended = run_together(session, measured, &run, &mut baseline).await?;
    Ok(ended.unwrap_or(MeasuredBaseline::Green(baseline)))
}

/// Reuses durations and counts of an earlier run. Returns the tests that must run.
fn take_kept(
    measured: &MeasuredPrograms<'_>,
    kept: &mut KeptBaseline,
    baseline: &mut Baseline,
) -> BTreeSet<TestIndex> {
    let mut run = BTreeSet::new();
    for (program, listed) in measured.programs.iter().enumerate() {
        baseline.programs[program].start = kept.start(&listed.suite);
        for test in (0..listed.tests.len()).filter(|&test| is_run(listed, test)) {
            let index = TestIndex { program, test };
            let Some(kept) = kept.take_test(&measured.kept_names[program][test]) else {
                run.insert(index);
                continue;
            };
            baseline.programs[program].durations[test] = Some(kept.duration);
            baseline.coverage.add_counts(program, test, kept.steps, kept.reached);
            if kept.is_flaky {
                baseline.flaky.insert(index);
            }
        }
    }
    run
}

/// Runs each test alone, and repeats failing tests. Returns how the measurement ended early, if it did.
async fn run_alone(
    session: &mut MutantSession<'_>,
    measured: &MeasuredPrograms<'_>,
    files: &CoverageFiles,
    run: &BTreeSet<TestIndex>,
    baseline: &mut Baseline,
) -> Result<Option<MeasuredBaseline>, MutateError> {
    let uid = |program: usize, test: usize| measured.programs[program].uids[test].as_str();
    // Includes tests that failed in a forked child, which lacks the threads of its parent.
    let is_open = |one: &TestIndex| baseline.programs[one.program].durations[one.test].is_none();
    let mut waiting: Vec<TestIndex> = run.iter().copied().filter(is_open).collect();
    for test in &waiting {
        files.create_file(test.program, Some(test.test))?;
    }
    let mut red = RedTests::new(&measured.may_fail);
    for round in 0..CONFIRMED_FAILURES {
        // The failure of each ended test; `None` if it passed.
        let mut ended: BTreeMap<TestIndex, Option<String>> = BTreeMap::new();
        let mut take = |place: usize, result: Box<TestResult>| {
            let TestIndex { program, test } = waiting[place];
            let took = Duration::from_micros(result.duration_us.unwrap_or_default());
            baseline.programs[program].durations[test] = Some(took);
            ended.insert(waiting[place], failure(&measured.programs[program].uids[test], &result));
        };
        let variants = waiting.iter().map(|test| files.alone(*test));
        let shown =
            |variant: &Variant| variant.tests.first().map(|&test| uid(variant.program, test).to_owned());
        if let Some(left) = session.run_all(variants, &shown, &mut take).await? {
            return Ok(Some(MeasuredBaseline::Left(left)));
        }
        if session.is_ended() {
            return Ok(Some(MeasuredBaseline::Cancelled));
        }
        // Repeat failed tests; note the flaky ones.
        red = RedTests::new(&measured.may_fail);
        waiting.retain(|test| {
            let no_result = || format!("{}: no result", measured.programs[test.program].uids[test.test]);
            let failure = ended.remove(test).unwrap_or_else(|| Some(no_result()));
            let has_failed = failure.is_some();
            if let Some(failure) = failure {
                red.add(*test, failure);
            }
            if !has_failed && round > 0 {
                baseline.flaky.insert(*test);
            }
            has_failed
        });
        if waiting.is_empty() {
            break;
        }
    }
    files.check_imports()?;
    red.leave_out(session, baseline)?;
    Ok(None)
}

/// Runs all tests of each program in one process, and repeats processes with a failed test. Skips programs
/// whose tests were all reused. Returns how the measurement ended early, if it did.
async fn run_together(
    session: &mut MutantSession<'_>,
    measured: &MeasuredPrograms<'_>,
    run: &BTreeSet<TestIndex>,
    baseline: &mut Baseline,
) -> Result<Option<MeasuredBaseline>, MutateError> {
    let mut waiting = together_variants(baseline);
    waiting.retain(|variant| {
        variant.tests.iter().any(|&test| run.contains(&TestIndex { program: variant.program, test }))
    });
    let mut failures: BTreeMap<TestIndex, u32> = BTreeMap::new();
    let mut signals: BTreeMap<String, u32> = BTreeMap::new();
    while !waiting.is_empty() {
        let mut results: Vec<Option<Box<TestResult>>> = vec![None; waiting.len()];
        let mut take = |place: usize, result| results[place] = Some(result);
        if let Some(left) = session.run_all(waiting.iter().cloned(), &|_| None, &mut take).await? {
            return Ok(Some(MeasuredBaseline::Left(left)));
        }
        if session.is_ended() {
            return Ok(Some(MeasuredBaseline::Cancelled));
        }
        // Decide about each process: done, repeated, or failed for good.
        let mut red = RedTests::new(&measured.may_fail);
        let mut results = results.into_iter();
        waiting.retain_mut(|variant| {
            let program = &measured.programs[variant.program];
            let what = match variant.tests.as_slice() {
                [test] if program.is_one_test => program.uids[*test].clone(),
                _ => format!("{} (all tests in one process)", program.suite),
            };
            let Some(result) = results.next().flatten() else { return false };
            let Some(failure) = failure(&what, &result) else { return false };
            if variant.fork_point.take().is_some() {
                // Possibly an effect of forking: run in a new process to find out.
                baseline.programs[variant.program].fails_in_forks = true;
                return true;
            }
            let test = match StepOutcome::of(&result) {
                StepOutcome::Failed { test, .. } => {
                    variant.tests.iter().copied().find(|&one| program.tests[one].name == test)
                }
                StepOutcome::Signalled { .. } => {
                    let count = signals.entry(variant.name.clone()).or_default();
                    *count += 1;
                    if *count < CONFIRMED_FAILURES {
                        return true;
                    }
                    None
                }
                _ => None,
            };
            let test = test.map(|test| TestIndex { program: variant.program, test });
            let count = test.map_or(CONFIRMED_FAILURES, |test| {
                let count = failures.entry(test).or_default();
                *count += 1;
                *count
            });
            let index = test.unwrap_or(TestIndex { program: variant.program, test: variant.tests[0] });
            if count >= CONFIRMED_FAILURES {
                red.add(index, failure);
            }
            !red.is_left_out(index)
        });
        failures.retain(|index, _| !red.is_left_out(*index));
        red.leave_out(session, baseline)?;
    }
    // Every process passed in the end, so the tests that failed before are flaky.
    baseline.flaky.extend(failures.into_keys());
    Ok(None)
}

/// Measures tests in forked children. Tests that failed or never ran there remain unmeasured.
///
/// Cancel safe: no, because the tests keep running.
async fn measure_forked(
    session: &mut MutantSession<'_>,
    programs: &[ListedProgram],
    files: &CoverageFiles,
    slots: NonZeroUsize,
    baseline: &mut Baseline,
) -> Result<Option<LeftAtOnce>, MutateError> {
    let mut failed = BTreeSet::new();
    session.counted = Some(files.dir.clone());
    for round in 0.. {
        let is_open = |program: usize, test: usize| {
            baseline.programs[program].durations[test].is_none()
                && is_run(&programs[program], test)
                && !failed.contains(&(program, test))
        };
        // Run the unmeasured tests until a round measures none.
        let open: Vec<Vec<usize>> = (0..programs.len())
            .map(|program| {
                (0..programs[program].tests.len()).filter(|&test| is_open(program, test)).collect()
            })
            .collect();
        let forked = files.forked_variants(&open, slots, round)?;
        if forked.is_empty() || session.is_ended() {
            break;
        }
        let mut results: Vec<Option<Box<TestResult>>> = vec![None; forked.len()];
        let mut take = |place: usize, result| results[place] = Some(result);
        if let Some(left) = session.run_all(forked.iter().cloned(), &|_| None, &mut take).await? {
            return Ok(Some(left));
        }
        files.check_imports()?;
        // Record the durations and the failed tests.
        let mut is_any_measured = false;
        for (variant, result) in forked.iter().zip(results) {
            let taken = files.take_forked(variant, result.as_deref(), baseline)?;
            let durations = &baseline.programs[variant.program].durations;
            let measured = variant.tests.iter().filter_map(|&test| Some((test, durations[test]?)));
            let slowest = measured.max_by_key(|(_, took)| *took);
            let slowest = slowest.map(|(test, took)| (programs[variant.program].uids[test].as_str(), took));
            session.observer.on_original(0, slowest);
            is_any_measured |= taken.is_any_measured;
            failed.extend(taken.failed.map(|test| (variant.program, test)));
        }
        if !is_any_measured {
            break;
        }
    }
    session.count_children();
    session.counted = None;
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
        is_one_test: program.is_one_test,
        ..BaselineProgram::default()
    }
}

/// Returns processes that each run as many tests of a program as fit on one command line.
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
                fork_point: baseline.is_forkable(program).then_some(ForkPoint::Program),
            });
        }
    }
    variants
}
