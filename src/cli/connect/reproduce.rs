//! The command that runs a failed case again: the judge alone, with the client's own process.

use std::borrow::Cow;

use heeler_core::{TestResult, shell_words::quote};

use super::judge::JudgeCommand;

/// Parts of the reproduce command that all cases of a run share.
#[derive(Debug, Clone)]
pub(super) struct Reproduction {
    /// Working directory; relative paths in the other fields are relative to this directory.
    pub(super) dir: String,
    /// The judge's program, as the user wrote it.
    pub(super) judge: String,
    /// The client under test with its arguments, as the user wrote it.
    pub(super) client: Vec<String>,
}

impl Reproduction {
    /// Sets the reproduce command of a failed result, with the judge's configuration file.
    pub(super) fn add_to(&self, result: &mut TestResult, case: &str, judge: &JudgeCommand, is_known: bool) {
        let is_wanted = result.outcome.is_failure() && !result.outcome.lacks_result();
        result.reproduce = is_wanted.then(|| self.command(case, judge, is_known));
    }

    fn command(&self, case: &str, judge: &JudgeCommand, is_known_failing: bool) -> String {
        let config = judge.config.as_ref().map(|path| path.to_string_lossy());
        let mut words: Vec<Cow<'_, str>> = vec![self.judge.as_str().into(), "--mode".into(), "client".into()];
        words.extend(config.into_iter().flat_map(|path| ["--conf".into(), path]));
        words.extend(["--run".into(), case.into()]);
        if is_known_failing {
            words.extend(["--known-failing".into(), case.into()]);
        }
        words.push("--".into());
        words.extend(self.client.iter().map(|word| word.as_str().into()));
        let words: Vec<_> = words.iter().map(|word| quote(word.as_bytes())).collect();
        format!("(cd {} && {})", quote(self.dir.as_bytes()), words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use heeler_core::Outcome;

    use super::*;

    #[test]
    fn command_has_the_configuration_and_the_client() {
        let reproduction = Reproduction {
            dir: "/home/a b".to_owned(),
            judge: "connectconformance".to_owned(),
            client: ["./client", "-p", "1"].map(str::to_owned).to_vec(),
        };
        let mut judge = JudgeCommand {
            program: "/go/bin/connectconformance".into(),
            config: None,
            known_failing: Vec::new(),
        };
        let mut failed = TestResult::new(Outcome::Failed);
        reproduction.add_to(&mut failed, "Basic/(grpc server impl)/unary", &judge, false);
        assert_eq!(
            failed.reproduce.as_deref(),
            Some(
                "(cd '/home/a b' && connectconformance --mode client --run 'Basic/(grpc server impl)/unary' \
                 -- ./client -p 1)"
            )
        );
        judge.config = Some("my conf.yaml".into());
        reproduction.add_to(&mut failed, "a/b", &judge, true);
        assert_eq!(
            failed.reproduce.as_deref(),
            Some(
                "(cd '/home/a b' && connectconformance --mode client --conf 'my conf.yaml' --run a/b \
                 --known-failing a/b -- ./client -p 1)"
            )
        );
        for outcome in [Outcome::Passed, Outcome::Flaky, Outcome::Skipped, Outcome::Lost] {
            let mut result = TestResult { reproduce: Some("x".to_owned()), ..TestResult::new(outcome) };
            reproduction.add_to(&mut result, "a/b", &judge, false);
            assert_eq!(result.reproduce, None);
        }
    }
}
