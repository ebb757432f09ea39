//! Translates the command line of an editor that starts Heeler in place of a test application. Supports `-x`
//! and `--x`, values after a space, `=` or `:`, response files `@file.rsp`, options of `heeler serve`, and
//! options that have no meaning in Heeler.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use clap::CommandFactory as _;

use super::CommandLineArguments;

/// Hidden command; an editor's command line is translated to it.
pub(super) const EDITOR_COMMAND: &str = "__editor";

/// Error in an editor's command line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NormaliseError {
    /// `@file.rsp` can't be read.
    #[error("can't read response file {}: {source}", path.display())]
    ResponseFile { path: PathBuf, source: std::io::Error },
    /// An option has no value.
    #[error("option --{option} requires a value")]
    NoValue { option: &'static str },
    /// The protocol is not supported.
    #[error("unknown server mode \"{mode}\"; expected jsonrpc")]
    Mode {
        /// The value of `--server`, unchanged.
        mode: String,
    },
    /// `--server` without `--client-port`, so Heeler has no port to connect to.
    #[error(
        "--server requires --client-port, the port on which the client listens; for other transports, see heeler serve --help"
    )]
    NoPort,
}

/// Returns the command line in Heeler's own syntax. A command line is unchanged if it contains neither
/// `--server` nor `--list-tests`, or if it begins with a command of Heeler.
///
/// # Errors
/// A response file can't be read, or an option has no value.
pub(crate) fn normalise(argv: Vec<OsString>) -> Result<Vec<OsString>, NormaliseError> {
    if argv.get(1).and_then(|word| word.to_str()).is_none_or(is_command) {
        return Ok(argv);
    }
    let expanded = expand_response_files(&argv[1..])?;
    let has = |wanted: &str| {
        expanded.iter().filter_map(|word| NamedOption::parse(word)).any(|named| named.name == wanted)
    };
    let command = match (has("server"), has("list-tests")) {
        (true, _) => "serve",
        (false, true) => "list",
        (false, false) => return Ok(argv),
    };
    let own = OwnOptions::of_command(command);
    let words = EditorCommandLine::parse(&expanded, &own)?.into_words()?;
    Ok([argv[0].clone()].into_iter().chain(words).collect())
}

/// Returns whether the first argument marks a command line as Heeler's own.
fn is_command(word: &str) -> bool {
    // The parser adds `help` only while parsing.
    word == "help" || CommandLineArguments::command().get_subcommands().any(|one| one.get_name() == word)
}

/// An option: its lower-case name, and the value joined to it.
struct NamedOption {
    name: String,
    value: Option<String>,
}

impl NamedOption {
    fn parse(word: &OsStr) -> Option<Self> {
        let text = word.to_str()?.strip_prefix('-')?;
        let text = text.strip_prefix('-').unwrap_or(text);
        let (name, value) = match text.find(['=', ':']) {
            Some(cut) => (&text[..cut], Some(text[cut + 1..].to_owned())),
            None => (text, None),
        };
        (!name.is_empty()).then(|| Self { name: name.to_ascii_lowercase(), value })
    }
}

/// Options of the Heeler command that an editor's command line is translated to.
struct OwnOptions {
    command: clap::Command,
}

impl OwnOptions {
    fn of_command(name: &str) -> Self {
        let all = CommandLineArguments::command();
        let command = all.find_subcommand(name).cloned().unwrap_or_default();
        Self { command }
    }

    fn find(&self, is_named: impl Fn(&clap::Arg) -> bool) -> Option<&clap::Arg> {
        self.command.get_arguments().find(|argument| !argument.is_positional() && is_named(argument))
    }

    /// Returns an option of Heeler and its value, which may be the next argument; `None` if the command has
    /// no such option.
    fn take<'w>(
        &self,
        word: &OsStr,
        named: &NamedOption,
        rest: &mut std::iter::Peekable<impl Iterator<Item = &'w OsString>>,
    ) -> Option<Vec<OsString>> {
        let is_transport = |argument: &clap::Arg| argument.get_help_heading() == Some("Transport");
        let long = |argument: &clap::Arg| {
            let mut names = argument.get_long_and_visible_aliases().into_iter().flatten();
            let mut hidden = argument.get_all_aliases().into_iter().flatten();
            names.any(|name| name == named.name) || hidden.any(|name| name == named.name)
        };
        if let Some(argument) = self.find(|argument| long(argument) && !is_transport(argument)) {
            let needs_value = argument.get_action().takes_values()
                && argument.get_num_args().is_none_or(|count| count.min_values() > 0);
            let behind = rest.next_if(|word| needs_value && named.value.is_none() && !is_option(word));
            let mut own = OsString::from(format!("--{}", named.name));
            if let Some(value) = named.value.as_ref().map(OsString::from).or(behind.cloned()) {
                own.push("=");
                own.push(value);
            }
            return Some(vec![own]);
        }
        // `-j 4` and `-j4`; a long name may also have one dash.
        let text = word.to_str()?.strip_prefix('-').filter(|text| !text.starts_with('-'))?;
        let letter = text.chars().next()?;
        let behind_letter = &text[letter.len_utf8()..];
        let is_joined = !behind_letter.is_empty() && behind_letter.bytes().all(|byte| byte.is_ascii_digit());
        if !is_joined && !behind_letter.is_empty() {
            return None;
        }
        let argument = self.find(|argument| argument.get_short() == Some(letter))?;
        let needs_value = argument.get_action().takes_values() && !is_joined;
        let behind = rest.next_if(|word| needs_value && !is_option(word)).cloned();
        Some([word.to_owned()].into_iter().chain(behind).collect())
    }
}

/// An editor's arguments, sorted by meaning.
#[derive(Default)]
struct EditorCommandLine {
    /// Options in the syntax of Heeler's parser.
    options: Vec<OsString>,
    programs: Vec<OsString>,
    /// Arguments after `--`, for the programs.
    program_args: Vec<OsString>,
    config_file: Option<OsString>,
    is_server: bool,
    is_help: bool,
    is_version: bool,
    has_port: bool,
}

impl EditorCommandLine {
    fn parse(words: &[OsString], own: &OwnOptions) -> Result<Self, NormaliseError> {
        let mut translation = Self::default();
        let mut rest = words.iter().peekable();
        while let Some(word) = rest.next() {
            if word == "--" {
                translation.program_args.extend(rest.by_ref().cloned());
                break;
            }
            let Some(named) = NamedOption::parse(word) else {
                translation.programs.push(word.clone());
                continue;
            };
            match named.name.as_str() {
                "server" | "list-tests" => translation.parse_mode(named, &mut rest)?,
                "no-banner" | "no-ansi" | "diagnostic" | "debug" => {
                    translation.options.push(format!("--{}", named.name).into())
                }
                "help" | "h" | "?" => translation.is_help = true,
                "version" | "info" => translation.is_version = true,
                _ => match OPTIONS_WITH_VALUE.iter().find(|option| **option == named.name) {
                    Some(option) => {
                        let behind = rest.next_if(|word| named.value.is_none() && !is_option(word));
                        translation
                            .add_valued_option(option, named.value.map(OsString::from).or(behind.cloned()))?;
                    }
                    None => match own.take(word, &named, &mut rest) {
                        Some(words) => translation.options.extend(words),
                        None => translation.skip_unknown_option(word, named.value.is_some(), &mut rest),
                    },
                },
            }
        }
        Ok(translation)
    }

    /// Handles `--server [jsonrpc]` and `--list-tests [text|json]`. Only known values are consumed, because
    /// the next argument may be a program.
    fn parse_mode<'w>(
        &mut self,
        named: NamedOption,
        rest: &mut std::iter::Peekable<impl Iterator<Item = &'w OsString>>,
    ) -> Result<(), NormaliseError> {
        let known = if named.name == "server" { ["jsonrpc"].as_slice() } else { &["text", "json"] };
        let is_known = |word: &str| known.iter().any(|mode| mode.eq_ignore_ascii_case(word));
        let behind = rest.next_if(|word| named.value.is_none() && word.to_str().is_some_and(is_known));
        let value = named.value.or_else(|| behind.map(|word| word.to_string_lossy().into_owned()));
        self.is_server |= named.name == "server";
        match value {
            Some(mode) if named.name == "server" && !is_known(&mode) => Err(NormaliseError::Mode { mode }),
            _ => Ok(()),
        }
    }

    fn add_valued_option(
        &mut self,
        option: &'static str,
        value: Option<OsString>,
    ) -> Result<(), NormaliseError> {
        let value = value.ok_or(NormaliseError::NoValue { option })?;
        match option {
            // Other test applications have configuration files in formats of their own.
            "config-file" if Path::new(&value).extension() == Some(OsStr::new("toml")) => {
                self.config_file = Some(value)
            }
            "config-file" | "settings" => {
                self.record_ignored(&format!("--{option} {}", value.to_string_lossy()))
            }
            _ => {
                self.has_port |= option == "client-port";
                let mut word = OsString::from(format!("--{option}="));
                word.push(value);
                self.options.push(word);
            }
        }
        Ok(())
    }

    /// Skips an unknown option and all arguments up to the next option, as test applications parse them.
    fn skip_unknown_option<'w>(
        &mut self,
        word: &OsStr,
        has_value: bool,
        rest: &mut std::iter::Peekable<impl Iterator<Item = &'w OsString>>,
    ) {
        let mut words = word.to_string_lossy().into_owned();
        while let Some(value) = rest.next_if(|word| !has_value && !is_option(word)) {
            words += &format!(" {}", value.to_string_lossy());
        }
        self.record_ignored(&words);
    }

    fn record_ignored(&mut self, words: &str) {
        self.options.push(format!("--ignored={words}").into());
    }

    fn into_words(self) -> Result<Vec<OsString>, NormaliseError> {
        let mut words: Vec<OsString> = Vec::new();
        if self.is_help || self.is_version {
            return Ok(vec![if self.is_help { "--help" } else { "--version" }.into()]);
        }
        if self.is_server {
            if !self.has_port {
                return Err(NormaliseError::NoPort);
            }
            words.push(EDITOR_COMMAND.into());
            words.extend(self.options);
        } else {
            words.push("list".into());
            // `heeler list` has no options for ignored options, colours and logs of editors.
            let is_own = |word: &OsString| {
                let text = word.to_string_lossy();
                ![
                    "--ignored=",
                    "--no-banner",
                    "--no-ansi",
                    "--diagnostic",
                    "--debug",
                    "--client-",
                    "--exit-on",
                ]
                .iter()
                .any(|other| text.starts_with(other))
            };
            words.extend(self.options.into_iter().filter(is_own));
        }
        if let Some(file) = self.config_file {
            words.extend(["--config-file".into(), file]);
        }
        // A program whose name begins with a dash must not look like an option.
        words.extend(self.programs.into_iter().map(|program| match program.as_encoded_bytes() {
            [b'-', ..] => Path::new(".").join(program).into_os_string(),
            _ => program,
        }));
        if !self.program_args.is_empty() {
            words.push("--".into());
            words.extend(self.program_args);
        }
        Ok(words)
    }
}

const OPTIONS_WITH_VALUE: [&str; 6] =
    ["client-host", "client-port", "exit-on-process-exit", "diagnostic-verbosity", "config-file", "settings"];

fn is_option(word: &OsStr) -> bool {
    word == "--" || NamedOption::parse(word).is_some()
}

/// Replaces each `@file` with the arguments in the file.
fn expand_response_files(words: &[OsString]) -> Result<Vec<OsString>, NormaliseError> {
    let mut expanded = Vec::new();
    for word in words {
        match word.to_str().and_then(|word| word.strip_prefix('@')) {
            Some(path) if !path.is_empty() => {
                let text = std::fs::read_to_string(path)
                    .map_err(|source| NormaliseError::ResponseFile { path: path.into(), source })?;
                let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
                expanded.extend(lines.flat_map(split_line).map(OsString::from));
            }
            _ => expanded.push(word.clone()),
        }
    }
    Ok(expanded)
}

/// Splits at white space outside double quotes.
fn split_line(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut is_quoted = false;
    for character in line.chars() {
        match character {
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            blank if blank.is_whitespace() && !is_quoted => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}
