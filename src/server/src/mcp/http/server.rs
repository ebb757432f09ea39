//! Listens for clients over HTTP.

use std::{io, sync::Arc};

use heeler_http as http;
use heeler_protocol::mcp::http::LocalUrl;
use tokio::{net::TcpListener, sync::mpsc, task::JoinSet};

use super::{
    endpoint::{self, Endpoint},
    relay::Relay,
};
use crate::listen::{ClientServer, ListenError};

/// Serves clients over HTTP on a loopback address until `stop` is closed. Calls `ready` with the address of
/// the server.
///
/// # Errors
/// The address is not one of the loopback interface, or can't be bound.
///
/// Cancel safe: yes, because the session ends with its connection.
pub async fn serve_http(
    address: &str,
    server: &ClientServer,
    ready: impl FnOnce(&LocalUrl),
    mut stop: mpsc::Receiver<()>,
) -> Result<(), ListenError> {
    let failed = |source| ListenError::Tcp { address: address.to_owned(), source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let Ok(url) = LocalUrl::parse(&format!("http://{bound}{}", endpoint::PATH)) else {
        let expected = "expected an address of the loopback interface, such as 127.0.0.1:3000";
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, expected)));
    };
    let mut relaying = JoinSet::new();
    let (relay, mut session) = Relay::start(server, &mut relaying);
    ready(&url);
    let stopped = async {
        tokio::select! {
            _ = stop.recv() => session.end().await,
            // The relay ends with the scheduler.
            _ = relaying.join_next() => tracing::error!("the session of the HTTP clients has ended"),
        }
    };
    http::serve(listener, Arc::new(Endpoint::new(relay)), stopped).await;
    Ok(())
}
