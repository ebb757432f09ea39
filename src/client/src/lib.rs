//! The client library: one session with a test protocol server, for editors and other programs that run
//! tests.
//!
//! [`Client::start`] starts a server for this client only. [`Client::connect_tcp`] and
//! [`Client::connect_local`] connect to a listening server. [`Client::connect`] accepts any stream, such as
//! an editor's own listener or an in-memory pipe. With [`ClientOptions::callback`], the library also listens
//! for the server's own processes, on its own port and with its own token. These processes report directly to
//! the client, so results arrive even if the server has died.
//!
//! Everything received is reported as a typed [`ClientEvent`] in one order; [`RunAggregate`] keeps the
//! latest state of each test. A run or a discovery returns after its response *and* its completion, on any
//! connection; no event of the run follows its completion. [`Client::cancel`] ends a run early,
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
//! - `start`: starts a server, or connects to one.
//! - `test_request`: tests that a client requests.
//! - `session`: requests and responses on the main connection.
//! - `callback`: the callback listener and its authentication.
//! - `event_router`: puts the notifications of all connections in one order.
//! - `events`: events for the library's user.
//! - `aggregate`: sums up the changes of a run.
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
/// Parts of events and requests.
pub use heeler_protocol::mtp::{Attachment, ExecutionState, LogLevel, NodeChange, RunResult, TestNode};
pub use session::{Client, ClientError, ClientOptions};
pub use start::{ServerCommand, ServerStartError};
pub use test_request::TestRequest;
