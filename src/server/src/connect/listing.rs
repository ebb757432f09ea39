//! Cases of a conformance suite as tests: in a catalogue of the client under test, and as a listing without a
//! run.

use std::{io, time::Duration};

use bytes::BytesMut;
use heeler_core::test_path::NameNesting;
use heeler_protocol::{
    StreamDecoder as _,
    connect::{
        CLIENT_PROCESS, ClientRequest, MessageDecoder, MessageError, MessageTooLarge, REQUEST_LIMIT_BYTES,
        append_message, case_tags, decode_request,
    },
    control::{ListedTest, TraitPair},
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::answer::answer_of_error;
use crate::discovery::{Catalogue, ProgramListing, ProgramSource};

/// Name of the adapter that runs clients under test.
pub const FRAMEWORK: &str = "connect";

/// Assumed time from a client's start to its first call, used to distribute cases. Clients do not report when
/// they are ready; clients in Go, Rust and on the JVM take 10 to 300 ms.
const ASSUMED_START: Duration = Duration::from_millis(50);

/// Error of listing the cases of a suite.
#[derive(Debug, thiserror::Error)]
pub enum ListCasesError {
    #[error("read the requests of the suite")]
    Read(#[source] io::Error),
    #[error("read the requests of the suite: not a sequence of length-prefixed messages")]
    NoSequence(#[source] MessageTooLarge),
    #[error("read a request of the suite")]
    Request(#[source] MessageError),
    #[error("send an answer to the suite")]
    Answer(#[source] io::Error),
}

/// Returns the cases of a suite without running them: each is answered with an error.
///
/// # Errors
/// The suite writes something other than requests, or does not accept the answers.
///
/// Cancel safe: no, because the cases that have been read are lost.
pub async fn list_cases(
    stream: impl AsyncRead + AsyncWrite + Unpin,
) -> Result<Vec<ListedTest>, ListCasesError> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut decoder = MessageDecoder::new(REQUEST_LIMIT_BYTES);
    let mut input = BytesMut::new();
    let mut cases = Vec::new();
    while reader.read_buf(&mut input).await.map_err(ListCasesError::Read)? > 0 {
        let mut answers = Vec::new();
        while let Some(bytes) = decoder.decode(&mut input).map_err(ListCasesError::NoSequence)? {
            let request = decode_request(&bytes).map_err(ListCasesError::Request)?;
            append_message(&mut answers, &answer_of_error(&request.test_name, "the cases are only listed"));
            cases.push(listed_case(&request));
        }
        // The suite reads answers while it writes requests.
        writer.write_all(&answers).await.map_err(ListCasesError::Answer)?;
    }
    Ok(cases)
}

/// Returns a catalogue that contains the client under test with these cases as its tests.
#[must_use]
pub fn case_catalogue(sources: Vec<ProgramSource>, tests: Vec<ListedTest>) -> Catalogue {
    let listing = ProgramListing {
        framework: FRAMEWORK.to_owned(),
        nesting: NameNesting::Slashes,
        selection_limit: None,
        tests,
        start: ASSUMED_START,
        failure: None,
        warnings: Vec::new(),
        depends_on: Vec::new(),
        process: CLIENT_PROCESS,
    };
    let mut catalogue = Catalogue::new(sources);
    catalogue.record_listing(0, Ok(listing));
    catalogue.rebuild_index();
    catalogue
}

/// Returns a case as a test, without its request.
pub(super) fn listed_case(request: &ClientRequest) -> ListedTest {
    let tag = |(name, value): (&str, &str)| TraitPair { name: name.to_owned(), value: value.to_owned() };
    ListedTest {
        name: request.test_name.clone(),
        traits: case_tags(request).into_iter().map(tag).collect(),
        ..ListedTest::default()
    }
}

#[cfg(test)]
mod tests {
    use heeler_protocol::connect::{ClientAnswer, decode_response};

    use super::*;

    /// Returns a request with this name, over HTTP/2.
    fn request(name: &str) -> Vec<u8> {
        let length = u8::try_from(name.len()).unwrap();
        let mut framed = Vec::new();
        append_message(&mut framed, &[&[0x0a, length], name.as_bytes(), &[0x10, 2]].concat());
        framed
    }

    #[tokio::test]
    async fn every_case_is_listed_and_answered_with_an_error() {
        let (ours, mut suite) = tokio::io::duplex(1 << 10);
        let listing = list_cases(ours);
        let asking = async {
            suite.write_all(&[request("a/b"), request("c")].concat()).await.unwrap();
            suite.shutdown().await.unwrap();
            let mut answers = Vec::new();
            suite.read_to_end(&mut answers).await.unwrap();
            BytesMut::from(&answers[..])
        };
        let (listed, mut answers) = tokio::join!(listing, asking);
        let listed = listed.unwrap();
        assert_eq!(listed.iter().map(|case| case.name.as_str()).collect::<Vec<_>>(), ["a/b", "c"]);
        assert!(listed[0].traits.contains(&TraitPair { name: "http".into(), value: "2".into() }));
        let mut decoder = MessageDecoder::new(REQUEST_LIMIT_BYTES);
        for name in ["a/b", "c"] {
            let answer = decode_response(&decoder.decode(&mut answers).unwrap().unwrap()).unwrap();
            assert_eq!(answer.test_name, name);
            assert!(matches!(answer.answer, Some(ClientAnswer::Error(_))));
        }
        assert!(answers.is_empty());
    }

    #[tokio::test]
    async fn other_bytes_are_an_error() {
        let (ours, mut suite) = tokio::io::duplex(1 << 10);
        suite.write_all(b"hello").await.unwrap();
        let error = list_cases(ours).await.unwrap_err();
        assert!(matches!(error, ListCasesError::NoSequence(_)), "{error}");
    }
}
