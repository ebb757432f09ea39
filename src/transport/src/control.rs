//! Typed packets between Heeler's own processes, over any stream.

use std::time::Duration;

use bytes::Bytes;
use heeler_core::silence::{SilenceStep, SilenceWatch};
use heeler_protocol::{
    control::ClientId,
    packet::{self, ControlPacket, PacketDecoder, PacketError},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, timeout_at},
};

use crate::{Inbox, LinkClosed, LinkError, LinkTask, Outbox, writer::WriterOptions};

/// Opens a control connection on a stream; see [`crate::open`] for ownership of the task. Sends heartbeats
/// while nothing else is sent.
///
/// # Panics
/// Outside a tokio runtime.
pub fn open<S>(stream: S) -> (ControlSender, ControlReceiver, LinkTask)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    open_with(stream, WriterOptions { heartbeat: Some(packet::HEARTBEAT), ..WriterOptions::default() })
}

/// Opens a control connection without heartbeats, to a process that is monitored by other means.
///
/// # Panics
/// Outside a tokio runtime.
pub fn open_without_heartbeat<S>(stream: S) -> (ControlSender, ControlReceiver, LinkTask)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    open_with(stream, WriterOptions::default())
}

fn open_with<S>(stream: S, options: WriterOptions) -> (ControlSender, ControlReceiver, LinkTask)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (outbox, inbox, task) = crate::open_with(stream, PacketDecoder, options);
    let start = Instant::now();
    let silence = SilenceWatch::new(Duration::ZERO);
    (ControlSender { outbox }, ControlReceiver { inbox, start, silence }, task)
}

/// Sending end of a control connection. Clones share one ordered queue.
#[derive(Debug, Clone)]
pub struct ControlSender {
    outbox: Outbox,
}

impl ControlSender {
    /// Queues one message; waits while the queue is full.
    ///
    /// Cancel safe: yes, because a cancelled call has sent nothing.
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn send(&self, message: &impl Serialize) -> Result<(), LinkClosed> {
        // Encode before the wait: the message is often borrowed from shared data that others need.
        let frame = packet::encode_message(message);
        self.outbox.send(frame).await
    }

    /// Queues a complete frame for a client, to be forwarded unchanged. `position` is the number of terminal
    /// results of the run that the sender has sent, up to and including this frame.
    ///
    /// Cancel safe: yes, because a cancelled call has sent nothing.
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn forward(&self, client: ClientId, position: u64, frame: &[u8]) -> Result<(), LinkClosed> {
        self.outbox.send(packet::forward(client, position, frame)).await
    }

    /// Waits until everything queued before this call has been handed to the kernel.
    ///
    /// Cancel safe: yes, because it only watches.
    ///
    /// # Errors
    /// A write has failed.
    pub async fn flush(&self) -> Result<(), LinkClosed> {
        self.outbox.flush().await
    }

    /// Returns whether the connection accepts no more messages.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.outbox.is_closed()
    }

    /// Rejects further messages, writes the queue, and then half-closes the stream.
    pub fn close(&self) {
        self.outbox.close();
    }
}

/// Packet of a control connection with a decoded message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceivedPacket<T> {
    /// A control message.
    Message(T),
    /// A complete frame for a client.
    Forward {
        client: ClientId,
        /// Number of terminal results of the run that the sender has sent, up to and including this frame.
        position: u64,
        /// The frame with its headers.
        frame: Bytes,
    },
}

/// Fatal error of a control connection.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The underlying stream failed.
    #[error("read a control packet")]
    Link(#[source] LinkError<PacketError>),
    /// An intact packet has a message that this end does not know. Both ends are the same program, so this is
    /// a bug.
    #[error("read a control message {kind:?} of {length} bytes: {problem} at column {column}")]
    Message {
        /// Variant name at the start of the message, if there is one. The rest may contain any text, and is
        /// never quoted, unlike in the JSON parser's error.
        kind: String,
        /// Size of the message in bytes.
        length: usize,
        /// Description of the problem.
        problem: &'static str,
        /// Column of the problem, from 1.
        column: usize,
    },
}

/// Receiving end of a control connection.
#[derive(Debug)]
pub struct ControlReceiver {
    inbox: Inbox<PacketDecoder>,
    start: Instant,
    silence: SilenceWatch,
}

/// A packet of a control connection, or the silence of its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchedPacket<T> {
    Packet(ReceivedPacket<T>),
    /// Nothing has arrived for too long, not even a heartbeat, and the sender is stopped. The connection
    /// stays usable.
    Silence(SilenceStep),
}

impl ControlReceiver {
    /// Waits for the next packet; `None` at the end of the connection.
    ///
    /// Cancel safe: yes, because the bytes of a half-read packet stay in `self`.
    ///
    /// # Errors
    /// The stream is damaged or cut off, or the message is not a `T`.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<ReceivedPacket<T>>, ReceiveError> {
        loop {
            let Some(packet) = self.inbox.next().await.map_err(ReceiveError::Link)? else { return Ok(None) };
            if let Some(packet) = decode(packet)? {
                return Ok(Some(packet));
            }
        }
    }

    /// Waits for the next packet, or until a sender that `is_stopped` has been silent for too long; `None` at
    /// the end of the connection. After each return or cancellation, call it again without delay.
    ///
    /// Cancel safe: yes, because [`ControlReceiver::next`] is.
    ///
    /// # Errors
    /// Like [`ControlReceiver::next`].
    pub async fn next_or_silence<T: DeserializeOwned>(
        &mut self,
        is_stopped: impl Fn() -> bool,
    ) -> Result<Option<WatchedPacket<T>>, ReceiveError> {
        loop {
            let check_at = self.start + self.silence.check_at();
            match timeout_at(check_at, self.inbox.next()).await {
                Ok(packet) => {
                    self.silence.on_heard(self.start.elapsed());
                    let Some(packet) = packet.map_err(ReceiveError::Link)? else { return Ok(None) };
                    if let Some(packet) = decode(packet)? {
                        return Ok(Some(WatchedPacket::Packet(packet)));
                    }
                }
                Err(_elapsed) => {
                    if let Some(step) = self.silence.on_check(self.start.elapsed(), &is_stopped) {
                        return Ok(Some(WatchedPacket::Silence(step)));
                    }
                }
            }
        }
    }
}

/// Returns the variant name at the start of a message, if there is one.
fn message_kind(body: &[u8]) -> String {
    const MAX_CHARS: usize = 40;
    let name = body.iter().skip_while(|byte| matches!(byte, b'{' | b'"')).take(MAX_CHARS);
    name.take_while(|byte| byte.is_ascii_alphanumeric()).map(|byte| char::from(*byte)).collect()
}

/// Decodes a packet; `None` for a heartbeat.
fn decode<T: DeserializeOwned>(packet: ControlPacket) -> Result<Option<ReceivedPacket<T>>, ReceiveError> {
    match packet {
        ControlPacket::Heartbeat => Ok(None),
        ControlPacket::Forward { client, position, frame } => {
            Ok(Some(ReceivedPacket::Forward { client, position, frame }))
        }
        ControlPacket::Message(body) => match packet::decode_message(&body) {
            Ok(message) => Ok(Some(ReceivedPacket::Message(message))),
            Err(error) => {
                let problem = match error.classify() {
                    serde_json::error::Category::Data => "unexpected data",
                    serde_json::error::Category::Eof => "an unexpected end",
                    serde_json::error::Category::Syntax | serde_json::error::Category::Io => "no JSON",
                };
                let (kind, length) = (message_kind(&body), body.len());
                Err(ReceiveError::Message { kind, length, problem, column: error.column() })
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn unknown_message_is_described_without_its_text() {
        let secret = "password ".repeat(1000);
        for (body, kind, problem) in [
            (format!("{{\"Stop\":\"{secret}\"}}"), "Stop", "unexpected data"),
            (format!("\"{secret}\""), "password", "unexpected data"),
            ("[7,".to_owned(), "", "an unexpected end"),
            (format!("\u{1b}{secret}"), "", "no JSON"),
        ] {
            let length = body.len();
            let error = decode::<Vec<u32>>(ControlPacket::Message(Bytes::from(body))).unwrap_err();
            let text = error.to_string();
            let begin = format!("read a control message {kind:?} of {length} bytes: {problem} at column ");
            assert!(text.starts_with(&begin) && text.len() < begin.len() + 8, "{text}");
        }
    }
}
