//! Applications of Microsoft Testing Platform, named by command: `--mtp bin/Debug/net10.0/Tests`,
//! `--mtp 'dotnet exec Tests.dll'`, or `mtp = "bin/Debug/net10.0/Tests"`.

use std::{
    path::{Path, PathBuf},
    time::SystemTime,
};

use heeler_core::SourceRequest;
use heeler_protocol::control::{OsText, TestProgram};

use super::{
    super::arguments::ProgramArguments,
    PhaseDisplay, SourceContext, SourcesError, TestSource, absolute_text,
    detect::{FoundProject, Sighting, Site, visit_below},
    mcp::{CommandKind, command_program},
    test_source::WordUse,
};

/// File name extensions of .NET projects.
const PROJECT_FILES: [&str; 3] = [".csproj", ".fsproj", ".vbproj"];
/// Texts in a project whose tests are an application of Microsoft Testing Platform.
const PLATFORM_MARKS: [&str; 7] = [
    "EnableMSTestRunner",
    "EnableNUnitRunner",
    "MSTest.Sdk",
    "Microsoft.Testing.Platform",
    "TUnit",
    "UseMicrosoftTestingPlatformRunner",
    "xunit.v3",
];
/// Text in a project whose tests need VSTest.
const VSTEST_MARK: &str = "Microsoft.NET.Test.Sdk";
/// Levels of directories below `bin`, such as `Debug/net10.0/linux-x64`.
const OUTPUT_LEVELS: usize = 4;

/// Returns the command that starts an assembly.
fn command_of_assembly(path: &str) -> String {
    shlex::try_join(["dotnet", "exec", path]).unwrap_or_else(|_| format!("dotnet exec {path}"))
}

/// Returns what a .NET project's file says about its tests.
fn dotnet_project(source: &str, site: Site<'_>, file: &str) -> Option<Sighting> {
    let text = std::fs::read_to_string(site.dir.join(file)).ok()?;
    let reason = site.relative(&site.dir.join(file));
    if !PLATFORM_MARKS.iter().any(|mark| text.contains(mark)) {
        let is_vstest = text.contains(VSTEST_MARK);
        return is_vstest.then(|| {
            Sighting::Unusable(format!(
                "{reason}: tests of VSTest; Heeler runs applications of Microsoft Testing Platform"
            ))
        });
    }
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    let named = text.split_once("<AssemblyName>").and_then(|(_, rest)| rest.split_once('<'));
    let assembly = named.map_or(stem, |(name, _)| name.trim());
    let Some(built) = newest_output(&site.dir.join("bin"), &format!("{assembly}.runtimeconfig.json")) else {
        return Some(Sighting::Unusable(format!("{reason}: not built; build with dotnet build")));
    };
    // Without an executable of its own, the application starts in the shared runtime.
    let executable = built.with_file_name(assembly);
    let command = match executable.is_file() {
        true => {
            let path = site.relative(&executable);
            shlex::try_quote(&path).map_or(path.clone(), std::borrow::Cow::into_owned)
        }
        false => command_of_assembly(&site.relative(&built.with_file_name(format!("{assembly}.dll")))),
    };
    Some(Sighting::Project(Box::new(FoundProject {
        request: SourceRequest::new(source, [OsText::from(site.top), command.as_str().into()]),
        title: format!(".NET test application {assembly}"),
        reason,
        suite: assembly.to_owned(),
        keys: vec![("mtp", command)],
    })))
}

/// Returns the newest file of this name below a directory.
fn newest_output(dir: &Path, name: &str) -> Option<PathBuf> {
    let mut newest: Option<(SystemTime, PathBuf)> = None;
    visit_below(dir, OUTPUT_LEVELS + 1, |path, is_dir| {
        if !is_dir && path.file_name().is_some_and(|found| found == name) {
            let written = path.symlink_metadata().and_then(|file| file.modified());
            let written = written.unwrap_or(SystemTime::UNIX_EPOCH);
            if newest.as_ref().is_none_or(|(known, _)| written > *known) {
                newest = Some((written, path.to_owned()));
            }
        }
        is_dir
    });
    newest.map(|(_, path)| path)
}

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

    fn take_word(&self, word: &Path, arguments: &mut ProgramArguments) -> WordUse {
        if word.extension().is_none_or(|extension| extension != "dll") {
            return WordUse::Other;
        }
        arguments.mtp.push(command_of_assembly(&word.to_string_lossy()));
        WordUse::Taken
    }

    fn project_in(&self, site: Site<'_>) -> Option<Sighting> {
        let names = site.names().into_iter();
        let mut projects = names.filter(|name| PROJECT_FILES.iter().any(|ending| name.ends_with(ending)));
        projects.find_map(|name| dotnet_project(self.name(), site, &name))
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
