//! The output of `heeler mutate --list` for users and programs.

use std::{collections::BTreeSet, fs};

use serde_json::Value;

use crate::support::world::TestWorld;

const SOURCE: &str = "//! Docs.\npub fn is_low(a: u8) -> bool {\n    a < 2 // \u{e9}\n}\n\n#[cfg(windows)]\npub fn f() {\n    g();\n}\n\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn low() {\n        assert!(super::is_low(1 + 0));\n    }\n}\n";

fn package() -> TestWorld {
    let world = TestWorld::new();
    let manifest = "[workspace]\n[package]\nname = \"package\"\nversion = \"0.1.0\"\nedition = \"2021\"\n";
    fs::create_dir(world.path("src")).unwrap();
    world.write("Cargo.toml", manifest);
    world.write("src/lib.rs", SOURCE);
    world
}

#[test]
fn mutants_of_package_are_listed_for_people() {
    let world = package();
    let ran = world.run_with_separate_outputs(&["mutate", "--list"]).assert_code(0);
    insta::assert_snapshot!(ran.stdout, @"
    src/lib.rs:2:30  FunctionValue          is_low returns true
    src/lib.rs:2:30  FunctionValue          is_low returns false
    src/lib.rs:3:5   EqualityOperator       a < 2 → a <= 2
    src/lib.rs:3:5   EqualityOperator       a < 2 → a >= 2
    src/lib.rs:3:5   EqualityOperator       a < 2 → a == 2
    src/lib.rs:3:5   EqualityOperator       a < 2 → a > 2
    src/lib.rs:7:12  FunctionValue          the body of f does nothing  (not compiled: #[cfg(windows)])
    src/lib.rs:8:5   StatementDeletion      g(); → nothing  (not compiled: #[cfg(windows)])
    8 mutants in 1 file, 2 ignored
    ");
    // Heeler only reads the user's files and creates none, not even a lock file.
    assert!(!world.path("Cargo.lock").exists() && !world.path("target").exists());
    let ran = world.run_with_separate_outputs(&["mutate", "--list", "src/lib.rs:3"]).assert_code(0);
    assert!(ran.stdout.ends_with("4 mutants in 1 file\n"), "{ran}");
    world
        .run_with_separate_outputs(&["mutate", "--list", "src/lib.rs:1"])
        .assert_code(8)
        .assert_stdout("0 mutants in 0 files");
}

#[test]
fn mutants_as_json_are_a_report_of_mutation_testing_tools() {
    let world = package();
    let ran = world.run_with_separate_outputs(&["mutate", "--list", "--format", "json"]).assert_code(0);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["schemaVersion"], "2");
    assert_eq!(report["thresholds"], serde_json::json!({ "high": 80, "low": 60 }));
    assert_eq!(report["framework"]["name"], "Heeler");
    let file = &report["files"]["src/lib.rs"];
    assert_eq!((&file["language"], &file["source"]), (&"rust".into(), &SOURCE.into()));
    let mutants = file["mutants"].as_array().unwrap();
    let ids: BTreeSet<&str> = mutants.iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!((mutants.len(), ids.len()), (8, 8), "{mutants:?}");
    let operator = mutants.iter().find(|one| one["replacement"] == "a <= 2").unwrap();
    assert_eq!(operator["mutatorName"], "EqualityOperator");
    assert_eq!(operator["status"], "Pending");
    let location =
        serde_json::json!({ "start": { "line": 3, "column": 5 }, "end": { "line": 3, "column": 10 } });
    assert_eq!(operator["location"], location);
    let ignored = mutants.iter().find(|one| one["mutatorName"] == "StatementDeletion").unwrap();
    assert_eq!((&ignored["status"], &ignored["replacement"]), (&"Ignored".into(), &"".into()));
    assert_eq!(ignored["statusReason"], "not compiled: #[cfg(windows)]");
}

#[test]
fn words_that_select_nothing_and_places_without_package_are_errors() {
    let world = package();
    for (word, error) in [
        ("src/no.rs", "failed to test mutants: no source of the project matches \"src/no.rs\""),
        ("src/lib.rs:9:x", "failed to test mutants: invalid range \"src/lib.rs:9:x\": expected FILE:LINE"),
        ("src/[.rs", "failed to test mutants: invalid glob \"src/[.rs\""),
    ] {
        world.run_with_separate_outputs(&["mutate", "--list", word]).assert_code(5).assert_stderr(error);
    }
    let nowhere = TestWorld::new();
    nowhere.run_with_separate_outputs(&["mutate", "--list"]).assert_code(4).assert_stderr("Cargo.toml");
    let json = world.run_with_separate_outputs(&["mutate", "--format", "json"]).assert_code(5);
    json.assert_stderr("--list");
    fs::write(world.path("src/lib.rs"), b"fn f() { \"\xff\" }").unwrap();
    let ran = world.run_with_separate_outputs(&["mutate", "--list"]).assert_code(4);
    ran.assert_stderr("read the source").assert_stderr("src/lib.rs");
}
