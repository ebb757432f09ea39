//! Finds functions that must stay `const`, from errors about calls in constants.

use super::{
    blame::{CompiledSource, Pointed},
    error::{CompilerError, ErrorSpan},
};
use std::collections::BTreeSet;

/// A function, by source index and index within the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionKey {
    pub source: usize,
    pub function: usize,
}

/// Error code of calls in constants.
const NOT_CONSTANT_CALL: &str = "E0015";

/// Returns the functions whose lost `const` caused an error: the function that the error names, or all
/// candidates.
pub(super) fn constant_functions(
    error: &CompilerError,
    source_of: &dyn Fn(&str) -> Option<usize>,
    sources: &[CompiledSource<'_>],
) -> BTreeSet<FunctionKey> {
    if error.code.as_deref() != Some(NOT_CONSTANT_CALL) {
        return BTreeSet::new();
    }
    let changed = changed_functions(sources);
    let at = |span: &ErrorSpan| {
        let pointed = Pointed::of(span, source_of, sources)?;
        let compiled = sources[pointed.source];
        let function = compiled.source.function_at(compiled.emitted.original_byte(pointed.byte))?;
        Some(FunctionKey { source: pointed.source, function })
    };
    if let Some(key) = error.defined.as_ref().and_then(at).filter(|key| changed.contains(key)) {
        return BTreeSet::from([key]);
    }
    let name = error.message.split('`').nth(1).map(segments).unwrap_or_default();
    // The name may lack modules, or start with another crate's name for them.
    for length in [2, 1] {
        let named = |key: &&FunctionKey| {
            let item = segments(&sources[key.source].source.functions()[key.function].item);
            name.len() >= length && item.len() >= length && ends_equally(&name, &item, length)
        };
        let found: BTreeSet<FunctionKey> = changed.iter().filter(named).copied().collect();
        if !found.is_empty() {
            return found;
        }
    }
    changed
}

fn ends_equally(one: &[String], other: &[String], length: usize) -> bool {
    one[one.len() - length..] == other[other.len() - length..]
}

/// Returns the functions that lost their `const` because they have mutants.
fn changed_functions(sources: &[CompiledSource<'_>]) -> BTreeSet<FunctionKey> {
    let mut found = BTreeSet::new();
    for (source, compiled) in sources.iter().enumerate() {
        for arm in &compiled.emitted.arms {
            let function = compiled.source.mutants()[arm.mutant].function;
            if compiled.source.functions()[function].is_constant {
                found.insert(FunctionKey { source, function });
            }
        }
    }
    found
}

/// Splits a path into its parts, without generic arguments.
fn segments(path: &str) -> Vec<String> {
    let mut plain = String::with_capacity(path.len());
    let mut depth = 0_u32;
    for letter in path.chars() {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth == 0 => plain.push(letter),
            _ => {}
        }
    }
    plain.split("::").filter(|part| !part.is_empty()).map(|part| part.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_compared_without_types() {
        for (path, expected) in [
            ("f", vec!["f"]),
            ("a::List::<T>::new", vec!["a", "List", "new"]),
            ("<impl Iterator<Item = u8>>::len", vec!["len"]),
        ] {
            assert_eq!(segments(path), expected);
        }
    }
}
