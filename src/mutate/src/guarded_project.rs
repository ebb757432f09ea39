//! The guarded sources of a project, and which of their mutants compile.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use heeler_mutant::{
    EmittedSource, FoundMutant, Rollback, RollbackStep,
    compiler::{self, CompiledSource, CompilerError, MutantKey},
};
use heeler_mutant_model::MutantId;

use crate::{
    built_project::{BuiltProject, MutantNumber, WrittenSource},
    c::CompiledGuards,
    documented_constants::documented_constants,
    fingerprint::Fingerprint,
    module_tree::{MutatedProject, ProjectSource},
};

/// Reasons why no program contains a mutant.
const TAKEN_OUT: &str = "not compiled: removed by the preprocessor";
const CONSTANT: &str = "in a const fn that is called at compile time or by another const fn";
/// Reason why a mutant is not written into its source.
const NOT_WRITTEN: &str = "the mutant breaks the syntax of the source";

/// The sources of a project with guards for the selected mutants.
#[derive(Debug)]
pub struct GuardedProject {
    project: MutatedProject,
    /// The number of each source's first mutant.
    first_numbers: Vec<u32>,
    total: u32,
    rollback: Rollback,
    emitted: Vec<EmittedSource>,
    /// Mutants to leave out of the emitted sources, by source.
    left_out: Vec<BTreeSet<usize>>,
    /// Mutants that no program contains, because the preprocessor removes their guards.
    taken_out: BTreeSet<MutantKey>,
}

impl GuardedProject {
    /// Numbers the mutants and writes the guarded sources, without the mutants in `not_tested`.
    #[must_use]
    pub fn new(project: MutatedProject, not_tested: &BTreeSet<MutantId>) -> Self {
        // Number the mutants. Function calls get the numbers after the mutants of their source.
        let mut first_numbers = Vec::with_capacity(project.sources.len());
        let mut next = 1_u32;
        for source in &project.sources {
            first_numbers.push(next);
            let numbers = source.source.mutants().len() + source.source.functions().len();
            next = next.saturating_add(u32::try_from(numbers).unwrap_or(u32::MAX));
        }
        // Leave out the mutants that are not selected or not tested.
        let left_out: Vec<BTreeSet<usize>> = project
            .sources
            .iter()
            .map(|source| {
                let selected: BTreeSet<usize> = source.selected.iter().copied().collect();
                let mutants = source.source.mutants().iter().enumerate();
                let is_left_out = |(index, found): &(usize, &FoundMutant)| {
                    !selected.contains(index) || not_tested.contains(&found.mutant.id)
                };
                mutants.filter(is_left_out).map(|(index, _)| index).collect()
            })
            .collect();
        // Register the remaining mutants, and write the first guarded sources.
        let keys = project.sources.iter().zip(&left_out).enumerate().flat_map(|(source, (one, left_out))| {
            let mutants = one.source.mutants().iter().enumerate();
            let written =
                mutants.filter(|(index, found)| found.ignored.is_none() && !left_out.contains(index));
            written.map(move |(mutant, found)| (MutantKey { source, mutant }, found.function))
        });
        let mut rollback = Rollback::new(keys.collect::<Vec<_>>());
        for function in documented_constants(&project) {
            rollback.keep_constant(function);
        }
        let mut guarded = Self {
            project,
            first_numbers,
            total: next - 1,
            rollback,
            emitted: Vec::new(),
            left_out,
            taken_out: BTreeSet::new(),
        };
        guarded.emit();
        guarded
    }

    /// Leaves out mutants that are known not to compile, given with their compiler messages.
    #[must_use]
    pub fn without(mut self, uncompiled: &BTreeMap<MutantId, String>) -> Self {
        for (source, one) in self.project.sources.iter().enumerate() {
            for (mutant, found) in one.source.mutants().iter().enumerate() {
                if let Some(words) = uncompiled.get(&found.mutant.id) {
                    self.rollback.withdraw(MutantKey { source, mutant }, words.clone());
                }
            }
        }
        self.emit();
        self
    }

    pub fn project(&self) -> &MutatedProject {
        &self.project
    }

    /// Returns the number of compiler rounds so far.
    pub fn rounds(&self) -> u32 {
        self.rollback.rounds()
    }

    /// Returns the guarded sources, by path relative to the project root. Sources without a mutant are
    /// absent, except crate roots, which must declare the runtime.
    pub fn texts(&self) -> BTreeMap<PathBuf, &str> {
        let sources = self.project.sources.iter().zip(&self.emitted);
        sources
            .map(|(source, emitted)| (PathBuf::from(&*source.source.file().path), emitted.text.as_str()))
            .collect()
    }

    /// Ends the search for mutants that compile, and drops the guarded texts.
    #[must_use]
    pub fn into_built(self) -> BuiltProject {
        let uncompiled = self.rollback.withdrawn().iter();
        let uncompiled = uncompiled.map(|(key, words)| (self.found(*key).mutant.id, words.as_str().into()));
        let uncompiled = uncompiled.collect();
        let reasons = [(&self.taken_out, TAKEN_OUT), (self.rollback.constant(), CONSTANT)];
        let reasons =
            reasons.into_iter().flat_map(|(keys, reason)| keys.iter().map(move |key| (key, reason)));
        let left_out = reasons.map(|(key, reason)| (self.found(*key).mutant.id, reason)).collect();
        let written = |(source, emitted): (usize, EmittedSource)| {
            let mutants = emitted.arms.iter().map(|arm| arm.mutant);
            let mutants = mutants.filter(|&mutant| !self.taken_out.contains(&MutantKey { source, mutant }));
            let mut mutants: Vec<usize> = mutants.collect();
            mutants.sort_unstable();
            WrittenSource { mutants, entries: emitted.entries }
        };
        let written = self.emitted.into_iter().enumerate().map(written).collect();
        BuiltProject {
            project: self.project,
            first_numbers: self.first_numbers,
            total: self.total,
            written,
            uncompiled,
            left_out,
        }
    }

    /// Processes the errors of one compiler round, and writes the sources of the next round.
    pub fn next_round(&mut self, errors: &[CompilerError]) -> RollbackStep {
        let sources: Vec<CompiledSource<'_>> = self
            .project
            .sources
            .iter()
            .zip(&self.emitted)
            .map(|(source, emitted)| CompiledSource { source: &source.source, emitted })
            .collect();
        let by_path: BTreeMap<&str, usize> = self
            .project
            .sources
            .iter()
            .enumerate()
            .map(|(index, source)| (&*source.source.file().path, index))
            .collect();
        let source_of = |file: &str| by_path.get(file.strip_prefix("./").unwrap_or(file)).copied();
        let blame = compiler::blame(errors, &source_of, &sources);
        let step = self.rollback.next(&blame);
        if step == RollbackStep::Check {
            self.emit();
        }
        step
    }

    /// Returns the written mutants in code that the preprocessor may remove.
    fn conditional(&self) -> Vec<MutantKey> {
        let mut found = Vec::new();
        for (source, (one, emitted)) in self.project.sources.iter().zip(&self.emitted).enumerate() {
            let written: BTreeSet<usize> = emitted.arms.iter().map(|arm| arm.mutant).collect();
            let mutants = one.source.conditional_mutants().into_iter();
            let mutants = mutants.filter(|mutant| written.contains(mutant));
            found.extend(mutants.map(|mutant| MutantKey { source, mutant }));
        }
        found
    }

    /// Returns whether the preprocessor may remove any of the mutants.
    pub fn has_conditional(&self) -> bool {
        !self.conditional().is_empty()
    }

    /// Records the mutants that the preprocessor removed: their file was compiled, but never with their
    /// guard. Mutants of files that no compilation read are not recorded.
    pub fn note_compiled(&mut self, compiled: &CompiledGuards) {
        let mut taken_out = self.conditional();
        taken_out.retain(|key| {
            let source = self.project.sources[key.source].source.file();
            compiled.has_file(Path::new(&*source.path)) && !compiled.has_mutant(self.number(*key).0)
        });
        self.taken_out = taken_out.into_iter().collect();
    }

    /// Leaves out all mutants of a source that does not compile even without mutants, and restores the
    /// original.
    pub fn withdraw_source(&mut self, path: &str, words: &str) {
        let is_named = |source: &ProjectSource| &*source.source.file().path == path;
        let Some(source) = self.project.sources.iter().position(is_named) else { return };
        for mutant in self.emitted[source].arms.iter().map(|arm| arm.mutant) {
            self.rollback.withdraw(MutantKey { source, mutant }, words.to_owned());
        }
        self.emit();
    }

    /// Returns the mutants that do not compile, with the compiler message.
    pub fn uncompiled(&self) -> BTreeMap<MutantId, String> {
        let withdrawn = self.rollback.withdrawn().iter();
        withdrawn.map(|(key, words)| (self.found(*key).mutant.id, words.clone())).collect()
    }

    /// Returns a hash of everything outside of functions with mutants, such as tests, types and constants.
    pub fn rest_fingerprint(&self) -> Fingerprint {
        self.project.rest_fingerprint()
    }

    fn number(&self, key: MutantKey) -> MutantNumber {
        MutantNumber::of(self.first_numbers[key.source], key.mutant)
    }

    fn found(&self, key: MutantKey) -> &FoundMutant {
        &self.project.sources[key.source].source.mutants()[key.mutant]
    }

    fn emit(&mut self) {
        let previous = std::mem::take(&mut self.emitted);
        let mut previous = previous.into_iter();
        let mut withdrawn = Vec::new();
        for (source, one) in self.project.sources.iter().enumerate() {
            let mut left_out = self.left_out[source].clone();
            left_out.extend(self.rollback.left_out(source));
            let before = previous.next();
            let is_same = |emitted: &EmittedSource| {
                let written: BTreeSet<usize> = emitted.arms.iter().map(|arm| arm.mutant).collect();
                let mutants = one.source.mutants().iter().enumerate();
                mutants
                    .filter(|(index, found)| found.ignored.is_none() && !left_out.contains(index))
                    .map(|(index, _)| index)
                    .eq(written.iter().copied())
            };
            let emitted = match before.filter(is_same) {
                Some(emitted) => emitted,
                None => one.source.emit(self.first_numbers[source], &left_out),
            };
            withdrawn.extend(emitted.withdrawn.iter().map(|&mutant| MutantKey { source, mutant }));
            self.emitted.push(emitted);
        }
        for key in withdrawn {
            self.rollback.withdraw(key, NOT_WRITTEN.to_owned());
        }
    }
}
