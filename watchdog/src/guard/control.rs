//! The guard's connection to its worker: blocking, because the guard polls before it reads.

use std::{
    io::{Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use bytes::BytesMut;
use wire::{
    Decode,
    control::{FromGuard, ToGuard},
    packet::{self, Packet, Packets},
};

/// Size of a read. A command with a usual environment arrives in one read or two; a larger buffer would cost
/// every guard its pages.
const CHUNK_BYTES: usize = 4 << 10;

/// The worker is gone, or has sent a message that no worker sends: the guard has no client left to serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

pub(super) struct Control {
    stream: UnixStream,
    buffer: BytesMut,
}

impl Control {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { stream: UnixStream::from(socket), buffer: BytesMut::new() }
    }

    /// Reads the available bytes, and blocks if there are none. Afterwards [`Self::next`] returns the
    /// commands.
    pub(super) fn fill(&mut self) -> Result<(), Gone> {
        let mut chunk = [0; CHUNK_BYTES];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(Gone),
                Ok(count) => {
                    self.buffer.extend_from_slice(&chunk[..count]);
                    return Ok(());
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Gone),
            }
        }
    }

    /// Returns the next command that was read completely.
    pub(super) fn next(&mut self) -> Result<Option<ToGuard>, Gone> {
        match Packets.decode(&mut self.buffer) {
            Ok(None) => Ok(None),
            Ok(Some(Packet::Message(body))) => packet::read(&body).map(Some).map_err(|_| Gone),
            Ok(Some(Packet::Relay { .. })) | Err(_) => Err(Gone),
        }
    }

    pub(super) fn send(&mut self, message: &FromGuard) -> Result<(), Gone> {
        self.stream.write_all(&packet::message(message)).map_err(|_| Gone)
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
