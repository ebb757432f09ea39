//! Messages between Connect's conformance suite and a client under test (`connectrpc.conformance.v1`), as far
//! as Heeler reads and writes them. Heeler passes requests and responses on unchanged.
//!
//! - [`MessageDecoder`], [`append_message`]: messages with a length prefix of four bytes.
//! - [`ClientRequest`]: a request; [`ClientResponse`]: a response.
//! - [`parse_judge_report`]: the verdicts that the suite prints at its end.

use heeler_core::batching::ProcessTraits;

mod judge_report;
mod message;
mod size_delimited;

pub use judge_report::{JudgeFinding, JudgeReport, JudgeReportError, parse_judge_report};
pub use message::{
    ClientAnswer, ClientError, ClientRequest, ClientResponse, MessageError, case_tags, decode_request,
    decode_response, encode_response,
};
pub use size_delimited::{
    MessageDecoder, MessageTooLarge, REQUEST_LIMIT_BYTES, RESPONSE_LIMIT_BYTES, append_message,
};

/// Process traits of a client under test: it handles one request at a time, and does not report when it is
/// ready.
pub const CLIENT_PROCESS: ProcessTraits = ProcessTraits {
    hides_start: true,
    ends_between_tests: true,
    takes_more_tests: true,
    ..ProcessTraits::NONE
};
