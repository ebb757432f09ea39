//! The client library: one session with a server of the test protocol, for the command line, for editors and for
//! whoever else wants to run tests.
//!
//! [`Client::start`] starts a server for this client alone; [`Client::join_tcp`] and [`Client::join_local`] join one that
//! listens; [`Client::connect`] takes any stream (an editor's own listener, memory). With [`ClientOptions::callback`] the
//! library also listens for connections of the server's own processes, on a port and with a token of its own; they then
//! report past the server, and their results arrive even when the server has died.
//!
//! What comes is told as typed [`Event`]s in one order; [`Aggregate`] adds up what they say of each test. A run or a
//! discovery returns after its answer *and* its completion, on whichever connection that comes: the barrier behind which
//! nothing of it is told. [`Client::cancel`] ends it early, [`Client::exit`] the session.
//!
//! ```no_run
//! use heeler::client::{Aggregate, Client, ClientOptions, Event, Request, ServerCommand};
//! use tokio::time::{Duration, Instant};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let command = ServerCommand::new("/usr/bin/heeler", ["build/unit_tests"]);
//! let (client, mut events) = Client::start(command, ClientOptions::default()).await?;
//! let mut tests = Aggregate::default();
//! let watch = async {
//!     while let Some(event) = events.next().await {
//!         match event {
//!             Event::Changes { changes, .. } => {
//!                 for change in changes {
//!                     tests.apply(change);
//!                 }
//!             }
//!             Event::Completed { .. } => break,
//!             other => eprintln!("{other:?}"),
//!         }
//!     }
//! };
//! let (result, ()) = tokio::join!(client.run(Request::all()), watch);
//! println!("{} tests, {} attachments", tests.counts().total(), result?.attachments.len());
//! drop(events);
//! client.exit(Instant::now() + Duration::from_secs(15)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! - `start`: how a server is started or joined.
//! - `session`: requests and answers on the main connection.
//! - `callback`: the listener, and what it lets in.
//! - `intake`: where the notifications of all connections meet and get their order.
//! - `events`: what the user of the library sees.
//! - `aggregate`: what all changes of a run come to.

mod session;

mod start;

mod aggregate;
mod callback;
mod events;
mod intake;

#[cfg(test)]
mod tests;

pub use aggregate::{Aggregate, Applied, Counts, Test};
pub use events::{Event, Events, Late, Source};
pub use session::{Client, ClientError, ClientOptions, Request};
pub use start::{ServerCommand, StartError};
/// What events and requests are made of.
pub use wire::mtp::{Attachment, Change, ExecutionState, LogLevel, RunResult, TestNode};
