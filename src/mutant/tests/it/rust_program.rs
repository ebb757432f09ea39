//! Rust: checks in one program that each guarded mutant behaves like a source with the mutant's text.

use crate::rust;
use std::{collections::BTreeSet, fs, process::Command};

/// Runtime of the guards, and the comparison of each mutant with a source that contains its text.
const MAIN: &str = r#"
pub mod heeler_guard {
    use std::sync::atomic::{AtomicU32, Ordering};
    pub static MUTANT: AtomicU32 = AtomicU32::new(0);
    pub fn at(base: u32, count: u32) -> u32 {
        let mutant = MUTANT.load(Ordering::Relaxed);
        if mutant >= base && mutant - base < count { mutant - base + 1 } else { 0 }
    }
}
fn results<T: ToString>(function: fn(i32) -> T) -> Vec<String> {
    (0..10).map(|n| std::panic::catch_unwind(|| function(n).to_string()).unwrap_or_default()).collect()
}
fn check(mutant: u32, changed: Vec<(&str, Vec<String>)>) {
    heeler_guard::MUTANT.store(mutant, std::sync::atomic::Ordering::Relaxed);
    for ((name, found), (_, expected)) in guarded::all().into_iter().zip(original::all()) {
        let expected = changed.iter().find(|(changed, _)| *changed == name).map_or(&expected, |(_, is)| is);
        if found != *expected {
            println!("{mutant}: {name} is {found:?}, not {expected:?}");
        }
    }
}
"#;

/// An item of a source; empty lines separate items. The program compares the public functions.
#[derive(Clone, Copy)]
struct SourceItem<'a> {
    text: &'a str,
    start: usize,
}

impl<'a> SourceItem<'a> {
    fn all_of(source: &'a str) -> Vec<Self> {
        let texts = source.split("\n\n");
        texts.map(|text| Self { text, start: text.as_ptr().addr() - source.as_ptr().addr() }).collect()
    }

    /// Returns the name if the item is a public function.
    fn function(self) -> Option<&'a str> {
        Some(self.text.strip_prefix("pub fn ")?.split_once('(')?.0)
    }
}

/// Returns an expression with the results of a module's functions.
fn results_of(module: &str, functions: &[&str]) -> String {
    let results = functions.iter().map(|name| format!("({name:?}, crate::results({module}::{name}))"));
    format!("vec![{}]", results.collect::<Vec<_>>().join(", "))
}

#[test]
fn every_mutant_of_rust_does_what_its_text_says() {
    let text = include_str!("../fixtures/operands.txt");
    let source = rust(text);
    let emitted = source.emit(1, &BTreeSet::new());
    assert_eq!(emitted.withdrawn, BTreeSet::new());
    // Modules with the original and the guarded source.
    let items = SourceItem::all_of(text);
    let functions: Vec<&str> = items.iter().filter_map(|item| item.function()).collect();
    let helpers = items.iter().filter(|item| item.function().is_none()).map(|item| item.text);
    let helpers = helpers.collect::<Vec<_>>().join("\n");
    let all = "pub fn all() -> Vec<(&'static str, Vec<String>)>";
    let results = results_of("self", &functions);
    let mut program = format!("#![allow(warnings)]\n{MAIN}\n");
    program +=
        &format!("mod guarded {{ use crate::heeler_guard;\n{}\n{all} {{ {results} }} }}\n", emitted.text);
    program += &format!("mod original {{\n{text}\n{all} {{ {results} }} }}\n");
    // A module and a check for each mutant.
    let mut checks = String::from("check(0, Vec::new());\n");
    let mut count = 0;
    for (index, found) in source.mutants().iter().enumerate() {
        let (mutant, number) = (&found.mutant, index + 1);
        let item = *items.iter().rfind(|item| item.start <= mutant.bytes().start).unwrap();
        // Every function may use a changed helper, but no function uses another function.
        let (mut changed, start, functions) = match item.function() {
            Some(function) => (item.text.to_owned(), item.start, vec![function]),
            None => (text.to_owned(), 0, functions.clone()),
        };
        let bytes = mutant.bytes();
        changed.replace_range(bytes.start - start..bytes.end - start, &mutant.replacement());
        let helpers = if start == 0 { "" } else { &helpers };
        let module = format!("m{number}");
        program += &format!("mod {module} {{\n{helpers}\n{changed}\n}}\n");
        checks += &format!("check({number}, {});\n", results_of(&module, &functions));
        count += 1;
    }
    assert!(count > 120, "{count} mutants");
    // Compile and run the program; it prints every difference.
    program += &format!("fn main() {{ std::panic::set_hook(Box::new(|_| {{}}));\n{checks} }}\n");
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("main.rs"), &program).unwrap();
    let built = Command::new("rustc")
        .args(["--edition=2024", "-Cdebuginfo=0", "-Coverflow-checks=off", "main.rs"])
        .current_dir(directory.path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&built.stderr).chars().take(6000).collect::<String>();
    assert!(built.status.success(), "{errors}");
    let ran = Command::new(directory.path().join("main")).output().unwrap();
    assert!(ran.status.success() && ran.stdout.is_empty(), "{}", String::from_utf8_lossy(&ran.stdout));
}
