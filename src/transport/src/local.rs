//! Local sockets, each with a socket file: for control connections, clients of a local server, and the client
//! that a conformance suite's judge starts. Both ends must belong to the same user.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use interprocess::{
    local_socket::{
        GenericFilePath, ListenerOptions, Name, ToFsName as _,
        tokio::{Listener as SocketListener, Stream as SocketStream, prelude::*},
    },
    os::unix::local_socket::ListenerOptionsExt as _,
};
use tokio::{net::UnixStream, time::Instant};

/// Local connection. This is tokio's type, because the sockets crate's own type ignores a half-close.
pub type LocalStream = UnixStream;

/// Delay before dialling again if a socket does not exist yet or its queue is full.
const RETRY_DELAY: Duration = Duration::from_millis(5);

/// Error of creating a listener.
#[derive(Debug, thiserror::Error)]
#[error("listen on local socket {path}")]
pub struct BindError {
    /// Path of the socket.
    pub path: PathBuf,
    /// Error of the operating system. Paths of more than 107 bytes are invalid.
    pub source: io::Error,
}

/// Error of accepting a connection.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// The operating system reported an error. The listener stays usable.
    #[error("accept a local connection")]
    Accept(#[source] io::Error),
    /// The peer's user is unknown, and the connection is closed. The listener stays usable.
    #[error("read the credentials of the peer")]
    Credentials(#[source] io::Error),
    /// Another user dialled, and the connection is closed. The listener stays usable.
    #[error("accept a connection from user {euid}: only user {own} may connect")]
    OtherUser {
        /// Effective user of the dialling process.
        euid: u32,
        /// Effective user of this process.
        own: u32,
    },
}

/// Error of dialling a local socket.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The operating system refused the connection.
    #[error("connect to local socket {path}")]
    Refused {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the last attempt.
        source: io::Error,
    },
    /// The listener belongs to another user.
    #[error("connect to local socket {path}: it belongs to user {euid}, not to user {own}")]
    OtherUser {
        /// Path of the socket.
        path: PathBuf,
        /// Effective user of the listener.
        euid: u32,
        /// Effective user of this process.
        own: u32,
    },
}

/// Listening local socket. Dropping it removes its file.
#[derive(Debug)]
pub struct LocalListener {
    socket: SocketListener,
    own: u32,
}

impl LocalListener {
    /// Listens on a new socket file that only the current user can open. The directory should be private too.
    ///
    /// # Errors
    /// The path exists or is too long for a socket, or its directory is not writable.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        let bind = || ListenerOptions::new().name(socket_name(path)?).mode(0o600).create_tokio();
        let socket = bind().map_err(|source| BindError { path: path.to_owned(), source })?;
        Ok(Self { socket, own: heeler_sys::process::effective_uid() })
    }

    /// Waits for the next connection of the current user.
    ///
    /// Cancel safe: yes, because a connection is either still queued in the kernel or returned.
    ///
    /// # Errors
    /// See [`AcceptError`]: one connection failed, and the next may succeed.
    pub async fn accept(&mut self) -> Result<LocalStream, AcceptError> {
        let stream = self.socket.accept().await.map_err(AcceptError::Accept)?;
        let euid = peer_euid(&stream).map_err(AcceptError::Credentials)?;
        if euid != self.own {
            return Err(AcceptError::OtherUser { euid, own: self.own });
        }
        Ok(into_stream(stream))
    }
}

/// Dials a local socket, retrying until `deadline` while it has no listener.
///
/// Cancel safe: yes, because a half-open connection is dropped.
///
/// # Errors
/// The socket cannot be dialled, or its listener belongs to another user.
pub async fn connect(path: &Path, deadline: Instant) -> Result<LocalStream, ConnectError> {
    let stream = loop {
        let refused = |source| ConnectError::Refused { path: path.to_owned(), source };
        let name = socket_name(path).map_err(refused)?;
        let attempt = tokio::time::timeout_at(deadline, SocketStream::connect(name));
        match attempt.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(stream) => break stream,
            Err(error) if is_retryable(&error) && Instant::now() + RETRY_DELAY < deadline => {
                tokio::time::sleep(RETRY_DELAY).await;
            }
            Err(error) => return Err(refused(error)),
        }
    };
    let own = heeler_sys::process::effective_uid();
    match peer_euid(&stream) {
        Ok(euid) if euid == own => Ok(into_stream(stream)),
        Ok(euid) => Err(ConnectError::OtherUser { path: path.to_owned(), euid, own }),
        Err(source) => Err(ConnectError::Refused { path: path.to_owned(), source }),
    }
}

fn is_retryable(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotFound, WouldBlock};
    matches!(error.kind(), NotFound | ConnectionRefused | WouldBlock)
}

fn socket_name(path: &Path) -> io::Result<Name<'_>> {
    path.to_fs_name::<GenericFilePath>()
}

fn peer_euid(stream: &SocketStream) -> io::Result<u32> {
    stream.peer_creds()?.euid().ok_or_else(|| io::ErrorKind::Unsupported.into())
}

fn into_stream(stream: SocketStream) -> LocalStream {
    let SocketStream::UdSocket(stream) = stream;
    stream.into()
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn connection_of_other_user_is_closed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control");
        let mut listener = LocalListener::bind(&path).unwrap();
        let own = listener.own;
        // The comparison sees another user, without one being needed.
        listener.own = own + 1;
        let deadline = Instant::now() + Duration::from_secs(20);
        let (dialled, accepted) = tokio::join!(connect(&path, deadline), listener.accept());
        assert!(matches!(accepted, Err(AcceptError::OtherUser { euid, .. }) if euid == own));
        assert_eq!(dialled.unwrap().read(&mut [0; 8]).await.unwrap(), 0);
        listener.own = own;
        let (dialled, accepted) = tokio::join!(connect(&path, deadline), listener.accept());
        dialled.unwrap();
        accepted.unwrap();
    }
}
