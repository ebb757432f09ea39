//! Writes the guarded source: the original code with all mutants in guards. The runtime turns on one mutant
//! per process.
//!
//! ```text
//! a < b          (match heeler_guard::at(7,1) { 1 => { ((a) <= (b)) } _ => { (a < b) } })
//! f(x);          if heeler_guard::at(9,1)==0 { f(x); }
//! { body }       { match heeler_guard::at(1,1) { 1 => return 0, _ => {} } body }
//! { body }       { heeler_guard::at(30,0); body }   without a mutant: counts calls
//! loop { body }  loop { heeler_guard::at(0,0); body }
//! ```
//!
//! Mutants contain unguarded text, and only the original is guarded further; otherwise the text would grow
//! exponentially. The result is parsed again, and mutants that break the syntax are withdrawn before
//! compiling, because one syntax error hides all other errors.

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
    /// The mutant's code in the guarded source; the guard's test for a mutant that deletes a statement.
    pub bytes: Range<usize>,
}

/// A guarded source.
#[derive(Debug)]
pub struct EmittedSource {
    pub text: String,
    /// The written mutants, ordered by position.
    pub arms: Vec<EmittedArm>,
    /// Mutants withdrawn in this emission because they broke the syntax.
    pub withdrawn: BTreeSet<usize>,
    /// Functions of [`MutatedSource::functions`] whose body has no mutant at its beginning. Their calls are
    /// counted under separate numbers, which follow the numbers of all mutants of the source, in function
    /// order.
    pub entries: Vec<usize>,
    /// Start of each piece of the original, in the guarded source and in the original.
    pub(crate) pieces: Vec<(usize, usize)>,
    /// Guards in the guarded source, with the indices of their mutants.
    pub(crate) guards: Vec<(Range<usize>, Range<usize>)>,
}

impl MutatedSource {
    /// Writes the guarded source. Mutants are numbered from `first`, at least 1, whether they are written or
    /// not. Mutants that are ignored or in `withdrawn` are not written.
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

    /// Returns the mutants that broke the syntax of functions. Parses functions one by one, because the tree
    /// of a whole source is large. Returns `None` if that can't decide: a function does not parse on its
    /// own, or mutants are outside of functions.
    fn broken_functions(
        &self,
        emitted: &EmittedSource,
        parser: &mut SourceParser,
    ) -> Option<BTreeSet<usize>> {
        let mut blamed = BTreeSet::new();
        let mut arms = 0;
        // Compare each function with its original.
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
            // Blame the mutants at the errors, or all mutants of the function.
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

/// Returns the mutants that broke the syntax of a source. Errors that the original has too are ignored.
/// Errors outside of guards are left to the compiler, because the parser's recovery depends on all
/// surrounding code.
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
    /// Returns the mutant whose code contains a byte.
    pub fn arm_at(&self, byte: usize) -> Option<usize> {
        // Mutants contain unguarded text, so they never nest.
        let index = self.arms.partition_point(|arm| arm.bytes.start <= byte).checked_sub(1)?;
        let arm = &self.arms[index];
        (byte < arm.bytes.end).then_some(arm.mutant)
    }

    /// Returns the mutant whose code follows a byte of a guard, unless the byte belongs to the original.
    pub(crate) fn arm_behind(&self, byte: usize) -> Option<usize> {
        let index = self.pieces.partition_point(|&(at, _)| at <= byte);
        let (at, original) = *self.pieces.get(index.checked_sub(1)?)?;
        // The pieces cover the original without gaps, so the next piece begins where this one ends.
        let (next_at, next_original) = *self.pieces.get(index)?;
        if byte < at + (next_original - original) {
            return None;
        }
        let arm = self.arms.get(self.arms.partition_point(|arm| arm.bytes.start <= byte))?;
        (arm.bytes.start < next_at).then_some(arm.mutant)
    }

    /// Maps a byte of the guarded source to the original; code of a guard maps to the preceding byte.
    pub fn original_byte(&self, byte: usize) -> usize {
        let index = self.pieces.partition_point(|&(at, _)| at <= byte);
        let Some(&(at, original)) = index.checked_sub(1).and_then(|index| self.pieces.get(index)) else {
            return 0;
        };
        let end = self.pieces.get(index).map_or(usize::MAX, |&(_, next)| next);
        (original + (byte - at)).min(end)
    }

    /// Maps a range of the original to the guarded source, including everything written inside, but not what
    /// is written before its first byte. `length` is the length of the original.
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

    /// Returns the mutants whose code is in a range of the guarded source.
    fn arms_in(&self, bytes: &Range<usize>) -> &[EmittedArm] {
        let index = |byte: usize| self.arms.partition_point(|arm| arm.bytes.start < byte);
        &self.arms[index(bytes.start)..index(bytes.end)]
    }

    /// Returns the mutants that may have broken the syntax at a place: the mutant there, or all mutants of
    /// the innermost guard.
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
