//! Programs that list no tests: each is one test, judged by its exit code. As for `heeler run`, the listing
//! decides which programs these are.

use heeler_mutate::LIMIT_EXIT_CODES;
use heeler_protocol::control::{CommandRules, CommandTest, ListedTest, TestProgram};
use heeler_server::variants::ListedProgram;

/// Replaces each program that is one test with a command, because only commands interpret `LIMIT_EXIT_CODES`.
/// Returns `None` if no program changes.
pub(crate) fn with_commands(programs: &[TestProgram], listed: &[ListedProgram]) -> Option<Vec<TestProgram>> {
    // A program with a framework is a command already.
    let is_to_change =
        |(program, listed): (&TestProgram, &ListedProgram)| listed.is_one_test && program.framework.is_none();
    if !programs.iter().zip(listed).any(is_to_change) {
        return None;
    }
    let changed =
        programs.iter().zip(listed).map(|(program, listed)| match is_to_change((program, listed)) {
            true => as_command(program.clone()),
            false => program.clone(),
        });
    Some(changed.collect())
}

fn as_command(program: TestProgram) -> TestProgram {
    let name = program.suite.rsplit(['/', ':']).next().unwrap_or_default().to_owned();
    let command = CommandTest {
        path: program.path.clone(),
        args: program.args,
        rules: CommandRules { early_exit_codes: LIMIT_EXIT_CODES.to_vec(), ..CommandRules::default() },
        ..CommandTest::default()
    };
    TestProgram {
        args: Vec::new(),
        entries: vec![ListedTest { name, selector: Some(command.to_selector()), ..ListedTest::default() }],
        framework: Some(CommandTest::FRAMEWORK.to_owned()),
        ..program
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn programs_without_a_listing_become_commands() {
        let program = |framework: Option<&str>| TestProgram {
            args: vec!["--all".into()],
            framework: framework.map(str::to_owned),
            ..TestProgram::new("case::own".to_owned(), Path::new("/w/own"), Path::new("/w"))
        };
        let listed = |is_one_test| ListedProgram {
            suite: "case::own".to_owned(),
            path: "/w/own".to_owned(),
            tests: Vec::new(),
            uids: Vec::new(),
            selection_limit: None,
            is_one_test,
            error: None,
        };
        let programs = [program(None), program(None), program(Some(CommandTest::FRAMEWORK))];
        let changed = with_commands(&programs, &[listed(false), listed(true), listed(true)]).unwrap();
        assert_eq!((&changed[0], &changed[2]), (&programs[0], &programs[2]));
        let command = CommandTest::from_selector(changed[1].entries[0].selector.as_deref().unwrap()).unwrap();
        assert_eq!((command.args, changed[1].args.len()), (vec!["--all".into()], 0));
        assert_eq!(command.rules.early_exit_codes, LIMIT_EXIT_CODES);
        assert_eq!(with_commands(&programs, &[listed(false), listed(false), listed(true)]), None);
    }
}
