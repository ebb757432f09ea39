//! TCP dialling, with a deadline and without Nagle's delay, and checks of the peer's user. Any user may
//! listen on a port, so on this machine only peers of the current user and root are trusted.

use std::{
    io,
    net::IpAddr,
    os::fd::AsFd as _,
    pin::Pin,
    task::{Context, Poll, ready},
};

use heeler_sys::peer_credentials::{PeerUser, peer_user};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, lookup_host},
    time::{Instant, timeout_at},
};

/// User id of root, which is trusted because it has all permissions anyway.
const ROOT: u32 = 0;

/// Error of dialling a TCP port.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The host name could not be resolved.
    #[error("resolve the host name {host:?}")]
    Lookup {
        /// Host as given.
        host: String,
        /// Error of the resolver.
        source: io::Error,
    },
    /// No process listens there, or the network rejected the connection.
    #[error("connect to {host} port {port}")]
    Refused {
        /// Host as given.
        host: String,
        port: u16,
        /// Error of the last address.
        source: io::Error,
    },
    /// Another user listens on the port.
    #[error("connect to {host} port {port}")]
    UntrustedPeer {
        /// Host as given.
        host: String,
        port: u16,
        /// Why the listener is not trusted.
        source: UntrustedPeer,
    },
    /// The deadline passed first.
    #[error("connect to {host} port {port}: timed out")]
    TimedOut {
        /// Host as given.
        host: String,
        port: u16,
    },
}

/// Why the peer of a connection is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UntrustedPeer {
    /// The peer's socket belongs to another user.
    #[error("the peer belongs to user {user}, not to user {own}")]
    OtherUser {
        /// User of the peer.
        user: u32,
        /// User of this process.
        own: u32,
    },
    /// The peer is on this machine, but its user is unknown.
    #[error("the peer's user is unknown")]
    Unknown,
}

/// Policy for a peer whose user the system does not report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownPeerPolicy {
    /// Trust the peer, because something else identifies it, or no identification is required.
    Trust,
    /// Reject the peer.
    Refuse,
}

/// Checks that the peer belongs to the current user or root, or is on another machine.
///
/// # Errors
/// See [`UntrustedPeer`].
pub fn verify_peer(stream: &TcpStream, unknown_peer_policy: UnknownPeerPolicy) -> Result<(), UntrustedPeer> {
    let ends = || Ok((stream.local_addr()?, stream.peer_addr()?));
    let user =
        ends().and_then(|(own, peer)| peer_user(own, peer)).map_err(|_: io::Error| UntrustedPeer::Unknown);
    let own = heeler_sys::process::effective_uid();
    match user? {
        PeerUser::Known(user) if user == own || user == ROOT => Ok(()),
        PeerUser::Known(user) => Err(UntrustedPeer::OtherUser { user, own }),
        PeerUser::NotLocal => Ok(()),
        PeerUser::Unknown if unknown_peer_policy == UnknownPeerPolicy::Trust => Ok(()),
        PeerUser::Unknown => Err(UntrustedPeer::Unknown),
    }
}

/// Dials a host and port until `deadline`. `localhost` means 127.0.0.1 first, then ::1: many listeners have
/// only the first, and some resolvers return only the second. An address where another user of this machine
/// listens is skipped before a byte is sent. `TCP_NODELAY` is set.
///
/// Cancel safe: yes, because a half-open connection is dropped.
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
    let untrusted_peer = |source| DialError::UntrustedPeer { host: host.to_owned(), port, source };
    let mut last = refused(io::ErrorKind::NotFound.into());
    for address in addresses(host, port).await? {
        match TcpStream::connect((address, port)).await {
            Ok(stream) => match verify_peer(&stream, UnknownPeerPolicy::Trust) {
                Ok(()) => {
                    stream.set_nodelay(true).map_err(refused)?;
                    return Ok(stream);
                }
                Err(source) => last = untrusted_peer(source),
            },
            // An untrusted listener is a more informative error than a missing one.
            Err(_) if matches!(last, DialError::UntrustedPeer { .. }) => {}
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

/// TCP stream that acknowledges received bytes immediately instead of up to 40 ms later. Most clients write a
/// message's header and body separately with Nagle's algorithm on, which delays the body until the header is
/// acknowledged. Every request and answer would be delayed.
#[derive(Debug)]
pub struct PromptTcpStream(TcpStream);

impl PromptTcpStream {
    /// Wraps a connected stream.
    #[must_use]
    pub fn new(stream: TcpStream) -> Self {
        Self(stream)
    }

    /// Peeks at the next bytes; waits for the first.
    ///
    /// Cancel safe: yes, because no bytes are taken.
    ///
    /// # Errors
    /// The connection cannot be read.
    pub async fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.peek(bytes).await
    }
}

impl AsyncRead for PromptTcpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.0).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            // On failure, the peer's next bytes only arrive later.
            let (Ok(()) | Err(_)) = heeler_sys::io::acknowledge_tcp(self.0.as_fd());
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PromptTcpStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
