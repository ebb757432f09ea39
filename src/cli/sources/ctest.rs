//! Tests of a CMake project: `--ctest DIR`, `ctest = "DIR"`, or a build folder among the programs.
//!
//! CTest lists the tests but does not run them. CTest would run each test in a separate process. Tests of a
//! program with a known framework are instead matched to the program's own tests and run in batches (`fold`).
//! All other tests are commands with rules from their CTest properties.

mod environment;
mod fold;
mod resources;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    ffi::OsString,
    path::{Path, PathBuf},
};

use heeler_core::SourceRequest;
use heeler_protocol::{
    control::{OsText, TestProgram},
    ctest::{CtestProperties, CtestTest, read_ctest_listing},
};

use super::{
    super::arguments::ProgramArguments,
    PhaseDisplay, SourceContext, SourcesError, TestSource, absolute_text,
    detect::{FoundProject, Sighting, Site, visit_below},
    programs::test_programs_below,
};
use fold::{FoldedTests, Surroundings};
use heeler_cargo::read_tool_output;
use resources::ResourceSpec;

pub(in crate::cli) const NAME: &str = "ctest";
/// The file that marks a CTest build folder.
const TEST_FILE: &str = "CTestTestfile.cmake";
/// Separates a request's build folders from the arguments of CTest.
const ARGUMENTS_FOLLOW: &str = "--";

/// File of a CMake project.
const PROJECT_FILE: &str = "CMakeLists.txt";
/// Levels of directories below a CMake project that may be build folders, such as `out/build/debug`.
const BUILD_FOLDER_LEVELS: usize = 3;

/// Returns the build folders below a CMake project, the newest first.
fn build_folders(project: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    visit_below(project, BUILD_FOLDER_LEVELS, |path, _| {
        let is_found = is_ctest_folder(path);
        if is_found {
            let written = path.join(TEST_FILE).metadata().and_then(|file| file.modified()).ok();
            found.push((written, path.to_owned()));
        }
        !is_found
    });
    found.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
    found.into_iter().map(|(_, path)| path).collect()
}

/// Returns a line about a CMake project that has tests and no build folder.
fn missing_build_folder(site: Site<'_>) -> Option<String> {
    let file = site.dir.join(PROJECT_FILE);
    let text = std::fs::read_to_string(&file).unwrap_or_default().to_lowercase().replace(' ', "");
    let has_tests = text.contains("enable_testing(") || text.contains("include(ctest)");
    let name = site.relative(&file);
    let (source, build) = match site.dir == site.top {
        true => (String::new(), "build".to_owned()),
        false => (format!(" -S {}", site.name()), format!("{}/build", site.name())),
    };
    has_tests.then(|| {
        format!("{name}: no build folder; build with cmake{source} -B {build} && cmake --build {build}")
    })
}

pub(super) fn is_ctest_folder(path: &Path) -> bool {
    path.join(TEST_FILE).is_file()
}

/// Arguments: build folders, then `--`, then arguments of CTest.
pub(super) struct CtestSource;

impl TestSource for CtestSource {
    fn name(&self) -> &'static str {
        NAME
    }

    fn command_line_arguments(&self, command_line: &ProgramArguments) -> Option<Vec<OsText>> {
        let found = command_line.programs.iter().filter(|path| is_ctest_folder(path));
        let dirs: Vec<OsText> =
            command_line.ctest.iter().chain(found).map(|dir| absolute_text(dir)).collect();
        (!dirs.is_empty()).then_some(dirs)
    }

    fn project_in(&self, site: Site<'_>) -> Option<Sighting> {
        let (dir, others) = match is_ctest_folder(site.dir) {
            true => (site.dir.to_owned(), Vec::new()),
            false if site.has(PROJECT_FILE) => match build_folders(site.dir).split_first() {
                Some((newest, others)) => (newest.clone(), others.to_vec()),
                None => return missing_build_folder(site).map(Sighting::Unusable),
            },
            false => return None,
        };
        let name = site.relative(&dir);
        let mut reason = site.relative(&dir.join(TEST_FILE));
        if !others.is_empty() {
            let others: Vec<_> = others.iter().map(|dir| site.relative(dir)).collect();
            reason += &format!("; the newest of {name}, {}", others.join(", "));
        }
        let place = if name == "." { String::new() } else { format!(" in {name}") };
        Some(Sighting::Project(Box::new(FoundProject {
            request: SourceRequest::new(self.name(), [OsText::from(dir.as_path())]),
            title: format!("CTest tests{place}"),
            reason,
            suite: "cmake".to_owned(),
            keys: vec![(NAME, name)],
        })))
    }

    fn resolve(
        &self,
        arguments: &[OsText],
        context: &SourceContext<'_>,
        display: PhaseDisplay<'_>,
    ) -> Result<Vec<TestProgram>, SourcesError> {
        // Separate the build folders from the arguments of CTest.
        let is_border = |word: &OsText| word.as_bytes() == ARGUMENTS_FOLLOW.as_bytes();
        let border = arguments.iter().position(is_border).unwrap_or(arguments.len());
        let args = arguments.get(border + 1..).unwrap_or_default();
        let mut programs = Vec::new();
        for dir in &arguments[..border] {
            let dir = dir.as_path();
            let dir = std::path::absolute(dir)
                .map_err(|source| SourcesError::Path { path: dir.to_owned(), source })?;
            let mut tests = list_tests(&dir, args, context)?;
            remove_fixture_order(&mut tests);
            for line in unsupported(&tests) {
                display("Ignoring", &line);
            }
            if let Some(line) = left_out(&dir, &tests).filter(|_| context.suite.is_none()) {
                display("Skipping", &line);
            }
            let suite = context.suite.map(|suite| suite.name.as_str());
            let has_several = border > 1;
            if suite.is_some() || has_several {
                let scope =
                    if has_several { dir.to_string_lossy() } else { suite.unwrap_or_default().into() };
                qualify_fixtures(&mut tests, &scope);
            }
            let resources = ResourceSpec::read(&dir, args)?;
            let surroundings = Surroundings {
                resources: &resources,
                variable: &|name| std::env::var(name).ok(),
                framework: &|path| heeler_worker::likely_framework(&dir.join(path)),
            };
            programs.extend(FoldedTests::of(tests, &surroundings).into_programs(&dir, suite));
        }
        Ok(programs)
    }
}

/// Runs CTest to list the tests of a build folder.
fn list_tests(
    dir: &Path,
    args: &[OsText],
    context: &SourceContext<'_>,
) -> Result<Vec<CtestTest>, SourcesError> {
    let path = || PathBuf::from(dir);
    if !is_ctest_folder(dir) {
        return Err(SourcesError::NoCtestFolder { path: path() });
    }
    let words = ["--show-only=json-v1"].map(OsString::from).into_iter();
    let words = words.chain(args.iter().map(|word| word.as_os_str().to_owned())).collect();
    let listing = read_tool_output("ctest", words, dir, context.supervision)
        .map_err(|source| SourcesError::Ctest { path: path(), source })?;
    read_ctest_listing(&listing).map_err(|source| SourcesError::CtestListing { path: path(), source })
}

/// Prefixes fixture names with their scope, because folders may have fixtures of the same name.
fn qualify_fixtures(tests: &mut [CtestTest], scope: &str) {
    for CtestTest { properties, .. } in tests {
        let CtestProperties { fixtures_setup, fixtures_required, fixtures_cleanup, .. } = properties;
        for name in [fixtures_setup, fixtures_required, fixtures_cleanup].into_iter().flatten() {
            *name = format!("{scope}::{name}");
        }
    }
}

/// Maximum number of programs named that no CTest test runs.
const NAMED_PROGRAMS: usize = 5;

/// Returns a line about test programs below a build folder that no CTest test runs. A user who names the
/// folder may expect them to run.
fn left_out(dir: &Path, tests: &[CtestTest]) -> Option<String> {
    let commands = tests.iter().filter_map(|test| test.command.first());
    let known: HashSet<PathBuf> = commands.filter_map(|path| Path::new(path).canonicalize().ok()).collect();
    let mut unknown = test_programs_below(dir)?;
    unknown.retain(|path| path.canonicalize().is_ok_and(|path| !known.contains(&path)));
    let names = unknown.iter().take(NAMED_PROGRAMS);
    let names = names.map(|path| path.strip_prefix(dir).unwrap_or(path).display().to_string());
    let names = names.collect::<Vec<_>>().join(", ");
    let more = match unknown.len().saturating_sub(NAMED_PROGRAMS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let (number, what) = match unknown.len() {
        0 => return None,
        1 => (1, "test program that no CTest test runs (name it to run it)"),
        number => (number, "test programs that no CTest test runs (name them to run them)"),
    };
    Some(format!("{number} {what}: {names}{more}"))
}

/// Returns a line for each CTest property that tests use and Heeler does not apply.
fn unsupported(tests: &[CtestTest]) -> Vec<String> {
    let names: BTreeSet<&str> =
        tests.iter().flat_map(|test| &test.properties.others).map(String::as_str).collect();
    let line = |name: &str| {
        let mut users = tests.iter().filter(|test| test.properties.others.contains(name));
        let first = users.next().map_or("", |test| test.name.as_str());
        match users.count() {
            0 => format!("the unsupported CTest property {name} of {first}"),
            others => format!("the unsupported CTest property {name} of {first} and {others} more"),
        }
    };
    names.into_iter().map(line).collect()
}

/// Removes the dependencies that follow from fixtures. CTest lists them like those that the project declares.
fn remove_fixture_order(tests: &mut [CtestTest]) {
    let by_name: HashMap<&str, &CtestTest> = tests.iter().map(|test| (test.name.as_str(), test)).collect();
    let is_declared = |test: &CtestTest, name: &String| {
        by_name.get(name.as_str()).is_some_and(|other| !is_ordered_by_fixtures(test, other))
    };
    let declared = |test: &CtestTest| {
        test.properties.depends.iter().filter(|name| is_declared(test, name)).cloned().collect()
    };
    let depends: Vec<Vec<String>> = tests.iter().map(declared).collect();
    for (test, depends) in tests.iter_mut().zip(depends) {
        test.properties.depends = depends;
    }
}

/// Returns whether a shared fixture makes `test` start after `before`.
fn is_ordered_by_fixtures(test: &CtestTest, before: &CtestTest) -> bool {
    let share = |one: &[String], other: &[String]| one.iter().any(|name| other.contains(name));
    let (test, before) = (&test.properties, &before.properties);
    share(&test.fixtures_required, &before.fixtures_setup)
        || share(&test.fixtures_cleanup, &before.fixtures_setup)
        || share(&test.fixtures_cleanup, &before.fixtures_required)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(name: &str, others: &[&str], depends: &[&str]) -> CtestTest {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        CtestTest {
            name: name.to_owned(),
            properties: CtestProperties {
                others: names(others).into_iter().collect(),
                depends: names(depends),
                ..CtestProperties::default()
            },
            ..CtestTest::default()
        }
    }

    #[test]
    fn each_property_that_is_not_applied_is_named_once() {
        let tests = [
            test("a", &["MEASUREMENT"], &[]),
            test("b", &["MEASUREMENT", "PROCESSOR_AFFINITY"], &["a"]),
            test("c", &["MEASUREMENT"], &[]),
        ];
        assert_eq!(
            unsupported(&tests),
            [
                "the unsupported CTest property MEASUREMENT of a and 2 more",
                "the unsupported CTest property PROCESSOR_AFFINITY of b",
            ]
        );
    }

    #[test]
    fn dependencies_of_fixtures_are_left_to_the_fixtures() {
        let mut set_up = test("set-up", &[], &[]);
        set_up.properties.fixtures_setup = vec!["x".to_owned()];
        let mut user = test("user", &[], &["set-up", "first", "not a test"]);
        user.properties.fixtures_required = vec!["x".to_owned()];
        let mut tests = [test("first", &[], &[]), set_up, user];
        remove_fixture_order(&mut tests);
        let depends = tests.map(|test| test.properties.depends.join(" "));
        assert_eq!(depends, ["", "", "first"]);
    }
}
