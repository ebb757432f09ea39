//! What a batch asks its framework.

use heeler_adapters::{FrameworkVerdict, StackPosition};
use heeler_protocol::control::ListedTest;

/// Framework operations that a batch needs.
pub(crate) trait FrameworkQueries: Send {
    /// Returns the command line that runs one test in isolation.
    fn reproduce(&self, test: &ListedTest) -> String;
    /// Fills in the details that the framework wrote about a failed test to standard error.
    fn complete_verdict(&self, verdict: &mut FrameworkVerdict, test: &ListedTest, stderr: &str);
    /// Returns whether a line outside any test, without its end, is the framework's own.
    fn is_own_line(&self, line: &[u8]) -> bool;
    /// Returns whether each result answers a request that names its test, and is proven when it is read.
    fn has_proven_answers(&self) -> bool;
    /// Returns where in a run the stack of a process belongs. `test` is the test that seemed to be running.
    fn stack_position(&self, stack: &str, test: Option<&ListedTest>) -> StackPosition;
}
