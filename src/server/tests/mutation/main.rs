//! The front end of the Mutation Server Protocol with a test service whose runs advance only when a test
//! permits. Clients are written from the specification; the Node clients use third-party libraries.
#![expect(clippy::unwrap_used, reason = "a test that can't go on ends here")]
#![expect(clippy::disallowed_methods, reason = "clients in Node are started as a user starts them")]

mod client;
mod http;
mod node_clients;
mod service;
mod sessions;
mod streams;
