//! The client library: one session with a server of the test protocol, for the command line, for editors and for
//! whoever else wants to run tests.
//!
//! A session needs a stream to the server (TCP, a local socket, standard streams, memory); this library starts no
//! processes. With [`ClientOptions::callback`] it also listens for connections of the server's own processes,
//! which then report past the server, and whose results arrive even when the server has died.
//!
//! ```no_run
//! use heeler::client::{Aggregate, Client, ClientOptions, Event, Request};
//!
//! # async fn example(stream: tokio::net::TcpStream) -> Result<(), Box<dyn std::error::Error>> {
//! let (client, mut events) = Client::connect(stream, ClientOptions::default()).await?;
//! let request = Request { run_id: uuid::Uuid::new_v4().to_string(), tests: None, filter: None };
//! let mut tests = Aggregate::default();
//! let watch = async {
//!     while let Some(event) = events.next().await {
//!         match event {
//!             Event::Changes { changes, .. } => changes.into_iter().for_each(|one| drop(tests.apply(one))),
//!             Event::Completed { .. } => break,
//!             other => eprintln!("{other:?}"),
//!         }
//!     }
//! };
//! let (result, ()) = tokio::join!(client.run(request), watch);
//! println!("{} tests, {} attachments", tests.counts().total(), result?.attachments.len());
//! # Ok(())
//! # }
//! ```
//!
//! - `session`: requests and answers on the main connection.
//! - `callback`: the listener, and what it lets in.
//! - `intake`: where the notifications of all connections meet and get their order.
//! - `events`: what the user of the library sees.
//! - `aggregate`: what all changes of a run come to.

mod session;

mod aggregate;
mod callback;
mod events;
mod intake;

#[cfg(test)]
mod tests;

pub use aggregate::{Aggregate, Applied, Counts, Test};
pub use events::{Event, Events, Late, Source};
pub use session::{Client, ClientError, ClientOptions, Request};
