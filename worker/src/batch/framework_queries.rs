//! Questions that a batch asks its framework.

use heeler_adapters::{FrameworkVerdict, RuntimeStack, StackPosition};
use heeler_protocol::control::ListedTest;

/// Framework operations that a batch needs.
pub(crate) trait FrameworkQueries: Send {
    /// Returns the command line that runs one test in isolation.
    fn reproduce(&self, test: &ListedTest) -> String;
    /// Fills in the details that the framework wrote about a failed test to standard error.
    fn complete_verdict(&self, verdict: &mut FrameworkVerdict, test: &ListedTest, stderr: &str);
    /// Divides standard error of a test whose process died or was ended into the runtime's stacks and the
    /// rest. `captured`: the stack captured by Heeler, or empty.
    fn divide_stderr(&self, stderr: &str, captured: &str, test: &ListedTest) -> Option<RuntimeStack>;
    /// Returns whether a line outside any test (without its line ending) was printed by the framework itself.
    fn is_own_line(&self, line: &[u8]) -> bool;
    /// Returns whether each result answers a request that names its test, so that reading the result proves
    /// it.
    fn has_proven_answers(&self) -> bool;
    /// Returns which part of a run the process's stack trace shows. `test`: the test that seemed to be
    /// running.
    fn stack_position(&self, stack: &str, test: Option<&ListedTest>) -> StackPosition;
}
