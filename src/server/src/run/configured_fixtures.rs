//! Configured fixtures: their set-ups and tear-downs as tests of a plan.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use heeler_config::{FixtureConfig, ResolvedSettings, TestSettings, TimeLimit};
use heeler_core::{
    FIXTURE_SUITE, TestId,
    batching::{ProcessTraits, ProgramCosts},
    run::{Prerequisite, ScheduledTest},
};
use heeler_protocol::control::{CommandTest, ListedTest, OsText, TestProgram};
use heeler_sys::program_search::find_program;

use super::{
    program_table::{ListingFacts, NeedyTest, PlannedProgram, ProgramTable, program_id},
    selected_test::{FixtureRole, SelectedTest},
};

/// The set-up and the tear-down of a fixture in a plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct FixtureCommands {
    set_up: TestId,
    tear_down: Option<TestId>,
}

impl FixtureCommands {
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
