//! Finds the mutants that caused compiler errors.
//!
//! An error can point at a mutant's code, which blames that mutant, or at the original code while mentioning
//! the mutant's code in its explanation. If a variable has no value, or has lost its value, the error points
//! at its use, and the mutant that deletes the assignment is to blame. In C++, an error can also point at the
//! guard itself, whose branches lack a common type, or into a template that guarded code instantiates. Any
//! other error is only attributed to a function.

use super::{
    constant::{FunctionKey, constant_functions},
    error::{CompilerError, ErrorPlace, ErrorSpan},
};
use crate::{emit::EmittedSource, source::MutatedSource};
use heeler_mutant_model::{Language, LineIndex, Mutator};
use std::collections::{BTreeMap, BTreeSet};

/// A mutant, by source index and index within the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MutantKey {
    pub source: usize,
    pub mutant: usize,
}

/// A source as it was compiled.
#[derive(Clone, Copy, Debug)]
pub struct CompiledSource<'a> {
    pub source: &'a MutatedSource,
    pub emitted: &'a EmittedSource,
}

/// An error that can't be blamed on a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnexplainedError {
    pub source: usize,
    /// The function that contains the error; `None` outside of functions.
    pub function: Option<usize>,
    pub summary: String,
}

/// The conclusions from the errors of one round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blame {
    /// Mutants that do not compile, with the compiler message.
    pub mutants: BTreeMap<MutantKey, String>,
    /// Functions that must stay constant, with the compiler message.
    pub constant: BTreeMap<FunctionKey, String>,
    /// Errors in guarded sources that can't be blamed on a mutant.
    pub unexplained: Vec<UnexplainedError>,
    /// Errors outside of guarded sources.
    pub foreign: Vec<String>,
}

/// Finds the mutants that caused errors. `source_of` maps a compiler's file name to the index of the guarded
/// source.
pub fn blame(
    errors: &[CompilerError],
    source_of: &dyn Fn(&str) -> Option<usize>,
    sources: &[CompiledSource<'_>],
) -> Blame {
    let mut blame = Blame::default();
    for error in errors {
        // Calls in constants need functions without guards.
        let constant = constant_functions(error, source_of, sources);
        if !constant.is_empty() {
            blame.constant.extend(constant.into_iter().map(|function| (function, error.summary())));
            continue;
        }
        // Locate the error in the guarded sources.
        let spans = error.spans.iter().filter_map(|span| Pointed::of(span, source_of, sources));
        let (primary, secondary): (Vec<_>, Vec<_>) = spans.partition(|span| span.is_primary);
        let Some(first) = primary.first().or_else(|| secondary.first()) else {
            blame.foreign.push(error.summary_with_place());
            continue;
        };
        let compiled = sources[first.source];
        // Try the specific explanations first.
        let mut guilty = BTreeSet::new();
        match error.code.as_deref() {
            Some("E0381") => guilty = left_out_assignments(error, first, &secondary, compiled),
            Some("E0382") => guilty = left_out_after_move(error, first, &secondary, compiled),
            _ => {}
        }
        if guilty.is_empty() {
            let at_code = primary.iter().filter_map(|one| sources[one.source].arm(one));
            guilty = at_code.collect();
        }
        if guilty.is_empty() && error.code.as_deref() == Some("E0317") {
            guilty = left_out_value(first, compiled);
        }
        if guilty.is_empty() && compiled.source.file().language == Language::Cpp {
            let from_inside = primary.iter().chain(&secondary);
            guilty = from_inside
                .map(|one| of_guard(one, sources))
                .find(|found| !found.is_empty())
                .unwrap_or_default();
        }
        if guilty.is_empty() {
            guilty = explained_by(first, &secondary, compiled);
        }
        // Record the mutants, or the function if no mutant explains the error.
        for mutant in &guilty {
            let key = MutantKey { source: mutant.source, mutant: mutant.mutant };
            blame.mutants.entry(key).or_insert_with(|| error.summary());
        }
        if guilty.is_empty() {
            let function = compiled.source.function_at(compiled.emitted.original_byte(first.byte));
            blame.unexplained.push(UnexplainedError {
                source: first.source,
                function,
                summary: error.summary_with_place(),
            });
        }
    }
    blame
}

/// A place in a guarded source that an error points at.
pub(super) struct Pointed {
    pub(super) source: usize,
    pub(super) byte: usize,
    is_primary: bool,
}

impl Pointed {
    pub(super) fn of(
        span: &ErrorSpan,
        source_of: &dyn Fn(&str) -> Option<usize>,
        sources: &[CompiledSource<'_>],
    ) -> Option<Self> {
        let source = source_of(&span.file)?;
        let text = &sources.get(source)?.emitted.text;
        let byte = match &span.place {
            ErrorPlace::Bytes { bytes, .. } => bytes.start,
            ErrorPlace::Line { line, column } => LineIndex::new(text).offset(text, *line, *column)?,
        };
        Some(Self { source, byte, is_primary: span.is_primary })
    }
}

impl CompiledSource<'_> {
    fn arm(self, pointed: &Pointed) -> Option<MutantKey> {
        let mutant = self.emitted.arm_at(pointed.byte)?;
        Some(MutantKey { source: pointed.source, mutant })
    }
}

/// Returns the mutant whose code contains a place, or whose code follows that place in the same guard.
fn of_guard(pointed: &Pointed, sources: &[CompiledSource<'_>]) -> BTreeSet<MutantKey> {
    let emitted = sources[pointed.source].emitted;
    let mutant = emitted.arm_at(pointed.byte).or_else(|| emitted.arm_behind(pointed.byte));
    mutant.map(|mutant| MutantKey { source: pointed.source, mutant }).into_iter().collect()
}

/// Returns the mutants in the guards around the error whose code the error's explanation points at.
fn explained_by(
    primary: &Pointed,
    secondary: &[Pointed],
    compiled: CompiledSource<'_>,
) -> BTreeSet<MutantKey> {
    let around = compiled.emitted.guards.iter().filter(|(bytes, _)| bytes.contains(&primary.byte));
    let mutants: BTreeSet<usize> = around.flat_map(|(_, mutants)| mutants.clone()).collect();
    let named = secondary.iter().filter(|one| one.source == primary.source);
    named.filter_map(|one| compiled.arm(one)).filter(|key| mutants.contains(&key.mutant)).collect()
}

/// Returns the mutant that deletes the statement at an error. A macro at the end of a block is the block's
/// value, even with a semicolon, but the guard's `if` around it has no value.
fn left_out_value(primary: &Pointed, compiled: CompiledSource<'_>) -> BTreeSet<MutantKey> {
    let guard = compiled.emitted.guards.iter().find(|(bytes, _)| bytes.start == primary.byte);
    let mutants = guard.map_or(0..0, |(_, mutants)| mutants.clone());
    let is_left_out =
        |mutant: &usize| compiled.source.mutants()[*mutant].mutant.mutator == Mutator::STATEMENT_DELETION;
    mutants.filter(is_left_out).map(|mutant| MutantKey { source: primary.source, mutant }).collect()
}

/// Returns the mutants that delete an assignment which would have initialized the variable.
fn left_out_assignments(
    error: &CompilerError,
    used: &Pointed,
    secondary: &[Pointed],
    compiled: CompiledSource<'_>,
) -> BTreeSet<MutantKey> {
    let guilty = assignments_since(0, error, used, secondary, compiled).into_iter();
    guilty.map(|mutant| MutantKey { source: used.source, mutant }).collect()
}

/// Returns the mutants that delete an assignment between the move of a variable and its use. In a loop, the
/// assignment may be in the previous iteration. Assignments followed by leaving the loop do not count.
fn left_out_after_move(
    error: &CompilerError,
    used: &Pointed,
    secondary: &[Pointed],
    compiled: CompiledSource<'_>,
) -> BTreeSet<MutantKey> {
    let used_at = compiled.emitted.original_byte(used.byte);
    let named = secondary.iter().filter(|one| one.source == used.source);
    let moved_at = named.map(|one| compiled.emitted.original_byte(one.byte)).filter(|byte| *byte < used_at);
    // The last place named before the use is the move, or the start of the loop.
    let since = moved_at.max().unwrap_or(used_at);
    let goes_on = |mutant: &usize| {
        let end = compiled.source.mutants()[*mutant].mutant.bytes().end;
        !ends_block_by_leaving(compiled.source.file().text.get(end..).unwrap_or_default())
    };
    let guilty = assignments_since(since, error, used, secondary, compiled).into_iter().filter(goes_on);
    guilty.map(|mutant| MutantKey { source: used.source, mutant }).collect()
}

/// Returns the mutants that delete an assignment `VARIABLE = …` to the variable named in the error. The
/// assignment must be in the function of the use, after the declaration and after `since`. Assignments
/// before the use take precedence.
fn assignments_since(
    since: usize,
    error: &CompilerError,
    used: &Pointed,
    secondary: &[Pointed],
    compiled: CompiledSource<'_>,
) -> Vec<usize> {
    let Some(variable) = error.message.split('`').nth(1) else { return Vec::new() };
    let declared = secondary.iter().filter(|one| one.source == used.source);
    let declared_at = declared.map(|one| compiled.emitted.original_byte(one.byte)).min().unwrap_or(0);
    let used_at = compiled.emitted.original_byte(used.byte);
    let function = compiled.source.function_at(used_at);
    let assigns = |original: &str| {
        let rest = original.strip_prefix(variable).map(str::trim_start).unwrap_or_default();
        rest.starts_with('=') && !rest.starts_with("==")
    };
    let written = compiled.emitted.arms.iter().filter(|arm| {
        let found = &compiled.source.mutants()[arm.mutant];
        found.mutant.mutator == Mutator::STATEMENT_DELETION
            && Some(found.function) == function
            && found.mutant.bytes().start >= declared_at.max(since)
            && assigns(found.mutant.original())
    });
    let (before, behind): (Vec<_>, Vec<_>) = written
        .map(|arm| arm.mutant)
        .partition(|&mutant| compiled.source.mutants()[mutant].mutant.bytes().start < used_at);
    // In a loop, the value may be assigned after the use.
    if before.is_empty() { behind } else { before }
}

/// Returns whether the rest of the block contains a statement that leaves the loop or function.
fn ends_block_by_leaving(rest: &str) -> bool {
    let mut depth = 0_u32;
    let mut is_statement_start = true;
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' if depth == 0 => return false,
            b'}' | b')' | b']' => depth -= 1,
            _ => {}
        }
        if depth == 0
            && is_statement_start
            && rest.is_char_boundary(at)
            && ["break", "return"].iter().any(|word| is_word(&rest[at..], word))
        {
            return true;
        }
        is_statement_start =
            matches!(byte, b';' | b'}') || (is_statement_start && byte.is_ascii_whitespace());
    }
    false
}

fn is_word(text: &str, word: &str) -> bool {
    text.strip_prefix(word)
        .is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
}
