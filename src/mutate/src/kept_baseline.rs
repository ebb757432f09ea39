//! Durations and coverage of tests from an earlier run, and which of them are still valid.
//!
//! A test runs again if a function that it calls has changed, or if any code outside of functions with
//! mutants has. If not all calls of a changed function are counted, every test may call it, so all tests run
//! again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, BufReader},
    path::Path,
    time::Duration,
};

use heeler_mutant_model::MutantId;
use heeler_protocol::mutation::{
    HexHash, StreamedMap,
    cached_baseline::{
        BASELINE_VERSION, CachedBaseline, CachedFunction, CachedMutant, CachedProgram, CachedTest,
    },
};
use heeler_sys::dirs::stream_file_atomically;

use crate::{
    built_project::{BuiltProject, FunctionId, MutantNumber, NumberedMutant},
    fingerprint::Fingerprint,
    plan::{ALL_PLACES, Baseline, TestIndex},
};

/// A test's baseline from an earlier run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptTest {
    pub duration: Duration,
    pub is_flaky: bool,
    /// Number of times the test reached any place.
    pub steps: u32,
    pub reached: Vec<(MutantNumber, u32)>,
}

/// The tests of an earlier run whose baseline is still valid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptBaseline {
    /// Baseline of each test, by uid.
    tests: BTreeMap<String, KeptTest>,
    /// Time of a process outside of its tests, by suite.
    starts: BTreeMap<String, Duration>,
    /// Suites whose tests fail in forks.
    unforkable: BTreeSet<String>,
    /// Number of mutants in the file.
    mutants: usize,
}

/// A program's suite and test uids, as written to the file.
#[derive(Clone, Copy, Debug)]
pub struct ProgramUids<'a> {
    pub suite: &'a str,
    /// Uids in listing order.
    pub uids: &'a [String],
}

impl KeptBaseline {
    /// Reads the file of an earlier run; empty if the file is missing, damaged or has another fingerprint.
    #[must_use]
    pub fn read(path: &Path, fingerprint: Fingerprint, built: &BuiltProject) -> Self {
        let read = File::open(path).ok().and_then(|file| CachedBaseline::read(BufReader::new(file)));
        let cached = read.filter(|read| read.fingerprint == fingerprint.into());
        cached.and_then(|cached| Self::of(cached, built)).unwrap_or_default()
    }

    /// Returns the tests whose baseline is still valid; `None` if there are none.
    fn of(cached: CachedBaseline, built: &BuiltProject) -> Option<Self> {
        let changed = changed_functions(&cached, built)?;
        // Whether the function of a mutant, given by its index in the file, has changed.
        let is_of_changed = |mutant: &u32| {
            let function = cached.mutants.get(*mutant as usize).map(|mutant| mutant.function);
            function.and_then(|function| changed.get(function)).copied().unwrap_or(true)
        };
        let numbers = numbers(&cached.mutants, built);
        let number = |(mutant, count): (u32, u32)| {
            let number = numbers.get(mutant as usize).copied().flatten();
            number.map(|number| (number, count))
        };
        let (mut tests, mut starts) = (BTreeMap::new(), BTreeMap::new());
        let mut unforkable = BTreeSet::new();
        for (suite, program) in cached.programs {
            if program.is_unforkable {
                unforkable.insert(suite.clone());
            }
            starts.insert(suite, Duration::from_micros(program.start_us));
            if program.outside.iter().any(is_of_changed) {
                continue;
            }
            for (uid, test) in program.tests {
                if test.reached.iter().any(|(mutant, _)| is_of_changed(mutant)) {
                    continue;
                }
                let kept = KeptTest {
                    duration: Duration::from_micros(test.duration_us),
                    is_flaky: test.is_flaky,
                    steps: test.steps,
                    reached: test.reached.into_iter().filter_map(number).collect(),
                };
                tests.insert(uid, kept);
            }
        }
        Some(Self { tests, starts, unforkable, mutants: cached.mutants.len() })
    }

    /// Removes and returns the baseline of a test that need not run again.
    #[must_use]
    pub fn take_test(&mut self, uid: &str) -> Option<KeptTest> {
        self.tests.remove(uid)
    }

    /// Returns the time that a process of a suite spends outside of its tests.
    #[must_use]
    pub fn start(&self, suite: &str) -> Duration {
        self.starts.get(suite).copied().unwrap_or_default()
    }

    /// Returns whether the tests of a suite fail in forks.
    #[must_use]
    pub fn is_unforkable(&self, suite: &str) -> bool {
        self.unforkable.contains(suite)
    }

    /// Writes durations and coverage, unless the file already covers more mutants.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write(
        self,
        path: &Path,
        fingerprint: Fingerprint,
        built: &BuiltProject,
        programs: &[ProgramUids<'_>],
        baseline: &Baseline,
    ) -> io::Result<()> {
        let places = CachedPlaces::new(built);
        if places.mutants.len() < self.mutants {
            return Ok(());
        }
        // A leftover of a process that was killed while writing.
        let _none = std::fs::remove_file(path.with_added_extension("part"));
        stream_file_atomically(path, |file| {
            write_baseline(file, places, fingerprint, &WrittenPrograms { programs, baseline })
        })
    }
}

/// Returns which functions of a file have changed; `None` if any test may call a changed function.
fn changed_functions(cached: &CachedBaseline, built: &BuiltProject) -> Option<Vec<bool>> {
    let now = functions(built);
    let keys: BTreeSet<_> = cached.functions.iter().map(|one| (one.path.as_str(), one.place)).collect();
    if !now.keys().all(|key| keys.contains(key)) {
        return None;
    }
    let is_changed = |one: &CachedFunction| {
        now.get(&(one.path.as_str(), one.place)).is_none_or(|code| HexHash::from(*code) != one.code)
    };
    let changed: Vec<bool> = cached.functions.iter().map(is_changed).collect();
    let functions = || cached.functions.iter().zip(&changed).filter(|(_, changed)| **changed);
    if functions().any(|(one, _)| !one.is_entry_seen) {
        return None;
    }
    let known: BTreeSet<MutantId> =
        cached.mutants.iter().filter_map(|mutant| mutant.id.parse().ok()).collect();
    let changed_now: BTreeSet<(&str, usize)> =
        functions().map(|(one, _)| (one.path.as_str(), one.place)).collect();
    let is_known = |one: NumberedMutant<'_>| {
        let mutant = &one.found.mutant;
        known.contains(&mutant.id) || changed_now.contains(&(&**mutant.path(), one.function.function))
    };
    built.written().all(is_known).then_some(changed)
}

/// Returns the current numbers of the file's mutants and function calls.
fn numbers(mutants: &[CachedMutant], built: &BuiltProject) -> Vec<Option<MutantNumber>> {
    let written: BTreeMap<MutantId, MutantNumber> =
        built.written().map(|one| (one.found.mutant.id, one.number)).collect();
    let entries: BTreeMap<Box<str>, MutantNumber> =
        built.entries().map(|(number, function)| (entry_id(built, function), number)).collect();
    let number = |mutant: &CachedMutant| match mutant.id.parse() {
        Ok(id) => written.get(&id).copied(),
        Err(_) => entries.get(&mutant.id).copied(),
    };
    mutants.iter().map(number).collect()
}

/// Returns the hashes of all functions with mutants, by path and index.
fn functions(built: &BuiltProject) -> BTreeMap<(&str, usize), Fingerprint> {
    let path = |id: FunctionId| &*built.project().sources[id.source].source.file().path;
    let all = built.function_fingerprints().into_iter();
    all.map(|(id, code)| ((path(id), id.function), code)).collect()
}

/// Returns the id of a function's call counter. The baseline file stores it among the mutant ids.
fn entry_id(built: &BuiltProject, function: FunctionId) -> Box<str> {
    let path = &built.project().sources[function.source].source.file().path;
    format!("call {} {path}", function.function).into()
}

struct CachedPlaces {
    functions: Vec<CachedFunction>,
    mutants: Vec<CachedMutant>,
    /// Indices into `mutants`, by number.
    by_number: Vec<Option<u32>>,
}

impl CachedPlaces {
    fn new(built: &BuiltProject) -> Self {
        let seen = built.functions_with_seen_entries();
        let (mut functions, mut places) = (Vec::new(), BTreeMap::new());
        for (id, code) in built.function_fingerprints() {
            places.insert(id, functions.len());
            functions.push(CachedFunction {
                path: built.project().sources[id.source].source.file().path.to_string(),
                place: id.function,
                code: code.into(),
                is_entry_seen: seen.contains(&id),
            });
        }
        let mut found =
            Self { functions, mutants: Vec::new(), by_number: vec![None; built.total() as usize + 1] };
        let written = built.written();
        let written = written.map(|one| (one.number, one.found.mutant.id.to_string().into(), one.function));
        let entries = built.entries().map(|(number, function)| (number, entry_id(built, function), function));
        for (number, id, function) in written.chain(entries) {
            found.by_number[number.0 as usize] = u32::try_from(found.mutants.len()).ok();
            let function = places.get(&function).copied().unwrap_or(usize::MAX);
            found.mutants.push(CachedMutant { id, function });
        }
        found
    }
}

/// Programs with the durations and coverage of their tests.
struct WrittenPrograms<'a> {
    programs: &'a [ProgramUids<'a>],
    baseline: &'a Baseline,
}

fn write_baseline(
    file: &mut dyn io::Write,
    places: CachedPlaces,
    fingerprint: Fingerprint,
    measured: &WrittenPrograms<'_>,
) -> io::Result<()> {
    let WrittenPrograms { programs, baseline } = measured;
    let CachedPlaces { functions, mutants, by_number } = places;
    // Look up coverage and duration of one test.
    let reached = baseline.coverage.by_test();
    let counts = |program: usize, test: Option<usize>| {
        let counts = reached.of(program, test);
        let steps = counts.first().filter(|(number, _)| *number == ALL_PLACES).map_or(0, |(_, count)| *count);
        let place = |(number, count): (MutantNumber, u32)| {
            by_number.get(number.0 as usize).copied().flatten().map(|place| (place, count))
        };
        (steps, counts.into_iter().filter_map(place).collect::<Vec<(u32, u32)>>())
    };
    let test = |place: usize, test: usize| {
        let durations = baseline.programs.get(place).map(|program| program.durations.as_slice());
        let duration = durations.and_then(|durations| durations.get(test).copied().flatten())?;
        let (steps, reached) = counts(place, Some(test));
        Some(CachedTest {
            duration_us: u64::try_from(duration.as_micros()).unwrap_or(u64::MAX),
            is_flaky: baseline.flaky.contains(&TestIndex { program: place, test }),
            steps,
            reached,
        })
    };
    // Stream the programs one test at a time, because the whole file can be large.
    let tests_of = |place: usize| {
        let uids = programs[place].uids.iter().enumerate();
        uids.filter_map(move |(number, uid)| Some((uid, test(place, number)?)))
    };
    let program = |place: usize| {
        let measured = baseline.programs.get(place);
        let start = measured.map(|program| program.start).unwrap_or_default();
        let program = CachedProgram {
            start_us: u64::try_from(start.as_micros()).unwrap_or(u64::MAX),
            is_unforkable: measured.is_some_and(|program| program.fails_in_forks),
            outside: counts(place, None).1.into_iter().map(|(mutant, _)| mutant).collect(),
            tests: StreamedMap(move || tests_of(place)),
        };
        (programs[place].suite, program)
    };
    let programs = StreamedMap(|| (0..programs.len()).map(program));
    let fingerprint = fingerprint.into();
    CachedBaseline { version: BASELINE_VERSION, fingerprint, functions, mutants, programs }.write(file)
}

#[cfg(test)]
mod tests {
    use heeler_mutant::{Configuration, MutatedSource, SourceFile};
    use heeler_mutant_model::Language;

    use super::*;
    use crate::{
        guarded_project::GuardedProject,
        module_tree::{MutatedProject, ProjectSource},
        plan::{BaselineProgram, Coverage},
    };

    /// Three functions. The last has no mutant at its beginning.
    const SOURCE: &str = "fn a(x: u8) -> bool { x < 1 }\nfn b(x: u8) -> bool { x < 2 }\nfn c(x: u8) -> ! { g(x < 3); loop {} }\n";

    fn project(text: &str) -> BuiltProject {
        let file = SourceFile {
            path: "src/lib.rs".into(),
            language: Language::Rust,
            text: text.into(),
            ignored: None,
        };
        let source = MutatedSource::search(file, Configuration::default());
        let selected = (0..source.mutants().len()).collect();
        let source = ProjectSource { source, selected };
        let project = MutatedProject { root: "/w".into(), sources: vec![source], unmatched: Vec::new() };
        GuardedProject::new(project, &BTreeSet::new()).into_built()
    }

    fn fingerprint(built: &BuiltProject) -> Fingerprint {
        built.project().rest_fingerprint()
    }

    /// A program with three tests: the first reaches `a`, the second `b`, the third nothing.
    fn baseline(built: &BuiltProject) -> Baseline {
        let program = BaselineProgram {
            names: vec!["ta".into(), "tb".into(), "none".into()],
            durations: vec![Some(Duration::from_millis(3)); 3],
            ..BaselineProgram::default()
        };
        let mut coverage = Coverage::default();
        for (test, item) in [(0, "a"), (1, "b")] {
            let of_item = built.written().filter(|one| &*one.found.mutant.item == item);
            coverage.add_counts(0, test, 9, of_item.map(|one| (one.number, 2)).collect::<Vec<_>>());
        }
        let flaky = [TestIndex { program: 0, test: 2 }].into();
        Baseline { programs: vec![program], coverage, flaky }
    }

    fn write(path: &Path, built: &BuiltProject, baseline: &Baseline) {
        let uids = ["s::ta", "s::tb", "s::none"].map(str::to_owned);
        let programs = [ProgramUids { suite: "s", uids: &uids }];
        KeptBaseline::default().write(path, fingerprint(built), built, &programs, baseline).unwrap();
    }

    /// Returns the tests whose baseline is still valid after a change to the source.
    fn kept_after(change: impl Fn(&str) -> String) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("baseline.json");
        let before = project(SOURCE);
        write(&path, &before, &baseline(&before));
        let now = project(&change(SOURCE));
        KeptBaseline::read(&path, fingerprint(&now), &now).tests.into_keys().collect()
    }

    #[test]
    fn tests_that_call_no_changed_function_hold() {
        assert_eq!(kept_after(str::to_owned), ["s::none", "s::ta", "s::tb"]);
        assert_eq!(kept_after(|text| text.replace("x < 1", "x < 10")), ["s::none", "s::tb"]);
        assert_eq!(kept_after(|text| text.replace("x < 3", "x < 4")), ["s::none", "s::ta", "s::tb"]);
        assert_eq!(kept_after(|text| text.replace("x < 2", "x == 2 && x < 3")), ["s::none", "s::ta"]);
    }

    #[test]
    fn nothing_holds_if_calls_of_a_changed_function_are_not_seen_or_anything_else_changed() {
        for change in [("fn a(", "const ONE: u8 = 1;\nfn a("), ("fn c(", "fn d() -> u8 { 1 + 1 }\nfn c(")] {
            let kept = kept_after(|text| text.replace(change.0, change.1));
            assert!(kept.is_empty(), "{change:?}: {kept:?}");
        }
    }

    #[test]
    fn what_is_kept_is_what_was_measured() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("baseline.json");
        let built = project(SOURCE);
        write(&path, &built, &baseline(&built));
        let mut kept = KeptBaseline::read(&path, fingerprint(&built), &built);
        let test = kept.take_test("s::ta").unwrap();
        assert_eq!((test.duration, test.is_flaky, test.steps), (Duration::from_millis(3), false, 9));
        let of_a = built.written().filter(|one| &*one.found.mutant.item == "a");
        assert_eq!(test.reached, of_a.map(|one| (one.number, 2)).collect::<Vec<_>>());
        assert!(kept.take_test("s::none").unwrap().is_flaky && kept.take_test("s::new").is_none());
        // A run of fewer mutants leaves the file as it is.
        let bytes = std::fs::read(&path).unwrap();
        let fewer = project(&SOURCE.replace("x < 1", "f(x)"));
        let of_fewer = Baseline::default();
        kept.write(&path, fingerprint(&fewer), &fewer, &[], &of_fewer).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        assert_eq!(KeptBaseline::read(&path, fingerprint(&built), &built), KeptBaseline::default());
    }

    #[test]
    fn what_runs_outside_of_tests_concerns_all_of_its_program() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("baseline.json");
        let before = project(SOURCE);
        let mut measured = baseline(&before);
        let first = before.written().find(|one| &*one.found.mutant.item == "b").unwrap().number.0;
        let mut file = vec![0; (first as usize + 1) * 4];
        file[first as usize * 4] = 1;
        measured.coverage.add(0, None, &file);
        write(&path, &before, &measured);
        let now = project(&SOURCE.replace("x < 2", "x < 5"));
        assert_eq!(KeptBaseline::read(&path, fingerprint(&now), &now).tests.len(), 0);
        let now = project(&SOURCE.replace("x < 1", "x < 5"));
        assert_eq!(KeptBaseline::read(&path, fingerprint(&now), &now).tests.len(), 2);
    }
}
