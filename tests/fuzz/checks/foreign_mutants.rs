//! Mutants that StrykerJS reports for a source: a response to `discover`, followed by a zero byte and the
//! source text. Accepted mutants are inside the text and have distinct ids; all others are rejected.

use std::collections::BTreeSet;

use heeler_mutant_model::{ForeignMutant, ForeignSource, Language, Position};
use heeler_protocol::mutation::{
    SourcePosition, read_result,
    v0_4::{DiscoverResult, DiscoveredMutant, MutationTestResult},
};
use serde_json::value::RawValue;

/// Checks each file in the response as if every file had the same text.
pub fn foreign_mutants(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let (Some(answer), text) = (parts.next(), parts.next().unwrap_or_default()) else { return };
    let (Ok(answer), Ok(text)) = (str::from_utf8(answer), str::from_utf8(text)) else { return };
    let Ok(answer) = RawValue::from_string(answer.to_owned()) else { return };
    // Parsing the response as a response to another request may succeed or fail, but must not panic.
    let (Ok(_) | Err(_)) = read_result::<MutationTestResult>(Some(&answer));
    let Ok(found) = read_result::<DiscoverResult>(Some(&answer)) else { return };
    for (path, file) in found.files {
        let source = ForeignSource { path: path.into(), language: Language::JavaScript, text: text.into() };
        let count = file.mutants.len();
        let Ok(mutants) = source.mutants(file.mutants.into_iter().map(foreign).collect()) else { continue };
        assert_eq!(mutants.len(), count);
        let ids: BTreeSet<_> = mutants.iter().map(|mutant| mutant.id).collect();
        assert_eq!(ids.len(), count, "equal mutants have ids of their own");
        for mutant in &mutants {
            assert_eq!(mutant.original(), &text[mutant.bytes()]);
            assert!(mutant.start() <= mutant.end(), "{mutant:?}");
        }
    }
}

fn foreign(mutant: DiscoveredMutant) -> ForeignMutant {
    let position = |position: SourcePosition| Position { line: position.line, column: position.column };
    ForeignMutant {
        start: position(mutant.location.start),
        end: position(mutant.location.end),
        mutator: mutant.mutator_name,
        replacement: mutant.replacement.unwrap_or_default(),
        description: mutant.description,
    }
}
