//! Configured fixtures: their set-ups and tear-downs as tests of a plan, and the variables that set-ups
//! export to the tests that need them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use heeler_config::{FixtureConfig, ResolvedSettings, TestSettings, TimeLimit};
use heeler_core::{
    FIXTURE_SUITE, TestId,
    batching::{ProcessTraits, ProgramCosts},
    run::{Prerequisite, ScheduledTest},
};
use heeler_protocol::control::{CommandTest, ListedTest, OsText, TestProgram};
use heeler_sys::program_search::find_program;

use super::{
    RunPlan, SelectedTest,
    plan::program_id,
    program_table::{ListingFacts, NeedyTest, PlannedProgram, ProgramTable},
};

/// Environment variable of a set-up that names the file for the variables of its users.
const EXPORT_VARIABLE: &str = "HEELER_ENV";
/// Directory of these files, in the directory of the run.
const EXPORT_DIR: &str = "fixtures";
/// Maximum size of such a file, which is read whole.
const MAX_EXPORT_BYTES: u64 = 1 << 20;

/// The part of a configured fixture that a test of a plan stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FixtureRole {
    /// The set-up of the fixture with this name.
    SetUp(String),
    TearDown,
}

/// The set-up and the tear-down of a fixture in a plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct FixtureTests {
    set_up: TestId,
    tear_down: Option<TestId>,
}

impl FixtureTests {
    /// Adds the set-ups and tear-downs of the fixtures that the tests of a plan need, and their order.
    pub(super) fn add(
        settings: &ResolvedSettings,
        programs: &mut ProgramTable,
        tests: &mut Vec<SelectedTest>,
        scheduled: &mut Vec<ScheduledTest>,
    ) {
        let users: Vec<(TestId, Arc<[String]>)> = (0..)
            .map(TestId)
            .zip(&*scheduled)
            .map(|(test, planned)| (test, Arc::clone(programs.fixtures_of(planned.program.index()))))
            .filter(|(_, needs)| !needs.is_empty())
            .collect();
        if users.is_empty() {
            return;
        }
        let needed: Vec<String> = users.iter().flat_map(|(_, needs)| needs.iter().cloned()).collect();
        let program = programs.add(fixture_program(&settings.config_dir));
        let mut added: BTreeMap<String, Self> = BTreeMap::new();
        // Outer fixtures come first, because inner set-ups wait for theirs.
        for name in settings.fixture_order(&needed) {
            let Some(fixture) = settings.fixtures.iter().find(|one| one.name == name) else { continue };
            let outer: Vec<Self> = fixture.needs.iter().filter_map(|name| added.get(name)).copied().collect();
            let mut plan = |name: &str, command, role, fixtures: Vec<String>| {
                let test = fixture_test(fixture, name, command, role, program, &settings.config_dir);
                let needy = NeedyTest {
                    listed: &test.listed,
                    settings: &test.settings,
                    fixtures: fixtures.into(),
                    memory_units: 0,
                };
                let model_program = programs.model_program(program, needy, &settings.resources);
                let id = TestId(u32::try_from(tests.len()).expect("a run has fewer than 2^32 tests"));
                tests.push(test);
                scheduled.push(scheduled_command(model_program));
                id
            };
            let needs = settings.fixture_order(&fixture.needs);
            let role = FixtureRole::SetUp(fixture.name.clone());
            let set_up = plan("setup", &fixture.setup, role, needs);
            let tear_down = fixture.teardown.as_ref().map(|command| {
                let needs = settings.fixture_order(std::slice::from_ref(&fixture.name));
                plan("teardown", command, FixtureRole::TearDown, needs)
            });
            // The inner set-up follows the outer one, and the outer tear-down follows both inner commands.
            let prerequisites = outer.iter().map(|outer| after(outer.set_up, true));
            scheduled[set_up.index()].prerequisites.extend(prerequisites);
            for outer in outer.iter().filter_map(|outer| outer.tear_down) {
                let inner = [Some(set_up), tear_down].into_iter().flatten();
                scheduled[outer.index()].prerequisites.extend(inner.map(|inner| after(inner, false)));
            }
            if let Some(tear_down) = tear_down {
                let scheduled = &mut scheduled[tear_down.index()];
                scheduled.prerequisites.push(after(set_up, false));
                scheduled.tears_down.push(set_up);
            }
            added.insert(name, Self { set_up, tear_down });
        }
        for (user, needs) in users {
            for fixture in needs.iter().filter_map(|name| added.get(name)) {
                scheduled[user.index()].prerequisites.push(after(fixture.set_up, true));
                if let Some(tear_down) = fixture.tear_down {
                    scheduled[tear_down.index()].prerequisites.push(after(user, false));
                }
            }
        }
    }
}

fn after(test: TestId, must_succeed: bool) -> Prerequisite {
    Prerequisite { test, must_succeed }
}

/// Returns the program that stands for the commands of all fixtures.
fn fixture_program(dir: &Path) -> PlannedProgram {
    let program = TestProgram {
        framework: Some(CommandTest::FRAMEWORK.to_owned()),
        ..TestProgram::new(FIXTURE_SUITE.to_owned(), dir, dir)
    };
    let process = ProcessTraits { is_one_test: true, ..ProcessTraits::default() };
    let costs = ProgramCosts { process, ..ProgramCosts::default() };
    PlannedProgram { program, costs, listing: ListingFacts::default() }
}

fn fixture_test(
    fixture: &FixtureConfig,
    part: &str,
    command: &[String],
    role: FixtureRole,
    program: usize,
    dir: &Path,
) -> SelectedTest {
    let (path, args) = command.split_first().expect("the configuration has no empty command");
    // A program that isn't found fails when it is started, with its path.
    let path = find_program(path, dir).unwrap_or_else(|| dir.join(path));
    let command = CommandTest {
        path: OsText::from(path.as_path()),
        args: args.iter().map(|word| OsText::from(word.as_str())).collect(),
        ..CommandTest::default()
    };
    let name = format!("{}::{part}", fixture.name);
    SelectedTest {
        uid: format!("{FIXTURE_SUITE}::{name}"),
        listed: ListedTest { name, selector: Some(command.to_selector()), ..ListedTest::default() },
        program,
        listing_index: 0,
        group: None,
        settings: TestSettings { timeout: TimeLimit::After(fixture.timeout), ..TestSettings::default() },
        unrunnable: None,
        fixture: Some(role),
    }
}

fn scheduled_command(model_program: usize) -> ScheduledTest {
    ScheduledTest { is_isolated: true, ..ScheduledTest::new(program_id(model_program)) }
}

/// Programs with the variables that set-ups have exported, one for each program of the model that gets any.
#[derive(Debug, Default)]
pub(super) struct FixtureVariables {
    programs: BTreeMap<usize, Arc<TestProgram>>,
}

impl FixtureVariables {
    /// Returns the program for a lease of these tests, whose set-ups have all ended, and a message about each
    /// line of the set-ups' files that is no variable.
    pub(super) fn program_of(
        &mut self,
        plan: &RunPlan,
        model_program: usize,
        tests: &[TestId],
    ) -> (Arc<TestProgram>, Vec<String>) {
        let program = &plan.programs[plan.model_programs[model_program]];
        let fixtures = &plan.fixtures[model_program];
        let set_up = tests.iter().find_map(|test| match &plan.tests[test.index()].fixture {
            Some(FixtureRole::SetUp(name)) => Some(name),
            Some(FixtureRole::TearDown) | None => None,
        });
        let mut problems = Vec::new();
        let with_variables = |problems: &mut Vec<String>| {
            let mut program = TestProgram::clone(program);
            for name in fixtures.iter() {
                let (variables, unread) = read_exports(&export_file(plan, name));
                program.env.extend(variables);
                problems.extend(unread.into_iter().map(|problem| format!("fixture {name}: {problem}")));
            }
            program
        };
        let program = match set_up {
            // Each set-up has its own variable.
            Some(name) => {
                let file = export_file(plan, name);
                problems.extend(clear_exports(&file).err().map(|error| format!("fixture {name}: {error}")));
                let mut program = with_variables(&mut problems);
                program.env.push((EXPORT_VARIABLE.into(), Some(OsText::from(file.as_path()))));
                Arc::new(program)
            }
            None if fixtures.is_empty() => Arc::clone(program),
            None => {
                let known = self.programs.entry(model_program);
                Arc::clone(known.or_insert_with(|| Arc::new(with_variables(&mut problems))))
            }
        };
        (program, problems)
    }
}

fn export_file(plan: &RunPlan, fixture: &str) -> PathBuf {
    plan.run_dir.path.join(EXPORT_DIR).join(format!("{fixture}.env"))
}

/// Creates an empty file, also if an earlier attempt of the set-up has written to it.
fn clear_exports(file: &Path) -> std::io::Result<()> {
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir)?;
    }
    std::fs::write(file, "")
}

/// Reads the lines `NAME=VALUE` that a set-up has written. Returns the variables and the problems.
fn read_exports(file: &Path) -> (Vec<(OsText, Option<OsText>)>, Vec<String>) {
    let place = file.display();
    let size = file.metadata().map(|found| found.len()).unwrap_or_default();
    if size > MAX_EXPORT_BYTES {
        return (
            Vec::new(),
            vec![format!("{place} has {size} bytes, more than the limit {MAX_EXPORT_BYTES}")],
        );
    }
    let text = match std::fs::read(file) {
        Ok(text) => String::from_utf8_lossy(&text).into_owned(),
        // The set-up may have removed its file.
        Err(_) => return (Vec::new(), Vec::new()),
    };
    let (mut variables, mut problems) = (Vec::new(), Vec::new());
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.is_empty()) {
        match line.split_once('=').filter(|(name, value)| !name.is_empty() && !value.contains('\0')) {
            Some((name, value)) => variables.push((name.into(), Some(value.into()))),
            None => problems.push(format!("{place}:{number}: expected NAME=VALUE, found {line:?}")),
        }
    }
    (variables, problems)
}
