//! Parses the process's arguments into a command, or into the help or error message to print instead.

use std::{
    ffi::{OsStr, OsString},
    io,
    path::Path,
};

use clap::{Command, CommandFactory, Parser};

use super::{CliCommand, CommandLineArguments, NormaliseError, habits, normalise, other_tools};
use crate::cli::exit::CliExitCode;
use heeler_server::listen::DefaultTransport;

/// Why no command runs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ParseArgumentsError {
    /// Help or the version was requested, or the arguments are invalid. The parser's error contains the text
    /// to print.
    #[error("{0}")]
    Arguments(clap::Error),
    /// Heeler was built without the feature that the command needs.
    #[error(
        "heeler {command} is not available: Heeler was built without the feature \"{feature}\"; build it with --features \
         {feature}, or install it with its default features"
    )]
    LeftOut { command: &'static str, feature: &'static str },
    /// An editor's command line is invalid.
    #[error("invalid command line")]
    Editor { source: NormaliseError },
}

impl ParseArgumentsError {
    /// Returns the exit code: 0 when help or the version was requested.
    #[must_use]
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Arguments(error) if !error.use_stderr() => 0,
            Self::Arguments(_) | Self::LeftOut { .. } | Self::Editor { .. } => CliExitCode::CommandLine as u8,
        }
    }

    /// Prints the message to standard output or standard error, in colours if supported.
    pub(crate) fn print(&self) {
        match self {
            // Printing fails if the terminal is gone; then nothing can show the error either.
            Self::Arguments(error) => drop(error.print()),
            Self::LeftOut { .. } => eprintln!("error: {self}"),
            Self::Editor { source } => eprintln!("error: {source}"),
        }
    }
}

/// Returns the command of a command line. The first argument is the program's own name.
///
/// # Errors
/// The arguments are invalid or request help. The caller prints the error and exits with its exit code.
pub(crate) fn parse(argv: Vec<OsString>) -> Result<CliCommand, ParseArgumentsError> {
    let words = normalise(argv).map_err(|source| ParseArgumentsError::Editor { source })?;
    let words = habits::translate(words).map_err(ParseArgumentsError::Arguments)?;
    let words = insert_shuffle_default(name_protocol(name_mutation_server(words)));
    check_features(&words)?;
    let command = CommandLineArguments::try_parse_from(&words)
        .map(|found| found.command)
        .map_err(|error| ParseArgumentsError::Arguments(other_tools::with_own_form(error, &words)))?;
    let program_args = match &command {
        CliCommand::Run(run) => &run.programs.program_args[..],
        CliCommand::List(list) => &list.programs.program_args,
        _ => &[],
    };
    other_tools::check_program_arguments(program_args).map_err(ParseArgumentsError::Arguments)?;
    Ok(command)
}

/// Internal name of the command for Mutation Server Protocol servers, which users write as two words.
pub(super) const SERVER_COMMAND: &str = "serve-mutants";

/// Commands that a build may lack: name for the parser, name for users, feature, and whether this build has
/// it.
const OPTIONAL_COMMANDS: [(&str, &str, &str, bool); 4] = [
    ("connect", "connect", "connect", cfg!(feature = "connect")),
    ("dump", "dump", "minidump", cfg!(feature = "minidump")),
    ("mutate", "mutate", "mutation", cfg!(feature = "mutation")),
    (SERVER_COMMAND, "serve mutation", "mutation", cfg!(feature = "mutation")),
];

/// Rejects commands that this build lacks.
fn check_features(words: &[OsString]) -> Result<(), ParseArgumentsError> {
    let is_named = |name: &str| words.get(1).is_some_and(|word| word == name);
    match OPTIONAL_COMMANDS.into_iter().find(|(name, _, _, is_built)| !is_built && is_named(name)) {
        Some((_, command, feature, _)) => Err(ParseArgumentsError::LeftOut { command, feature }),
        None => Ok(()),
    }
}

/// Writes a manual page for each command into a directory, creating the directory.
///
/// # Errors
/// A page can't be written.
pub(crate) fn write_manual_pages(dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    // The long version contains the target, but one set of pages is packaged for every target.
    let mut program =
        CommandLineArguments::command().long_version(None::<&str>).disable_help_subcommand(true);
    program.build();
    write_pages_of(&program, dir, "")
}

/// Writes the page of a command and of the commands below it. `parent` is the page above, if any.
fn write_pages_of(command: &Command, dir: &Path, parent: &str) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let below: Vec<&Command> = command.get_subcommands().filter(|below| !below.is_hide_set()).collect();
    for below in &below {
        write_pages_of(below, dir, name)?;
    }
    let page = clap_mangen::Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text)?;
    let related = below.iter().map(|below| below.get_display_name().unwrap_or(below.get_name()));
    let related: Vec<&str> = [parent].into_iter().filter(|name| !name.is_empty()).chain(related).collect();
    text.extend(common_sections(&related).as_bytes());
    std::fs::write(dir.join(page.get_filename()), text)
}

/// Files of users that every command may read, with their meaning.
const USER_FILES: [(&str, &str); 3] = [
    ("heeler.toml", "The configuration, in the working directory or a directory above."),
    (".heeler/history.sqlite", "Durations and outcomes of tests in earlier runs."),
    (".heeler/runs", "Records, dumps and attached files of runs."),
];

/// Returns the sections that end each manual page. `related` are names of other pages.
fn common_sections(related: &[&str]) -> String {
    let mut text = ".SH \"EXIT STATUS\"\n".to_owned();
    for (code, meaning) in CliExitCode::MEANINGS {
        text += &format!(".TP\n\\fB{code}\\fR\n{}\n", meaning.replace('-', "\\-"));
    }
    text += ".SH FILES\n";
    for (file, meaning) in USER_FILES {
        // A line that begins with a dot would be a request.
        text += &format!(".TP\n\\fI{file}\\fR\n{meaning}\n");
    }
    if !related.is_empty() {
        let pages = related.iter().map(|name| format!("\\fB{}\\fR(1)", name.replace('-', "\\-")));
        text += &format!(".SH \"SEE ALSO\"\n{}\n", pages.collect::<Vec<_>>().join(", "));
    }
    text
}

/// Options of `heeler serve` that select its transport.
const TRANSPORTS: [&str; 4] = ["--stdio", "--listen", "--port", "--pipe"];

/// Subcommands of `serve` that start a Mutation Server Protocol server.
const MUTATION_SERVERS: [&str; 3] = ["mutation", "stdio", "socket"];
/// Program name that starts a mutation server, because clients start their server without arguments.
const MUTATION_SERVER_NAME: &str = "mutation-server";

/// Translates `heeler serve mutation …` and its variants to the internal command name.
fn name_mutation_server(mut words: Vec<OsString>) -> Vec<OsString> {
    let own_name = words.first().map(Path::new).and_then(Path::file_stem).and_then(OsStr::to_str);
    if words.len() == 1 && own_name.is_some_and(|name| name.ends_with(MUTATION_SERVER_NAME)) {
        words.extend(["serve", "mutation"].map(OsString::from));
    }
    let is_serve = words.get(1).is_some_and(|word| word == "serve");
    if is_serve && words.get(2).is_some_and(|word| MUTATION_SERVERS.iter().any(|name| word == name)) {
        words[1] = SERVER_COMMAND.into();
    }
    words
}

/// Translates `heeler serve PROTOCOL …` to `--protocol`, and adds the protocol's default transport unless a
/// transport is given.
fn name_protocol(mut words: Vec<OsString>) -> Vec<OsString> {
    let is_serve = words.get(1).is_some_and(|word| word == "serve");
    let protocol = words.get(2).and_then(|word| word.to_str()).and_then(heeler_server::listen::front_end);
    let Some(protocol) = protocol.filter(|_| is_serve) else { return words };
    let mut options = words.iter().skip(3).take_while(|word| *word != "--").filter_map(|word| word.to_str());
    let has_transport = options.any(|word| TRANSPORTS.contains(&word.split('=').next().unwrap_or(word)));
    words[2] = format!("--protocol={}", protocol.name()).into();
    if !has_transport {
        let transport = match protocol.default_transport() {
            DefaultTransport::AnyPort => "--port=0",
            DefaultTransport::StandardStreams => "--stdio",
        };
        words.insert(3, transport.into());
    }
    words
}

/// Gives `--shuffle` its default value unless a seed follows, because the next argument may be a program.
fn insert_shuffle_default(words: Vec<OsString>) -> Vec<OsString> {
    let is_seed =
        |word: &OsStr| word.to_str().is_some_and(|word| word == "random" || word.parse::<u64>().is_ok());
    let next = words.iter().skip(1).map(Some).chain([None]).map(|word| word.cloned());
    let next: Vec<Option<OsString>> = next.collect();
    let mut is_option = true;
    let settled = words.into_iter().zip(next).map(|(word, next)| {
        is_option &= word != "--";
        let has_seed = next.is_some_and(|next| is_seed(&next));
        if is_option && word == "--shuffle" && !has_seed { OsString::from("--shuffle=random") } else { word }
    });
    settled.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_without_its_feature_names_it() {
        for (word, feature, is_built) in [
            ("mutate", "mutation", cfg!(feature = "mutation")),
            ("connect", "connect", cfg!(feature = "connect")),
            ("dump", "minidump", cfg!(feature = "minidump")),
        ] {
            let refused = parse(vec!["heeler".into(), word.into(), "--no-such-option".into()]).unwrap_err();
            assert_eq!(refused.exit_code(), 5);
            assert_eq!(matches!(refused, ParseArgumentsError::LeftOut { .. }), !is_built);
            assert_eq!(refused.to_string().contains(&format!("--features {feature}")), !is_built);
        }
    }
}
