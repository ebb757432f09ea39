//! Tests with Cargo projects in temporary directories.
#![expect(clippy::disallowed_methods, reason = "the tests ask Cargo and rustc, as the command line does")]

use std::{fs, path::Path, process::Command};

use proptest::prelude::*;

use crate::{CargoProject, FeatureSelection, MutatedProject, SourceSelection, find_mutated_sources};

fn write(root: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

fn output(program: &str, arguments: &[&str], directory: &Path) -> String {
    let output = Command::new(program).args(arguments).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn find(directory: &Path, words: &[&str]) -> MutatedProject {
    let metadata = output("cargo", &["metadata", "--no-deps", "--format-version", "1"], directory);
    let cfg = output("rustc", &["--print", "cfg"], directory);
    let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    let project = if words.is_empty() {
        CargoProject::read(&metadata, &cfg, directory)
    } else {
        CargoProject::read_workspace(&metadata, &cfg)
    };
    let selection = SourceSelection::read(&words, directory).unwrap();
    find_mutated_sources(&project.unwrap(), &selection).unwrap()
}

/// Returns the replacements of each source's mutants; ignored mutants are in parentheses.
fn shown(project: &MutatedProject) -> Vec<String> {
    let source = |one: &crate::module_tree::ProjectSource| {
        let mutants = one.mutants().map(|found| match found.ignored {
            Some(_) => format!("({})", found.mutant.replacement()),
            None => found.mutant.replacement().into_owned(),
        });
        format!("{}: {}", one.source.file().path, mutants.collect::<Vec<_>>().join(" "))
    };
    project.sources.iter().map(source).filter(|line| !line.ends_with(": ")).collect()
}

const PACKAGE: &[(&str, &str)] = &[
    (
        "Cargo.toml",
        "[package]\nname = 'a'\nedition = '2021'\n[features]\ndefault = ['on']\non = []\noff = []\n",
    ),
    (
        "src/lib.rs",
        "mod one;\nmod r#two;\n#[cfg(test)] mod tests;\n#[cfg(feature = \"on\")] mod on;\n#[cfg(feature = \"off\")] mod off;\n#[path = \"odd/place.rs\"] mod other;\nmod inline { mod deep; }\nmod generated;\nfn f() -> bool { g() }\n",
    ),
    ("src/one.rs", "mod below;\nfn f() -> u8 { g() }\n"),
    ("src/one/below.rs", "fn f() -> String { g() }\n"),
    ("src/two/mod.rs", "mod below;\n"),
    ("src/two/below.rs", "fn f() -> f64 { g() }\n"),
    ("src/tests.rs", "fn f() -> u8 { 1 + g() }\n"),
    ("src/on.rs", "fn f() -> Vec<u8> { g() }\n"),
    ("src/off.rs", "fn f() -> Option<u8> { g() }\n"),
    ("src/odd/place.rs", "mod beside;\n"),
    ("src/odd/beside.rs", "fn f() -> &'static str { g() }\n"),
    ("src/inline/deep.rs", "fn f() { g() }\n"),
    ("src/unused.rs", "fn f() -> u8 { g() }\n"),
    ("src/main.rs", "mod one;\nfn f(a: u8) -> ! { g(a - 1); loop {} }\n"),
    ("tests/it.rs", "fn f() -> u8 { g() }\n"),
    ("build.rs", "fn f() -> u8 { g() }\nfn main() {}\n"),
];

#[test]
fn sources_are_those_that_the_compiler_reads() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), PACKAGE);
    let project = find(root.path(), &[]);
    assert_eq!(
        shown(&project),
        [
            "src/inline/deep.rs: {}",
            "src/lib.rs: { true } { false }",
            "src/main.rs:  a + 1 a / 1",
            "src/odd/beside.rs: { \"\" } { \"xyzzy\" }",
            "src/off.rs: ({ None }) ({ Some(0) }) ({ Some(1) })",
            "src/on.rs: { Vec::new() } { Vec::from([0]) } { Vec::from([1]) }",
            "src/one/below.rs: { String::new() } { \"xyzzy\".into() }",
            "src/one.rs: { 0 } { 1 }",
            "src/two/below.rs: { 0.0 } { 1.0 } { -1.0 }",
        ]
    );
    assert_eq!(project.root, root.path().canonicalize().unwrap());
}

#[test]
fn paths_globs_and_ranges_select_sources() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), PACKAGE);
    for (words, lines) in [
        (vec!["src/one.rs"], vec!["src/one.rs: { 0 } { 1 }"]),
        (vec!["src/two/"], vec!["src/two/below.rs: { 0.0 } { 1.0 } { -1.0 }"]),
        (
            vec!["./src/../src/on*.rs"],
            vec![
                "src/on.rs: { Vec::new() } { Vec::from([0]) } { Vec::from([1]) }",
                "src/one.rs: { 0 } { 1 }",
            ],
        ),
        (
            vec!["src/on*.rs", "!src/one.rs"],
            vec!["src/on.rs: { Vec::new() } { Vec::from([0]) } { Vec::from([1]) }"],
        ),
        (vec!["src/main.rs:2:20-2:27"], vec!["src/main.rs: a + 1 a / 1"]),
        (vec!["src/main.rs:2"], vec!["src/main.rs:  a + 1 a / 1"]),
        (vec!["src/main.rs:1"], vec![]),
        (vec!["src/main.rs:1-3:1"], vec!["src/main.rs:  a + 1 a / 1"]),
    ] {
        let project = find(root.path(), &words);
        assert_eq!(shown(&project), lines, "{words:?}");
        assert_eq!(project.unmatched, [""; 0], "{words:?}");
    }
    assert_eq!(
        find(root.path(), &["src/unused.rs", "nothing/*.rs"]).unmatched,
        ["src/unused.rs", "nothing/*.rs"]
    );
}

#[test]
fn packages_are_those_that_cargo_tests() {
    let root = tempfile::tempdir().unwrap();
    write(
        root.path(),
        &[
            (
                "Cargo.toml",
                "[workspace]\nmembers = ['a', 'b', 'm']\ndefault-members = ['a']\nresolver = '2'\n",
            ),
            ("a/Cargo.toml", "[package]\nname = 'a'\nedition = '2021'\n"),
            ("a/src/lib.rs", "fn f() -> u8 { g() }\n"),
            ("b/Cargo.toml", "[package]\nname = 'b'\nedition = '2021'\n"),
            ("b/src/lib.rs", "fn f() -> String { g() }\n"),
            ("m/Cargo.toml", "[package]\nname = 'm'\nedition = '2021'\n[lib]\nproc-macro = true\n"),
            ("m/src/lib.rs", "fn f() -> String { g() }\n"),
        ],
    );
    assert_eq!(shown(&find(root.path(), &[])), ["a/src/lib.rs: { 0 } { 1 }"]);
    assert_eq!(
        shown(&find(&root.path().join("b"), &[])),
        ["b/src/lib.rs: { String::new() } { \"xyzzy\".into() }"]
    );
    assert_eq!(
        shown(&find(&root.path().join("b/src"), &[])),
        ["b/src/lib.rs: { String::new() } { \"xyzzy\".into() }"]
    );
    assert_eq!(shown(&find(root.path(), &["b"])), ["b/src/lib.rs: { String::new() } { \"xyzzy\".into() }"]);
}

/// Returns the sources of the named packages with the selected features, or the error.
fn find_selected(root: &Path, packages: &[&str], features: FeatureSelection) -> Result<Vec<String>, String> {
    let metadata = output("cargo", &["metadata", "--no-deps", "--format-version", "1"], root);
    let cfg = output("rustc", &["--print", "cfg"], root);
    let packages: Vec<String> = packages.iter().map(|&name| name.to_owned()).collect();
    let project = CargoProject::read_selected(&metadata, &cfg, Some(root), &packages, &features);
    let project = project.map_err(|error| error.to_string())?;
    Ok(shown(&find_mutated_sources(&project, &SourceSelection::read(&[], root).unwrap()).unwrap()))
}

#[test]
fn features_are_those_that_cargo_enables() {
    let root = tempfile::tempdir().unwrap();
    let manifest = "[package]\nname = 'a'\nedition = '2021'\n[features]\ndefault = ['on']\non = []\n\
                    off = ['both', 'c?/x']\nboth = ['b/std']\n[dependencies]\n\
                    b = { version = '1', optional = true }\nc = { version = '1', optional = true }\n";
    let source = |feature: &str| format!("#[cfg(feature = \"{feature}\")] mod {feature};\n");
    let library: String = ["on", "off", "both", "b", "c"].map(source).concat();
    write(root.path(), &[("Cargo.toml", manifest), ("src/lib.rs", &library)]);
    for feature in ["on", "off", "both", "b", "c"] {
        write(root.path(), &[(&format!("src/{feature}.rs"), "fn f() -> f64 { g() }\n")]);
    }
    let enabled = |named: &[&str], has_all, has_no_default| {
        let named = named.iter().map(|&name| name.to_owned()).collect();
        let features = FeatureSelection { named, has_all, has_no_default };
        let lines = find_selected(root.path(), &[], features).unwrap();
        let on = lines.iter().filter(|line| !line.contains('(')).map(|line| line["src/".len()..].to_owned());
        on.map(|line| line.split('.').next().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(enabled(&[], false, false), "on");
    assert_eq!(enabled(&[], false, true), "");
    assert_eq!(enabled(&[], true, false), "b both c off on");
    assert_eq!(enabled(&["off"], false, true), "b both off");
    assert_eq!(enabled(&["a/both,c"], false, false), "b both c on");
    assert_eq!(enabled(&["b/std"], false, false), "b on");
}

#[test]
fn packages_are_selected_by_name_and_version() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), &[("Cargo.toml", "[workspace]\nmembers = ['a', 'ab']\nresolver = '2'\n")]);
    for name in ["a", "ab"] {
        let manifest = format!("[package]\nname = '{name}'\nversion = '1.2.3'\nedition = '2021'\n");
        let paths = [format!("{name}/Cargo.toml"), format!("{name}/src/lib.rs")];
        write(root.path(), &[(&paths[0], &manifest), (&paths[1], "fn f() -> String { g() }\n")]);
    }
    let find = |packages: &[&str]| find_selected(root.path(), packages, FeatureSelection::default());
    let line = |name: &str| format!("{name}/src/lib.rs: {{ String::new() }} {{ \"xyzzy\".into() }}");
    assert_eq!(find(&["ab"]).unwrap(), [line("ab")]);
    assert_eq!(find(&["a@1.2.3", "ab"]).unwrap(), [line("a"), line("ab")]);
    for unknown in ["b", "a@1.2.4", "abc"] {
        let error = find(&["a", unknown]).unwrap_err();
        assert_eq!(
            error,
            format!("no package \"{unknown}\" in the workspace (expected NAME or NAME@VERSION)")
        );
    }
}

#[test]
fn documentation_tests_are_those_of_libraries_of_the_packages() {
    let root = tempfile::tempdir().unwrap();
    let manifest = |name: &str, rest: &str| format!("[package]\nname = '{name}'\nversion = '1.0.0'\n{rest}");
    write(
        root.path(),
        &[
            ("Cargo.toml", "[workspace]\nmembers = ['with', 'without', 'binary']\nresolver = '2'\n"),
            ("with/Cargo.toml", &manifest("with", "")),
            ("with/src/lib.rs", ""),
            ("without/Cargo.toml", &manifest("without", "[lib]\ndoctest = false\n")),
            ("without/src/lib.rs", ""),
            ("binary/Cargo.toml", &manifest("binary", "")),
            ("binary/src/main.rs", "fn main() {}\n"),
        ],
    );
    let metadata = output("cargo", &["metadata", "--no-deps", "--format-version", "1"], root.path());
    let read = |directory: &str| CargoProject::read(&metadata, "", &root.path().join(directory)).unwrap();
    let has = |project: &CargoProject, packages: &[&str]| {
        project.has_doctests(&packages.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
    };
    assert!(has(&read(""), &[]) && has(&read("with"), &[]));
    assert!(!has(&read("without"), &[]) && !has(&read("binary"), &[]));
    let all = read("");
    assert!(has(&all, &["with@1.0.0"]) && has(&all, &["binary", "with"]));
    assert!(!has(&all, &["binary"]) && !has(&all, &["without", "binary"]));
}

#[test]
fn words_that_name_nothing_are_refused_with_what_was_expected() {
    let read =
        |word: &str| SourceSelection::read(&[word.to_owned()], Path::new("/p")).unwrap_err().to_string();
    let range = "expected FILE:LINE, FILE:LINE-LINE or FILE:LINE:COLUMN-LINE:COLUMN";
    for word in ["a.rs:1:x", "a.rs:5-4", "a.rs:99999999999", "a.rs:1-"] {
        assert_eq!(read(word), format!("invalid range \"{word}\": {range}"));
    }
    assert_eq!(read("src/[a.rs"), "invalid glob \"src/[a.rs\"");
    assert!(SourceSelection::read(&[], Path::new("/p")).unwrap().is_everything());
}

proptest! {
    #[test]
    fn any_word_is_read_or_refused(word in "[!a-z*:0-9./\\[{é-]{0,12}") {
        let _either = SourceSelection::read(&[word], Path::new("/p"));
    }
}

#[test]
fn metadata_of_no_project_is_refused() {
    let read = |text: &str| CargoProject::read(text, "", Path::new("/p")).unwrap_err().to_string();
    assert_eq!(read("{}"), "cannot read the output of cargo metadata");
    assert_eq!(read(""), "cannot read the output of cargo metadata");
}
