//! From the process's words to a command, or to what is printed instead.

use std::ffi::{OsStr, OsString};

use clap::{CommandFactory, Parser};
use clap_complete::Shell;

use super::{Arguments, Command, NormaliseError, normalise};

/// The exit code of a command line that says nothing sensible.
const EXIT_COMMAND_LINE: u8 = 5;

/// Why there is no command to carry out.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Help or the version was asked for, or the words are wrong: the parser knows what to print.
    #[error("{0}")]
    Words(clap::Error),
    /// The words of an editor are wrong.
    #[error("read the command line")]
    Editor {
        /// What is wrong.
        source: NormaliseError,
    },
}

impl Refusal {
    /// Returns the code to leave with: 0 when help or the version was asked for.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Words(error) if !error.use_stderr() => 0,
            Self::Words(_) | Self::Editor { .. } => EXIT_COMMAND_LINE,
        }
    }

    /// Prints it where it belongs, in colours where they can be shown.
    pub fn print(&self) {
        match self {
            // Nobody is left to tell that the terminal is gone.
            Self::Words(error) => drop(error.print()),
            Self::Editor { source } => eprintln!("error: {source}"),
        }
    }
}

/// Returns the command that the words ask for. The first word is the program's own name.
///
/// # Errors
/// The words are wrong, or ask for help: print it, and leave with its exit code.
pub fn parse(argv: Vec<OsString>) -> Result<Command, Refusal> {
    let words = normalise(argv).map_err(|source| Refusal::Editor { source })?;
    Arguments::try_parse_from(settle_optional_values(words))
        .map(|found| found.command)
        .map_err(Refusal::Words)
}

/// Returns a completion script.
#[must_use]
pub fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "heeler", &mut script);
    script
}

/// `--shuffle` may have a seed behind it, or a program that is none of its business.
fn settle_optional_values(words: Vec<OsString>) -> Vec<OsString> {
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
