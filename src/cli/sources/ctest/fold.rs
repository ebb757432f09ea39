//! Matches CTest tests to the tests of programs with a known framework. CTest runs each test in a process of
//! its own; here, the program lists its tests with their locations, and one process runs many of them.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::Path,
};

use heeler_protocol::{
    control::{
        COST_TRAIT, CTEST_NAME_TRAIT, CommandRules, CommandTest, DEPENDS_TRAIT, FIXTURE_CLEANUP_TRAIT,
        FIXTURE_REQUIRED_TRAIT, FIXTURE_SETUP_TRAIT, ListedTest, OsText, PROCESSORS_TRAIT,
        RESOURCE_GROUP_TRAIT, RESOURCE_LOCK_TRAIT, RUN_SERIAL_TRAIT, ReportName, ResourceUnit, TestProgram,
        TimeoutAfterMatch, TraitPair,
    },
    ctest::{CtestProperties, CtestTest, ResourceGroup, SKIP_FAILS, SKIP_TRAIT},
};

use super::{
    TEST_FILE,
    environment::{Variables, variables},
    resources::ResourceSpec,
};

/// How CTest's arguments select a test of a framework.
struct SelectionForm {
    framework: &'static str,
    selection: SelectionArgument,
    /// Arguments that accompany the selection and change nothing for a single test.
    companions: &'static [&'static str],
    /// Prefix of arguments that would change which tests run, or what they report.
    own_options: &'static str,
    /// Regular expression that recognises a skipped test in CMake's module.
    skip_expression: Option<&'static str>,
    /// Exit code of a process whose test has skipped itself, if it differs from success.
    skip_code: Option<i32>,
    /// Returns the name of the only test selected by this text.
    only_test: fn(&str) -> Option<String>,
    /// Whether the text also selects tests whose names differ only in case.
    ignores_case: bool,
}

/// The argument that selects the test.
enum SelectionArgument {
    /// The argument with this prefix.
    Option(&'static str),
    /// The only argument, if this framework is found in the program.
    Only,
}

/// The supported frameworks.
static SELECTION_FORMS: &[SelectionForm] = &[
    SelectionForm {
        framework: "gtest",
        selection: SelectionArgument::Option("--gtest_filter="),
        companions: &["--gtest_also_run_disabled_tests"],
        own_options: "--gtest_",
        skip_expression: Some(r"\[  SKIPPED \]"),
        skip_code: None,
        only_test: |filter| {
            (!filter.is_empty() && !filter.contains(['*', '?', ':', '-'])).then(|| filter.to_owned())
        },
        ignores_case: false,
    },
    SelectionForm {
        framework: "doctest",
        selection: SelectionArgument::Option("--test-case="),
        companions: &[],
        own_options: "-",
        skip_expression: None,
        skip_code: None,
        only_test: |filter| {
            let name = filter.replace("\\,", "\0");
            (!name.is_empty() && !name.contains(['*', '?', ',', '\\'])).then(|| name.replace('\0', ","))
        },
        ignores_case: true,
    },
    SelectionForm { framework: "catch2", skip_code: Some(4), ..CATCH2 },
    SelectionForm { framework: "catch2-v2", ..CATCH2 },
];

const CATCH2: SelectionForm = SelectionForm {
    framework: "",
    selection: SelectionArgument::Only,
    companions: &[],
    own_options: "-",
    skip_expression: None,
    skip_code: None,
    only_test: only_test_of_pattern,
    ignores_case: true,
};

/// Returns the name of the only test selected by a Catch2 pattern.
fn only_test_of_pattern(pattern: &str) -> Option<String> {
    let is_plain = pattern == pattern.trim()
        && !pattern.starts_with(['*', '~', '-'])
        && !pattern.ends_with('*')
        && !pattern.starts_with("exclude:");
    let mut name = String::new();
    let mut rest = pattern.chars();
    while let Some(character) = rest.next() {
        match character {
            // Several patterns, a tag, or a quoted name without escapes.
            ',' | '[' | '"' => return None,
            '\\' => name.push(rest.next()?),
            _ if character.is_control() => return None,
            _ => name.push(character),
        }
    }
    (is_plain && !name.is_empty()).then_some(name)
}

/// CTest tests, sorted by how they run.
#[derive(Debug, Default)]
pub(super) struct FoldedTests {
    programs: Vec<FoldedProgram>,
    /// Index of each program.
    by_key: BTreeMap<ProgramKey, usize>,
    commands: Vec<ListedTest>,
    /// Resources for the groups of tests.
    resources: BTreeMap<String, Vec<ResourceUnit>>,
}

/// Properties that the tests of one program share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct ProgramKey {
    framework: &'static str,
    path: String,
    args: Vec<String>,
    env: Variables,
    cwd: Option<String>,
}

#[derive(Debug)]
struct FoldedProgram {
    key: ProgramKey,
    entries: Vec<ListedTest>,
    names: HashSet<String>,
}

/// Lookup functions for environment variables and for the frameworks of programs.
pub(super) struct Surroundings<'a> {
    /// Returns the value of an environment variable.
    pub(super) variable: &'a dyn Fn(&str) -> Option<String>,
    /// Returns the framework found in a program.
    pub(super) framework: &'a dyn Fn(&str) -> Option<&'static str>,
    /// Resources for the groups of tests.
    pub(super) resources: &'a ResourceSpec,
}

/// A CTest test with its variables. For a test of a known framework, also its program and its name in the
/// program.
struct SortedTest {
    test: CtestTest,
    env: Variables,
    folded: Option<(ProgramKey, String)>,
    /// Reason why the test can't run.
    broken: Option<String>,
}

impl FoldedTests {
    pub(super) fn of(tests: Vec<CtestTest>, surroundings: &Surroundings<'_>) -> Self {
        // Find the program of each test.
        let resources = surroundings.resources.units();
        let mut folded = Self { resources, ..Self::default() };
        let mut frameworks = BTreeMap::new();
        let mut sorted = Vec::with_capacity(tests.len());
        for test in tests {
            let properties = &test.properties;
            let modifications = &properties.environment_modification;
            match variables(&properties.environment, modifications, surroundings.variable) {
                Ok(mut env) => {
                    env.extend(surroundings.resources.group_count(surroundings.variable));
                    let mut framework = |path: &str| {
                        let known = frameworks.entry(path.to_owned());
                        *known.or_insert_with(|| (surroundings.framework)(path))
                    };
                    let broken = surroundings.resources.lacking(properties);
                    let broken = broken.map(|reason| format!("not run: {reason}"));
                    let found = program_of(&test, &env, &mut framework).filter(|_| broken.is_none());
                    sorted.push(SortedTest { folded: found, test, env, broken });
                }
                Err(reason) => {
                    let broken = Some(format!("not run: {reason}"));
                    sorted.push(SortedTest { folded: None, test, env: Variables::new(), broken });
                }
            }
        }
        // Tests with an ambiguous or repeated name run as commands.
        let ambiguous = ambiguous_names(&sorted);
        for SortedTest { test, env, folded: found, broken } in sorted {
            match found.filter(|(key, name)| folded.has_room(key, name)) {
                Some((key, name)) if !ambiguous.contains(&(key.clone(), name.to_lowercase())) => {
                    folded.add(key, name, &test);
                }
                Some(_) | None => {
                    let entry = command_entry(&test, env);
                    folded.commands.push(ListedTest { broken: broken.or(entry.broken), ..entry });
                }
            }
        }
        folded
    }

    /// Returns whether no other CTest test selects the same test of the program.
    fn has_room(&self, key: &ProgramKey, name: &str) -> bool {
        self.by_key.get(key).is_none_or(|place| !self.programs[*place].names.contains(name))
    }

    fn add(&mut self, key: ProgramKey, name: String, test: &CtestTest) {
        let next = self.programs.len();
        let place = *self.by_key.entry(key.clone()).or_insert(next);
        if place == next {
            self.programs.push(FoldedProgram { key, entries: Vec::new(), names: HashSet::new() });
        }
        let program = &mut self.programs[place];
        let mut entry = entry(test);
        entry.display = Some(entry.name);
        entry.traits.push(TraitPair { name: CTEST_NAME_TRAIT.to_owned(), value: test.name.clone() });
        // CTest counts a test's skip exit code as a failure unless the test's properties declare it.
        if form_of(program.key.framework)
            .is_some_and(|form| form.skip_code != test.properties.skip_return_code)
        {
            let value = SKIP_FAILS.to_owned();
            entry.traits.push(TraitPair { name: SKIP_TRAIT.to_owned(), value });
        }
        program.names.insert(name.clone());
        program.entries.push(ListedTest { name, ..entry });
    }

    /// Returns the programs of frameworks, then one program with all commands.
    pub(super) fn into_programs(self, dir: &Path, suite: Option<&str>) -> Vec<TestProgram> {
        let mut programs: Vec<TestProgram> =
            self.programs.into_iter().map(|one| one.into_program(dir, suite)).collect();
        programs.iter_mut().for_each(|program| program.resources.clone_from(&self.resources));
        if !self.commands.is_empty() {
            programs.push(TestProgram {
                framework: Some(CommandTest::FRAMEWORK.to_owned()),
                entries: self.commands,
                resources: self.resources,
                ..TestProgram::new(suite.unwrap_or("ctest").to_owned(), &dir.join(TEST_FILE), dir)
            });
        }
        programs
    }
}

impl FoldedProgram {
    fn into_program(self, dir: &Path, suite: Option<&str>) -> TestProgram {
        let ProgramKey { framework, path, args, env, cwd } = self.key;
        let path = Path::new(&path);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = suite.map_or_else(|| name.clone().into_owned(), |suite| format!("{suite}::{name}"));
        TestProgram {
            args: args.into_iter().map(OsText::from).collect(),
            env: os_variables(env),
            framework: Some(framework.to_owned()),
            entries: self.entries,
            ..TestProgram::new(name, path, cwd.as_deref().map_or(dir, Path::new))
        }
    }
}

fn form_of(framework: &str) -> Option<&'static SelectionForm> {
    SELECTION_FORMS.iter().find(|form| form.framework == framework)
}

/// Returns the lower-case names shared by several tests of a program, if CTest's argument for one of these
/// tests selects all of them.
fn ambiguous_names(tests: &[SortedTest]) -> HashSet<(ProgramKey, String)> {
    let mut names: BTreeMap<(&ProgramKey, String), BTreeSet<&str>> = BTreeMap::new();
    for (key, name) in tests.iter().filter_map(|test| test.folded.as_ref()) {
        if form_of(key.framework).is_some_and(|form| form.ignores_case) {
            names.entry((key, name.to_lowercase())).or_default().insert(name);
        }
    }
    let several = names.into_iter().filter(|(_, names)| names.len() > 1);
    several.map(|((key, name), _)| (key.clone(), name)).collect()
}

/// Returns a test's program, and the test's name in the program; `None` if the test must run as a command.
/// `framework_of` returns the framework found in a program.
fn program_of(
    test: &CtestTest,
    env: &Variables,
    framework_of: &mut dyn FnMut(&str) -> Option<&'static str>,
) -> Option<(ProgramKey, String)> {
    // Find the form of the selecting argument.
    let (path, args) = test.command.split_first()?;
    let selected = |form: &'static SelectionForm| match form.selection {
        SelectionArgument::Option(option) => {
            let mut selections = args.iter().filter_map(|arg| arg.strip_prefix(option));
            let selection = selections.next()?;
            selections.next().is_none().then_some((form, selection))
        }
        SelectionArgument::Only => {
            let [selection] = args else { return None };
            (framework_of(path) == Some(form.framework)).then_some((form, selection.as_str()))
        }
    };
    let (form, selection) = SELECTION_FORMS.iter().find_map(selected)?;
    let name = (form.only_test)(selection)?;
    // The remaining arguments belong to the program.
    let is_own = |arg: &&String| match form.selection {
        SelectionArgument::Option(option) => {
            !arg.starts_with(option) && !form.companions.contains(&arg.as_str())
        }
        SelectionArgument::Only => false,
    };
    let rest: Vec<String> = args.iter().filter(is_own).cloned().collect();
    let properties = &test.properties;
    let runs_as_listed = properties.is_disabled || !name.contains("DISABLED_") || form.ignores_case;
    if rest.iter().any(|arg| arg.starts_with(form.own_options))
        || !runs_as_listed
        || !is_judged_by_framework(properties, form)
    {
        return None;
    }
    let key = ProgramKey {
        framework: form.framework,
        path: path.clone(),
        args: rest,
        env: env.clone(),
        cwd: properties.working_directory.clone(),
    };
    Some((key, name))
}

/// Returns whether the framework's result equals CTest's result, given the test's properties.
fn is_judged_by_framework(properties: &CtestProperties, form: &SelectionForm) -> bool {
    let is_expected_skip = |text: &String| form.skip_expression == Some(text.as_str());
    !properties.will_fail
        && properties.skip_return_code.is_none_or(|code| form.skip_code == Some(code))
        && properties.pass_expressions.is_empty()
        && properties.fail_expressions.is_empty()
        && properties.skip_expressions.iter().all(is_expected_skip)
        && properties.timeout_after_match.is_none()
        && properties.required_files.is_empty()
        && properties.attached_files.is_empty()
        && properties.attached_files_on_failure.is_empty()
}

/// Returns a test with CTest's data, under CTest's name.
fn entry(test: &CtestTest) -> ListedTest {
    let label = |label: &String| TraitPair { name: label.clone(), value: String::new() };
    let properties = &test.properties;
    let names = [
        (FIXTURE_SETUP_TRAIT, &properties.fixtures_setup),
        (FIXTURE_REQUIRED_TRAIT, &properties.fixtures_required),
        (FIXTURE_CLEANUP_TRAIT, &properties.fixtures_cleanup),
        (RESOURCE_LOCK_TRAIT, &properties.resource_locks),
        (DEPENDS_TRAIT, &properties.depends),
    ];
    let names = names.into_iter().flat_map(|(name, values)| {
        values.iter().map(move |value| TraitPair { name: name.to_owned(), value: value.clone() })
    });
    let values = [
        (PROCESSORS_TRAIT, properties.processors.map(|processors| processors.to_string())),
        (RUN_SERIAL_TRAIT, properties.is_serial.then(String::new)),
        (COST_TRAIT, properties.cost.map(|cost| cost.to_string())),
    ];
    let values = values
        .into_iter()
        .filter_map(|(name, value)| Some(TraitPair { name: name.to_owned(), value: value? }));
    let group = |group: &ResourceGroup| {
        let amounts: Vec<_> = group.iter().map(|(kind, amount)| format!("{kind}:{amount}")).collect();
        TraitPair { name: RESOURCE_GROUP_TRAIT.to_owned(), value: amounts.join(",") }
    };
    let groups = properties.resource_groups.iter().map(group);
    let (file, line) = test.place.clone().unzip();
    let limit = test.properties.timeout.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
    ListedTest {
        name: test.name.clone(),
        // The name in CTest's own reports.
        report_name: Some(ReportName { class: test.name.clone(), name: test.name.clone() }),
        file,
        line,
        skip: test.properties.is_disabled.then(|| "disabled".to_owned()),
        traits: properties.labels.iter().map(label).chain(names).chain(values).chain(groups).collect(),
        timeout_ms: limit,
        ..ListedTest::default()
    }
}

/// Returns a test that runs as CTest would run it.
fn command_entry(test: &CtestTest, env: Variables) -> ListedTest {
    let properties = &test.properties;
    let is_built = properties.is_disabled || !test.command.is_empty();
    let (path, args) = test.command.split_first().map_or(("", &[][..]), |(path, args)| (path.as_str(), args));
    let texts = |texts: &[String]| texts.iter().map(|text| OsText::from(text.as_str())).collect();
    let timer = properties.timeout_after_match.as_ref().map(|(limit, expressions)| TimeoutAfterMatch {
        timeout_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
        expressions: expressions.clone(),
    });
    let command = CommandTest {
        path: path.into(),
        args: texts(args),
        env: os_variables(env),
        cwd: properties.working_directory.as_deref().map(OsText::from),
        rules: CommandRules {
            will_fail: properties.will_fail,
            early_exit_codes: Vec::new(),
            skip_code: properties.skip_return_code.filter(|code| *code >= 0),
            pass_expressions: properties.pass_expressions.clone(),
            fail_expressions: properties.fail_expressions.clone(),
            skip_expressions: properties.skip_expressions.clone(),
            timeout_after_match: timer,
            required_files: texts(&properties.required_files),
            attached_files: texts(&properties.attached_files),
            attached_files_on_failure: texts(&properties.attached_files_on_failure),
        },
    };
    let missing = || "not run: CTest found no program for it; is it built?".to_owned();
    ListedTest { selector: Some(command.to_selector()), broken: (!is_built).then(missing), ..entry(test) }
}

fn os_variables(variables: Variables) -> Vec<(OsText, Option<OsText>)> {
    let pair = |(name, value): (String, Option<String>)| (OsText::from(name), value.map(OsText::from));
    variables.into_iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(name: &str, command: &[&str]) -> CtestTest {
        CtestTest {
            name: name.to_owned(),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            ..CtestTest::default()
        }
    }

    fn programs(tests: Vec<CtestTest>) -> Vec<TestProgram> {
        let framework = |path: &str| match path {
            "/b/catch" => Some("catch2"),
            "/b/catch-v2" => Some("catch2-v2"),
            _ => None,
        };
        let no_resources = ResourceSpec::default();
        let surroundings =
            Surroundings { variable: &|_| None, framework: &framework, resources: &no_resources };
        FoldedTests::of(tests, &surroundings).into_programs(Path::new("/b"), None)
    }

    /// Returns a line for each program: suite, framework and arguments, then its tests.
    fn summary(programs: &[TestProgram]) -> Vec<String> {
        let line = |program: &TestProgram| {
            let args: Vec<_> = program.args.iter().map(|arg| arg.to_text().into_owned()).collect();
            let names: Vec<_> = program.entries.iter().map(|entry| entry.name.as_str()).collect();
            let framework = program.framework.as_deref().unwrap_or_default();
            format!("{} {framework} [{}]: {}", program.suite, args.join(" "), names.join(", "))
        };
        programs.iter().map(line).collect()
    }

    #[test]
    fn tests_of_one_program_are_folded_by_what_else_they_have() {
        let unit = |name: &str, own: &[&str]| {
            let filter = format!("--gtest_filter={name}");
            let words = [&["/b/unit"], own, &[&filter, "--gtest_also_run_disabled_tests"]].concat();
            test(&format!("u.{name}"), &words)
        };
        let mut other_env = unit("A.d", &[]);
        other_env.properties.environment = vec!["X=1".to_owned()];
        let found = programs(vec![
            unit("A.a", &[]),
            unit("A.b", &["--own"]),
            unit("A.c", &[]),
            other_env,
            test("cases: a, b", &["/b/cases", r"--test-case=a\, b"]),
        ]);
        assert_eq!(
            summary(&found),
            [
                "unit gtest []: A.a, A.c",
                "unit gtest [--own]: A.b",
                "unit gtest []: A.d",
                "cases doctest []: a, b",
            ]
        );
        let entry = &found[0].entries[1];
        assert_eq!(entry.display.as_deref(), Some("u.A.c"));
        assert_eq!((entry.traits[0].name.as_str(), entry.traits[0].value.as_str()), ("ctest", "u.A.c"));
        assert_eq!(found[2].env, [("X".into(), Some("1".into()))]);
    }

    #[test]
    fn what_a_framework_can_not_decide_is_a_command() {
        let filtered =
            |name: &str, filter: &str| test(name, &["/b/unit", &format!("--gtest_filter={filter}")]);
        let with = |name: &str, set: fn(&mut CtestProperties)| {
            let mut test = filtered(name, "A.a");
            set(&mut test.properties);
            test
        };
        let mut skips = filtered("skips", "A.c");
        skips.properties.skip_expressions = vec![r"\[  SKIPPED \]".to_owned()];
        let found = programs(vec![
            filtered("one", "A.a"),
            filtered("the same", "A.a"),
            filtered("pattern", "A.*"),
            filtered("list", "A.a:A.b"),
            filtered("disabled one", "A.DISABLED_b"),
            test("two filters", &["/b/unit", "--gtest_filter=A.a", "--gtest_filter=A.b"]),
            test("repeated", &["/b/unit", "--gtest_filter=A.b", "--gtest_repeat=2"]),
            skips,
            with("will fail", |properties| properties.will_fail = true),
            with("other skip", |properties| properties.skip_expressions = vec!["SKIP".to_owned()]),
            with("passes by output", |properties| properties.pass_expressions = vec!["x".to_owned()]),
            with("needs a file", |properties| properties.required_files = vec!["x".to_owned()]),
        ]);
        assert_eq!(
            summary(&found),
            [
                "unit gtest []: A.a, A.c",
                "ctest command []: the same, pattern, list, disabled one, two filters, repeated, will fail, \
                 other skip, passes by output, needs a file",
            ]
        );
    }

    #[test]
    fn tests_of_catch2_are_those_of_a_program_with_one_plain_argument() {
        let with_code = |name: &str| {
            let mut test = test(name, &["/b/catch", name]);
            test.properties.skip_return_code = Some(4);
            test
        };
        let found = programs(vec![
            test("adds", &["/b/catch", "adds"]),
            with_code("skips"),
            test("escaped", &["/b/catch", r"a\, \[b\] \\ c"]),
            test("of version 2", &["/b/catch-v2", "adds"]),
            test("shell", &["/bin/sh", "adds"]),
            test("tag", &["/b/catch", "[slow]"]),
            test("several", &["/b/catch", "a,b"]),
            test("wildcard", &["/b/catch", "a*"]),
            test("all others", &["/b/catch", "~a"]),
            test("quoted", &["/b/catch", "a \"b\""]),
            test("reporter", &["/b/catch", "b", "--reporter junit"]),
            test("option", &["/b/catch", "--list-tests"]),
            test("all", &["/b/catch"]),
            test("Upper", &["/b/catch", "Upper"]),
            test("upper", &["/b/catch", "upper"]),
        ]);
        assert_eq!(
            summary(&found),
            [
                r"catch catch2 []: adds, skips, a, [b] \ c",
                "catch-v2 catch2-v2 []: adds",
                "ctest command []: shell, tag, several, wildcard, all others, quoted, reporter, option, all, Upper, \
                 upper",
            ]
        );
        let skip_fails = |entry: &ListedTest| {
            entry.traits.iter().any(|one| (one.name.as_str(), one.value.as_str()) == (SKIP_TRAIT, SKIP_FAILS))
        };
        let [adds, skips, _] = &found[0].entries[..] else { panic!("{found:?}") };
        assert!(skip_fails(adds) && !skip_fails(skips) && !skip_fails(&found[1].entries[0]));
    }

    #[test]
    fn test_without_a_program_is_an_error_and_a_disabled_one_is_skipped() {
        let mut disabled = test("off", &[]);
        disabled.properties.is_disabled = true;
        let mut wrong = test("wrong", &["/bin/true"]);
        wrong.properties.environment_modification = vec!["A=raise:1".to_owned()];
        let found = programs(vec![test("x_NOT_BUILT", &[]), disabled, wrong]);
        let [missing, off, wrong] = &found[0].entries[..] else { panic!("{found:?}") };
        assert!(missing.broken.as_ref().unwrap().contains("is it built?"));
        assert_eq!((off.broken.as_ref(), off.skip.as_deref()), (None, Some("disabled")));
        assert!(wrong.broken.as_ref().unwrap().contains("unknown operation \"raise\""));
    }

    #[test]
    fn properties_become_rules() {
        let mut full = test("full", &["/bin/sh", "-c", "x"]);
        full.properties.skip_return_code = Some(77);
        full.properties.labels = vec!["slow".to_owned()];
        full.properties.timeout = Some(std::time::Duration::from_millis(1500));
        full.properties.working_directory = Some("/w".to_owned());
        full.place = Some(("/w/CMakeLists.txt".to_owned(), 9));
        let found = programs(vec![full]);
        let entry = &found[0].entries[0];
        assert_eq!(
            (entry.timeout_ms, entry.line, entry.traits[0].name.as_str()),
            (Some(1500), Some(9), "slow")
        );
        let command = CommandTest::from_selector(entry.selector.as_deref().unwrap()).unwrap();
        assert_eq!((command.cwd, command.rules.skip_code), (Some("/w".into()), Some(77)));
        assert_eq!(command.args, ["-c".into(), "x".into()]);
    }
}
