//! The front end of the Mutation Server Protocol, in both versions that clients speak: 0.0.1-alpha.1 over
//! WebSocket and HTTP, 0.4 over streams with `Content-Length`. The first method of a session decides,
//! whatever carries it. What finds and tests mutants is behind the trait [`MutationService`].
//!
//! - `service`: the trait, and what a request asks of it.
//! - `selection`: the mutants that a request selects; pure.
//! - `rendering`: results as both versions write them; pure.
//! - `config_path`: the path of a configuration file; pure.
//! - `session`: one client; `session/request`: one of its requests that takes time.
//! - `responder`: where the answer to a message goes, alone or in a batch.
//! - `stream`: a session on a stream.
//! - `websocket`: a session on a WebSocket connection.
//! - `http`: the session of all clients of plain HTTP.
//! - `listener`: accepts connections, whose first bytes decide.

mod config_path;
mod http;
mod listener;
mod rendering;
mod responder;
mod selection;
mod service;
mod session;
mod stream;
mod websocket;

pub use listener::{MutationListener, MutationServer};
pub use selection::{InvalidGlob, MutantSelection};
pub use service::{
    Cancellation, Canceller, MutationProject, MutationService, MutationServiceError, ServiceFuture,
};
pub use session::{FirstMethod, MutationSessionOptions, ProgressForm};
pub use stream::serve_stream;
