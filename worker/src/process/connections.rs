//! The worker's ends of the loopback connections made by a process or its descendants.

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    net::{Ipv4Addr, TcpListener as StdTcpListener},
    os::fd::AsFd as _,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use tokio::net::{TcpListener, TcpStream};

use super::output_pipe::{PipeRead, is_temporary};

/// Maximum number of connections per process. Further connections wait in the backlog.
const MAX_CONNECTIONS: usize = 8;

/// A listener and the connections made to it. Other users of the machine can connect too. Their input is as
/// untrusted as the program's, and can only break this process's dialogue.
pub(crate) struct ProcessConnections {
    listener: TcpListener,
    port: u16,
    /// Accepted while the worker was waiting, but not in `connections` yet. Never locked across an await.
    accepted: Mutex<VecDeque<TcpStream>>,
    connections: Vec<TestConnection>,
    /// Connection of the last reply that the worker answered. Requests that do not respond to a reply are
    /// sent there too.
    answered: usize,
}

struct TestConnection {
    /// `None` after the connection has ended.
    stream: Option<TcpStream>,
    unsent: Vec<u8>,
}

impl ProcessConnections {
    pub(crate) fn listen() -> io::Result<Self> {
        let listener = StdTcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, port, accepted: Mutex::default(), connections: Vec::new(), answered: 0 })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn count(&self) -> usize {
        self.connections.len()
    }

    /// Accepts a waiting connection. Returns whether there was one.
    pub(crate) fn try_accept(&mut self) -> bool {
        if self.connections.len() >= MAX_CONNECTIONS {
            return false;
        }
        // A no-op waker suffices, since the next wait registers its own.
        let _is_waiting = self.poll_accept(&mut Context::from_waker(Waker::noop()));
        let Some(stream) = self.lock_accepted().pop_front() else { return false };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "requests to a process may be delayed");
        }
        self.connections.push(TestConnection { stream: Some(stream), unsent: Vec::new() });
        true
    }

    fn lock_accepted(&self) -> MutexGuard<'_, VecDeque<TcpStream>> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts a connection into `accepted`, unless it already contains one.
    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut accepted = self.lock_accepted();
        if accepted.is_empty() {
            match self.listener.poll_accept(context) {
                Poll::Ready(Ok((stream, _))) => accepted.push_back(stream),
                Poll::Ready(Err(error)) => {
                    tracing::debug!(%error, "could not accept the connection of a process");
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(())
    }

    /// Reads the available bytes of a connection without blocking.
    pub(crate) fn try_read(&mut self, connection: usize, buffer: &mut [u8]) -> PipeRead {
        let Some(TestConnection { stream: slot, unsent }) = self.connections.get_mut(connection) else {
            return PipeRead::End;
        };
        let Some(stream) = slot else { return PipeRead::End };
        let read = stream.try_read(buffer);
        // Servers that send several small messages wait for this acknowledgement before sending the next.
        if let Err(error) = heeler_sys::io::acknowledge_at_once(stream.as_fd()) {
            tracing::debug!(%error, "could not set TCP_QUICKACK");
        }
        match read {
            Ok(count) if count > 0 => PipeRead::Bytes(count),
            Err(error) if is_temporary(&error) => PipeRead::WouldBlock,
            Ok(_) | Err(_) => {
                *slot = None;
                unsent.clear();
                PipeRead::End
            }
        }
    }

    /// Writes the answer to a reply without blocking, and buffers bytes that the process cannot receive yet.
    pub(crate) fn answer(&mut self, connection: usize, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.answered = connection;
        }
        self.send_on(connection, bytes);
    }

    /// Writes a request that does not respond to a reply, on the connection of the last answered reply.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.send_on(self.answered, bytes);
    }

    /// Writes without blocking, and buffers bytes that the process cannot receive yet.
    pub(crate) fn send_on(&mut self, connection: usize, bytes: &[u8]) {
        let Some(TestConnection { stream, unsent }) = self.connections.get_mut(connection) else { return };
        unsent.extend_from_slice(bytes);
        while let (Some(socket), false) = (stream.as_ref(), unsent.is_empty()) {
            match socket.try_write(unsent) {
                Ok(count) => drop(unsent.drain(..count)),
                Err(error) if is_temporary(&error) => return,
                // The process has closed its end, but data it sent before can still be read.
                Err(_) => unsent.clear(),
            }
        }
    }

    /// Writes unsent bytes on all connections.
    pub(crate) fn send_rest(&mut self) {
        for connection in 0..self.connections.len() {
            self.send_on(connection, &[]);
        }
    }

    /// Returns whether part of a request is still unsent.
    pub(crate) fn has_unsent(&self) -> bool {
        self.connections.iter().any(|one| !one.unsent.is_empty())
    }

    /// Returns the largest number of unread bytes on any connection.
    pub(crate) fn unread_bytes(&self) -> u64 {
        let streams = self.connections.iter().filter_map(|one| one.stream.as_ref());
        let unread = |stream: &TcpStream| heeler_sys::io::unread_bytes(stream.as_fd()).unwrap_or_default();
        streams.map(unread).max().unwrap_or_default()
    }

    /// Returns whether the process has made connections and closed all of them.
    pub(crate) fn are_closed(&self) -> bool {
        !self.connections.is_empty() && self.are_at_end()
    }

    /// Returns whether all connections were read to their ends.
    pub(crate) fn are_at_end(&self) -> bool {
        self.connections.iter().all(|one| one.stream.is_none())
    }

    /// Waits until there is a connection to accept, something to read, or room for unsent bytes.
    ///
    /// Cancel safe: yes, because it only waits for readiness.
    async fn wait_ready(&self) {
        poll_fn(|context| {
            let can_accept = self.connections.len() < MAX_CONNECTIONS;
            let mut is_ready = can_accept && self.poll_accept(context).is_ready();
            for one in &self.connections {
                let Some(stream) = &one.stream else { continue };
                is_ready |= stream.poll_read_ready(context).is_ready();
                is_ready |= !one.unsent.is_empty() && stream.poll_write_ready(context).is_ready();
            }
            if is_ready { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Waits like [`ProcessConnections::wait_ready`]. Waits forever if the process makes no connections.
///
/// Cancel safe: yes, because it only waits for readiness.
pub(crate) async fn wait_ready(connections: Option<&ProcessConnections>) {
    match connections {
        Some(connections) => connections.wait_ready().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::TcpStream,
    };

    use super::*;

    #[tokio::test]
    async fn request_larger_than_the_socket_arrives_completely() {
        let mut connections = ProcessConnections::listen().unwrap();
        let port = connections.port();
        let length = 8 << 20;
        let peer = std::thread::spawn(move || {
            let mut peer = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            let mut received = vec![0; length];
            peer.read_exact(&mut received).unwrap();
            peer.write_all(b"done").unwrap();
        });
        while !connections.try_accept() {
            connections.wait_ready().await;
        }
        connections.send_on(0, &vec![b'x'; length]);
        let mut buffer = [0; 16];
        loop {
            connections.wait_ready().await;
            connections.send_rest();
            if let PipeRead::Bytes(count) = connections.try_read(0, &mut buffer) {
                assert_eq!(&buffer[..count], b"done");
                break;
            }
        }
        peer.join().unwrap();
        connections.wait_ready().await;
        assert_eq!(connections.try_read(0, &mut buffer), PipeRead::End);
        assert!(connections.are_closed() && !connections.has_unsent());
    }

    #[tokio::test]
    async fn later_connection_is_accepted_beside_the_first() {
        let mut connections = ProcessConnections::listen().unwrap();
        assert!(!connections.try_accept() && !connections.are_closed());
        let peers: Vec<_> =
            (0..2).map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, connections.port())).unwrap()).collect();
        while connections.count() < 2 {
            connections.wait_ready().await;
            connections.try_accept();
        }
        connections.answer(1, b"to the second");
        connections.send(b", again");
        let mut buffer = [0; 20];
        (&peers[1]).read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"to the second, again");
    }
}
