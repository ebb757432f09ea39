//! The native judge: the library `heeler-connect-judge` in the place of `connectconformance`. It lists the
//! cases of suite files, and judges a run of them over a stream in this process.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read as _},
    path::{Path, PathBuf},
    pin::Pin,
};

use bytes::BytesMut;
use heeler_connect_judge::{
    Case, Configuration, ConfigurationError, Endpoint, ExpansionError, JudgedRun, expand, message::TlsCreds,
    not_judged,
};
use heeler_protocol::{
    StreamDecoder as _,
    connect::{
        JudgeFinding, JudgeReport, MessageDecoder, MessageError, MessageTooLarge, RESPONSE_LIMIT_BYTES,
        append_message, decode_request, decode_response,
    },
    control::ListedTest,
};
use heeler_server::{connect::listed_case, listen::ClientStream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::{
    case_patterns::{CasePatternError, matching_cases},
    judge::{JudgeError, JudgeEvent, JudgedCases},
    module_cache::FindSuitesError,
};

/// Maximum size of a suite file and of a configuration. The largest of the suite has some 100 KiB.
const FILE_LIMIT_BYTES: u64 = 16 << 20;
/// Bytes of requests and of answers that wait between judge and session: some requests, so that neither side
/// waits for each.
const STREAM_BYTES: usize = 64 << 10;
/// Stands for the certificate of a server in requests that are only listed.
const LISTED_CERT: &[u8] = b"listed";

/// Error of the native judge.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NativeJudgeError {
    #[error("find the suite files")]
    FindSuites(#[source] FindSuitesError),
    #[error("list the suite files in {}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("{} has no suite files: expected files named *.yaml", path.display())]
    NoSuites { path: PathBuf },
    #[error("read {}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{} is larger than {} MiB", path.display(), FILE_LIMIT_BYTES >> 20)]
    FileTooLarge { path: PathBuf },
    #[error("read the configuration {}", path.display())]
    Configuration { path: PathBuf, source: ConfigurationError },
    #[error("read the suites")]
    Suites(#[source] ExpansionError),
    #[error("read the cases that are known to fail")]
    KnownFailing(#[source] CasePatternError),
    #[error("encode the request of a case")]
    Request(#[source] MessageError),
    #[error("start its reference servers")]
    Servers(#[source] io::Error),
    #[error("read the answers")]
    Read(#[source] io::Error),
    #[error("read the answers, which are no such sequence")]
    NoSequence(#[source] MessageTooLarge),
    #[error("read an answer")]
    Answer(#[source] MessageError),
}

impl NativeJudgeError {
    /// Returns whether what the user named is the reason.
    pub(super) fn is_refusal(&self) -> bool {
        match self {
            Self::FindSuites(_)
            | Self::Directory { .. }
            | Self::NoSuites { .. }
            | Self::File { .. }
            | Self::FileTooLarge { .. }
            | Self::Configuration { .. }
            | Self::Suites(_)
            | Self::KnownFailing(_) => true,
            Self::Request(_) | Self::Servers(_) | Self::Read(_) | Self::NoSequence(_) | Self::Answer(_) => {
                false
            }
        }
    }
}

/// The cases of suite files, for the native judge.
#[derive(Debug)]
pub(super) struct NativeSuites {
    cases: Vec<Case>,
    /// The cases that the user's patterns name as known to fail.
    pub(super) known_failing: BTreeSet<String>,
}

impl NativeSuites {
    /// Reads suite files, configuration and patterns of cases that are known to fail.
    ///
    /// # Errors
    /// A file can't be read, is wrong, or leaves no case; a pattern matches no case.
    pub(super) fn read(
        dir: &Path,
        configuration: Option<&Path>,
        known_failing: &[String],
    ) -> Result<Self, NativeJudgeError> {
        let files = suite_files(dir)?;
        let text = configuration.map(read_text).transpose()?.unwrap_or_default();
        let configuration = Configuration::parse(&text).map_err(|source| {
            let path = configuration.unwrap_or(Path::new("")).to_owned();
            NativeJudgeError::Configuration { path, source }
        })?;
        let files = files.iter().map(|(file, text)| (file.as_str(), text.as_str()));
        let cases = expand(files, &configuration).map_err(NativeJudgeError::Suites)?;
        let names: Vec<&str> = cases.iter().map(Case::name).collect();
        let known_failing = matching_cases(known_failing, &names).map_err(NativeJudgeError::KnownFailing)?;
        Ok(Self { cases, known_failing })
    }

    /// Returns the cases as tests, with their tags.
    ///
    /// # Errors
    /// A request can't be read back.
    pub(super) fn listed(&self) -> Result<Vec<ListedTest>, NativeJudgeError> {
        let listed = |case: &Case| {
            let request = decode_request(&case.encoded_request(&listed_endpoint(case)));
            request.map(|request| listed_case(&request)).map_err(NativeJudgeError::Request)
        };
        self.cases.iter().map(listed).collect()
    }

    /// Returns the cases that are not judged, with the reason.
    pub(super) fn not_judged(&self) -> BTreeMap<String, String> {
        let reason = |case: &Case| {
            let reason = not_judged(case)?;
            Some((case.name().to_owned(), format!("not judged by the native judge: it needs {reason}")))
        };
        self.cases.iter().filter_map(reason).collect()
    }
}

fn suite_files(dir: &Path) -> Result<Vec<(String, String)>, NativeJudgeError> {
    let wrong = |source| NativeJudgeError::Directory { path: dir.to_owned(), source };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        if path.is_file() && path.extension().is_some_and(|extension| extension == "yaml") {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        return Err(NativeJudgeError::NoSuites { path: dir.to_owned() });
    }
    paths.sort();
    paths.into_iter().map(|path| Ok((path.display().to_string(), read_text(&path)?))).collect()
}

fn read_text(path: &Path) -> Result<String, NativeJudgeError> {
    let wrong = |source| NativeJudgeError::File { path: path.to_owned(), source };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(wrong)?;
    let size = file.take(FILE_LIMIT_BYTES + 1).read_to_string(&mut text).map_err(wrong)?;
    if size as u64 > FILE_LIMIT_BYTES {
        return Err(NativeJudgeError::FileTooLarge { path: path.to_owned() });
    }
    Ok(text)
}

/// Returns an endpoint from which the tags of a case can be read; nothing listens there.
fn listed_endpoint(case: &Case) -> Endpoint {
    Endpoint {
        host: String::new(),
        port: 0,
        server_cert: if case.server.uses_tls { LISTED_CERT.to_vec() } else { Vec::new() },
        client_creds: case.server.uses_client_certs.then(TlsCreds::default),
    }
}

/// Asks the cases of a run and judges their answers.
type Judging = Pin<Box<dyn Future<Output = Result<JudgeReport, NativeJudgeError>> + Send>>;

/// One run of the native judge. Its servers end with it.
pub(super) struct NativeRound {
    /// The end of the session that runs the cases, until it is taken.
    session_end: Option<ClientStream>,
    /// Asks the cases and judges the answers; `None` when it is over.
    judging: Option<Judging>,
    report: JudgeReport,
}

impl NativeRound {
    /// Starts the servers of the cases.
    ///
    /// # Errors
    /// A server can't listen.
    ///
    /// Cancel safe: yes, the servers that were started end.
    pub(super) async fn start(suites: &NativeSuites, cases: &JudgedCases<'_>) -> Result<Self, JudgeError> {
        let wanted: Option<BTreeSet<&str>> = cases.run.as_ref().map(|run| run.iter().copied().collect());
        let is_wanted = |case: &&Case| wanted.as_ref().is_none_or(|wanted| wanted.contains(case.name()));
        let run = JudgedRun::start(suites.cases.iter().filter(is_wanted).cloned()).await;
        let run = run.map_err(|error| JudgeError::Native(NativeJudgeError::Servers(error)))?;
        let owned = |names: &BTreeSet<&str>| names.iter().map(|name| (*name).to_owned()).collect();
        let expected_failures = ExpectedFailures {
            known_failing: cases.known_failing.as_ref().map_or_else(|| suites.known_failing.clone(), owned),
            known_flaky: owned(&cases.known_flaky),
        };
        let (session_end, judge_end) = tokio::io::duplex(STREAM_BYTES);
        Ok(Self {
            session_end: Some(Box::new(session_end)),
            judging: Some(Box::pin(judge_cases(run, expected_failures, judge_end))),
            report: JudgeReport::default(),
        })
    }

    /// Takes the stream of the session, once.
    pub(super) fn take_session_end(&mut self) -> Option<ClientStream> {
        self.session_end.take()
    }

    /// Asks and judges until all is judged.
    ///
    /// # Errors
    /// What is read are no answers.
    ///
    /// Cancel safe: yes, because the next call goes on.
    pub(super) async fn next_event(&mut self) -> Result<JudgeEvent, JudgeError> {
        let Some(judging) = &mut self.judging else { return std::future::pending().await };
        let report = judging.as_mut().await;
        self.judging = None;
        self.report = report.map_err(JudgeError::Native)?;
        Ok(JudgeEvent::Exited)
    }

    /// Returns the verdicts, after [`JudgeEvent::Exited`].
    pub(super) fn into_report(self) -> JudgeReport {
        self.report
    }
}

/// Asks all cases of a run, and judges their answers until there are no more.
async fn judge_cases(
    run: JudgedRun,
    expected_failures: ExpectedFailures,
    stream: DuplexStream,
) -> Result<JudgeReport, NativeJudgeError> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let asking = async {
        for request in run.requests() {
            let mut message = Vec::new();
            append_message(&mut message, &request);
            // A session that is gone has its end reported by the end of its answers.
            if writer.write_all(&message).await.is_err() {
                break;
            }
        }
        let _gone = writer.shutdown().await;
    };
    let judging = async {
        let mut decoder = MessageDecoder::new(RESPONSE_LIMIT_BYTES);
        let mut input = BytesMut::new();
        let mut report = JudgeReport { not_run: run.requests().count(), ..JudgeReport::default() };
        while reader.read_buf(&mut input).await.map_err(NativeJudgeError::Read)? > 0 {
            while let Some(answer) = decoder.decode(&mut input).map_err(NativeJudgeError::NoSequence)? {
                let name = decode_response(&answer).map_err(NativeJudgeError::Answer)?.test_name;
                // The session answers only what it was asked.
                let Some(problems) = run.problems_of_encoded(&name, &answer) else { continue };
                report.not_run = report.not_run.saturating_sub(1);
                match expected_failures.finding(&name, &problems) {
                    Some(finding) => {
                        report.findings.insert(name, finding);
                    }
                    None => report.passed += 1,
                }
            }
        }
        Ok(report)
    };
    let ((), report) = tokio::join!(asking, judging);
    report
}

/// The cases of a run that must fail, and those that may.
struct ExpectedFailures {
    known_failing: BTreeSet<String>,
    known_flaky: BTreeSet<String>,
}

impl ExpectedFailures {
    /// Returns what the judge finds about a case with these problems; nothing if it simply passes.
    fn finding(&self, name: &str, problems: &[String]) -> Option<JudgeFinding> {
        let is_known_failing = self.known_failing.contains(name);
        match (problems.is_empty(), is_known_failing) {
            (true, false) => None,
            (true, true) => Some(JudgeFinding::UnexpectedPass),
            (false, is_known) if is_known || self.known_flaky.contains(name) => {
                Some(JudgeFinding::FailedAsExpected(problems.join("\n")))
            }
            (false, _) => Some(JudgeFinding::Failed(problems.join("\n"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_failures_must_fail_and_flaky_cases_may() {
        let set = |name: &str| BTreeSet::from([name.to_owned()]);
        let expected = ExpectedFailures { known_failing: set("fails"), known_flaky: set("flaky") };
        let problems = ["wrong".to_owned()];
        let failed = || JudgeFinding::FailedAsExpected("wrong".to_owned());
        for (name, if_passed, if_failed) in [
            ("other", None, JudgeFinding::Failed("wrong".to_owned())),
            ("fails", Some(JudgeFinding::UnexpectedPass), failed()),
            ("flaky", None, failed()),
        ] {
            assert_eq!(expected.finding(name, &[]), if_passed, "{name}");
            assert_eq!(expected.finding(name, &problems), Some(if_failed), "{name}");
        }
    }
}
