//! Tests of the registry: a source needs only its own file and its line in the registry.

use std::path::Path;

use super::*;

/// A source that exists only in these tests; its programs are its arguments, below one directory.
struct DirectorySource;

impl TestSource for DirectorySource {
    fn name(&self) -> &'static str {
        "directory"
    }

    fn command_line_arguments(&self, _command_line: &ProgramArguments) -> Option<Vec<OsText>> {
        None
    }

    fn resolve(
        &self,
        arguments: &[OsText],
        _context: &SourceContext<'_>,
        display: PhaseDisplay<'_>,
    ) -> Result<Vec<TestProgram>, SourcesError> {
        display("Searching", "a directory");
        let (dir, names) = arguments.split_first().expect("the test names a directory");
        let program = |name: &OsText| {
            TestProgram::new(name.to_text().into_owned(), &dir.as_path().join(name.as_path()), dir.as_path())
        };
        Ok(names.iter().map(program).collect())
    }
}

fn empty_config() -> Config {
    Config::parse(Path::new("/w/heeler.toml"), "").unwrap()
}

#[test]
fn source_of_a_recorded_request_is_found_by_its_name() {
    let registry: &[&dyn TestSource] = &[&ProgramsSource, &DirectorySource];
    let config = empty_config();
    let context = SourceContext {
        config: &config,
        suite: None,
        framework: None,
        debug_data: DebugData::Kept,
        supervision: BuildSupervision::default(),
    };
    // A manifest records the request like this.
    let request = SourceRequest::new("directory", ["/d".into(), "a".into(), "b".into()]);
    let mut phases = Vec::new();
    let mut display = |label: &str, _: &str| phases.push(label.to_owned());
    let programs = resolve_request(registry, &request, &context, &mut display).unwrap();
    let paths: Vec<_> = programs.iter().map(|program| program.path.to_text().into_owned()).collect();
    assert_eq!(paths, ["/d/a", "/d/b"]);
    let unknown = SourceRequest::new("elsewhere", []);
    let error = resolve_request(registry, &unknown, &context, &mut display).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the earlier run used the test source \"elsewhere\", which this version of Heeler does not support"
    );
    assert_eq!(phases, ["Searching"]);
}

#[test]
fn command_line_names_sources_in_order_with_absolute_paths() {
    let arguments = ProgramArguments {
        programs: vec!["/p/a".into(), "/p/b".into()],
        cargo: Some("/c".into()),
        cargo_args: vec!["--release".into()],
        cargo_targets: crate::cli::arguments::CargoTargetArguments::default(),
        framework: Some("gtest".into()),
        mcp: vec!["node s.js".into()],
        mtp: Vec::new(),
        ctest: Some("/b".into()),
        suites: crate::cli::arguments::SuiteArguments::default(),
        pytest: crate::cli::arguments::PytestArguments { paths: vec!["t".into()], python: Some("py".into()) },
        go: crate::cli::arguments::GoArguments {
            packages: vec!["./...".into()],
            arguments: vec!["-race".into()],
        },
        program_args: vec!["--data=x".into()],
    };
    let named = NamedSources::from_arguments(&arguments);
    let expected = [
        SourceRequest::new("programs", ["/p/a".into(), "/p/b".into()]),
        SourceRequest::new("cargo", ["/c".into(), "--release".into()]),
        SourceRequest::new("mcp", [absolute_text(Path::new(".")), "node s.js".into()]),
        SourceRequest::new("pytest", [absolute_text(Path::new(".")), "t".into(), "py".into()]),
        SourceRequest::new(
            "go",
            [absolute_text(Path::new(".")), "./...".into(), "--".into(), "-race".into()],
        ),
        SourceRequest::new("ctest", ["/b".into()]),
    ];
    assert_eq!((named.requests.as_slice(), named.framework.as_deref()), (&expected[..], Some("gtest")));
    assert_eq!(named.program_args, ["--data=x"]);
    assert_eq!(NamedSources::from_arguments(&ProgramArguments::default()), NamedSources::default());
    let relative = ProgramArguments { cargo: Some("sub".into()), ..ProgramArguments::default() };
    let named = NamedSources::from_arguments(&relative);
    assert_eq!(named.requests[0].arguments[0].as_path(), std::env::current_dir().unwrap().join("sub"));
}

#[test]
fn each_key_of_a_suite_names_a_source_of_the_registry() {
    for source in TEST_SOURCES {
        let value = if source.name() == "programs" { "[\"a\"]" } else { "\"a\"" };
        let text = format!("[[suite]]\nname = \"s\"\n{} = {value}\n", source.name());
        let config = Config::parse(Path::new("/w/heeler.toml"), &text).unwrap();
        assert_eq!(config.suites[0].source.source, source.name());
    }
}

fn write(dir: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

fn summary(dir: &Path) -> Vec<String> {
    let found = find_projects(dir);
    let lines = found.projects.iter().map(|one| format!("{} ({})", one.title, one.reason));
    lines.chain(found.unusable).collect()
}

#[test]
fn projects_of_every_kind_are_found_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    write(
        dir.path(),
        &[
            ("Cargo.toml", "[workspace]\n"),
            ("crates/a/Cargo.toml", "[package]\n"),
            ("svc/go.mod", "module svc\n"),
            ("py/pyproject.toml", "[tool.pytest.ini_options]\n"),
            ("py/tests/test_a.py", ""),
            ("native/CMakeLists.txt", ""),
            ("native/build/CTestTestfile.cmake", ""),
            ("native/build/sub/CTestTestfile.cmake", ""),
            ("web/package.json", "{}"),
            ("target/x/go.mod", "module generated\n"),
            ("deep/er/still/go.mod", "module too_deep\n"),
        ],
    );
    assert_eq!(
        summary(dir.path()),
        [
            "Cargo workspace (Cargo.toml)",
            "CTest tests in native/build (native/build/CTestTestfile.cmake)",
            "pytest in py (py/pyproject.toml)",
            "Go module in svc (svc/go.mod)",
            "web/package.json: Heeler does not run JavaScript tests",
        ]
    );
}

#[test]
fn tests_of_python_need_no_configuration() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &[("tests/unit/test_a.py", ""), ("setup.cfg", "[metadata]\n"), ("tools/x.py", "")]);
    assert_eq!(summary(dir.path()), ["pytest (tests/unit/test_a.py)"]);
    write(dir.path(), &[("setup.cfg", "[tool:pytest]\n")]);
    assert_eq!(summary(dir.path()), ["pytest (setup.cfg)"]);
}

#[test]
fn newest_build_folder_of_a_cmake_project_counts_and_a_missing_one_is_named() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &[("CMakeLists.txt", "enable_testing()\n")]);
    let lines = summary(dir.path());
    assert!(lines[0].contains("cmake -B build"), "{lines:?}");
    write(dir.path(), &[("old/CTestTestfile.cmake", ""), ("new/CTestTestfile.cmake", "")]);
    let old = std::fs::File::options().write(true).open(dir.path().join("old/CTestTestfile.cmake")).unwrap();
    old.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(summary(dir.path()), ["CTest tests in new (new/CTestTestfile.cmake; the newest of new, old)"]);
}

#[test]
fn suites_have_distinct_names_and_quoted_values() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &[("a\"b/go.mod", "module a\n"), ("c/go.mod", "module c\n")]);
    let text = configuration_text(&find_projects(dir.path()));
    let config = heeler_config::Config::parse(&dir.path().join("heeler.toml"), &text).unwrap();
    let names: Vec<_> = config.suites.iter().map(|suite| suite.name.as_str()).collect();
    assert_eq!(names, ["go", "go-2"]);
    assert_eq!(config.suites[0].source.arguments[1].to_text(), "./a\"b/...");
}
