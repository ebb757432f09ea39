//! The environment variables that the set-ups of fixtures export to the tests that need them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use heeler_core::TestId;
use heeler_protocol::control::{OsText, TestProgram};

use super::{RunPlan, selected_test::FixtureRole};

/// Environment variable of a set-up that names the file for the variables of its users.
const EXPORT_VARIABLE: &str = "HEELER_ENV";
/// Directory of these files, in the directory of the run.
const EXPORT_DIR: &str = "fixtures";
/// Maximum size of such a file, which is read whole.
const MAX_EXPORT_BYTES: u64 = 1 << 20;

/// Programs with the variables that set-ups have exported, one for each program of the model that gets any.
#[derive(Debug, Default)]
pub(super) struct FixtureVariables {
    programs: BTreeMap<usize, Arc<TestProgram>>,
}

impl FixtureVariables {
    /// Returns the program for a lease of these tests, whose set-ups have all ended. Also returns a message
    /// about each malformed line in the set-ups' files.
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
