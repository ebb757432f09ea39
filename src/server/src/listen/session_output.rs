//! Frames that a session sends to its client. Because of the queue in front of the connection, the session
//! continues while the client does not read.

use std::collections::VecDeque;

use bytes::Bytes;
use heeler_transport::{LinkTask, Outbox, TrySendError};

use super::StallWatch;

/// The frames for a client, in order.
#[derive(Debug)]
pub struct SessionOutput {
    outbox: Outbox,
    link: LinkTask,
    /// Frames that wait for room on the connection.
    unsent: VecDeque<Bytes>,
}

impl SessionOutput {
    pub(crate) fn new(outbox: Outbox, link: LinkTask) -> Self {
        Self { outbox, link, unsent: VecDeque::new() }
    }

    /// Returns the connection, for senders other than the session.
    pub(crate) fn outbox(&self) -> Outbox {
        self.outbox.clone()
    }

    /// Sends a frame at once, or queues it behind frames that are already waiting.
    pub fn send(&mut self, frame: Bytes) {
        if !self.unsent.is_empty() {
            return self.unsent.push_back(frame);
        }
        match self.outbox.try_send(frame) {
            // The session's reader detects a client that is gone.
            Ok(()) | Err(TrySendError::Closed(_)) => {}
            Err(TrySendError::Full(frame)) => self.unsent.push_back(frame),
        }
    }

    /// Queues a frame to be sent by [`SessionOutput::send_first`].
    pub(crate) fn queue(&mut self, frame: Bytes) {
        self.unsent.push_back(frame);
    }

    /// Returns the number of queued frames.
    pub(crate) fn unsent(&self) -> usize {
        self.unsent.len()
    }

    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Drops queued frames, because nothing more can be sent.
    pub(crate) fn clear(&mut self) {
        self.unsent.clear();
    }

    /// Sends the first queued frame, which stays queued until the link has accepted it. Returns whether the
    /// connection is open.
    ///
    /// Cancel safe: yes, because the frame is removed only after it is sent.
    pub(crate) async fn send_first(&mut self) -> bool {
        let Some(frame) = self.unsent.front().cloned() else { return true };
        let is_open = self.outbox.send(frame).await.is_ok();
        self.unsent.pop_front();
        is_open
    }

    /// Returns whether the client has read nothing for the limit of `watch`. Must be called at each check.
    pub(crate) fn is_stalled(&self, watch: &mut StallWatch) -> bool {
        watch.is_stalled(&self.outbox, self.has_unsent())
    }

    /// Returns whether nothing more can be sent to the client.
    pub(crate) fn is_closed(&self) -> bool {
        self.outbox.is_closed()
    }

    /// Sends queued frames and closes the connection. Returns whether everything was sent before the client
    /// left.
    ///
    /// Cancel safe: yes, because dropping the connection closes it as well.
    pub(crate) async fn finish(mut self) -> bool {
        while self.has_unsent() && self.send_first().await {}
        self.outbox.close();
        self.link.join().await.is_ok()
    }
}
