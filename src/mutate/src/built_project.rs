//! A compiled project: which mutants its programs contain, and their numbers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use heeler_mutant::FoundMutant;
use heeler_mutant_model::{MutantId, Mutator};

use crate::{fingerprint::Fingerprint, module_tree::MutatedProject};

/// The number of a mutant in the programs, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MutantNumber(pub u32);

impl MutantNumber {
    /// Numbers a mutant by its index in its source; `first` is the number of the source's first mutant.
    pub(crate) fn of(first: u32, place: usize) -> Self {
        Self(first.saturating_add(u32::try_from(place).unwrap_or(u32::MAX)))
    }
}

/// A mutant that may be tested.
#[derive(Clone, Copy, Debug)]
pub struct NumberedMutant<'a> {
    pub number: MutantNumber,
    pub found: &'a FoundMutant,
    /// The function that contains the mutant.
    pub function: FunctionId,
}

/// A function, by source index and index within the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId {
    pub source: usize,
    pub function: usize,
}

/// The mutants and functions of one source that the programs contain.
#[derive(Debug)]
pub(crate) struct WrittenSource {
    /// Indices of the mutants, ascending.
    pub(crate) mutants: Vec<usize>,
    /// Functions whose calls have their own counter numbers.
    pub(crate) entries: Vec<usize>,
}

/// A project whose programs are compiled.
#[derive(Debug)]
pub struct BuiltProject {
    pub(crate) project: MutatedProject,
    /// The number of each source's first mutant.
    pub(crate) first_numbers: Vec<u32>,
    pub(crate) total: u32,
    pub(crate) written: Vec<WrittenSource>,
    pub(crate) uncompiled: BTreeMap<MutantId, Arc<str>>,
    pub(crate) left_out: BTreeMap<MutantId, &'static str>,
}

impl BuiltProject {
    pub fn project(&self) -> &MutatedProject {
        &self.project
    }

    /// Returns the greatest number of a mutant.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Returns the mutants that do not compile, with the compiler message.
    pub fn uncompiled(&self) -> &BTreeMap<MutantId, Arc<str>> {
        &self.uncompiled
    }

    /// Returns the reason for each selected, valid mutant that no program contains.
    pub fn left_out(&self) -> &BTreeMap<MutantId, &'static str> {
        &self.left_out
    }

    /// Returns the mutants in the programs, ordered by number.
    pub fn written(&self) -> impl Iterator<Item = NumberedMutant<'_>> {
        let sources = self.written.iter().enumerate();
        sources.flat_map(move |(source, written)| {
            written.mutants.iter().map(move |&mutant| self.mutant(source, mutant))
        })
    }

    /// Returns the mutant with a number, if the programs contain it.
    pub fn written_mutant(&self, number: MutantNumber) -> Option<NumberedMutant<'_>> {
        let source = self.first_numbers.partition_point(|&first| first <= number.0).checked_sub(1)?;
        let mutant = (number.0 - self.first_numbers[source]) as usize;
        let is_written = self.written[source].mutants.binary_search(&mutant).is_ok();
        is_written.then(|| self.mutant(source, mutant))
    }

    fn mutant(&self, source: usize, mutant: usize) -> NumberedMutant<'_> {
        let found = &self.project.sources[source].source.mutants()[mutant];
        let function = FunctionId { source, function: found.function };
        NumberedMutant { number: MutantNumber::of(self.first_numbers[source], mutant), found, function }
    }

    /// Returns a hash of the code of each function with mutants.
    pub fn function_fingerprints(&self) -> BTreeMap<FunctionId, Fingerprint> {
        let mut found = BTreeMap::new();
        for (source, one) in self.project.sources.iter().enumerate() {
            for (function, declared) in one.source.functions().iter().enumerate() {
                let code = &one.source.file().text[declared.bytes.clone()];
                let id = FunctionId { source, function };
                found.insert(id, Fingerprint::of([declared.item.as_bytes(), code.as_bytes()]));
            }
        }
        found
    }

    /// Returns the functions whose every call is counted.
    pub(crate) fn functions_with_seen_entries(&self) -> BTreeSet<FunctionId> {
        let is_at_entry = |one: &NumberedMutant<'_>| one.found.mutant.mutator == Mutator::FUNCTION_VALUE;
        let by_mutants = self.written().filter(is_at_entry).map(|one| one.function);
        by_mutants.chain(self.entries().map(|(_, function)| function)).collect()
    }

    /// Returns the functions whose calls have their own counter numbers.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (MutantNumber, FunctionId)> + '_ {
        self.written.iter().enumerate().flat_map(move |(source, written)| {
            let mutants = self.project.sources[source].source.mutants().len();
            written.entries.iter().map(move |&function| {
                let number = MutantNumber::of(self.first_numbers[source], mutants + function);
                (number, FunctionId { source, function })
            })
        })
    }
}
