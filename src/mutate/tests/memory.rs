//! Memory cost of a mutant while it is found, built and tested: at most one kibibyte. This binary has a
//! single test, so that nothing else allocates at the same time.
#![expect(clippy::unwrap_used, reason = "a failed step of a test ends it")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
    time::Duration,
};

use heeler_mutant::{Configuration, MutatedSource, SourceFile};
use heeler_mutant_model::{Language, MutantResult, MutantStatus, TestSet};
use heeler_mutate::{
    Baseline, BaselineProgram, BuiltProject, Fingerprint, GuardedProject, KeptVerdict, MutatedProject,
    MutationRun, OrderLimit, ProjectSource, SharedTexts, StepOutcome, VerdictBasis, VerdictCache,
};
use heeler_sys::memory::allocated_bytes;

const LIMIT_BYTES: usize = 1024;
const SOURCES: usize = 20;
const FUNCTIONS: usize = 20;
const TESTS: usize = 200;
/// Number of tests that reach a function.
const COVERING: usize = 12;

/// A typical function: with a comment, a loop and conditions.
fn function(text: &mut String, number: usize) {
    let code = "/// Adds up what lies between both ends, twice, and reports each step.
pub fn sum_between_N(low: u32, high: u32, list: &[u32]) -> u32 {
    let mut sum = 0;
    for one in list {
        if *one > low && (*one < high || high == 0) {
            sum += one * 2;
            report_step(sum, *one);
        }
    }
    // What is below the lower end does not count.
    if sum < low { 0 } else { sum - low }
}

";
    text.push_str(&code.replace('N', &number.to_string()));
}

fn source(number: usize) -> ProjectSource {
    let mut text = String::from("//! Sums of lists.\n\nuse crate::report::report_step;\n\n");
    (0..FUNCTIONS).for_each(|place| function(&mut text, number * FUNCTIONS + place));
    let file = SourceFile {
        path: format!("src/sums/part_{number}.rs").into(),
        language: Language::Rust,
        text: text.into(),
        ignored: None,
    };
    let source = MutatedSource::search(file, Configuration::default());
    let selected = (0..source.mutants().len()).collect();
    ProjectSource { source, selected }
}

/// A program whose functions are each reached by some of its tests.
fn baseline(built: &BuiltProject) -> Baseline {
    let program = BaselineProgram {
        names: (0..TESTS).map(|test| format!("sums::tests::part_{test}_adds_up")).collect(),
        durations: vec![Some(Duration::from_millis(1)); TESTS],
        ..BaselineProgram::default()
    };
    let mut baseline = Baseline { programs: vec![program], ..Baseline::default() };
    for test in 0..TESTS {
        let mut counts = vec![0_u32; built.total() as usize + 1];
        counts[0] = 1024;
        for one in built.written() {
            let function = one.function.source * FUNCTIONS + one.function.function;
            if (function + test) % TESTS < COVERING {
                counts[one.number.0 as usize] = 8;
            }
        }
        let file: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
        baseline.coverage.add(0, Some(test), &file);
    }
    baseline
}

/// Tests all mutants: the first test that reaches a mutant fails. Returns everything still in memory.
fn run(built: &BuiltProject, baseline: &Baseline) -> impl Sized {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("verdicts.json");
    let uids: Arc<[Arc<str>]> =
        baseline.programs[0].names.iter().map(|name| Arc::from(format!("package::{name}"))).collect();
    let mut sets: BTreeMap<Vec<usize>, Arc<[u32]>> = BTreeMap::new();
    let (mut results, mut texts) = (BTreeMap::new(), SharedTexts::default());
    let mut cache = VerdictCache::read(&file, Fingerprint::default());
    let (mut run, uncovered) =
        MutationRun::begin(baseline, built.written().map(|one| (one.number, one.function)));
    assert!(uncovered.is_empty());
    while !run.is_over() {
        for ordered in run.next_steps(OrderLimit { steps: 64, tests: 20_000 }) {
            // The first test fails with its own message.
            let test = ordered.step.tests[0];
            let name = &baseline.programs[0].names[test];
            let mut reason = format!("assertion `left == right` failed: a message of {name}");
            write!(reason, "\n  left: {}\n right: {}", ordered.number.0 % 9, test).unwrap();
            let outcome = StepOutcome::Failed { test: name.clone(), reason };
            let verdict = run.on_ended(ordered.number, outcome, Duration::from_millis(3)).unwrap();
            let mutant = &built.written_mutant(verdict.number).unwrap().found.mutant;
            let reason = verdict.reason.map(|reason| texts.share(reason));
            // Keep the verdict in the cache.
            let killed_by = verdict.killed_by.map(|test| Arc::clone(&uids[test.test]));
            let kept = KeptVerdict {
                status: verdict.status,
                reason: reason.clone(),
                killed_by: killed_by.clone(),
                tests_completed: verdict.tests_completed,
                duration_us: 3000,
            };
            cache.add(mutant.id, VerdictBasis::new(Fingerprint::default(), []), kept);
            // Keep the result as reports do, with shared sets of tests.
            let places: Vec<usize> = verdict.covered_by.iter().map(|test| test.test).collect();
            let set = sets.entry(places).or_insert_with_key(|places| {
                places.iter().map(|place| u32::try_from(*place).unwrap()).collect()
            });
            let result = MutantResult {
                covered_by: TestSet::new(Arc::clone(&uids), Arc::clone(set)),
                killed_by: killed_by.into_iter().collect(),
                tests_completed: verdict.tests_completed,
                ..MutantResult::new(Arc::clone(mutant), MutantStatus::Killed, reason)
            };
            assert_eq!(result.covered_by.len(), COVERING);
            results.insert(mutant.id, result);
        }
    }
    cache.write(&file).unwrap();
    assert_eq!(results.len(), built.written().count());
    (results, cache, texts, run, directory)
}

#[test]
fn mutant_takes_at_most_a_kibibyte_in_every_phase() {
    let allocated = || allocated_bytes().expect("the tests run with glibc");
    // Allocate language tables and other one-time data before measuring.
    drop(source(0));
    let before = allocated();
    let sources: Vec<ProjectSource> = (0..SOURCES).map(source).collect();
    let mutants: usize = sources.iter().map(|source| source.source.mutants().len()).sum();
    assert!(mutants > 5000, "{mutants} mutants");
    let mut held = vec![("found", allocated() - before)];
    let project = MutatedProject { root: "/project".into(), sources, unmatched: Vec::new() };
    let guarded = GuardedProject::new(project, &BTreeSet::new());
    held.push(("guarded", allocated() - before));
    let built = guarded.into_built();
    held.push(("built", allocated() - before));
    let baseline = baseline(&built);
    held.push(("reached by tests", allocated() - before));
    let ended = run(&built, &baseline);
    held.push(("tested", allocated() - before));
    drop(ended);
    let by_mutant: Vec<(&str, usize)> = held.iter().map(|(phase, bytes)| (*phase, bytes / mutants)).collect();
    println!("bytes held for each of {mutants} mutants: {by_mutant:?}");
    assert!(by_mutant.iter().all(|(_, bytes)| *bytes <= LIMIT_BYTES), "{by_mutant:?}");
}
