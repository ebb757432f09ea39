//! The Model Context Protocol over HTTP, on loopback. All clients share one session, which is one client of
//! the scheduler and unaware of HTTP.
//!
//! - `port`: serves the connections of a port.
//! - `endpoint`: classifies requests and answers them.
//! - `relay`: passes requests to the session and messages back.
//! - `handshakes`: clients that have made a handshake.

mod endpoint;
mod handshakes;
mod port;
mod relay;

pub(super) use port::{port_service, port_url};
