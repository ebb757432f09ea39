//! Processes that load a program once and are then forked for its tests.

use heeler_protocol::control::{ForkPoint, OsText};

use crate::AdapterInvocation;

/// How a warm process is started.
pub struct WarmStart {
    /// Its command, with [`crate::InvocationChannel::Descriptor`].
    pub invocation: AdapterInvocation,
    /// What is said with it.
    pub dialogue: Box<dyn WarmDialogue>,
}

/// The dialogue with a warm process. Requests and reports go over its report channel; with a request for a
/// fork go the descriptors of a guard: its connection, standard output, standard error and report channel.
pub trait WarmDialogue: Send {
    /// Returns the first request: to load the framework, or the program as well.
    fn opening_request(&self, point: ForkPoint) -> Vec<u8>;

    /// Returns the request to fork a child, which forks a test process with these changes of the environment
    /// and executes a guard with these words and the id of the test process; `None` if a word or a variable
    /// can't be sent.
    fn fork_request(&self, guard: &[OsText], environment: &[(OsText, Option<OsText>)]) -> Option<Vec<u8>>;

    /// Parses the next chunk of reports. Anything that is no answer to a request is left out.
    fn on_channel(&mut self, chunk: &[u8]) -> Vec<WarmReport>;

    /// Returns the request to exit.
    fn closing_request(&self) -> Vec<u8>;
}

/// An answer of a warm process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WarmReport {
    /// It has loaded what it was to, and can be forked.
    Ready,
    /// It has loaded that, but forks of it would share something.
    Unforkable(String),
    /// The process with this id is the guard of a fork.
    Forked(i32),
    /// A test process with these variables needs a start of its own.
    Refused(String),
}
