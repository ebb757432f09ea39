//! Converts mutants found by another tool to [`Mutant`]s, with byte positions and stable ids.

use crate::{
    mutant::{ByteRange, Change, Description, Language, Mutant, Mutator, Position, SourceText},
    mutant_ids::MutantIds,
};
use std::{fmt, sync::Arc};

/// A source with mutants found by another tool.
#[derive(Clone, Debug)]
pub struct ForeignSource {
    pub path: Arc<str>,
    pub language: Language,
    pub text: Arc<str>,
}

/// A mutant as described by another tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignMutant {
    /// As in [`Mutant`], columns count UTF-16 units and the end is exclusive.
    pub start: Position,
    pub end: Position,
    pub mutator: String,
    pub replacement: String,
    pub description: Option<String>,
}

/// A position outside of the source: the source has changed, or the tool counts differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPlaceError {
    path: Arc<str>,
    start: Position,
    end: Position,
}

impl fmt::Display for UnknownPlaceError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, start, end } = self;
        let (from, to) = ((start.line, start.column), (end.line, end.column));
        write!(formatter, "{path} has no range {}:{} to {}:{}; ", from.0, from.1, to.0, to.1)?;
        formatter.write_str("was the file changed in the meantime?")
    }
}

impl std::error::Error for UnknownPlaceError {}

impl ForeignMutant {
    fn order(&self) -> (Position, Position, &str, &str) {
        (self.start, self.end, &self.mutator, &self.replacement)
    }
}

impl ForeignSource {
    /// Converts all mutants that a tool found in this source, in any order. All are needed at once, because
    /// equal mutants get their ids by their order in the source.
    ///
    /// # Errors
    /// A position is not in the source.
    pub fn mutants(&self, mut found: Vec<ForeignMutant>) -> Result<Vec<Mutant>, UnknownPlaceError> {
        found.sort_by(|one, other| one.order().cmp(&other.order()));
        let source = SourceText::new(Arc::clone(&self.path), self.language, Arc::clone(&self.text));
        let source = Arc::new(source);
        let item: Arc<str> = "".into();
        let mut ids = MutantIds::default();
        let mut mutants = Vec::with_capacity(found.len());
        for one in found {
            let bytes = source.byte(one.start).zip(source.byte(one.end)).filter(|(start, end)| start <= end);
            let unknown =
                || UnknownPlaceError { path: Arc::clone(&self.path), start: one.start, end: one.end };
            let (start, end) = bytes.ok_or_else(unknown)?;
            // The last part is the function, which is unknown.
            mutants.push(Mutant {
                id: ids.next_id([&*self.path, &one.mutator, &self.text[start..end], &one.replacement, ""]),
                source: Arc::clone(&source),
                mutator: Mutator::named(one.mutator),
                item: Arc::clone(&item),
                bytes: ByteRange::new(&(start..end)),
                change: Change::new(&(start..end), one.replacement),
                description: one.description.map_or(Description::None, |text| Description::Text(text.into())),
            });
        }
        Ok(mutants)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "const é = '𝄞' + b;\r\nif (é) { f(); }\nif (é) { f(); }\n";

    fn source(text: &str) -> ForeignSource {
        ForeignSource { path: "src/a.js".into(), language: Language::JavaScript, text: text.into() }
    }

    fn found(start: (u32, u32), end: (u32, u32), replacement: &str) -> ForeignMutant {
        let position = |(line, column)| Position { line, column };
        ForeignMutant {
            start: position(start),
            end: position(end),
            mutator: "BlockStatement".to_owned(),
            replacement: replacement.to_owned(),
            description: None,
        }
    }

    #[test]
    fn columns_are_utf16_units_and_ids_stay_when_lines_move() {
        let places =
            [found((3, 8), (3, 16), "{}"), found((1, 11), (1, 19), "x"), found((2, 8), (2, 16), "{}")];
        let mutants = source(TEXT).mutants(places.to_vec()).unwrap();
        let originals: Vec<&str> = mutants.iter().map(Mutant::original).collect();
        assert_eq!(originals, ["'𝄞' + b", "{ f(); }", "{ f(); }"]);
        assert!(mutants[1].id != mutants[2].id, "equal mutants have ids of their own");
        let moved = places.map(|one| {
            let below = |at: Position| Position { line: at.line + 1, ..at };
            ForeignMutant { start: below(one.start), end: below(one.end), ..one }
        });
        let again = source(&format!("// new\n{TEXT}")).mutants(moved.to_vec()).unwrap();
        let ids = |mutants: &[Mutant]| mutants.iter().map(|mutant| mutant.id).collect::<Vec<_>>();
        assert_eq!(ids(&mutants), ids(&again));
    }

    #[test]
    fn places_outside_of_the_source_are_refused() {
        for (start, end) in [
            ((0, 1), (1, 1)),
            ((1, 0), (1, 1)),
            ((9, 1), (9, 2)),
            ((1, 1), (1, 99)),
            // Past the end of the line.
            ((2, 1), (2, 18)),
            // Inside a surrogate pair.
            ((1, 13), (1, 15)),
            ((2, 3), (2, 1)),
            ((u32::MAX, u32::MAX), (u32::MAX, u32::MAX)),
        ] {
            let refused = source(TEXT).mutants(vec![found(start, end, "")]).unwrap_err();
            assert!(refused.to_string().contains("src/a.js"), "{refused}");
        }
        assert_eq!(source("").mutants(vec![found((1, 1), (1, 1), "x")]).unwrap().len(), 1);
    }
}
