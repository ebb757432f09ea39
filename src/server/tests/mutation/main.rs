//! The front end of the Mutation Server Protocol with a service of the tests behind it, whose runs go on when
//! a test lets them. Clients are written from the specification; those in Node are on libraries of others.
#![expect(clippy::unwrap_used, reason = "a test that can't go on ends here")]
#![expect(clippy::disallowed_methods, reason = "clients in Node are started as a user starts them")]

mod client;
mod http;
mod node_clients;
mod service;
mod sessions;
mod streams;
