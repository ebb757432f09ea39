//! Checks that `scripts/package` builds the packages that the manifest and the install page list. Building
//! them needs a release build; `tests/packages/run` tests the built packages.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use crate::source_rules::root;

/// Returns the file names of all packages.
fn package_names() -> BTreeSet<String> {
    let output = Command::new(root().join("scripts/package")).arg("--names").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn package_scripts_parse() {
    for script in ["scripts/package", "tests/packages/run", "tests/packages/aarch64"] {
        let output = Command::new("bash").arg("-n").arg(root().join(script)).output().unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
    }
    let program = "import ast, sys; ast.parse(open(sys.argv[1]).read())";
    let mut python = Command::new("python3");
    let output = python.args(["-c", program]).arg(root().join("scripts/package-wheel")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn binstall_metadata_names_archives() {
    let manifest: toml::Table = fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    let binstall = manifest["package"]["metadata"]["binstall"].as_table().unwrap();
    assert_eq!(binstall["pkg-fmt"].as_str(), Some("txz"));
    let names = package_names();
    for target in ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"] {
        let expand = |key: &str| {
            let text = binstall[key].as_str().unwrap().replace("{ target }", target);
            text.replace("{ version }", env!("CARGO_PKG_VERSION"))
        };
        let url = expand("pkg-url");
        let name = Path::new(&url).file_name().unwrap().to_str().unwrap();
        assert!(names.contains(name), "{name} is not among {names:?}");
        let directory = expand("bin-dir");
        let stem = name.strip_suffix(".tar.xz").unwrap();
        assert_eq!(directory, format!("{stem}/bin/{{ bin }}{{ binary-ext }}"));
    }
}

#[test]
fn install_page_names_every_package_and_no_other_file() {
    let page = fs::read_to_string(root().join("docs/install.md")).unwrap();
    let ends = [".tar.xz", ".deb", ".whl", ".tgz"];
    let words = page.split(|letter: char| letter.is_whitespace() || "`/()|".contains(letter));
    let named: BTreeSet<_> = words
        .filter(|word| word.starts_with("heeler") && ends.iter().any(|end| word.ends_with(end)))
        .map(str::to_owned)
        .collect();
    assert_eq!(named, package_names());
}
