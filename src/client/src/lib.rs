//! The client library: one session with a server of the test protocol, for editors and other programs that
//! run tests.
//!
//! [`Client::start`] starts a server for this client only; [`Client::connect_tcp`] and
//! [`Client::connect_local`] connect to a listening server; [`Client::connect`] takes any stream (an editor's
//! own listener, an in-memory pipe). With [`ClientOptions::callback`] the library also listens for
//! connections from the server's own processes, on a port and with a token of its own. These processes then
//! report directly to the client, and their results arrive even when the server has died.
//!
//! Everything received is reported as a typed [`ClientEvent`] in one order; [`RunAggregate`] keeps the latest
//! state of each test. A run or a discovery returns after its response *and* its completion, on any
//! connection; after the completion no event of that run follows. [`Client::cancel`] ends it early,
//! [`Client::exit`] ends the session.
//!
//! ```no_run
//! use heeler_client::{RunAggregate, Client, ClientOptions, ClientEvent, TestRequest, ServerCommand};
//! use tokio::time::{Duration, Instant};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let command = ServerCommand::new("/usr/bin/heeler", ["build/unit_tests"]);
//! let (client, mut events) = Client::start(command, ClientOptions::default()).await?;
//! let mut tests = RunAggregate::default();
//! let watch = async {
//!     while let Some(event) = events.next().await {
//!         match event {
//!             ClientEvent::Changes { changes, .. } => {
//!                 for change in changes {
//!                     tests.apply(change);
//!                 }
//!             }
//!             ClientEvent::Completed { .. } => break,
//!             other => eprintln!("{other:?}"),
//!         }
//!     }
//! };
//! let (result, ()) = tokio::join!(client.run(TestRequest::all()), watch);
//! println!("{} tests, {} attachments", tests.counts().total(), result?.attachments.len());
//! drop(events);
//! client.exit(Instant::now() + Duration::from_secs(15)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! - `spawn_server`: starting a server, or connecting to one.
//! - `test_request`: the tests that a client requests.
//! - `session`: requests and responses on the main connection.
//! - `callback`: the callback listener and its authentication.
//! - `event_router`: the event router, which puts the notifications of all connections in one order.
//! - `events`: the events that the user of the library receives.
//! - `aggregate`: the state of a run as its changes add up.
#![warn(missing_docs)]

mod session;

mod start;
mod test_request;

mod aggregate;
mod callback;
mod event_router;
mod events;

#[cfg(test)]
mod tests;

pub use aggregate::{AggregatedTest, ChangeEffect, RunAggregate, StateCounts};
pub use events::{ClientEvent, EventSource, EventStream, LateUpdate};
/// The parts of events and requests.
pub use heeler_protocol::mtp::{Attachment, ExecutionState, LogLevel, NodeChange, RunResult, TestNode};
pub use session::{Client, ClientError, ClientOptions};
pub use start::{ServerCommand, ServerStartError};
pub use test_request::TestRequest;
