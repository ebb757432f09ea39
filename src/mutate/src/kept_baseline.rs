//! What tests took and reached in an earlier run, and of which tests that still holds.
//!
//! A test runs again if a function that it calls has changed, or anything outside of functions with mutants.
//! A function whose calls are not all seen may be called by every test.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    time::Duration,
};

use heeler_protocol::mutation::cached_baseline::{
    BASELINE_VERSION, CachedBaseline, CachedFunction, CachedMutant, CachedProgram, CachedTest,
};

use crate::{
    fingerprint::Fingerprint,
    guarded_project::{FunctionId, GuardedProject, MutantNumber},
    plan::{ALL_PLACES, Baseline, TestIndex},
};

/// A test of an earlier run without a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptTest {
    pub duration: Duration,
    pub is_flaky: bool,
    /// How often it reached places, whichever they are.
    pub steps: u32,
    pub reached: Vec<(MutantNumber, u32)>,
}

/// The tests of an earlier run that need not run again without a mutant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptBaseline {
    /// By uid.
    tests: BTreeMap<String, KeptTest>,
    /// What processes take beside their tests, by suite.
    starts: BTreeMap<String, Duration>,
    /// Number of mutants that the file knows.
    mutants: usize,
}

/// The tests of a program, for the file.
#[derive(Clone, Copy, Debug)]
pub struct ProgramUids<'a> {
    pub suite: &'a str,
    /// By the tests' places in the listing.
    pub uids: &'a [String],
}

impl KeptBaseline {
    /// Reads the file of an earlier run: nothing, if it is missing, damaged or of something else.
    #[must_use]
    pub fn read(path: &Path, fingerprint: Fingerprint, guarded: &GuardedProject) -> Self {
        let read = std::fs::read(path).ok().and_then(|bytes| CachedBaseline::read(&bytes));
        let cached = read.filter(|read| read.fingerprint == fingerprint.to_string());
        cached.and_then(|cached| Self::of(&cached, guarded)).unwrap_or_default()
    }

    /// Returns the tests that still hold; `None` if none does.
    fn of(cached: &CachedBaseline, guarded: &GuardedProject) -> Option<Self> {
        let now = functions(guarded);
        let keys: BTreeSet<_> = cached.functions.iter().map(|one| (one.path.as_str(), one.place)).collect();
        if !now.keys().all(|key| keys.contains(key)) {
            return None;
        }
        let is_changed = |one: &CachedFunction| {
            now.get(&(one.path.as_str(), one.place)).is_none_or(|code| code.to_string() != one.code)
        };
        let changed: Vec<bool> = cached.functions.iter().map(is_changed).collect();
        if cached.functions.iter().zip(&changed).any(|(one, changed)| *changed && !one.is_entry_seen) {
            return None;
        }
        // By place in the file: whether its function has changed.
        let of_changed = |mutant: &usize| {
            let function = cached.mutants.get(*mutant).map(|mutant| mutant.function);
            function.and_then(|function| changed.get(function)).copied().unwrap_or(true)
        };
        let written = guarded.written().map(|one| (one.found.mutant.id.to_string(), one.number));
        let entries = guarded.entries().map(|(number, function)| (entry_id(guarded, function), number));
        let numbers: BTreeMap<String, MutantNumber> = written.chain(entries).collect();
        let known: BTreeSet<&str> = cached.mutants.iter().map(|mutant| mutant.id.as_str()).collect();
        let changed_now: BTreeSet<(&str, usize)> = cached
            .functions
            .iter()
            .zip(&changed)
            .filter(|(_, changed)| **changed)
            .map(|(one, _)| (one.path.as_str(), one.place))
            .collect();
        let is_known = |one: crate::NumberedMutant<'_>| {
            let key = (&*one.found.mutant.path, one.function.function);
            known.contains(one.found.mutant.id.to_string().as_str()) || changed_now.contains(&key)
        };
        if !guarded.written().all(is_known) {
            return None;
        }
        let holds = |test: &CachedTest| !test.reached.iter().any(|(mutant, _)| of_changed(mutant));
        let number = |&(mutant, count): &(usize, u32)| {
            let id = &cached.mutants.get(mutant)?.id;
            Some((*numbers.get(id)?, count))
        };
        let mut tests = BTreeMap::new();
        for program in cached.programs.values() {
            if program.outside.iter().any(of_changed) {
                continue;
            }
            for (uid, test) in program.tests.iter().filter(|(_, test)| holds(test)) {
                let kept = KeptTest {
                    duration: Duration::from_micros(test.duration_us),
                    is_flaky: test.is_flaky,
                    steps: test.steps,
                    reached: test.reached.iter().filter_map(number).collect(),
                };
                tests.insert(uid.clone(), kept);
            }
        }
        let start = |(suite, program): (&String, &CachedProgram)| {
            (suite.clone(), Duration::from_micros(program.start_us))
        };
        let starts = cached.programs.iter().map(start).collect();
        Some(Self { tests, starts, mutants: cached.mutants.len() })
    }

    /// Returns a test that need not run again.
    #[must_use]
    pub fn test(&self, uid: &str) -> Option<&KeptTest> {
        self.tests.get(uid)
    }

    /// Returns what a process of a suite takes beside its tests.
    #[must_use]
    pub fn start(&self, suite: &str) -> Duration {
        self.starts.get(suite).copied().unwrap_or_default()
    }

    /// Writes what the tests took and reached, unless the file knows of more mutants.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write(
        &self,
        path: &Path,
        fingerprint: Fingerprint,
        guarded: &GuardedProject,
        programs: &[ProgramUids<'_>],
        baseline: &Baseline,
    ) -> io::Result<()> {
        let cached = cached(fingerprint, guarded, programs, baseline);
        if cached.mutants.len() < self.mutants {
            return Ok(());
        }
        // Of a process that was killed while it wrote.
        let _none = std::fs::remove_file(path.with_added_extension("part"));
        heeler_sys::dirs::write_file_atomically(path, &cached.to_bytes())
    }
}

/// Returns the hashes of all functions with mutants, by path and place.
fn functions(guarded: &GuardedProject) -> BTreeMap<(&str, usize), Fingerprint> {
    let path = |id: FunctionId| &*guarded.project().sources[id.source].source.file().path;
    let all = guarded.function_fingerprints().into_iter();
    all.map(|(id, code)| ((path(id), id.function), code)).collect()
}

/// Returns the id of the calls of a function among those of mutants.
fn entry_id(guarded: &GuardedProject, function: FunctionId) -> String {
    let path = &guarded.project().sources[function.source].source.file().path;
    format!("call {} {path}", function.function)
}

fn cached(
    fingerprint: Fingerprint,
    guarded: &GuardedProject,
    programs: &[ProgramUids<'_>],
    baseline: &Baseline,
) -> CachedBaseline {
    let seen = guarded.functions_with_seen_entries();
    let (mut functions, mut places) = (Vec::new(), BTreeMap::new());
    for (id, code) in guarded.function_fingerprints() {
        places.insert(id, functions.len());
        functions.push(CachedFunction {
            path: guarded.project().sources[id.source].source.file().path.to_string(),
            place: id.function,
            code: code.to_string(),
            is_entry_seen: seen.contains(&id),
        });
    }
    let (mut mutants, mut by_number) = (Vec::new(), BTreeMap::new());
    for one in guarded.written() {
        by_number.insert(one.number, mutants.len());
        let function = places.get(&one.function).copied().unwrap_or(usize::MAX);
        mutants.push(CachedMutant { id: one.found.mutant.id.to_string(), function });
    }
    for (number, function) in guarded.entries() {
        by_number.insert(number, mutants.len());
        let place = places.get(&function).copied().unwrap_or(usize::MAX);
        mutants.push(CachedMutant { id: entry_id(guarded, function), function: place });
    }
    let mut reached = baseline.coverage.by_test();
    let mut counts = |program: usize, test: Option<usize>| {
        let counts = reached.remove(&(program, test)).unwrap_or_default();
        let steps = counts.iter().find(|(number, _)| *number == ALL_PLACES).map_or(0, |(_, count)| *count);
        let place = |&(number, count): &(MutantNumber, u32)| Some((*by_number.get(&number)?, count));
        (steps, counts.iter().filter_map(place).collect::<Vec<_>>())
    };
    let mut found = BTreeMap::new();
    for (place, program) in programs.iter().enumerate() {
        let outside = counts(place, None).1.into_iter().map(|(mutant, _)| mutant).collect();
        let mut tests = BTreeMap::new();
        for (test, uid) in program.uids.iter().enumerate() {
            let durations = baseline.programs.get(place).map(|program| program.durations.as_slice());
            let duration = durations.and_then(|durations| durations.get(test).copied().flatten());
            let Some(duration) = duration else { continue };
            let (steps, reached) = counts(place, Some(test));
            let kept = CachedTest {
                duration_us: u64::try_from(duration.as_micros()).unwrap_or(u64::MAX),
                is_flaky: baseline.flaky.contains(&TestIndex { program: place, test }),
                steps,
                reached,
            };
            tests.insert(uid.clone(), kept);
        }
        let start = baseline.programs.get(place).map(|program| program.start).unwrap_or_default();
        let start_us = u64::try_from(start.as_micros()).unwrap_or(u64::MAX);
        found.insert(program.suite.to_owned(), CachedProgram { start_us, outside, tests });
    }
    let fingerprint = fingerprint.to_string();
    CachedBaseline { version: BASELINE_VERSION, fingerprint, functions, mutants, programs: found }
}

#[cfg(test)]
mod tests {
    use heeler_mutant::{Configuration, Language, MutatedSource, SourceFile, SourcePlace};

    use super::*;
    use crate::{
        module_tree::{MutatedProject, ProjectSource},
        plan::{BaselineProgram, Coverage},
    };

    /// Three functions: of the last, no mutant stands at the beginning.
    const SOURCE: &str = "fn a(x: u8) -> bool { x < 1 }\nfn b(x: u8) -> bool { x < 2 }\nfn c(x: u8) -> ! { g(x < 3); loop {} }\n";

    fn project(text: &str) -> GuardedProject {
        let file = SourceFile {
            path: "src/lib.rs".into(),
            language: Language::Rust,
            text: text.into(),
            ignored: None,
        };
        let source = MutatedSource::search(file, &Configuration::default());
        let selected = (0..source.mutants().len()).collect();
        let source = ProjectSource { source, place: SourcePlace::CrateRoot, selected };
        let project = MutatedProject { root: "/w".into(), sources: vec![source], unmatched: Vec::new() };
        GuardedProject::new(project, &BTreeSet::new())
    }

    fn fingerprint(guarded: &GuardedProject) -> Fingerprint {
        guarded.rest_fingerprint()
    }

    /// A program whose first test reaches `a`, the second `b`, and the third none.
    fn baseline(guarded: &GuardedProject) -> Baseline {
        let program = BaselineProgram {
            names: vec!["ta".into(), "tb".into(), "none".into()],
            durations: vec![Some(Duration::from_millis(3)); 3],
            ..BaselineProgram::default()
        };
        let mut coverage = Coverage::default();
        for (test, item) in [(0, "a"), (1, "b")] {
            let of_item = guarded.written().filter(|one| &*one.found.mutant.item == item);
            coverage.add_counts(0, test, 9, of_item.map(|one| (one.number, 2)).collect::<Vec<_>>());
        }
        let flaky = [TestIndex { program: 0, test: 2 }].into();
        Baseline { programs: vec![program], coverage, flaky }
    }

    fn write(path: &Path, guarded: &GuardedProject, baseline: &Baseline) {
        let uids = ["s::ta", "s::tb", "s::none"].map(str::to_owned);
        let programs = [ProgramUids { suite: "s", uids: &uids }];
        KeptBaseline::default().write(path, fingerprint(guarded), guarded, &programs, baseline).unwrap();
    }

    /// Returns the tests that hold after a change of the source.
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
        let guarded = project(SOURCE);
        write(&path, &guarded, &baseline(&guarded));
        let kept = KeptBaseline::read(&path, fingerprint(&guarded), &guarded);
        let test = kept.test("s::ta").unwrap();
        assert_eq!((test.duration, test.is_flaky, test.steps), (Duration::from_millis(3), false, 9));
        let of_a = guarded.written().filter(|one| &*one.found.mutant.item == "a");
        assert_eq!(test.reached, of_a.map(|one| (one.number, 2)).collect::<Vec<_>>());
        assert!(kept.test("s::none").unwrap().is_flaky && kept.test("s::new").is_none());
        // A run of fewer mutants leaves the file as it is.
        let bytes = std::fs::read(&path).unwrap();
        let fewer = project(&SOURCE.replace("x < 1", "f(x)"));
        let of_fewer = Baseline::default();
        kept.write(&path, fingerprint(&fewer), &fewer, &[], &of_fewer).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        assert_eq!(KeptBaseline::read(&path, fingerprint(&guarded), &guarded), KeptBaseline::default());
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
