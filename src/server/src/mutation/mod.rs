//! The front end of the Mutation Server Protocol in both versions used by clients: 0.0.1-alpha.1 over
//! WebSocket and HTTP, and 0.4 over streams with `Content-Length`. A session's first method decides the
//! version, regardless of the transport. The trait [`MutationService`] finds and tests mutants.
//!
//! - `front_end`: implements the common front end interface.
//! - `service`: the trait, and state shared by all sessions of a server.
//! - `selection`: which mutants a request selects; pure.
//! - `rendering`: results in both versions' formats; pure.
//! - `config_path`: the path of a configuration file; pure.
//! - `session`: one client; `session/request`: a request that takes time.
//! - `responder`: sends the answer to a message, alone or as part of a batch.
//! - `stream`: serves a session on a stream.
//! - `websocket`: serves a session on a WebSocket connection.
//! - `http`: serves the session shared by clients of plain HTTP.
//! - `port`: serves a port and detects each connection's transport.

mod config_path;
mod front_end;
mod http;
mod port;
mod rendering;
mod responder;
mod selection;
mod service;
mod session;
mod stream;
mod websocket;

pub use front_end::MutationFrontEnd;
pub use selection::{InvalidGlob, MutantSelection};
pub use service::{
    Cancellation, Canceller, FirstMethod, MutationProject, MutationServer, MutationService,
    MutationServiceError, MutationSessionOptions, ProgressForm, ServiceFuture,
};
