//! A run that is judged here: reference servers for the cases that they can serve, and the verdict about each
//! answer with what its server has seen. The other cases are named with the reason.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt, io,
};

use prost::Message as _;

use crate::{
    axes::HttpVersion,
    expansion::{Case, ServerKind},
    message::CaseResponse,
    server::{ReferenceServer, SUPPORTED_COMPRESSIONS},
    verdict::problems_of_answer,
};

/// Why a case is not judged here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotJudged {
    Http3,
    Compression,
    RawResponse,
}

impl fmt::Display for NotJudged {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Http3 => "HTTP/3",
            Self::Compression => "a compression other than gzip and deflate",
            Self::RawResponse => "a raw HTTP response",
        })
    }
}

/// Returns why a case is not judged here, if it is not.
#[must_use]
pub fn not_judged(case: &Case) -> Option<NotJudged> {
    if case.server.http_version == HttpVersion::Http3 {
        Some(NotJudged::Http3)
    } else if !SUPPORTED_COMPRESSIONS.contains(&case.compression) {
        Some(NotJudged::Compression)
    } else if case.raw_response().is_some() {
        Some(NotJudged::RawResponse)
    } else {
        None
    }
}

/// A run: its cases and their servers.
#[derive(Debug)]
pub struct JudgedRun {
    cases: BTreeMap<String, Case>,
    servers: BTreeMap<ServerKind, ReferenceServer>,
}

impl JudgedRun {
    /// Starts the servers of those cases that are judged; the others are left out.
    ///
    /// Cancel safe: yes, the servers that were started end.
    ///
    /// # Errors
    /// A server can't listen.
    pub async fn start(cases: impl IntoIterator<Item = Case>) -> io::Result<Self> {
        let judged = cases.into_iter().filter(|case| not_judged(case).is_none());
        let cases: BTreeMap<String, Case> = judged.map(|case| (case.name().to_owned(), case)).collect();
        let mut servers = BTreeMap::new();
        for case in cases.values() {
            if let Entry::Vacant(entry) = servers.entry(case.server) {
                entry.insert(ReferenceServer::start(case.server).await?);
            }
        }
        Ok(Self { cases, servers })
    }

    /// Returns the requests, in the order of the cases' names.
    pub fn requests(&self) -> impl Iterator<Item = Vec<u8>> {
        self.cases.values().map(|case| case.encoded_request(&self.server(case).endpoint()))
    }

    /// Returns what is wrong with a case: with the answer, and with what the server has seen; nothing if the
    /// case has passed, none if there is no such case.
    #[must_use]
    pub fn problems(&self, response: &CaseResponse) -> Option<Vec<String>> {
        let case = self.cases.get(&response.test_name)?;
        let mut problems = self.server(case).feedback(case.name());
        problems.extend(problems_of_answer(case, response.answer.as_ref()));
        Some(problems)
    }

    /// Returns what [`Self::problems`] does for an answer to the case `name` as its client has written it. An
    /// answer that is no such message, or one to another case, is a problem of the case.
    #[must_use]
    pub fn problems_of_encoded(&self, name: &str, answer: &[u8]) -> Option<Vec<String>> {
        match CaseResponse::decode(answer) {
            Ok(response) if response.test_name == name => self.problems(&response),
            Ok(response) => {
                let problem =
                    format!("expected an answer to this case, found one to {:?}", response.test_name);
                self.cases.contains_key(name).then(|| vec![problem])
            }
            Err(error) => {
                let problem = format!("expected an answer, found what is no such message: {error}");
                self.cases.contains_key(name).then(|| vec![problem])
            }
        }
    }

    fn server(&self, case: &Case) -> &ReferenceServer {
        self.servers.get(&case.server).expect("each judged case has its server")
    }
}
