//! The guarded source: the original with all its mutants beside it, of which the runtime turns on one in each
//! process.
//!
//! ```text
//! a < b            (match heeler_guard::at(7,2) { 1 => { ((a) <= (b)) } 2 => { ((a) >= (b)) } _ => { (a < b) } })
//! f(x);            if heeler_guard::at(9,1)==0 { f(x); }
//! { body }         { match heeler_guard::at(1,1) { 1 => return 0, _ => {} } body }
//! { body }         { heeler_guard::at(30,0); body }, where no mutant stands: a call
//! loop { body }    loop { heeler_guard::at(0,0); body }
//! ```
//!
//! Mutated arms hold pristine text and only the original is guarded further, so that the text does not grow
//! exponentially. What is written is parsed again: a mutant that breaks the syntax is withdrawn before any
//! compiler sees it, because one such error hides all others.

mod python;
mod writer;

use crate::source::{MutatedSource, SourceParser};
use std::{collections::BTreeSet, ops::Range};
use writer::NumberedMutants;

/// A mutant in a guarded source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmittedArm {
    /// Index in [`MutatedSource::mutants`].
    pub mutant: usize,
    /// Its code in the guarded source. The test of the guard, for a mutant that leaves out a statement.
    pub bytes: Range<usize>,
}

/// A guarded source.
#[derive(Debug)]
pub struct EmittedSource {
    pub text: String,
    /// The mutants that are in it, in the order of their code.
    pub arms: Vec<EmittedArm>,
    /// Mutants without which it can be parsed: the new ones of this emission.
    pub withdrawn: BTreeSet<usize>,
    /// Functions of [`MutatedSource::functions`] at whose beginnings no mutant stands: their calls are
    /// counted under numbers of their own, behind those of all mutants of the source, in the order of the
    /// functions.
    pub entries: Vec<usize>,
    /// Pieces of the original: where they are in the guarded source, and in the original.
    pub(crate) pieces: Vec<(usize, usize)>,
    /// Guards in the guarded source, with the indices of their mutants.
    pub(crate) guards: Vec<(Range<usize>, Range<usize>)>,
}

impl MutatedSource {
    /// Writes the guarded source. Its mutants have the numbers from `first` on, from 1, whether they are
    /// written or not; those that are ignored or in `withdrawn` are not.
    pub fn emit(&self, first: u32, withdrawn: &BTreeSet<usize>) -> EmittedSource {
        let mut parser = SourceParser::new(self.file.language);
        let guards = self.guards(&mut parser);
        let mut left_out = withdrawn.clone();
        left_out.extend((0..self.mutants().len()).filter(|&index| self.mutants()[index].ignored.is_some()));
        let mut new = BTreeSet::new();
        loop {
            let mut emitted = writer::write(self, &guards, NumberedMutants { first, left_out: &left_out });
            let of_functions = self.broken_functions(&emitted, &mut parser);
            let blamed = of_functions
                .unwrap_or_else(|| broken_whole(&emitted, &self.file.text, guards.errors, &mut parser));
            if blamed.is_empty() {
                emitted.withdrawn = new;
                return emitted;
            }
            left_out.extend(&blamed);
            new.extend(blamed);
        }
    }

    /// Returns the mutants that have broken the syntax of functions, which are parsed one by one: the tree of
    /// a whole source is large. `None` if that does not say it: a function can't be understood without what
    /// is around it, or mutants are outside of functions.
    fn broken_functions(
        &self,
        emitted: &EmittedSource,
        parser: &mut SourceParser,
    ) -> Option<BTreeSet<usize>> {
        let mut blamed = BTreeSet::new();
        let mut arms = 0;
        for function in self.outermost_functions() {
            let original = &self.file.text[function.bytes.clone()];
            let bytes = emitted.emitted_bytes(&function.bytes, self.file.text.len());
            let text = &emitted.text[bytes.clone()];
            let of_function = emitted.arms_in(&bytes);
            arms += of_function.len();
            if text == original {
                continue;
            }
            let errors = parser.errors(text);
            if errors.is_empty() {
                continue;
            }
            match parser.errors(original).len() {
                0 => {}
                of_original if errors.len() <= of_original => continue,
                _ => return None,
            }
            let found = errors
                .iter()
                .flat_map(|error| emitted.mutants_at(&(bytes.start + error.start..bytes.start + error.end)));
            let mut found: BTreeSet<usize> = found.collect();
            if found.is_empty() {
                found.extend(of_function.iter().map(|arm| arm.mutant));
            }
            if found.is_empty() {
                return None;
            }
            blamed.extend(found);
        }
        (arms == emitted.arms.len()).then_some(blamed)
    }
}

/// Returns the mutants that have broken the syntax of a source. What is no code in the original, or none for
/// the parser, stays so. An error that is in no guard is left to the compiler: what the parser makes of code
/// that it does not understand depends on all that is around it.
fn broken_whole(
    emitted: &EmittedSource,
    original: &str,
    original_errors: usize,
    parser: &mut SourceParser,
) -> BTreeSet<usize> {
    let errors = parser.errors(&emitted.text);
    if errors.len() <= original_errors {
        return BTreeSet::new();
    }
    let of_original = parser.errors(original);
    let is_new = |error: &&Range<usize>| {
        let byte = emitted.original_byte(error.start);
        !of_original.iter().any(|one| (one.start..=one.end).contains(&byte))
    };
    errors.iter().filter(is_new).flat_map(|error| emitted.mutants_at(error)).collect()
}

impl EmittedSource {
    /// Returns the mutant whose code is around a byte, the innermost one.
    pub fn arm_at(&self, byte: usize) -> Option<usize> {
        // Arms hold pristine text: none is inside of another.
        let index = self.arms.partition_point(|arm| arm.bytes.start <= byte).checked_sub(1)?;
        let arm = &self.arms[index];
        (byte < arm.bytes.end).then_some(arm.mutant)
    }

    /// Returns the mutant whose code follows a byte of a guard that is no part of the original.
    pub(crate) fn arm_behind(&self, byte: usize) -> Option<usize> {
        let index = self.pieces.partition_point(|&(at, _)| at <= byte);
        let (at, original) = *self.pieces.get(index.checked_sub(1)?)?;
        // Each byte of the original is in one piece, so that the next one begins where this one ends.
        let (next_at, next_original) = *self.pieces.get(index)?;
        if byte < at + (next_original - original) {
            return None;
        }
        let arm = self.arms.get(self.arms.partition_point(|arm| arm.bytes.start <= byte))?;
        (arm.bytes.start < next_at).then_some(arm.mutant)
    }

    /// Returns the byte of the original that a byte of the guarded source is made of, or the one before.
    pub fn original_byte(&self, byte: usize) -> usize {
        let index = self.pieces.partition_point(|&(at, _)| at <= byte);
        let Some(&(at, original)) = index.checked_sub(1).and_then(|index| self.pieces.get(index)) else {
            return 0;
        };
        let end = self.pieces.get(index).map_or(usize::MAX, |&(_, next)| next);
        (original + (byte - at)).min(end)
    }

    /// Returns where a part of the original is, with all that is written inside, behind what is written
    /// before its first byte. `length` is that of the original.
    fn emitted_bytes(&self, original: &Range<usize>, length: usize) -> Range<usize> {
        let at = |byte: usize| {
            let index = self.pieces.partition_point(|&(_, piece)| piece <= byte);
            let next = self.pieces.get(index).map_or(self.text.len(), |&(at, _)| at);
            match index.checked_sub(1).map(|index| self.pieces[index]) {
                Some((at, piece)) if byte < length => (at + (byte - piece)).min(next),
                Some(_) | None => next,
            }
        };
        at(original.start)..at(original.end)
    }

    /// Returns the mutants whose code is in a part of the guarded source.
    fn arms_in(&self, bytes: &Range<usize>) -> &[EmittedArm] {
        let index = |byte: usize| self.arms.partition_point(|arm| arm.bytes.start < byte);
        &self.arms[index(bytes.start)..index(bytes.end)]
    }

    /// Returns the mutants that may have broken the syntax at a place: the arm there, or all of the innermost
    /// guard.
    fn mutants_at(&self, place: &Range<usize>) -> Vec<usize> {
        if let Some(mutant) = self.arm_at(place.start) {
            return vec![mutant];
        }
        let around =
            self.guards.iter().filter(|(bytes, _)| bytes.start <= place.start && place.start <= bytes.end);
        let innermost = around.min_by_key(|(bytes, _)| bytes.len());
        let of_guard = innermost.map_or(0..0, |(_, mutants)| mutants.clone());
        of_guard.filter(|mutant| self.arms.iter().any(|arm| arm.mutant == *mutant)).collect()
    }
}
