//! Dialling over TCP, with a deadline and without Nagle's delay; and whose the other end is. A port is anybody's: on this
//! machine, only the own user and root are taken for the ones who are meant.

use std::{io, net::IpAddr};

use host::peer::{PeerUser, peer_user};

use tokio::{
    net::{TcpStream, lookup_host},
    time::{Instant, timeout_at},
};

/// May do everything anyway.
const ROOT: u32 = 0;

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
    /// Another user has the port.
    #[error("connect to {host} port {port}")]
    Stranger {
        /// As it was given.
        host: String,
        /// The port.
        port: u16,
        /// Whose it is.
        source: Stranger,
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

/// Why the other end of a connection is not to be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Stranger {
    /// Another user holds it.
    #[error("trust the other end: it belongs to user {user}, not to user {own}")]
    OtherUser {
        /// Theirs.
        user: u32,
        /// Ours.
        own: u32,
    },
    /// It is on this machine, and whose it is can't be told.
    #[error("learn whose the other end is")]
    Unknown,
}

/// Who is trusted where the system does not tell whose the other end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Untold {
    /// Everybody: there is another proof, or none was ever asked for.
    Trusted,
    /// Nobody.
    Refused,
}

/// Returns an error unless the other end is held by the own user, by root, or on another machine.
///
/// # Errors
/// See [`Stranger`].
pub fn vouch(stream: &TcpStream, untold: Untold) -> Result<(), Stranger> {
    let ends = || Ok((stream.local_addr()?, stream.peer_addr()?));
    let user = ends().and_then(|(own, peer)| peer_user(own, peer)).map_err(|_: io::Error| Stranger::Unknown);
    let own = host::process::effective_uid();
    match user? {
        PeerUser::Is(user) if user == own || user == ROOT => Ok(()),
        PeerUser::Is(user) => Err(Stranger::OtherUser { user, own }),
        PeerUser::Elsewhere => Ok(()),
        PeerUser::Untold if untold == Untold::Trusted => Ok(()),
        PeerUser::Untold => Err(Stranger::Unknown),
    }
}

/// Dials a host and port until `deadline`. `localhost` means 127.0.0.1 first, then ::1: many a listener has only the
/// first, and some resolvers give only the second. An address that another user of this machine listens at is passed
/// over before a byte is sent. `TCP_NODELAY` is set.
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
    let stranger = |source| DialError::Stranger { host: host.to_owned(), port, source };
    let mut last = refused(io::ErrorKind::NotFound.into());
    for address in addresses(host, port).await? {
        match TcpStream::connect((address, port)).await {
            Ok(stream) => match vouch(&stream, Untold::Trusted) {
                Ok(()) => {
                    stream.set_nodelay(true).map_err(refused)?;
                    return Ok(stream);
                }
                Err(source) => last = stranger(source),
            },
            // That somebody else was there says more than that nobody was.
            Err(_) if matches!(last, DialError::Stranger { .. }) => {}
            Err(error) => last = refused(error),
        }
    }
    Err(last)
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
