//! Outputs of listing commands, the tests parsed from them, and the errors.

use heeler_protocol::control::{ListedTest, OsText};

/// The output of one listing command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListingOutput {
    /// Bytes of its standard output.
    pub stdout: Vec<u8>,
    /// Bytes of its standard error.
    pub stderr: Vec<u8>,
    /// Bytes of its report channel, if any.
    pub channel: Vec<u8>,
    /// Contents of [`crate::AdapterInvocation::listing_file`], if it was written.
    pub file: Option<Vec<u8>>,
    /// Exit code, if it exited by itself.
    pub code: Option<i32>,
    /// Number of the signal that killed it.
    pub signal: Option<i32>,
}

/// The tests of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterListing {
    /// Name of the adapter that must run them: the adapter that listed them, or a variant of it.
    pub framework: &'static str,
    /// The tests in the framework's run order. A name may occur more than once.
    pub tests: Vec<ListedTest>,
    /// Failure of the listing command after it wrote the whole listing.
    pub failure: Option<ListingError>,
    /// Problems of the program that do not prevent its tests from running.
    pub warnings: Vec<String>,
    /// Absolute paths of files and directories, besides the program, whose change may change the tests.
    pub depends_on: Vec<OsText>,
}

impl AdapterListing {
    /// Returns the listing of a framework with a single listing command. `read` accepts only a whole output,
    /// so a failure of the command came after the listing, for example in a static destructor.
    ///
    /// # Errors
    /// Errors of `read`.
    pub(crate) fn of_one_command(
        framework: &'static str,
        outputs: &[ListingOutput],
        read: impl FnOnce(&ListingOutput) -> Result<Vec<ListedTest>, ListingError>,
    ) -> Result<Self, ListingError> {
        let none = ListingOutput::default();
        let output = outputs.first().unwrap_or(&none);
        let tests = read(output)?;
        let failure = (output.code != Some(0)).then(|| ListingError::of_recognized_exit(output));
        Ok(Self { framework, tests, failure, warnings: Vec::new(), depends_on: Vec::new() })
    }
}

/// Why a program could not be listed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListingError {
    /// The program exited with success, but its output is not a listing.
    #[error("not a {framework} program: {reason}")]
    NotThisFramework {
        /// Name of the framework whose listing was tried.
        framework: &'static str,
        /// Output found instead of a listing.
        reason: String,
    },
    /// The listing begins correctly but cannot be parsed to its end.
    #[error("invalid {framework} listing: {reason}")]
    Damaged {
        /// Name of the framework whose listing was tried.
        framework: &'static str,
        /// Description of the damage.
        reason: String,
    },
    /// The program was killed, or exited with a code other than 0.
    #[error("it {}{}", describe_exit(*signal, *code), describe_tail(stderr))]
    Died {
        /// Number of the signal that killed it, if any.
        signal: Option<i32>,
        /// Exit code, if the program exited by itself.
        code: Option<i32>,
        /// Tail of standard error, or of standard output if standard error is empty.
        stderr: String,
        /// The output shows that the program is of this framework.
        is_recognized: bool,
    },
}

impl ListingError {
    /// Returns the error for a listing command that did not exit with code 0.
    pub(crate) fn of_exit(output: &ListingOutput) -> Self {
        let said = if output.stderr.trim_ascii().is_empty() { &output.stdout } else { &output.stderr };
        Self::Died { signal: output.signal, code: output.code, stderr: tail(said), is_recognized: false }
    }

    /// Returns the same error for a program that wrote a listing of the framework before it exited.
    pub(crate) fn of_recognized_exit(output: &ListingOutput) -> Self {
        match Self::of_exit(output) {
            Self::Died { signal, code, stderr, .. } => {
                Self::Died { signal, code, stderr, is_recognized: true }
            }
            other => other,
        }
    }

    /// Returns the same error with advice on how to fix it. A known fix means that the framework is
    /// recognized.
    pub(crate) fn with_hint(self, hint: Option<&str>) -> Self {
        match (self, hint) {
            (Self::Died { signal, code, stderr, .. }, Some(hint)) => {
                let stderr = format!("{}\n{hint}", stderr.trim_end());
                Self::Died { signal, code, stderr, is_recognized: true }
            }
            (error, _) => error,
        }
    }

    /// Returns whether the program certainly belongs to the framework. No other framework is tried then,
    /// because a program that ignores foreign arguments would run its tests.
    #[must_use]
    pub fn is_of_framework(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Died { is_recognized: true, .. })
    }
}

const TAIL_BYTES: usize = 2000;

fn tail(said: &[u8]) -> String {
    let said = said.trim_ascii_end();
    let cut = said.len().saturating_sub(TAIL_BYTES);
    let text = String::from_utf8_lossy(&said[cut..]);
    if cut == 0 { text.into_owned() } else { format!("... {}", text.trim_start_matches('\u{fffd}')) }
}

fn describe_exit(signal: Option<i32>, code: Option<i32>) -> String {
    match (signal, code) {
        (Some(signal), _) => format!("was killed by signal {signal}"),
        (None, Some(code)) => format!("exited with code {code}"),
        (None, None) => "ended with an unknown exit status".to_owned(),
    }
}

fn describe_tail(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!("; its output:\n{stderr}") }
}
