//! Test programs of Cargo that have a `main` of their own (`harness = false`). One that lists its tests as
//! those of Rust do is run as they are; any other is one test, with its exit code, as for `cargo test`.

use std::fs;

use heeler_cargo::CargoProgram;

/// Returns whether the manifest of a program's package says that it has a `main` of its own.
pub(super) fn has_own_harness(program: &CargoProgram) -> bool {
    let manifest = fs::read_to_string(program.cwd.join("Cargo.toml")).unwrap_or_default();
    is_own_harness(&manifest, &program.suite)
}

/// A suite is `package` for a library, `package::name` for an integration test, and `package::bin/name` and
/// similar for the others.
fn is_own_harness(manifest: &str, suite: &str) -> bool {
    let Ok(manifest) = manifest.parse::<toml::Table>() else { return false };
    let says_so = |target: &toml::Value| target.get("harness").and_then(toml::Value::as_bool) == Some(false);
    let Some((_, target)) = suite.split_once("::") else {
        return manifest.get("lib").is_some_and(says_so);
    };
    let (kind, name) = target.split_once('/').unwrap_or(("test", target));
    let targets = manifest.get(kind).and_then(toml::Value::as_array).into_iter().flatten();
    let named = |one: &&toml::Value| one.get("name").and_then(toml::Value::as_str) == Some(name);
    targets.filter(named).any(says_so)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_those_of_the_manifest() {
        let manifest = "[package]\nname = \"p\"\n[lib]\nharness = false\n[[test]]\nname = \"a\"\nharness = false\n\
                        [[test]]\nname = \"b\"\n[[bin]]\nname = \"a\"\n[[example]]\nname = \"c\"\nharness = false\n";
        let own = ["p", "p::a", "p::example/c"];
        for suite in ["p", "p::a", "p::b", "p::bin/a", "p::example/c", "p::c"] {
            assert_eq!(is_own_harness(manifest, suite), own.contains(&suite), "{suite}");
        }
        assert!(!is_own_harness("[lib]\npath = \"a.rs\"\n", "p"));
        assert!(!is_own_harness("not a manifest", "p") && !is_own_harness("", "p::a"));
    }
}
