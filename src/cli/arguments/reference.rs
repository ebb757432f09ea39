//! Generates the command line reference: `docs/reference/cli.md` from the arguments, and
//! `docs/reference/exit-codes.md` from the exit codes.
#![cfg(all(feature = "connect", feature = "minidump", feature = "mutation"))]

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command, CommandFactory as _};

use super::CommandLineArguments;
use crate::cli::exit::CliExitCode;

const CLI_PAGE_HEAD: &str = "\
# Command line

<!-- Generated from the arguments in src/cli/arguments.rs: UPDATE_GOLDEN=1 cargo test -p heeler --lib reference. -->

Options may be given in any order, values after a space or `=`. The command line
overrides [heeler.toml](config.md). [Exit codes](exit-codes.md) are the same for all commands.
";

const EXIT_CODES_PAGE_HEAD: &str = "\
# Exit codes

<!-- Generated from the exit codes in src/cli/exit_code.rs: UPDATE_GOLDEN=1 cargo test -p heeler --lib reference. -->

| code | meaning |
| --- | --- |
";

/// Exit codes of other runners, for users who replace one of them in a script.
const EXIT_CODES_OF_PEERS: &str = "
## Other test runners

Heeler uses the code of the Microsoft Testing Platform for each case that the platform has a code for. The first row
that applies gives Heeler's code: a run that its time limit ended exits with 14, also if tests failed before.

| what happened | Heeler | `dotnet test` (MTP) | cargo-nextest | pytest | CTest | `go test` |
| --- | --- | --- | --- | --- | --- | --- |
| the user aborted the run | 3 | 3 | 100 | 2 | a signal | 1 |
| the time limit of the run was reached | 14 | 3 | 100 | – | 8 | 1 |
| the failure limit was reached | 13 | 13 | 100 | 1 | 8 | 1 |
| tests failed | 2 | 2 | 100 | 1 | 8 | 1 |
| no tests to run | 8 | 8 | 4 | 5 | 0; 8 with `--no-tests=error` | 0 |
| all tests passed | 0 | 0 | 0 | 0 | 0 | 0 |
| the build failed | 4 | 1 | 101 | – | – | 1 |
| invalid command line or configuration | 5 | 5 | 2, 94, 96 | 4 | 1 | 1, 2 |
| internal error | 10 | 1, 7, 10 | others | 3 | others | 2 |

- A test of the framework `command` that exits with 77 is skipped, as in automake.
";

/// Environment variables read by the command line, each with the file that reads it.
const ENVIRONMENT_VARIABLES: [(&str, &str, &str); 16] = [
    ("TMPDIR", DIRECTORIES_FILE, "Directory for temporary files; otherwise `/tmp`."),
    (
        "XDG_RUNTIME_DIR",
        DIRECTORIES_FILE,
        "Directory for sockets and for the machine's slots; otherwise `/tmp`.",
    ),
    ("HEELER_MACHINE_SLOTS", ARGUMENTS_FILE, "Value of `--machine-slots`, unless the option is given."),
    ("CARGO", CARGO_FILE, "Absolute path of the cargo that builds tests; otherwise the one in `PATH`."),
    (
        "RUSTC",
        CARGO_FILE,
        "Absolute path of the rustc whose libraries tests load; otherwise the one in `PATH`.",
    ),
    ("NO_COLOR", DISPLAY_FILE, "No colours if set, unless `--color` is given."),
    (
        "FORCE_COLOR",
        DISPLAY_FILE,
        "Colours in files and pipes too, if set; no colours if `0` or `false` \
         ([precedence](../guide/running.md#colours)).",
    ),
    ("CLICOLOR_FORCE", DISPLAY_FILE, "Colours in files and pipes too, if set and not `0`."),
    ("CARGO_TERM_COLOR", DISPLAY_FILE, "Colours with `always`, none with `never`."),
    ("CLICOLOR", DISPLAY_FILE, "No colours if `0`."),
    ("TERM", DISPLAY_FILE, "With `dumb`: no colours, no live view."),
    ("CI", DISPLAY_FILE, "No live view if set and not `false`."),
    ("GITHUB_ACTIONS", DISPLAY_FILE, "With `true`: annotations and folded groups for GitHub Actions."),
    ("GITHUB_STEP_SUMMARY", STEP_SUMMARY_FILE, "On GitHub Actions: the file that a summary is appended to."),
    (
        "CLAUDECODE",
        DISPLAY_FILE,
        "Shows failures only, as do `CURSOR_AGENT`, `AI_AGENT`, `GEMINI_CLI`, `CODEX_SANDBOX` and `OPENCODE`: \
         [for coding agents](../guide/running.md#for-coding-agents).",
    ),
    (
        "HEELER_LOG",
        START_FILE,
        "Log levels in the syntax of the `tracing` crates, such as `heeler_server=debug`.",
    ),
];

const DIRECTORIES_FILE: &str = include_str!("../../sys/src/dirs.rs");
const ARGUMENTS_FILE: &str = include_str!("../arguments.rs");
const CARGO_FILE: &str = include_str!("../../cargo/src/build.rs");
const DISPLAY_FILE: &str = include_str!("../display/options.rs");
const STEP_SUMMARY_FILE: &str = include_str!("../run_output.rs");
const START_FILE: &str = include_str!("../start.rs");

/// Returns the page about the command line.
fn render_cli_page() -> String {
    let mut program = CommandLineArguments::command().term_width(100);
    program.build();
    let mut page = CLI_PAGE_HEAD.to_owned();
    page += "\n## Environment\n\n| variable | what it does |\n| --- | --- |\n";
    for (name, file, description) in ENVIRONMENT_VARIABLES {
        assert!(file.contains(name), "{name} is read");
        writeln!(page, "| `{name}` | {description} |").unwrap();
    }
    for command in program.get_subcommands_mut().filter(|command| !command.is_hide_set()) {
        render_command(&mut page, command);
    }
    page
}

fn render_command(page: &mut String, command: &mut Command) {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    // The parser prints the help of this command by itself.
    if command.get_name() == "help" {
        return;
    }
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    write!(page, "\n## `{name}`\n\n{}.\n\n```text\n{usage}\n```\n", about.trim_end_matches('.')).unwrap();
    let arguments: Vec<&Arg> = command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set() && argument.get_id() != "help")
        .collect();
    if !arguments.is_empty() {
        *page += "\n| argument | default | what it does |\n| --- | --- | --- |\n";
    }
    for argument in arguments {
        let row = [syntax(argument), default_of(argument), description(argument)];
        writeln!(page, "| {} |", row.map(|cell| cell.replace('|', "\\|")).join(" | ")).unwrap();
    }
    if let Some(footer) = command.get_after_help() {
        write!(page, "\n```text\n{}\n```\n", footer.to_string().trim_end()).unwrap();
    }
    for below in command.get_subcommands_mut().filter(|command| !command.is_hide_set()) {
        render_command(page, below);
    }
}

/// Returns the names of an argument with its value, such as `-j`, `--jobs N`.
fn syntax(argument: &Arg) -> String {
    let values = argument.get_value_names().unwrap_or_default();
    let values = values.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" ");
    let takes_value = argument.get_action().takes_values();
    if argument.is_positional() {
        return format!("`{values}`");
    }
    let is_optional = argument.get_num_args().is_some_and(|count| count.min_values() == 0);
    let equals = if argument.is_require_equals_set() { "=" } else { " " };
    let value = match (takes_value, is_optional) {
        (false, _) => String::new(),
        (true, false) => format!(" {values}"),
        (true, true) => format!("[{equals}{values}]"),
    };
    let short = argument.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
    format!("{short}`--{}{value}`", argument.get_long().expect("each option has a long name"))
}

fn default_of(argument: &Arg) -> String {
    if !argument.get_action().takes_values() {
        return String::new();
    }
    let values = argument.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy()));
    values.collect::<Vec<_>>().join(", ")
}

fn description(argument: &Arg) -> String {
    let help = argument.get_long_help().or_else(|| argument.get_help());
    let mut text = help.map(ToString::to_string).unwrap_or_default().replace('\n', " ");
    if !text.ends_with(['.', ']']) {
        text.push('.');
    }
    let values = argument.get_possible_values();
    if !values.is_empty() && !argument.is_hide_possible_values_set() && takes_words(argument) {
        let words: Vec<String> = values.iter().map(|value| format!("`{}`", value.get_name())).collect();
        write!(text, " Values: {}.", words.join(", ")).unwrap();
    }
    if let Some(variable) = argument.get_env() {
        write!(text, " Environment: `{}`.", variable.to_string_lossy()).unwrap();
    }
    text
}

fn takes_words(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::Set | ArgAction::Append)
}

/// Returns the page about exit codes.
fn render_exit_codes_page() -> String {
    let rows = CliExitCode::MEANINGS.iter().map(|(code, meaning)| format!("| {code} | {meaning} |\n"));
    EXIT_CODES_PAGE_HEAD.to_owned() + &rows.collect::<String>() + EXIT_CODES_OF_PEERS
}

#[track_caller]
fn check_generated(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let command = "UPDATE_GOLDEN=1 cargo test -p heeler --lib reference";
    assert!(found == text, "docs/reference/{name} is not up to date; this rewrites it: {command}");
}

#[test]
fn cli_page_is_generated_from_the_arguments() {
    check_generated("cli.md", &render_cli_page());
}

#[test]
fn exit_codes_page_is_generated_from_the_exit_codes() {
    check_generated("exit-codes.md", &render_exit_codes_page());
}

#[test]
fn cli_page_describes_each_argument() {
    let page = render_cli_page();
    for row in [
        "| `-j`, `--jobs N` |  | ",
        "| `--fail-fast[=MODE]` |  | ",
        "| `--format FORMAT` | `human` | ",
        "| `RUN` | `latest` | ",
        "| `--isolate` |  | ",
    ] {
        assert!(page.contains(&format!("\n{row}")), "{row}\n{page}");
    }
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    assert!(rows.iter().all(|row| !row.contains("|  |  |")), "each has a description: {rows:?}");
    assert!(!page.contains("__"), "hidden commands are not described");
}
