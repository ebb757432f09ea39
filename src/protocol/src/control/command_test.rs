//! Tests that are known without a listing by their program: commands and CTest entries.

use heeler_core::OsText;
use serde::{Deserialize, Serialize};

use super::TestProgram;

/// A test that is a command. Encoded, it is the selector of a test of the frameworks `command` and `tap`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandTest {
    /// Path of the program.
    pub path: OsText,
    pub args: Vec<OsText>,
    /// Environment on top of the test program's; `None` unsets a variable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<(OsText, Option<OsText>)>,
    /// Working directory; `None` uses the test program's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<OsText>,
    #[serde(default, skip_serializing_if = "CommandRules::is_default")]
    pub rules: CommandRules,
}

/// Requirements of a command, and rules for its result in addition to its exit code. The rules correspond to
/// CTest's test properties.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommandRules {
    /// Whether success and failure are swapped.
    pub will_fail: bool,
    /// Exit code that marks the command as skipped.
    pub skip_code: Option<i32>,
    /// Exit codes that are not results of the test, because the process was ended early.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub early_exit_codes: Vec<i32>,
    /// The output must match at least one of these expressions; the exit code is then ignored.
    pub pass_expressions: Vec<String>,
    /// The output must not match any of these expressions.
    pub fail_expressions: Vec<String>,
    /// The command is skipped if its output matches any of these expressions.
    pub skip_expressions: Vec<String>,
    /// A timeout that starts with the first matching line of output.
    pub timeout_after_match: Option<TimeoutAfterMatch>,
    /// Files required to run the command; relative paths are below its working directory.
    pub required_files: Vec<OsText>,
    /// Files attached to the result.
    pub attached_files: Vec<OsText>,
    /// Files attached to the result of a failure.
    pub attached_files_on_failure: Vec<OsText>,
}

impl CommandRules {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A timeout that starts when a line of output matches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeoutAfterMatch {
    /// Milliseconds from the matching line.
    pub timeout_ms: u64,
    /// At least one of these expressions must match.
    pub expressions: Vec<String>,
}

impl CommandTest {
    /// Exit code of a skipped test in automake, which scripts use beyond it.
    const SKIP_CODE: i32 = 77;

    /// Returns the command with automake's exit code for skipped tests.
    #[must_use]
    pub fn with_skip_code(mut self) -> Self {
        self.rules.skip_code = Some(Self::SKIP_CODE);
        self
    }

    /// Name of the framework for commands that are judged by their exit code.
    pub const FRAMEWORK: &str = "command";

    /// Encodes the command as the selector of its test.
    #[must_use]
    pub fn to_selector(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Decodes a selector; `None` if it is not a command.
    #[must_use]
    pub fn from_selector(selector: &str) -> Option<Self> {
        serde_json::from_str(selector).ok()
    }
}

impl TestProgram {
    /// Returns the program as sent with leases, without its entries.
    #[must_use]
    pub fn without_entries(&self) -> Self {
        let Self {
            suite,
            path,
            args,
            tool_env,
            env,
            cwd,
            framework,
            test_arguments,
            entries: _,
            unbuilt: _,
            reproduction,
            resources,
        } = self;
        Self {
            suite: suite.clone(),
            path: path.clone(),
            args: args.clone(),
            tool_env: tool_env.clone(),
            env: env.clone(),
            cwd: cwd.clone(),
            framework: framework.clone(),
            test_arguments: test_arguments.clone(),
            entries: Vec::new(),
            unbuilt: None,
            reproduction: reproduction.clone(),
            resources: resources.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selector_holds_the_whole_command() {
        let command = CommandTest {
            path: OsText::from(b"/bin/\xff".to_vec()),
            args: vec!["-c".into(), "exit 1".into()],
            env: vec![("A".into(), Some("b".into())), ("C".into(), None)],
            cwd: Some("/w".into()),
            rules: CommandRules { will_fail: true, skip_code: Some(77), ..CommandRules::default() },
        };
        assert_eq!(CommandTest::from_selector(&command.to_selector()), Some(command));
        assert_eq!(CommandTest::from_selector("5"), None);
    }
}
