//! The outputs of listing commands, the tests read from them, and the errors of reading them.

use heeler_protocol::control::{ListedTest, OsText};

/// The output of one listing command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListingOutput {
    /// Bytes of its standard output.
    pub stdout: Vec<u8>,
    /// Bytes of its standard error.
    pub stderr: Vec<u8>,
    /// Bytes of its report channel, if it has one.
    pub channel: Vec<u8>,
    /// Contents of the file named by [`crate::AdapterInvocation::listing_file`], if it was written.
    pub file: Option<Vec<u8>>,
    /// Its exit code, if it exited by itself.
    pub code: Option<i32>,
    /// The number of the signal that killed it.
    pub signal: Option<i32>,
}

/// The tests of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterListing {
    /// The name of the adapter that must run them: the one that listed, or a variant of it.
    pub framework: &'static str,
    /// The tests, in the order in which the framework runs them. A name may occur more than once.
    pub tests: Vec<ListedTest>,
    /// The failure of the listing command after it had written the whole listing.
    pub failure: Option<ListingError>,
    /// What is wrong with the program, and prevents none of its tests from running.
    pub warnings: Vec<String>,
    /// Files and directories beside the program after whose change the tests may be others; absolute.
    pub depends_on: Vec<OsText>,
}

impl AdapterListing {
    /// Returns the listing of a framework that has one listing command, from the output of that command,
    /// which `read` accepts only if it is whole: where the command has failed, what failed came after it, in
    /// a static destructor for instance.
    ///
    /// # Errors
    /// Those of `read`.
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

/// The error of listing a program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListingError {
    /// It exited with success, but its output is not a listing.
    #[error("list tests as a {framework} program: {reason}")]
    NotThisFramework {
        /// Name of the framework whose listing was tried.
        framework: &'static str,
        /// Its output instead of a listing.
        reason: String,
    },
    /// Its listing begins correctly, but cannot be parsed to its end.
    #[error("read the {framework} listing: {reason}")]
    Damaged {
        /// Name of the framework whose listing was tried.
        framework: &'static str,
        /// Description of the damage.
        reason: String,
    },
    /// It was killed, or exited with a code other than 0.
    #[error("list tests: the program {}{}", describe_exit(*signal, *code), describe_tail(stderr))]
    Died {
        /// The number of the signal that killed it, if any.
        signal: Option<i32>,
        /// Its exit code, if it exited by itself.
        code: Option<i32>,
        /// The tail of its standard error, otherwise of its standard output.
        stderr: String,
        /// Its output shows that it is a program of this framework all the same.
        is_recognized: bool,
    },
}

impl ListingError {
    /// Returns the error of a listing command that did not exit with code 0.
    pub(crate) fn of_exit(output: &ListingOutput) -> Self {
        let said = if output.stderr.trim_ascii().is_empty() { &output.stdout } else { &output.stderr };
        Self::Died { signal: output.signal, code: output.code, stderr: tail(said), is_recognized: false }
    }

    /// Returns the same error of a program that wrote a listing of the framework before it exited.
    pub(crate) fn of_recognized_exit(output: &ListingOutput) -> Self {
        match Self::of_exit(output) {
            Self::Died { signal, code, stderr, .. } => {
                Self::Died { signal, code, stderr, is_recognized: true }
            }
            other => other,
        }
    }

    /// Returns the same error with what is to be done about it, which shows what the program is.
    pub(crate) fn with_hint(self, hint: Option<&str>) -> Self {
        match (self, hint) {
            (Self::Died { signal, code, stderr, .. }, Some(hint)) => {
                let stderr = format!("{}\n{hint}", stderr.trim_end());
                Self::Died { signal, code, stderr, is_recognized: true }
            }
            (error, _) => error,
        }
    }

    /// Returns whether the program is certainly one of the framework, so that no other must be tried: a
    /// program that ignores another framework's arguments runs its tests.
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
        (None, None) => "ended in an unknown way".to_owned(),
    }
}

fn describe_tail(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!("; its output:\n{stderr}") }
}
