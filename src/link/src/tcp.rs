//! Dialling over TCP, with a deadline and without Nagle's delay.

use std::{io, net::IpAddr};

use tokio::{
    net::{TcpStream, lookup_host},
    time::{Instant, timeout_at},
};

/// Why a TCP connection could not be made.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The host's name leads nowhere.
    #[error("find the address of host {host:?}")]
    Lookup {
        /// As it was given.
        host: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// Nobody listens there, or the way is blocked.
    #[error("connect to {host} port {port}")]
    Refused {
        /// As it was given.
        host: String,
        /// The port.
        port: u16,
        /// What the last address said.
        source: io::Error,
    },
    /// The deadline came first.
    #[error("connect to {host} port {port} in time")]
    TimedOut {
        /// As it was given.
        host: String,
        /// The port.
        port: u16,
    },
}

/// Dials a host and port until `deadline`. `localhost` means 127.0.0.1 first, then ::1: many a listener has only the
/// first, and some resolvers give only the second. `TCP_NODELAY` is set.
///
/// Cancel safe: yes, because a half-made connection is dropped.
///
/// # Errors
/// See [`DialError`].
pub async fn dial(host: &str, port: u16, deadline: Instant) -> Result<TcpStream, DialError> {
    match timeout_at(deadline, dial_any(host, port)).await {
        Ok(dialled) => dialled,
        Err(_) => Err(DialError::TimedOut { host: host.to_owned(), port }),
    }
}

async fn dial_any(host: &str, port: u16) -> Result<TcpStream, DialError> {
    let refused = |source| DialError::Refused { host: host.to_owned(), port, source };
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in addresses(host, port).await? {
        match TcpStream::connect((address, port)).await {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(refused)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(refused(last))
}

async fn addresses(host: &str, port: u16) -> Result<Vec<IpAddr>, DialError> {
    if host.eq_ignore_ascii_case("localhost") {
        return Ok(vec![std::net::Ipv4Addr::LOCALHOST.into(), std::net::Ipv6Addr::LOCALHOST.into()]);
    }
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(vec![address]);
    }
    match lookup_host((host, port)).await {
        Ok(found) => Ok(found.map(|address| address.ip()).collect()),
        Err(source) => Err(DialError::Lookup { host: host.to_owned(), source }),
    }
}
