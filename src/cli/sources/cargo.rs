//! The test programs of a cargo package or workspace: `--cargo DIR`, or `cargo = "DIR"`.

use std::path::Path;

use heeler_protocol::control::{OsText, TestProgram};

use super::{
    super::{
        arguments::ProgramArguments,
        cargo::{CargoBuild, CargoProgram},
    },
    PhaseDisplay, SourceContext, SourcesError, TestSource, absolute_text, plain_program,
};

/// The arguments are the directory in which cargo runs, then the arguments for cargo.
pub(super) struct CargoSource;

impl TestSource for CargoSource {
    fn name(&self) -> &'static str {
        "cargo"
    }

    fn command_line_arguments(&self, command_line: &ProgramArguments) -> Option<Vec<OsText>> {
        let options = command_line.cargo_options();
        let dir = match command_line.cargo.as_deref() {
            Some(dir) => dir,
            None if !options.is_empty() => Path::new("."),
            None => return None,
        };
        let args = options.iter().map(|word| OsText::from(word.as_str()));
        Some([absolute_text(dir)].into_iter().chain(args).collect())
    }

    fn resolve(
        &self,
        arguments: &[OsText],
        context: &SourceContext<'_>,
        display: PhaseDisplay<'_>,
    ) -> Result<Vec<TestProgram>, SourcesError> {
        let (dir, args) = match arguments {
            [dir, args @ ..] => (dir.as_path(), args),
            [] => (Path::new("."), arguments),
        };
        match context.suite {
            Some(suite) => display("Building", &format!("the suite {} with cargo", suite.name)),
            None => display("Building", &format!("the tests of {}", dir.display())),
        }
        let args: Vec<_> = args.iter().map(OsText::as_os_str).collect();
        let built = CargoBuild::start(dir, &args, context.supervision)
            .and_then(CargoBuild::finish)
            .map_err(SourcesError::Cargo)?;
        Ok(built.into_iter().map(program).collect())
    }
}

fn program(built: CargoProgram) -> TestProgram {
    let tool_env = built
        .env
        .iter()
        .map(|(name, value)| (OsText::from(name.as_os_str()), OsText::from(value.as_os_str())))
        .collect();
    TestProgram { tool_env, ..plain_program(built.suite, &built.path, &built.cwd) }
}
