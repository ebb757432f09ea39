//! The Model Context Protocol over HTTP, on loopback. All clients share one session, as one client of the
//! scheduler; the session knows nothing of HTTP.
//!
//! - `port`: serves the connections of a port.
//! - `endpoint`: decides what a request is, and answers it.
//! - `relay`: passes requests to the session and its messages back.
//! - `handshakes`: the clients that have made a handshake.

mod endpoint;
mod handshakes;
mod port;
mod relay;

pub(super) use port::{port_service, port_url};
