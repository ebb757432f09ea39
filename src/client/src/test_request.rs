//! A client's request to discover or run tests.

use heeler_protocol::mtp::{RequestedRunOptions, RunShard, TestNode};

/// Tests to discover or to run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TestRequest {
    /// Identifies the run in all its updates; a GUID that this session has not used before.
    pub run_id: String,
    /// Selected tests: `None` selects all, an empty list none. Only the uid of each node is used.
    pub tests: Option<Vec<TestNode>>,
    /// A filter in the server's filter language.
    pub filter: Option<String>,
    /// Whether each test runs under a debugger, which the server requests with
    /// [`ClientEvent::AttachDebugger`](crate::ClientEvent::AttachDebugger). Only for
    /// [`Client::run`](crate::Client::run) by a client with [debuggers](crate::ClientOptions::debuggers); an
    /// extension of Heeler.
    pub is_debug: bool,
    /// The shard that these tests form, if they are part of a larger selection; kept in the run's record.
    /// Only for [`Client::run`](crate::Client::run); an extension of Heeler.
    pub shard: Option<RunShard>,
    /// Options of the run that replace the server's settings. Only for [`Client::run`](crate::Client::run);
    /// an extension of Heeler.
    pub options: Option<RequestedRunOptions>,
}

impl TestRequest {
    /// Returns a request for all tests, with a new run id.
    #[must_use]
    pub fn all() -> Self {
        Self { run_id: uuid::Uuid::new_v4().to_string(), ..Self::default() }
    }

    /// Returns a request for the tests with these uids, with a new run id.
    #[must_use]
    pub fn for_uids(uids: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let node = |uid: String| TestNode { uid, ..TestNode::default() };
        Self { tests: Some(uids.into_iter().map(|uid| node(uid.into())).collect()), ..Self::all() }
    }
}
