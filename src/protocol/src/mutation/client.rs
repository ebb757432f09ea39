//! Requests of a client of version 0.4, and reading of the server's messages.

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::{
    method,
    v0_4::{ConfigureParams, DiscoverParams, MutationTestParams},
};
use crate::rpc::{self, RequestId};

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ClientRequest {
    Configure(ConfigureParams),
    Discover(DiscoverParams),
    MutationTest(MutationTestParams),
}

impl ClientRequest {
    #[must_use]
    pub fn method(&self) -> &'static str {
        match self {
            Self::Configure(_) => method::CONFIGURE,
            Self::Discover(_) => method::DISCOVER,
            Self::MutationTest(_) => method::MUTATION_TEST,
        }
    }

    /// Encodes the request as a frame.
    #[must_use]
    pub fn frame(&self, id: &RequestId) -> Bytes {
        rpc::encode_request(id, self.method(), self)
    }
}

/// Reads a result, or the parameters of a notification.
///
/// # Errors
/// The value is absent or malformed.
pub fn read_result<R: DeserializeOwned>(result: Option<&RawValue>) -> Result<R, serde_json::Error> {
    serde_json::from_str(result.map_or("null", RawValue::get))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        StreamDecoder as _,
        frame::FrameDecoder,
        mutation::{
            SourceLocation, SourcePosition, read_params,
            v0_4::{DiscoverResult, FileRange},
        },
        rpc::RpcMessage,
    };

    #[test]
    fn requests_are_read_as_they_were_written() {
        let position = |line| SourcePosition { line, column: 1 };
        let range = SourceLocation { start: position(1), end: position(2) };
        let files = Some(vec![
            FileRange { path: "src/a.js".to_owned(), range: Some(range) },
            FileRange { path: "src/".to_owned(), range: None },
        ]);
        let params = MutationTestParams { files, mutants: None };
        let mut bytes = (&*ClientRequest::MutationTest(params.clone()).frame(&RequestId::number(7))).into();
        let body = FrameDecoder::default().decode(&mut bytes).unwrap().unwrap();
        let RpcMessage::Request { id, method, params: read } = rpc::parse(&body).unwrap() else { panic!() };
        assert_eq!((id, method.as_str()), (RequestId::number(7), "mutationTest"));
        assert_eq!(read_params::<MutationTestParams>(&method, read.as_deref()).unwrap(), params);
    }

    #[test]
    fn results_without_files_are_refused() {
        for text in [None, Some("null"), Some("[]"), Some("{}"), Some("{\"files\":[]}")] {
            let result = text.map(|text| RawValue::from_string(text.to_owned()).unwrap());
            assert!(read_result::<DiscoverResult>(result.as_deref()).is_err(), "{text:?}");
        }
    }
}
