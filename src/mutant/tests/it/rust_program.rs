//! Rust: that each guarded mutant does what its text says, in a program of both.

use crate::rust;
use std::{collections::BTreeSet, fs, process::Command};

/// Runtime of the guards, and the comparison of each mutant with a source that contains the text of the
/// mutant.
const MAIN: &str = r#"
pub mod heeler_guard {
    use std::sync::atomic::{AtomicU32, Ordering};
    pub static MUTANT: AtomicU32 = AtomicU32::new(0);
    pub fn at(base: u32, count: u32) -> u32 {
        let mutant = MUTANT.load(Ordering::Relaxed);
        if mutant >= base && mutant - base < count { mutant - base + 1 } else { 0 }
    }
}
macro_rules! results {
    ($module:ident) => {{
        let mut all = String::new();
        for n in 0..10 {
            let of = |f: &dyn Fn(i32) -> String| {
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| f(n))).unwrap_or_default()
            };
            all += &of(&|n| $module::guards(n).to_string());
            all += &of(&|n| format!(" {}", $module::conditions(n)));
            all += &of(&|n| format!(" {}", $module::values(n)));
            all += &of(&|n| format!(" {}", $module::tails(n)));
            all += &of(&|n| format!(" {}", $module::statements(n)));
            all += &of(&|n| format!(" {}", $module::breaks(n)));
            all += &of(&|n| format!(" {}\n", $module::bindings(n)));
        }
        all
    }};
}
fn check(mutant: u32, guarded: &dyn Fn() -> String, expected: String) {
    heeler_guard::MUTANT.store(mutant, std::sync::atomic::Ordering::Relaxed);
    let found = guarded();
    if found != expected {
        println!("{mutant}: {found} is not {expected}");
    }
}
"#;

#[test]
fn every_mutant_of_rust_does_what_its_text_says() {
    let text = include_str!("../fixtures/operands.txt");
    let source = rust(text);
    let emitted = source.emit(1, &BTreeSet::new());
    assert_eq!(emitted.withdrawn, BTreeSet::new());
    let mut program = String::from("#![allow(warnings)]\n");
    program += MAIN;
    program += &format!("mod guarded {{ use crate::heeler_guard;\n{}\n}}\n", emitted.text);
    program += &format!("mod original {{\n{text}\n}}\n");
    let mut checks = String::from("check(0, &|| results!(guarded), results!(original));\n");
    let mut count = 0;
    for (index, found) in source.mutants().iter().enumerate() {
        let (mutant, number) = (&found.mutant, index + 1);
        let mut changed = text.to_owned();
        changed.replace_range(mutant.bytes(), &mutant.replacement());
        program += &format!("mod m{number} {{\n{changed}\n}}\n");
        checks += &format!("check({number}, &|| results!(guarded), results!(m{number}));\n");
        count += 1;
    }
    assert!(count > 120, "{count} mutants");
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
