//! The Model Context Protocol over HTTP, on loopback. All clients share one session, as one client of the
//! scheduler; the session knows nothing of HTTP.
//!
//! - `server`: listens for clients.
//! - `endpoint`: decides what a request is, and answers it.
//! - `relay`: passes requests to the session and its messages back.
//! - `handshakes`: the clients that have made a handshake.

mod endpoint;
mod handshakes;
mod relay;
mod server;

pub use server::serve_http;
