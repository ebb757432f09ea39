//! Supply-chain checks that need no network: package sources and licences. `deny.toml` contains the rules.
//! `scripts/audit` checks all of them, including known vulnerabilities.

use std::{fs, process::Command};

use serde_json::Value;

use crate::source_rules::root;

/// Returns the allowed licences.
fn allowed_licences() -> Vec<String> {
    let rules: toml::Table = fs::read_to_string(root().join("deny.toml")).unwrap().parse().unwrap();
    let allowed = rules["licenses"]["allow"].as_array().unwrap();
    allowed.iter().map(|licence| licence.as_str().unwrap().to_owned()).collect()
}

/// Returns whether the allowed licences satisfy a licence expression. `AND` binds tighter than `OR`. Old
/// packages write `/` instead of `OR`.
fn is_licence_allowed(expression: &str, allowed: &[String]) -> bool {
    let expression = expression.replace('/', " OR ");
    let mut words = expression.split_inclusive(['(', ')']).flat_map(|part| {
        let cut = part.trim_end_matches(['(', ')']);
        [cut.trim(), &part[cut.len()..]].into_iter().filter(|word| !word.is_empty())
    });
    evaluate_licences(&mut words, allowed)
}

/// Evaluates an expression up to its closing parenthesis. Text next to a parenthesis includes the operator.
fn evaluate_licences<'a>(words: &mut impl Iterator<Item = &'a str>, allowed: &[String]) -> bool {
    // Whether each alternative of the `OR` is satisfied so far.
    let mut alternatives = vec![true];
    let rendezvous = |alternatives: &mut Vec<bool>, is_met: bool| {
        let last = alternatives.last_mut().expect("there is one from the beginning");
        *last = *last && is_met;
    };
    while let Some(word) = words.next() {
        match word {
            "(" => {
                let inner = evaluate_licences(words, allowed);
                rendezvous(&mut alternatives, inner);
            }
            ")" => break,
            text => {
                for (number, part) in format!(" {text} ").split(" OR ").enumerate() {
                    if number > 0 {
                        alternatives.push(true);
                    }
                    let licences = part.split(" AND ").map(str::trim).filter(|licence| !licence.is_empty());
                    for licence in licences {
                        rendezvous(&mut alternatives, allowed.iter().any(|one| one == licence));
                    }
                }
            }
        }
    }
    alternatives.contains(&true)
}

#[test]
fn licence_expressions_are_parsed() {
    let allowed = ["MIT", "Unicode-3.0"].map(str::to_owned);
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("Apache-2.0/MIT", true),
        ("Apache-2.0 OR GPL-3.0", false),
        ("MIT AND GPL-3.0", false),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("(GPL-3.0 OR Apache-2.0) AND Unicode-3.0", false),
        ("GPL-3.0 OR (MIT AND Unicode-3.0)", true),
        ("Apache-2.0 WITH LLVM-exception OR MIT", true),
    ] {
        assert_eq!(is_licence_allowed(expression, &allowed), expected, "{expression}");
    }
}

#[test]
fn every_built_package_has_allowed_licence() {
    let allowed = allowed_licences();
    let mut cargo = Command::new(env!("CARGO"));
    // Packages for other platforms may be missing on this machine; `scripts/audit` checks them.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    cargo.args([
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--offline",
        "--filter-platform",
        &platform,
    ]);
    let output = cargo.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 100, "the packages are found");
    let refused: Vec<_> = packages
        .iter()
        .filter(|package| {
            !package["license"].as_str().is_some_and(|licence| is_licence_allowed(licence, &allowed))
        })
        .map(|package| format!("{} {}: {}", package["name"], package["version"], package["license"]))
        .collect();
    assert!(refused.is_empty(), "\n{}", refused.join("\n"));
}

#[test]
fn every_package_is_from_registry_with_hash() {
    for lock in ["Cargo.lock", "tests/fuzz/Cargo.lock"] {
        let lock: toml::Table = fs::read_to_string(root().join(lock)).unwrap().parse().unwrap();
        for package in lock["package"].as_array().unwrap() {
            let Some(source) = package.get("source") else { continue };
            assert_eq!(
                source.as_str(),
                Some("registry+https://github.com/rust-lang/crates.io-index"),
                "{package}"
            );
            assert!(package.get("checksum").is_some(), "{package}");
        }
    }
}
