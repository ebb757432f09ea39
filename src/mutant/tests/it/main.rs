//! Tests of the public interface: mutants of sources.
#![expect(clippy::unwrap_used, reason = "a failed step of a test ends it")]
#![expect(clippy::disallowed_methods, reason = "the tests compile what is written")]

mod blame;
mod cpp;
mod emission;
mod mutants;
mod python;
mod rollback;
mod rust_program;

use heeler_mutant::{Configuration, MutatedSource, SourceFile};
use heeler_mutant_model::Language;

/// Searches a text for mutants, as configured on a Linux machine with the feature `std`.
fn search(language: Language, text: &str) -> MutatedSource {
    let mut configuration = Configuration::of_rustc("unix\ntarget_os=\"linux\"");
    configuration.add_feature("std");
    let path = match language {
        Language::Rust => "src/lib.rs",
        Language::C => "list.c",
        Language::Cpp => "list.cpp",
        Language::Python => "pkg/list.py",
        Language::JavaScript | Language::TypeScript => panic!("another tool searches them"),
    };
    let file = SourceFile { path: path.into(), language, text: text.into(), ignored: None };
    MutatedSource::search(file, configuration)
}

fn rust(text: &str) -> MutatedSource {
    search(Language::Rust, text)
}

/// Returns one line for each mutant: line and column, mutator, original and replacement.
fn lines(source: &MutatedSource) -> Vec<String> {
    let line = |found: &heeler_mutant::FoundMutant| {
        let mutant = &found.mutant;
        let start = mutant.start();
        let ignored = found.ignored.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        let shown = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (original, replacement) = (shown(mutant.original()), shown(&mutant.replacement()));
        format!("{}:{} {} {original} → {replacement}{ignored}", start.line, start.column, mutant.mutator)
    };
    source.mutants().iter().map(line).collect()
}
