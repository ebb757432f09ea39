//! Programs with a `main` of their own that list no tests: each is one test, with its exit code.

use heeler_mutate::LIMIT_EXIT_CODES;
use heeler_protocol::control::{CommandRules, CommandTest, ListedTest, TestProgram};
use heeler_server::variants::ListedProgram;

/// Makes one test of each program at these places that lists none. Returns whether there is any.
pub(crate) fn run_as_commands(
    programs: &mut [TestProgram],
    places: &[usize],
    listed: &[ListedProgram],
) -> bool {
    let mut is_any = false;
    for &place in places {
        if listed.get(place).is_none_or(|one| one.error.is_none() && !one.is_one_test) {
            continue;
        }
        let Some(program) = programs.get_mut(place) else { continue };
        let command = CommandTest {
            path: program.path.clone(),
            args: std::mem::take(&mut program.args),
            env: Vec::new(),
            cwd: None,
            rules: CommandRules { early_exit_codes: LIMIT_EXIT_CODES.to_vec(), ..CommandRules::default() },
        };
        let name = program.suite.rsplit(['/', ':']).next().unwrap_or_default().to_owned();
        program.entries =
            vec![ListedTest { name, selector: Some(command.to_selector()), ..ListedTest::default() }];
        program.framework = Some(CommandTest::FRAMEWORK.to_owned());
        is_any = true;
    }
    is_any
}
