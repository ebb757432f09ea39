//! Completion of values that only a project knows: suites, profiles, frameworks, runs and tests. The scripts
//! of `heeler completions` ask this hidden role, which only reads files: it starts nothing and prints no
//! errors.
//!
//! - `line`: the words of a command line that is being typed.
//! - `request`: the value that is being typed, and its candidates.
//! - `scripts`: the scripts that shells load.

mod line;
mod request;
mod scripts;

use std::{ffi::OsString, io::Write as _, process::ExitCode, sync::mpsc::sync_channel, time::Duration};

use line::TypedLine;
use request::CompletionRequest;

pub(super) use scripts::completion_script;

/// First argument of the hidden role that prints candidates.
pub const COMPLETION_ROLE: &str = "__complete";

/// Time limit, after which a user would notice the wait.
const LIMIT: Duration = Duration::from_secs(1);

/// Prints the candidates for a typed command line, one per line. Fails if another completion of the script
/// applies, or if the time limit passes.
#[must_use]
pub fn complete(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<_> = arguments.map(|word| word.to_string_lossy().into_owned()).collect();
    // Only one answer is sent.
    let (answer, answered) = sync_channel(1);
    heeler_sys::own_thread::run("heeler-complete", move || drop(answer.send(candidates(&arguments))));
    let Ok(Some(candidates)) = answered.recv_timeout(LIMIT) else { return ExitCode::FAILURE };
    let text: String = candidates.iter().map(|candidate| format!("{candidate}\n")).collect();
    // The shell may have stopped waiting.
    let _closed = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

/// Returns the candidates for `bash FRAGMENT LINE`, or for `SHELL WORD…` of any other shell.
fn candidates(arguments: &[String]) -> Option<Vec<String>> {
    match arguments {
        [shell, fragment, line] if shell == "bash" => {
            let line = TypedLine::parse(line);
            let values = CompletionRequest::of_words(line.arguments()?)?.candidates();
            Some(values.iter().map(|value| line.insertion(value, fragment)).collect())
        }
        [_, words @ ..] => Some(CompletionRequest::of_words(words)?.candidates()),
        [] => None,
    }
}
