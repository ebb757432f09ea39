//! The tests without a mutant: each in a process of its own, in which is noted what it reaches, or in a child
//! of a process of several; and all tests of a program in one process, as mutants are tested.

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

/// Limits of tests without a mutant. They are generous: nothing is known of them yet.
const LIMITS: VariantLimits =
    VariantLimits { silence: Duration::from_secs(300), total: Duration::from_secs(1800) };
/// What a test takes, for the order of processes, before it has run.
const UNKNOWN_DURATION: Duration = Duration::from_millis(1);

/// Where programs note what they reach.
pub(crate) struct CoverageFiles {
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

/// The programs whose tests are measured.
pub(crate) struct MeasuredPrograms<'a> {
    pub(crate) programs: &'a [ListedProgram],
    /// What the tests are called for later runs, by program.
    pub(crate) kept_names: &'a [Vec<String>],
    /// The places of programs whose tests are left out where they fail.
    pub(crate) may_fail: Range<usize>,
}

/// How the measurement ended, unless with an error.
pub(crate) enum MeasuredBaseline {
    Green(Baseline),
    /// The user has ended it.
    Cancelled,
    Left(LeftAtOnce),
}

impl CoverageFiles {
    /// Makes the directory, without the files of an earlier run.
    pub(crate) fn create(dir: PathBuf, total: u32) -> Result<Self, MutateError> {
        let made = match fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => fs::create_dir_all(&dir),
        };
        made.map_err(|source| MutateError::MakeDirectory { path: dir.clone(), source })?;
        Ok(Self { dir, total })
    }

    /// Has programs note what they reach while they list their tests: what they reach outside of any.
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

    /// Returns a test alone in its process, which notes what it reaches.
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
                let fork_point = None;
                variants.push(Variant { name, program, env, tests, limits, fork_point, weight });
            }
        }
        Ok(variants)
    }

    /// Takes what the children of a process have counted: each that has ended well.
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
/// A test fails again and again, or what they reach can't be read.
///
/// Cancel safe: no, because the tests go on.
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

/// Takes over what tests took and reached in an earlier run. Returns the tests that run.
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

/// Runs each test alone, and those that fail again. Returns how the measurement ended, if it has.
async fn run_alone(
    session: &mut MutantSession<'_>,
    measured: &MeasuredPrograms<'_>,
    files: &CoverageFiles,
    run: &BTreeSet<TestIndex>,
    baseline: &mut Baseline,
) -> Result<Option<MeasuredBaseline>, MutateError> {
    let uid = |program: usize, test: usize| measured.programs[program].uids[test].as_str();
    // Also what has failed in a child: threads that were there before are not in it.
    let is_open = |one: &TestIndex| baseline.programs[one.program].durations[one.test].is_none();
    let mut waiting: Vec<TestIndex> = run.iter().copied().filter(is_open).collect();
    for test in &waiting {
        files.create_file(test.program, Some(test.test))?;
    }
    let mut red = RedTests::new(&measured.may_fail);
    for round in 0..CONFIRMED_FAILURES {
        // How each test ended: its failure, or none.
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
        red = RedTests::new(&measured.may_fail);
        waiting.retain(|test| {
            let no_result =
                || format!("{}: it has no result", measured.programs[test.program].uids[test.test]);
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

/// Runs all tests of each program in one process, where one of them has run, and those of which one failed
/// again. Returns how the measurement ended, if it has.
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
        let mut red = RedTests::new(&measured.may_fail);
        let mut results = results.into_iter();
        waiting.retain_mut(|variant| {
            let program = &measured.programs[variant.program];
            let what = match variant.tests.as_slice() {
                [test] if program.is_one_test => program.uids[*test].clone(),
                _ => format!("{}, with all of its tests in one process", program.suite),
            };
            let Some(result) = results.next().flatten() else { return false };
            let Some(failure) = failure(&what, &result) else { return false };
            if variant.fork_point.take().is_some() {
                // Perhaps something of the process that was forked: a process of its own decides.
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
    // All have passed in the end.
    baseline.flaky.extend(failures.into_keys());
    Ok(None)
}

/// Measures tests in forked children. Those that fail there, and what never ran because of them, stay open.
///
/// Cancel safe: no, because the tests go on.
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
                fork_point: baseline.is_forkable(program).then_some(ForkPoint::Program),
            });
        }
    }
    variants
}
