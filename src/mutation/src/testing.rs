//! Tests each mutant: orders processes, collects results, and stores verdicts for later runs.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use heeler_mutant_model::{MutantId, MutantResult, MutantStatus, TestSet};
use heeler_mutate::{
    Baseline, BuiltProject, Fingerprint, FunctionId, GuardMode, KeptVerdict, MutantNumber, MutantVerdict,
    MutationRun, NumberedMutant, OrderLimit, OrderedStep, SharedTexts, StepOutcome, TestIndex, VerdictBasis,
    VerdictCache,
};
use heeler_server::variants::{Variant, VariantEvent, VariantLimits, VariantSlots};

use crate::{
    baseline::{MeasuredPrograms, variables},
    error::MutateError,
    found::untested,
    session::{LOW_ORDERS, LeftAtOnce, MutantSession, ORDERED_TOGETHER},
    unfinished::Unfinished,
};

/// Maximum numbers of processes and tests that are ordered together.
const ORDER_LIMIT: OrderLimit = OrderLimit { steps: ORDERED_TOGETHER, tests: 20_000 };
/// Interval between writes of the verdicts. A kill loses at most this much.
const WRITTEN_EVERY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct TestedMutants {
    /// Results in order of completion.
    pub(crate) results: Vec<MutantResult>,
    /// Number of verdicts reused from earlier runs.
    pub(crate) kept: usize,
    /// Why verdicts could not be stored for later runs.
    pub(crate) cache_error: Option<std::io::Error>,
    /// Uids of the tests that are flaky without a mutant.
    pub(crate) flaky: Vec<Arc<str>>,
}

pub(crate) struct MutantTesting<'a> {
    built: &'a BuiltProject,
    baseline: &'a Baseline,
    functions: BTreeMap<FunctionId, Fingerprint>,
    cache: VerdictCache,
    cache_file: PathBuf,
    tests: TestNames,
    /// Interned failure messages, because a test fails under many mutants.
    reasons: SharedTexts,
    tested: TestedMutants,
    written: Instant,
}

/// Uids and stable names of all tests, and the index where each program's tests begin.
struct TestNames {
    /// Uids of all tests, program by program.
    uids: Arc<[Arc<str>]>,
    /// Names of the same tests, stable between runs.
    kept: Vec<Arc<str>>,
    /// Index of each program's first test.
    first_of_program: Vec<usize>,
    /// Interned sets of covering tests.
    coverings: HashSet<Arc<[u32]>>,
}

impl TestNames {
    fn new(measured: &MeasuredPrograms<'_>) -> Self {
        let mut first_of_program = Vec::with_capacity(measured.programs.len());
        let (mut uids, mut kept): (Vec<Arc<str>>, Vec<Arc<str>>) = (Vec::new(), Vec::new());
        for (program, names) in measured.programs.iter().zip(measured.kept_names) {
            first_of_program.push(uids.len());
            for (uid, name) in program.uids.iter().zip(names) {
                let uid: Arc<str> = uid.as_str().into();
                kept.push(if **name == *uid { Arc::clone(&uid) } else { name.as_str().into() });
                uids.push(uid);
            }
        }
        Self { uids: uids.into(), kept, first_of_program, coverings: HashSet::new() }
    }

    /// Returns all tests by stable name.
    fn by_kept_name(&self) -> HashMap<Arc<str>, TestIndex> {
        let ends = self.first_of_program.iter().skip(1).copied().chain([self.kept.len()]);
        let programs = self.first_of_program.iter().zip(ends).enumerate();
        let tests = programs.flat_map(|(program, (first, end))| {
            self.kept[*first..end].iter().enumerate().map(move |(test, name)| (program, test, name))
        });
        tests.map(|(program, test, name)| (Arc::clone(name), TestIndex { program, test })).collect()
    }

    fn kept_name(&self, test: TestIndex) -> &Arc<str> {
        &self.kept[self.place(test)]
    }

    fn place(&self, test: TestIndex) -> usize {
        self.first_of_program[test.program] + test.test
    }

    fn uid(&self, test: TestIndex) -> &Arc<str> {
        &self.uids[self.place(test)]
    }

    fn set(&mut self, tests: &[TestIndex]) -> TestSet {
        let place = |test: &TestIndex| u32::try_from(self.place(*test)).unwrap_or(u32::MAX);
        let places: Arc<[u32]> = tests.iter().map(place).collect();
        let known = self.coverings.get(&places).cloned();
        let places = known.unwrap_or_else(|| {
            self.coverings.insert(Arc::clone(&places));
            places
        });
        TestSet::new(Arc::clone(&self.uids), places)
    }
}

impl<'a> MutantTesting<'a> {
    pub(crate) fn new(
        built: &'a BuiltProject,
        measured: &MeasuredPrograms<'a>,
        baseline: &'a Baseline,
        fingerprint: Fingerprint,
        cache_file: &Path,
    ) -> Self {
        Self {
            built,
            baseline,
            functions: built.function_fingerprints(),
            cache: VerdictCache::read(cache_file, fingerprint),
            cache_file: cache_file.to_owned(),
            tests: TestNames::new(measured),
            reasons: SharedTexts::default(),
            tested: TestedMutants::default(),
            written: Instant::now(),
        }
    }

    /// Tests each mutant without a known verdict. After a cancellation, the results lack the untested
    /// mutants.
    ///
    /// # Errors
    /// The scheduler is gone, or the run's directory can't be created.
    ///
    /// Cancel safe: no, because the tests keep running.
    pub(crate) async fn run(
        mut self,
        session: &mut MutantSession<'_>,
    ) -> Result<(TestedMutants, Option<LeftAtOnce>), MutateError> {
        self.tested.flaky =
            self.baseline.flaky.iter().map(|test| Arc::clone(self.tests.uid(*test))).collect();
        self.tested.results.reserve_exact(self.built.written().count());
        let killers = self.take_kept();
        let kept: HashSet<MutantId> = self.tested.results.iter().map(|result| result.mutant.id).collect();
        let open = self.built.written().filter(|mutant| !kept.contains(&mutant.found.mutant.id));
        let open = open.map(|mutant| (mutant.number, mutant.function));
        let (mut run, uncovered) = MutationRun::begin(self.baseline, open);
        drop(kept);
        if session.observer.has_time_limit() {
            // Test the mutants in the order of their ids. Ids are hashes, so a run that ends early has tested
            // a random sample.
            let id = |number| self.built.written_mutant(number).map_or(0, |one| one.found.mutant.id.0);
            run.begin_by(id);
        }
        for (test, function) in killers {
            run.note_killer(test, function);
        }
        for verdict in uncovered {
            self.take_verdict(verdict);
        }
        let slots = u32::try_from(session.slots().get()).unwrap_or(u32::MAX);
        let longest = run.longest() / slots;
        session.observer.begin(run.open_mutants(), Some(longest), &self.tested.results).await;
        let left = self.test(session, &mut run).await;
        self.write_cache();
        Ok((self.tested, left?))
    }

    /// Reuses verdicts that are still valid. Returns the tests that killed mutants, with the mutants'
    /// functions.
    fn take_kept(&mut self) -> Vec<(TestIndex, FunctionId)> {
        let indices = self.tests.by_kept_name();
        let mut killers = Vec::new();
        let built = self.built;
        for mutant in built.written() {
            let covering: Vec<TestIndex> = self.baseline.covering(mutant.number).into_iter().collect();
            let basis = self.basis(&mutant, &covering);
            let Some(kept) = self.cache.get(mutant.found.mutant.id, basis) else { continue };
            let killer = kept.killed_by.as_deref().and_then(|name| indices.get(name)).copied();
            killers.extend(killer.map(|test| (test, mutant.function)));
            let result = MutantResult {
                covered_by: self.tests.set(&covering),
                killed_by: killer.into_iter().map(|test| Arc::clone(self.tests.uid(test))).collect(),
                tests_completed: kept.tests_completed,
                duration: Some(Duration::from_micros(kept.duration_us)),
                ..MutantResult::new(mutant.found.mutant.clone(), kept.status, kept.reason)
            };
            self.tested.results.push(result);
        }
        self.tested.kept = self.tested.results.len();
        killers
    }

    async fn test(
        &mut self,
        session: &mut MutantSession<'_>,
        run: &mut MutationRun<'_>,
    ) -> Result<Option<LeftAtOnce>, MutateError> {
        let mut ordered = 0_usize;
        let mut runs = 0_usize;
        // The session's processes died too often. The affected steps need a restarted session.
        let mut has_failed = false;
        loop {
            if runs == 0 && std::mem::take(&mut has_failed) {
                session.renew().await?;
            }
            // Keep enough processes ordered.
            while ordered < LOW_ORDERS && !session.is_ended() && !has_failed {
                let (steps, slots) = next_orders(run);
                if steps.is_empty() {
                    break;
                }
                ordered += steps.len();
                runs += 1;
                session.run(&steps.iter().map(variant).collect::<Vec<_>>(), slots).await?;
            }
            if runs == 0 {
                if has_failed {
                    continue;
                }
                return Ok(None);
            }
            // Handle the next event.
            match session.next_event().await? {
                Ok(VariantEvent::Ended { name, result, .. }) => {
                    ordered = ordered.saturating_sub(1);
                    let Some(number) = number_of(&name) else { continue };
                    let took = Duration::from_micros(result.duration_us.unwrap_or_default());
                    let outcome = StepOutcome::of(&result);
                    if matches!(outcome, StepOutcome::Unknown { .. }) {
                        if session.is_ended() {
                            continue;
                        }
                        has_failed = true;
                    }
                    let verdict = run.on_ended(number, outcome, took);
                    if let Some(result) = verdict.and_then(|verdict| self.take_verdict(verdict)) {
                        session.observer.on_result(result).await;
                    }
                    self.write_cache_in_time();
                }
                Ok(VariantEvent::RunEnded { .. }) => runs -= 1,
                Ok(VariantEvent::Warning(_)) => {}
                Err(left) => return Ok(Some(left)),
            }
        }
    }

    /// Stores a verdict; returns the result, if the mutant exists.
    fn take_verdict(&mut self, verdict: MutantVerdict) -> Option<&MutantResult> {
        let mutant = self.built.written_mutant(verdict.number)?;
        let id = mutant.found.mutant.id;
        let killed_by = verdict.killed_by;
        let reason = verdict.reason.map(|reason| self.reasons.share(reason));
        if verdict.status != MutantStatus::Pending {
            let kept = KeptVerdict {
                status: verdict.status,
                reason: reason.clone(),
                killed_by: killed_by.map(|test| Arc::clone(self.tests.kept_name(test))),
                tests_completed: verdict.tests_completed,
                duration_us: u64::try_from(verdict.duration.as_micros()).unwrap_or(u64::MAX),
            };
            self.cache.add(id, self.basis(&mutant, &verdict.covered_by), kept);
        }
        let result = MutantResult {
            covered_by: self.tests.set(&verdict.covered_by),
            killed_by: killed_by.into_iter().map(|test| Arc::clone(self.tests.uid(test))).collect(),
            tests_completed: verdict.tests_completed,
            is_static: Some(verdict.is_static),
            duration: Some(verdict.duration),
            ..MutantResult::new(mutant.found.mutant.clone(), verdict.status, reason)
        };
        self.tested.results.push(result);
        self.tested.results.last()
    }

    fn basis(&self, mutant: &NumberedMutant<'_>, covering: &[TestIndex]) -> VerdictBasis {
        let function = self.functions.get(&mutant.function).copied().unwrap_or_default();
        VerdictBasis::new(function, covering.iter().map(|test| &**self.tests.kept_name(*test)))
    }

    fn write_cache_in_time(&mut self) {
        if self.written.elapsed() >= WRITTEN_EVERY {
            self.write_cache();
        }
    }

    fn write_cache(&mut self) {
        if let Err(error) = self.cache.write(&self.cache_file) {
            self.tested.cache_error.get_or_insert(error);
        }
        self.written = Instant::now();
    }

    /// Returns the results of all selected mutants, sorted by position. Untested mutants get their known
    /// status, or the reason why the run ended early. Empties the results in `tested`.
    pub(crate) fn all_results(
        built: &BuiltProject,
        tested: &mut TestedMutants,
        unfinished: Option<Unfinished>,
    ) -> Vec<MutantResult> {
        let why: Option<Arc<str>> = unfinished.map(|unfinished| unfinished.reason().into());
        let mut known = std::mem::take(&mut tested.results);
        known.sort_unstable_by_key(|result| result.mutant.id);
        let ids: Vec<MutantId> = known.iter().map(|result| result.mutant.id).collect();
        let mut known: Vec<Option<MutantResult>> = known.into_iter().map(Some).collect();
        let mut result = |found: &heeler_mutant::FoundMutant| {
            let id = found.mutant.id;
            let place = ids.binary_search(&id).ok();
            if let Some(result) = place.and_then(|place| known[place].take()) {
                return result;
            }
            if let Some(&reason) = built.left_out().get(&id) {
                return MutantResult::new(found.mutant.clone(), MutantStatus::Ignored, Some(reason.into()));
            }
            match built.uncompiled().get(&id) {
                Some(words) => {
                    let status = MutantStatus::CompileError;
                    MutantResult::new(found.mutant.clone(), status, Some(Arc::clone(words)))
                }
                None => MutantResult { reason: found.ignored.clone().or(why.clone()), ..untested(found) },
            }
        };
        let sources = &built.project().sources;
        let mut results = Vec::with_capacity(sources.iter().map(|source| source.selected.len()).sum());
        for source in sources {
            results.extend(source.mutants().map(&mut result));
        }
        results
    }
}

/// Returns the processes to run next, and how many slots they may use.
fn next_orders(run: &mut MutationRun<'_>) -> (Vec<OrderedStep>, VariantSlots) {
    let steps = run.next_steps(ORDER_LIMIT);
    if !steps.is_empty() {
        return (steps, VariantSlots::All);
    }
    (run.next_alone().into_iter().collect(), VariantSlots::One)
}

/// Returns a mutant's process as a variant, named after the mutant's number.
fn variant(ordered: &OrderedStep) -> Variant {
    let OrderedStep { number, step } = ordered;
    Variant {
        name: number.0.to_string(),
        program: step.program,
        env: variables(&GuardMode::Mutant {
            number: number.0,
            hit_limit: step.hit_limit,
            step_limit: step.step_limit,
        }),
        tests: step.tests.clone(),
        limits: VariantLimits { silence: step.silence, total: step.total },
        fork_point: step.fork_point,
        weight: step.expected,
    }
}

fn number_of(name: &str) -> Option<MutantNumber> {
    name.parse().ok().map(MutantNumber)
}
