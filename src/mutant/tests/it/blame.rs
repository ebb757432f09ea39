//! Errors of the real compilers, and the mutants that cause them.

use crate::{rust, search};
use heeler_mutant::{
    MutatedSource, Rollback, RollbackStep,
    compiler::{self, Blame, CompiledSource, CompilerError, MutantKey},
};
use heeler_mutant_model::Language;
use std::{collections::BTreeSet, fs, path::Path, process::Command};

/// Compiles a guarded Rust source; returns the errors. The runtime is a module of the source.
fn rustc(directory: &Path, text: &str) -> Vec<CompilerError> {
    fs::write(directory.join("heeler_guard.rs"), "pub fn at(_: u32, _: u32) -> u32 { 0 }").unwrap();
    fs::write(directory.join("lib.rs"), text).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let compiled = |arguments: &[&str]| {
        Command::new(&rustc)
            .args(["--edition=2021", "--crate-type=lib"])
            .args(arguments)
            .current_dir(directory)
            .output()
            .unwrap()
    };
    assert!(compiled(&["heeler_guard.rs"]).status.success());
    let output = compiled(&[
        "--extern=heeler_guard=libheeler_guard.rlib",
        "--emit=metadata",
        "--error-format=json",
        "--cap-lints=allow",
        "lib.rs",
    ]);
    String::from_utf8(output.stderr).unwrap().lines().filter_map(compiler::rustc::error_of_line).collect()
}

fn gcc(directory: &Path, text: &str) -> Vec<CompilerError> {
    fs::write(directory.join("list.c"), text).unwrap();
    let runtime = "unsigned __hg(unsigned, unsigned); extern unsigned __hg_on;";
    fs::write(directory.join("hg.h"), runtime).unwrap();
    let arguments = ["-fdiagnostics-format=json", "-include", "hg.h", "-w", "-fsyntax-only", "list.c"];
    let output = Command::new("gcc").args(arguments).current_dir(directory).output().unwrap();
    String::from_utf8(output.stderr).unwrap().lines().flat_map(compiler::gcc::errors_of_line).collect()
}

/// Withdraws mutants until the source compiles; returns the original code of the withdrawn mutants.
fn withdrawn(source: &MutatedSource, compile: fn(&Path, &str) -> Vec<CompilerError>) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let keys = source.mutants().iter().enumerate();
    let mut rollback =
        Rollback::new(keys.map(|(mutant, found)| (MutantKey { source: 0, mutant }, found.function)));
    loop {
        let emitted = source.emit(1, &rollback.left_out(0));
        let errors = compile(directory.path(), &emitted.text);
        let compiled = [CompiledSource { source, emitted: &emitted }];
        let blame =
            compiler::blame(&errors, &|file| ["lib.rs", "list.c"].contains(&file).then_some(0), &compiled);
        assert_eq!(errors.is_empty(), blame == Blame::default(), "{errors:?}");
        match rollback.next(&blame) {
            RollbackStep::Check => {}
            RollbackStep::Done => break,
            RollbackStep::Broken(words) => unreachable!("{words:?}\n{}", emitted.text),
        }
    }
    let shown = |key: &MutantKey| {
        let mutant = &source.mutants()[key.mutant].mutant;
        let start = mutant.original().lines().next().unwrap_or_default();
        format!("{start} → {}", mutant.replacement())
    };
    let found: BTreeSet<_> = rollback.withdrawn().keys().map(shown).collect();
    found.into_iter().collect()
}

#[test]
fn mutants_of_wrong_types_are_blamed_and_no_others() {
    let source = rust(
        "pub struct A(u8);\npub fn f(s: String, t: &str) -> String { let n = 1 + 2; if n < 2 { s } else { s + t } }\npub fn g() -> A { A(1 + 1) }\npub fn h<T: PartialEq>(a: T, b: T) -> bool { a == b }\npub fn i(a: &[u8], b: usize) -> u8 { a[b as usize >> 1] }\n",
    );
    assert_eq!(
        withdrawn(&source, rustc),
        ["s + t → s * t", "s + t → s - t", "{ A(1 + 1) } → { Default::default() }"]
    );
}

#[test]
fn literals_that_are_static_values_stay_so() {
    let source = rust(
        "pub fn f(a: bool) -> &'static i32 { if a { &(1 + 2) } else { &-7 } }\npub fn g() -> &'static [bool] { &[true, false] }\npub fn h() -> &'static (u8, i64) { &(!1, -3_000_000_000 as i64) }\n",
    );
    assert_eq!(withdrawn(&source, rustc), [""; 0]);
}

#[test]
fn left_out_assignment_is_blamed_for_variable_without_value() {
    let source = rust(
        "pub fn f(a: u8) -> u8 {\n    let x;\n    let mut y = 1;\n    if a > 1 { x = 2; } else { x = 3; }\n    y += 1;\n    y = y * 2;\n    k(x + y)\n}\nfn k(a: u8) -> u8 { a }\n",
    );
    assert_eq!(withdrawn(&source, rustc), ["x = 2; → ", "x = 3; → "]);
}

#[test]
fn left_out_assignment_is_blamed_for_a_variable_whose_value_was_moved() {
    let in_a_loop = rust(
        "pub fn f(mut a: String, n: usize) -> usize {\n    let mut b = a.clone();\n    b = b + \"é\";\n    loop {\n        let taken = match (a, b) {\n            (x, y) if x == y => { b = x; a = y; n }\n            (x, y) if x.len() > n => { a = y; return n }\n            (x, y) => { a = x; if n > 9 { return 1; } b = y; n + 1 }\n        };\n        if taken > n { a = String::new(); return taken; }\n    }\n}\n",
    );
    let first = blame_of_first_round(&in_a_loop);
    assert!(first.unexplained.is_empty(), "{first:?}");
    assert_eq!(
        withdrawn(&in_a_loop, rustc),
        [
            "a = x; → ",
            "a = y; → ",
            "b + \"é\" → b * \"é\"",
            "b + \"é\" → b - \"é\"",
            "b = x; → ",
            "b = y; → "
        ]
    );
    let straight = rust(
        "pub fn f(n: usize) -> usize {\n    let mut a = vec![n];\n    a = vec![n, n];\n    drop(a);\n    a = vec![1];\n    a.len()\n}\n",
    );
    assert_eq!(withdrawn(&straight, rustc), ["a = vec![1]; → "]);
}

fn blame_of_first_round(source: &MutatedSource) -> Blame {
    let directory = tempfile::tempdir().unwrap();
    let emitted = source.emit(1, &BTreeSet::new());
    let errors = rustc(directory.path(), &emitted.text);
    let compiled = [CompiledSource { source, emitted: &emitted }];
    compiler::blame(&errors, &|file| (file == "lib.rs").then_some(0), &compiled)
}

#[test]
fn macro_at_the_end_of_a_block_is_blamed_without_halving() {
    let source = rust(
        "macro_rules! value { ($a:expr) => { return $a; }; }\npub fn f(a: u8) -> u8 {\n    g(a + 1);\n    value!(a);\n}\nfn g(_: u8) {}\n",
    );
    assert_eq!(withdrawn(&source, rustc), ["value!(a); → "]);
    let blame = blame_of_first_round(&source);
    assert_eq!((blame.mutants.len(), blame.unexplained.len()), (1, 0), "{blame:?}");
}

#[test]
fn left_out_end_of_a_branch_is_found_by_halves() {
    // The compiler points at the function's type, which has no mutant.
    let source = rust(
        "fn end() -> ! { std::process::exit(1) }\npub fn f(a: u8) -> u8 {\n    if a > 1 { return a + 1; }\n    end();\n}\n",
    );
    assert_eq!(withdrawn(&source, rustc), ["end(); → "]);
}

#[test]
fn pointers_that_cannot_be_added_are_blamed_and_no_others() {
    let source = search(
        Language::C,
        "struct s { int a; };\nlong f(char *p, char *q, struct s t) {\n  long é = p - q; if (p < q && t.a > 1) { p += 1; }\n  return é * 2;\n}\n",
    );
    assert_eq!(withdrawn(&source, gcc), ["p - q → p + q"]);
}

#[test]
fn errors_in_no_guarded_source_are_foreign() {
    let source = rust("pub fn f() {}");
    let emitted = source.emit(1, &BTreeSet::new());
    let line = r#"{"$message_type":"diagnostic","message":"x","code":{"code":"E0432"},"level":"error","spans":[{"file_name":"tests/a.rs","byte_start":1,"byte_end":2,"line_start":1,"is_primary":true,"expansion":null}]}"#;
    let error = compiler::rustc::error_of_line(line).unwrap();
    let compiled = [CompiledSource { source: &source, emitted: &emitted }];
    let blame = compiler::blame(&[error], &|file| (file == "src/lib.rs").then_some(0), &compiled);
    assert_eq!(blame.foreign, ["error[E0432]: x (tests/a.rs:1)"]);
    let line = r#"{"$message_type":"diagnostic","message":"linking with `cc` failed: exit status: 1","code":null,"level":"error","spans":[],"children":[{"message":"\"cc\" \"-m64\" \"/a.o\""},{"message":"some arguments are omitted\nld: cannot find -lodd"}]}"#;
    let error = compiler::rustc::error_of_line(line).unwrap();
    let expected =
        "error: linking with `cc` failed: exit status: 1: some arguments are omitted: ld: cannot find -lodd";
    assert_eq!(error.summary_with_place(), expected);
    for other in ["", "x", "[]", "{}", r#"{"level":"warning","spans":[]}"#, r#"{"reason":"build-finished"}"#]
    {
        assert_eq!(compiler::rustc::error_of_line(other), None);
        assert_eq!(compiler::gcc::errors_of_line(other), []);
    }
}

#[test]
fn functions_that_the_compiler_calls_stay_constant() {
    let directory = tempfile::tempdir().unwrap();
    let source = rust(
        "pub const fn free(a: u8) -> u8 { a + 1 }\npub const fn table(a: u8) -> u8 { inner(a) * 2 }\nconst fn inner(a: u8) -> u8 { a - 1 }\npub struct A(pub u8);\nimpl A {\n    pub const fn new(a: u8) -> A { A(a * 3) }\n    pub const fn get(&self) -> u8 { self.0 + 4 }\n}\npub struct B(pub u8);\nimpl B { pub const fn new(a: u8) -> B { B(a + 5) } }\npub const C: u8 = table(7);\npub static D: A = A::new(3);\n",
    );
    let keys = source.mutants().iter().enumerate();
    let mut rollback =
        Rollback::new(keys.map(|(mutant, found)| (MutantKey { source: 0, mutant }, found.function)));
    loop {
        let emitted = source.emit(1, &rollback.left_out(0));
        let errors = rustc(directory.path(), &emitted.text);
        let compiled = [CompiledSource { source: &source, emitted: &emitted }];
        let blame = compiler::blame(&errors, &|file| (file == "lib.rs").then_some(0), &compiled);
        match rollback.next(&blame) {
            RollbackStep::Check => {}
            RollbackStep::Done => break,
            RollbackStep::Broken(words) => unreachable!("{words:?}\n{}", emitted.text),
        }
    }
    let item = |mutant: usize| source.mutants()[mutant].mutant.item.to_string();
    let constant: BTreeSet<String> = rollback.constant().iter().map(|key| item(key.mutant)).collect();
    assert_eq!(constant, ["A::new", "inner", "table"].map(str::to_owned).into());
    let uncompiled: BTreeSet<String> = rollback.withdrawn().keys().map(|key| item(key.mutant)).collect();
    assert_eq!(uncompiled, ["A::new", "B::new"].map(str::to_owned).into(), "they have no default value");
}
