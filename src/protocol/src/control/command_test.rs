//! Tests that are known beside their program's own listing: commands of their own, and entries of CTest.

use heeler_core::OsText;
use serde::{Deserialize, Serialize};

use super::TestProgram;

/// A test that is a command: the selector of a test of the frameworks `command` and `tap`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandTest {
    /// Path of the program.
    pub path: OsText,
    pub args: Vec<OsText>,
    /// Environment set on top of the test program's; `None` unsets a variable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<(OsText, Option<OsText>)>,
    /// Working directory; `None`: that of the test program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<OsText>,
    #[serde(default, skip_serializing_if = "CommandRules::is_default")]
    pub rules: CommandRules,
}

/// What decides the result of a command beside its exit code, and what it needs. The rules are those of
/// CTest's properties of tests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommandRules {
    /// Whether a failure is a success, and a success a failure.
    pub will_fail: bool,
    /// Exit code with which the command is skipped.
    pub skip_code: Option<i32>,
    /// Exit codes that say nothing of the test: the process was ended before its time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub early_exit_codes: Vec<i32>,
    /// Expressions of which the output must match one; the exit code is then ignored.
    pub pass_expressions: Vec<String>,
    /// Expressions of which the output must match none.
    pub fail_expressions: Vec<String>,
    /// Expressions with any of which in its output the command is skipped.
    pub skip_expressions: Vec<String>,
    /// Another time limit, from the first line of output that matches.
    pub timeout_after_match: Option<TimeoutAfterMatch>,
    /// Files without which the command is not run; relative ones are below its working directory.
    pub required_files: Vec<OsText>,
    /// Files that are attached to the result.
    pub attached_files: Vec<OsText>,
    /// Files that are attached to the result of a failure.
    pub attached_files_on_failure: Vec<OsText>,
}

impl CommandRules {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A time limit that begins with an output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeoutAfterMatch {
    /// Milliseconds from the line that matches.
    pub timeout_ms: u64,
    /// Expressions of which one must match.
    pub expressions: Vec<String>,
}

impl CommandTest {
    /// Name of the framework of commands whose exit code decides.
    pub const FRAMEWORK: &str = "command";

    /// Returns the command as the selector of its test.
    #[must_use]
    pub fn to_selector(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the command of a selector; `None` if it is none.
    #[must_use]
    pub fn from_selector(selector: &str) -> Option<Self> {
        serde_json::from_str(selector).ok()
    }
}

impl TestProgram {
    /// Returns the program as leases carry it.
    #[must_use]
    pub fn without_entries(&self) -> Self {
        let Self { suite, path, args, tool_env, env, cwd, framework, test_arguments, entries: _, unbuilt: _ } =
            self;
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
