//! The guard's connection to its worker. Blocking, because the guard polls before it reads.

use std::{
    io::{Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use bytes::BytesMut;
use heeler_protocol::{
    StreamDecoder,
    control::{FromGuard, ToGuard},
    packet::{self, ControlPacket, PacketDecoder},
};

/// Size of one read. A command with a typical environment takes one or two reads. A larger buffer would cost
/// every guard memory.
const CHUNK_BYTES: usize = 4 << 10;

/// The worker is gone or broke the protocol, so no process needs this guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkerGone;

pub(super) struct GuardSocket {
    stream: UnixStream,
    buffer: BytesMut,
}

impl GuardSocket {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { stream: UnixStream::from(socket), buffer: BytesMut::new() }
    }

    /// Reads the available bytes, and blocks if there are none. Call [`Self::next_command`] afterwards.
    pub(super) fn fill(&mut self) -> Result<(), WorkerGone> {
        let mut chunk = [0; CHUNK_BYTES];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(WorkerGone),
                Ok(count) => {
                    self.buffer.extend_from_slice(&chunk[..count]);
                    return Ok(());
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return Err(WorkerGone),
            }
        }
    }

    pub(super) fn next_command(&mut self) -> Result<Option<ToGuard>, WorkerGone> {
        match PacketDecoder.decode(&mut self.buffer) {
            Ok(None) => Ok(None),
            Ok(Some(ControlPacket::Message(body))) => {
                packet::decode_message(&body).map(Some).map_err(|_| WorkerGone)
            }
            Ok(Some(ControlPacket::Forward { .. } | ControlPacket::Heartbeat)) | Err(_) => Err(WorkerGone),
        }
    }

    pub(super) fn send(&mut self, message: &FromGuard) -> Result<(), WorkerGone> {
        self.stream.write_all(&packet::encode_message(message)).map_err(|_| WorkerGone)
    }
}

impl AsFd for GuardSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
