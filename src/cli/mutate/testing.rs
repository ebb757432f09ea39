//! The tests with each mutant: orders processes, takes their results, and keeps verdicts for later runs.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use heeler_mutant::{MutantId, MutantResult, MutantStatus};
use heeler_mutate::{
    Baseline, Fingerprint, FunctionId, GuardMode, GuardedProject, KeptVerdict, MutantNumber, MutantVerdict,
    MutationRun, NumberedMutant, OrderLimit, OrderedStep, StepOutcome, TestIndex, VerdictBasis, VerdictCache,
};
use heeler_server::variants::{Variant, VariantEvent, VariantLimits, VariantSlots};

use super::{
    baseline::{MeasuredPrograms, variables},
    error::MutateError,
    session::{LeftAtOnce, MutantSession},
};

/// Processes that are ordered together: enough that a run of them takes far longer than its start and end,
/// and few, so that what is known of killers is soon used.
const ORDER_LIMIT: OrderLimit = OrderLimit { steps: 64, tests: 20_000 };
/// Further processes are ordered when fewer than this are left, so that no slot is ever idle.
const LOW_ORDERS: usize = 32;
/// How often verdicts are written: as much is lost if this process is killed.
const WRITTEN_EVERY: Duration = Duration::from_secs(1);

/// The verdicts of a run of mutants.
#[derive(Default)]
pub(super) struct TestedMutants {
    pub(super) results: BTreeMap<MutantId, MutantResult>,
    /// Number of verdicts of earlier runs.
    pub(super) kept: usize,
    /// Why verdicts could not be kept for later runs.
    pub(super) cache_error: Option<std::io::Error>,
    /// Uids of the tests that are flaky without a mutant.
    pub(super) flaky: Vec<Arc<str>>,
}

/// Tests the mutants of a guarded project.
pub(super) struct MutantTesting<'a> {
    baseline: &'a Baseline,
    functions: BTreeMap<FunctionId, Fingerprint>,
    mutants: BTreeMap<MutantNumber, NumberedMutant<'a>>,
    cache: VerdictCache,
    cache_file: PathBuf,
    /// The uids of the tests, by program and place in its listing.
    uids: Vec<Vec<Arc<str>>>,
    /// The same for later runs.
    kept_names: &'a [Vec<String>],
    /// Each set of tests that reaches a mutant, once.
    coverings: HashMap<Vec<TestIndex>, Arc<[Arc<str>]>>,
    tested: TestedMutants,
    written: Instant,
}

impl<'a> MutantTesting<'a> {
    pub(super) fn new(
        guarded: &'a GuardedProject,
        measured: &MeasuredPrograms<'a>,
        baseline: &'a Baseline,
        fingerprint: Fingerprint,
        cache_file: &Path,
    ) -> Self {
        let programs = measured.programs;
        Self {
            baseline,
            functions: guarded.function_fingerprints(),
            mutants: guarded.written().map(|mutant| (mutant.number, mutant)).collect(),
            cache: VerdictCache::read(cache_file, fingerprint),
            cache_file: cache_file.to_owned(),
            uids: programs
                .iter()
                .map(|one| one.uids.iter().map(|uid| Arc::from(uid.as_str())).collect())
                .collect(),
            kept_names: measured.kept_names,
            coverings: HashMap::new(),
            tested: TestedMutants::default(),
            written: Instant::now(),
        }
    }

    /// Runs the tests with each mutant whose verdict is not known. After a cancellation, those without a
    /// verdict are not among the results.
    ///
    /// # Errors
    /// The scheduler is gone, or no directory for a run can be made.
    ///
    /// Cancel safe: no, because the tests go on.
    pub(super) async fn run(
        mut self,
        session: &mut MutantSession,
    ) -> Result<(TestedMutants, Option<LeftAtOnce>), MutateError> {
        self.tested.flaky = self.baseline.flaky.iter().map(|test| self.uid(*test)).collect();
        let killers = self.take_kept();
        let open: Vec<(MutantNumber, FunctionId)> = self
            .mutants
            .values()
            .filter(|mutant| !self.tested.results.contains_key(&mutant.found.mutant.id))
            .map(|mutant| (mutant.number, mutant.function))
            .collect();
        let (mut run, uncovered) = MutationRun::begin(self.baseline, open);
        for (test, function) in killers {
            run.note_killer(test, function);
        }
        for verdict in uncovered {
            self.take_verdict(verdict);
        }
        let known = self.tested.results.values().cloned().collect();
        session.observer.begin(run.open_mutants(), known).await;
        let left = self.test(session, &mut run).await;
        self.write_cache();
        Ok((self.tested, left?))
    }

    /// Takes over verdicts that still hold. Returns which tests killed mutants of a function.
    fn take_kept(&mut self) -> Vec<(TestIndex, FunctionId)> {
        let mut tests: BTreeMap<&str, TestIndex> = BTreeMap::new();
        for (program, names) in self.kept_names.iter().enumerate() {
            let names = names.iter().enumerate();
            tests.extend(names.map(|(test, name)| (name.as_str(), TestIndex { program, test })));
        }
        let mut killers = Vec::new();
        let mutants: Vec<NumberedMutant<'a>> = self.mutants.values().cloned().collect();
        for mutant in &mutants {
            let covering: Vec<TestIndex> = self.baseline.covering(mutant.number).into_iter().collect();
            let basis = self.basis(mutant, &covering);
            let Some(kept) = self.cache.get(mutant.found.mutant.id, basis) else { continue };
            let killer = kept.killed_by.as_deref().and_then(|name| tests.get(name)).copied();
            killers.extend(killer.map(|test| (test, mutant.function)));
            let result = MutantResult {
                covered_by: self.covered_by(covering),
                killed_by: killer.into_iter().map(|test| self.uid(test)).collect(),
                tests_completed: kept.tests_completed,
                duration: Some(Duration::from_micros(kept.duration_us)),
                ..MutantResult::new(mutant.found.mutant.clone(), kept.status, kept.reason)
            };
            self.tested.results.insert(mutant.found.mutant.id, result);
        }
        self.tested.kept = self.tested.results.len();
        killers
    }

    async fn test(
        &mut self,
        session: &mut MutantSession,
        run: &mut MutationRun<'_>,
    ) -> Result<Option<LeftAtOnce>, MutateError> {
        let mut ordered = 0_usize;
        let mut runs = 0_usize;
        loop {
            while ordered < LOW_ORDERS && !session.is_cancelled {
                let (steps, slots) = next_orders(run);
                if steps.is_empty() {
                    break;
                }
                ordered += steps.len();
                runs += 1;
                session.run(&steps.iter().map(variant).collect::<Vec<_>>(), slots).await?;
            }
            if runs == 0 {
                return Ok(None);
            }
            match session.next_event().await? {
                Ok(VariantEvent::Ended { name, result, .. }) => {
                    ordered = ordered.saturating_sub(1);
                    let Some(number) = number_of(&name) else { continue };
                    let took = Duration::from_micros(result.duration_us.unwrap_or_default());
                    let verdict = run.on_ended(number, StepOutcome::of(&result), took);
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

    /// Keeps a verdict; returns the result, if there is one.
    fn take_verdict(&mut self, verdict: MutantVerdict) -> Option<&MutantResult> {
        let mutant = self.mutants.get(&verdict.number)?.clone();
        let id = mutant.found.mutant.id;
        let kept = KeptVerdict {
            status: verdict.status,
            reason: verdict.reason.clone(),
            killed_by: verdict.killed_by.map(|test| self.kept_names[test.program][test.test].clone()),
            tests_completed: verdict.tests_completed,
            duration_us: u64::try_from(verdict.duration.as_micros()).unwrap_or(u64::MAX),
        };
        let basis = self.basis(&mutant, &verdict.covered_by);
        let result = MutantResult {
            covered_by: self.covered_by(verdict.covered_by),
            killed_by: verdict.killed_by.into_iter().map(|test| self.uid(test)).collect(),
            tests_completed: verdict.tests_completed,
            is_static: Some(verdict.is_static),
            duration: Some(verdict.duration),
            ..MutantResult::new(mutant.found.mutant.clone(), verdict.status, verdict.reason)
        };
        if verdict.status != MutantStatus::Pending {
            self.cache.add(id, basis, &kept);
        }
        self.tested.results.insert(id, result);
        self.tested.results.get(&id)
    }

    fn basis(&self, mutant: &NumberedMutant<'_>, covering: &[TestIndex]) -> VerdictBasis {
        let function = self.functions.get(&mutant.function).copied().unwrap_or_default();
        let names = covering.iter().map(|test| self.kept_names[test.program][test.test].as_str());
        VerdictBasis::new(function, names)
    }

    fn uid(&self, test: TestIndex) -> Arc<str> {
        Arc::clone(&self.uids[test.program][test.test])
    }

    fn covered_by(&mut self, tests: Vec<TestIndex>) -> Arc<[Arc<str>]> {
        if let Some(known) = self.coverings.get(&tests) {
            return Arc::clone(known);
        }
        let uids: Arc<[Arc<str>]> = tests.iter().map(|test| self.uid(*test)).collect();
        self.coverings.insert(tests, Arc::clone(&uids));
        uids
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

    /// Returns the results of all selected mutants, in the order of their places: those that were not tested
    /// as what is known of them.
    pub(super) fn all_results(guarded: &GuardedProject, tested: &TestedMutants) -> Vec<MutantResult> {
        let (uncompiled, taken_out) = (guarded.uncompiled(), guarded.taken_out());
        let sources = &guarded.project().sources;
        let result = |found: &heeler_mutant::FoundMutant| {
            let id = found.mutant.id;
            if let Some(result) = tested.results.get(&id) {
                return result.clone();
            }
            if taken_out.contains(&id) {
                let reason = "not compiled: the preprocessor takes it out".to_owned();
                return MutantResult::new(found.mutant.clone(), MutantStatus::Ignored, Some(reason));
            }
            match uncompiled.get(&id) {
                Some(words) => {
                    let status = MutantStatus::CompileError;
                    MutantResult::new(found.mutant.clone(), status, Some(words.clone()))
                }
                None => super::find::untested(found),
            }
        };
        sources.iter().flat_map(|source| source.mutants().map(result)).collect()
    }
}

/// Returns the processes that run next, and in how many slots.
fn next_orders(run: &mut MutationRun<'_>) -> (Vec<OrderedStep>, VariantSlots) {
    let steps = run.next_steps(ORDER_LIMIT);
    if !steps.is_empty() {
        return (steps, VariantSlots::All);
    }
    (run.next_alone().into_iter().collect(), VariantSlots::One)
}

/// Returns the process of a mutant as a variant, which has the mutant's number as its name.
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
        weight: step.expected,
    }
}

fn number_of(name: &str) -> Option<MutantNumber> {
    name.parse().ok().map(MutantNumber)
}
