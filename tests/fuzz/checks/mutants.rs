//! Guarded sources: for any source, the source with guards parses as far as the original does.

use heeler_mutant::{Configuration, MutatedSource, SourceFile};
use heeler_mutant_model::Language;
use std::collections::BTreeSet;

/// Checks the mutants of a source, and the source with guards for them. The first byte selects the language.
pub fn guarded_source(bytes: &[u8]) {
    let Some((&first, bytes)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (language, path) = match first {
        b'c' => (Language::C, "a.c"),
        b'+' => (Language::Cpp, "a.cpp"),
        b'p' => (Language::Python, "a.py"),
        _ => (Language::Rust, "a.rs"),
    };
    let file = SourceFile { path: path.into(), language, text: text.into(), ignored: None };
    let source = MutatedSource::search(file, Configuration::of_rustc("unix"));
    let emitted = source.emit(1, &BTreeSet::new());
    let written: BTreeSet<_> = emitted.arms.iter().map(|arm| arm.mutant).collect();
    for (index, found) in source.mutants().iter().enumerate() {
        let (start, end) = (found.mutant.start(), found.mutant.end());
        assert_eq!(&text[found.mutant.bytes()], found.mutant.original());
        assert!(start.line >= 1 && start.column >= 1 && start <= end, "{start:?} {end:?}");
        let is_out = found.ignored.is_some() || emitted.withdrawn.contains(&index);
        assert_eq!(written.contains(&index), !is_out, "{:?}", found.mutant);
    }
    // Emitting again without the withdrawn mutants does not withdraw more.
    let again = source.emit(1, &emitted.withdrawn);
    assert_eq!((again.text, again.withdrawn), (emitted.text, BTreeSet::new()));
    let none = source.emit(1, &(0..source.mutants().len()).collect());
    assert_eq!(none.text, text);
}
