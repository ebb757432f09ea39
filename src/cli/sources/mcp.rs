//! Servers of the Model Context Protocol, named by command (`--mcp 'node server.js'`,
//! `mcp = "node server.js"`) or by address (`--mcp http://127.0.0.1:3000/mcp`).

use std::path::Path;

use heeler_protocol::{
    control::{OsText, TestProgram},
    mcp::http::{BRIDGE_COMMAND, LocalUrl},
};

use super::{
    super::arguments::ProgramArguments, PhaseDisplay, SourceContext, SourcesError, TestSource, absolute_text,
};
use heeler_sys::program_search::find_program;

/// Name of the framework of these programs.
const FRAMEWORK: &str = "mcp";

/// Programs that start the server named in their arguments.
const LAUNCHERS: [&str; 26] = [
    "bash", "bun", "bunx", "cargo", "deno", "docker", "dotnet", "env", "go", "java", "node", "nodejs", "npm",
    "npx", "perl", "php", "pipx", "pnpm", "podman", "pypy", "python", "ruby", "sh", "uv", "uvx", "yarn",
];

/// Arguments: the servers' working directory, then the command of each server.
pub(super) struct McpSource;

impl TestSource for McpSource {
    fn name(&self) -> &'static str {
        "mcp"
    }

    fn command_line_arguments(&self, command_line: &ProgramArguments) -> Option<Vec<OsText>> {
        let commands: Vec<OsText> =
            command_line.mcp.iter().map(|command| OsText::from(command.as_str())).collect();
        (!commands.is_empty()).then(|| [absolute_text(Path::new("."))].into_iter().chain(commands).collect())
    }

    fn resolve(
        &self,
        arguments: &[OsText],
        context: &SourceContext<'_>,
        _display: PhaseDisplay<'_>,
    ) -> Result<Vec<TestProgram>, SourcesError> {
        let [dir, commands @ ..] = arguments else { return Ok(Vec::new()) };
        let program = |command: &OsText| {
            let command = command.to_text();
            let suite = context.suite.map(|suite| suite.name.clone());
            server_program(&command, dir.as_path(), suite)
        };
        commands.iter().map(program).collect()
    }
}

/// Returns the program of a server's command. A server on the command line is named after its command.
fn server_program(command: &str, dir: &Path, suite: Option<String>) -> Result<TestProgram, SourcesError> {
    if LocalUrl::is_meant(command.trim()) {
        return running_server(command.trim(), dir, suite);
    }
    command_program(command, dir, suite, CommandKind { framework: FRAMEWORK, what: "MCP server" })
}

/// Kind of program that a command starts.
#[derive(Clone, Copy)]
pub(super) struct CommandKind {
    pub(super) framework: &'static str,
    /// Name used in messages.
    pub(super) what: &'static str,
}

/// Returns the program of a command, which is split like a shell command. A program on the command line is
/// named after its command.
pub(super) fn command_program(
    command: &str,
    dir: &Path,
    suite: Option<String>,
    kind: CommandKind,
) -> Result<TestProgram, SourcesError> {
    let CommandKind { framework, what } = kind;
    let words = shlex::split(command).unwrap_or_default();
    let Some((name, args)) = words.split_first() else {
        return Err(SourcesError::Command { what, command: command.to_owned() });
    };
    let Some(path) = find_program(name, dir) else {
        return Err(SourcesError::NoCommand { what, command: command.to_owned(), program: name.clone() });
    };
    let path =
        std::path::absolute(&path).map_err(|source| SourcesError::Path { path: path.clone(), source })?;
    let suite = suite.unwrap_or_else(|| suite_name(&words, dir));
    Ok(TestProgram {
        args: args.iter().map(|word| OsText::from(word.as_str())).collect(),
        framework: Some(framework.to_owned()),
        ..TestProgram::new(suite, &path, dir)
    })
}

/// Returns the program that connects to a server at an address: Heeler itself. A server on the command line
/// is named after its host and port.
fn running_server(address: &str, dir: &Path, suite: Option<String>) -> Result<TestProgram, SourcesError> {
    let url = LocalUrl::parse(address)
        .map_err(|source| SourcesError::ServerAddress { address: address.to_owned(), source })?;
    let path = heeler_sys::process::shared_program_path();
    let suite = suite.unwrap_or_else(|| format!("{}-{}", url.host(), url.port()));
    Ok(TestProgram {
        args: [BRIDGE_COMMAND, address].map(OsText::from).into(),
        framework: Some(FRAMEWORK.to_owned()),
        ..TestProgram::new(suite, &path, dir)
    })
}

/// Returns a server's name: its script, module or package, otherwise its program.
fn suite_name(words: &[String], dir: &Path) -> String {
    let Some((program, args)) = words.split_first() else { return FRAMEWORK.to_owned() };
    let program = stem(program);
    let is_launcher =
        LAUNCHERS.contains(&program.trim_end_matches(|one: char| one.is_ascii_digit() || one == '.'));
    if !is_launcher {
        return program.to_owned();
    }
    let plain = || args.iter().filter(|word| !word.starts_with('-'));
    let script = plain().find(|word| dir.join(word).is_file());
    let module = || args.windows(2).find(|pair| pair[0] == "-m").map(|pair| &pair[1]);
    let named = script.or_else(module).or_else(|| plain().next_back());
    named.map_or(program, |word| script_name(word)).to_owned()
}

/// Names of scripts and directories too general to identify a server.
const GENERAL_NAMES: [&str; 10] =
    ["__main__", "app", "bin", "build", "cli", "dist", "index", "lib", "main", "src"];

/// Returns the last part of a path that identifies the server.
fn script_name(path: &str) -> &str {
    let mut parts = path.split('/').rev().map(stem).filter(|part| !matches!(*part, "" | "." | ".."));
    parts.find(|part| !GENERAL_NAMES.contains(part)).unwrap_or_else(|| stem(path))
}

/// Returns the last part of a path or package name, without extension or version.
fn stem(word: &str) -> &str {
    let name = word.trim_end_matches('/').rsplit('/').next().unwrap_or(word);
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    let stem = [".js", ".mjs", ".cjs", ".ts", ".py", ".rb", ".php", ".sh", ".jar", ".dll"]
        .iter()
        .find_map(|extension| name.strip_suffix(extension))
        .unwrap_or(name);
    if stem.is_empty() { word } else { stem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(command: &str) -> String {
        suite_name(&shlex::split(command).unwrap(), Path::new("/"))
    }

    #[test]
    fn server_is_named_after_what_its_launcher_starts() {
        for (command, name) in [
            ("node build/server.js", "server"),
            ("node ./git-server/dist/index.js --quiet", "git-server"),
            ("node dist/index.js", "index"),
            ("./target/debug/my-server --verbose data.json", "my-server"),
            ("npx -y @modelcontextprotocol/server-everything@2026.8.31", "server-everything"),
            ("python3.11 -m my_server --port 3", "my_server"),
            ("uvx mcp-server-git", "mcp-server-git"),
            ("sh -c etc/passwd then more", "passwd"),
            ("node", "node"),
        ] {
            assert_eq!(name_of(command), name, "{command}");
        }
    }

    #[test]
    fn address_is_reached_by_this_program() {
        let program = server_program(" http://localhost:3000/mcp ", Path::new("/w"), None).unwrap();
        let args: Vec<_> = program.args.iter().map(|arg| arg.to_text().into_owned()).collect();
        assert_eq!(args, ["__mcp-http", "http://localhost:3000/mcp"]);
        assert_eq!((program.suite.as_str(), program.framework.as_deref()), ("localhost-3000", Some("mcp")));
        let error = server_program("https://example.com/mcp", Path::new("/w"), None).unwrap_err();
        assert_eq!(
            heeler_core::error_chain(&error),
            "invalid MCP server address https://example.com/mcp: expected http://HOST:PORT/PATH; TLS is not supported"
        );
    }

    #[test]
    fn command_is_split_as_a_shell_does_and_its_program_found() {
        let program = server_program("sh -c 'exec server'", Path::new("/w"), None).unwrap();
        assert!(program.path.as_path().is_absolute(), "{program:?}");
        let args: Vec<_> = program.args.iter().map(|arg| arg.to_text().into_owned()).collect();
        assert_eq!(args, ["-c", "exec server"]);
        assert_eq!((program.framework.as_deref(), program.cwd.as_path()), (Some("mcp"), Path::new("/w")));
        let error = |command: &str| server_program(command, Path::new("/w"), None).unwrap_err().to_string();
        assert_eq!(
            error("no-such-server x"),
            "failed to start the MCP server \"no-such-server x\": no-such-server not found"
        );
        for unusable in ["'x", " "] {
            let expected = "the command is empty or has an unclosed quote";
            assert_eq!(error(unusable), format!("failed to start the MCP server {unusable:?}: {expected}"));
        }
    }
}
