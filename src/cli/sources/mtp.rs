//! Applications of Microsoft Testing Platform, named by command: `--mtp bin/Debug/net10.0/Tests`,
//! `--mtp 'dotnet exec Tests.dll'`, or `mtp = "bin/Debug/net10.0/Tests"`.

use std::path::Path;

use heeler_protocol::control::{OsText, TestProgram};

use super::{
    super::arguments::ProgramArguments,
    PhaseDisplay, SourceContext, SourcesError, TestSource, absolute_text,
    mcp::{CommandKind, command_program},
};

/// Name of the framework of these programs, and of the source.
const FRAMEWORK: &str = "mtp";

/// Arguments: the applications' working directory, then the command of each application.
pub(super) struct MtpSource;

impl TestSource for MtpSource {
    fn name(&self) -> &'static str {
        FRAMEWORK
    }

    fn command_line_arguments(&self, command_line: &ProgramArguments) -> Option<Vec<OsText>> {
        let commands: Vec<OsText> =
            command_line.mtp.iter().map(|command| OsText::from(command.as_str())).collect();
        (!commands.is_empty()).then(|| [absolute_text(Path::new("."))].into_iter().chain(commands).collect())
    }

    fn resolve(
        &self,
        arguments: &[OsText],
        context: &SourceContext<'_>,
        _display: PhaseDisplay<'_>,
    ) -> Result<Vec<TestProgram>, SourcesError> {
        let [dir, commands @ ..] = arguments else { return Ok(Vec::new()) };
        let kind = CommandKind { framework: FRAMEWORK, what: "test application" };
        let program = |command: &OsText| {
            let suite = context.suite.map(|suite| suite.name.clone());
            command_program(&command.to_text(), dir.as_path(), suite, kind)
        };
        commands.iter().map(program).collect()
    }
}
