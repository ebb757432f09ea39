//! The front end of the Mutation Server Protocol, in both versions that clients speak: 0.0.1-alpha.1 over
//! WebSocket and HTTP, 0.4 over streams with `Content-Length`. The first method of a session decides,
//! whatever carries it. What finds and tests mutants is behind the trait [`MutationService`].
//!
//! - `front_end`: the protocol's entry among the front ends.
//! - `service`: the trait, and what the sessions of a server share.
//! - `selection`: the mutants that a request selects; pure.
//! - `rendering`: results as both versions write them; pure.
//! - `config_path`: the path of a configuration file; pure.
//! - `session`: one client; `session/request`: one of its requests that takes time.
//! - `responder`: where the answer to a message goes, alone or in a batch.
//! - `stream`: a session on a stream.
//! - `websocket`: a session on a WebSocket connection.
//! - `http`: the session of all clients of plain HTTP.
//! - `port`: the connections of a port, whose first bytes decide.

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
