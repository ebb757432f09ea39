//! Sending end of a link: a queue of finished frames, bounded by bytes. The task that empties it is in
//! `writer`.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex, MutexGuard},
};

use bytes::Bytes;
use tokio::sync::{Notify, Semaphore, watch};

/// Maximum number of bytes queued in one outbox: enough that a reader that pauses for a moment does not stop
/// the sender, and little enough that a thousand links of readers that never read fit into memory.
pub(crate) const QUEUE_LIMIT_BYTES: usize = 1 << 20;

/// Cost of a frame beside its bytes, so that a flood of tiny frames is bounded too.
const FRAME_COST_BYTES: usize = 64;

/// The link accepts no more frames: it was closed, or a write failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("send over a closed connection")]
pub struct LinkClosed {
    /// Error of the write that failed; `None` if this end closed the link.
    #[source]
    pub cause: Option<Arc<io::Error>>,
}

/// Reason why a frame was not queued immediately.
#[derive(Debug, Clone)]
pub enum TrySendError {
    /// The queue is full; returns the frame.
    Full(Bytes),
    /// The link is closed.
    Closed(LinkClosed),
}

/// Sending end of a link. Clones share one queue and one order; the link half-closes when the last one is
/// dropped.
#[derive(Debug, Clone)]
pub struct Outbox {
    owner: Arc<OutboxOwner>,
}

/// Shared by all clones of one outbox. The writer holds only the inner part, so it sees when all clones are
/// gone.
#[derive(Debug)]
struct OutboxOwner {
    shared: Arc<OutboxShared>,
}

impl Drop for OutboxOwner {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Outbox {
    pub(crate) fn new(shared: Arc<OutboxShared>) -> Self {
        Self { owner: Arc::new(OutboxOwner { shared }) }
    }

    fn shared(&self) -> &OutboxShared {
        &self.owner.shared
    }

    /// Queues one finished frame after all that were queued before, waiting while `QUEUE_LIMIT_BYTES` are
    /// queued. A single larger frame waits until the queue is empty and is then sent by itself.
    ///
    /// Cancel safe: yes, because the frame is queued in one step after the wait; a cancelled call has sent
    /// nothing.
    ///
    /// # Errors
    /// The link is closed, or was while this call waited. It is unknown which earlier frames the peer has.
    pub async fn send(&self, frame: Bytes) -> Result<(), LinkClosed> {
        self.send_marked(frame, None).await
    }

    /// Queues a frame as [`Self::send`] does, with a mark for the recorder of the link's writer.
    ///
    /// Cancel safe: yes, as [`Self::send`].
    ///
    /// # Errors
    /// As [`Self::send`].
    pub(crate) async fn send_marked(&self, bytes: Bytes, mark: Option<Bytes>) -> Result<(), LinkClosed> {
        let shared = self.shared();
        let permit = shared.permits.acquire_many(frame_cost(&bytes)).await.map_err(|_| shared.closed())?;
        permit.forget();
        shared.push(QueuedFrame { bytes, mark })
    }

    /// Queues one finished frame if there is space now.
    ///
    /// # Errors
    /// [`TrySendError::Full`] returns the frame.
    pub fn try_send(&self, frame: Bytes) -> Result<(), TrySendError> {
        self.try_send_marked(frame, None)
    }

    /// Queues a frame as [`Self::try_send`] does, with a mark for the recorder of the link's writer.
    ///
    /// # Errors
    /// As [`Self::try_send`].
    pub(crate) fn try_send_marked(&self, bytes: Bytes, mark: Option<Bytes>) -> Result<(), TrySendError> {
        let shared = self.shared();
        match shared.permits.try_acquire_many(frame_cost(&bytes)) {
            Ok(permit) => {
                permit.forget();
                shared.push(QueuedFrame { bytes, mark }).map_err(TrySendError::Closed)
            }
            Err(tokio::sync::TryAcquireError::NoPermits) => Err(TrySendError::Full(bytes)),
            Err(tokio::sync::TryAcquireError::Closed) => Err(TrySendError::Closed(shared.closed())),
        }
    }

    /// Waits until everything queued before this call is handed to the kernel.
    ///
    /// Cancel safe: yes, because it only watches.
    ///
    /// # Errors
    /// A write failed before.
    pub async fn flush(&self) -> Result<(), LinkClosed> {
        let shared = self.shared();
        let target = shared.lock().queued_bytes;
        let mut progress = shared.progress.subscribe();
        let seen = progress.wait_for(|now| now.written_bytes >= target || now.end.is_some()).await;
        match seen {
            Ok(now) if now.written_bytes >= target => Ok(()),
            _ => Err(shared.closed()),
        }
    }

    /// Returns whether the link accepts no more frames.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared().permits.is_closed()
    }

    /// Refuses further frames from any clone, lets the task write what is queued, and then half-closes the
    /// stream.
    pub fn close(&self) {
        self.shared().close();
    }

    /// Returns the number of bytes handed to the kernel since the link was opened.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.shared().progress.borrow().written_bytes
    }

    /// Returns the number of bytes queued and not yet handed to the kernel.
    #[must_use]
    pub fn backlog_bytes(&self) -> u64 {
        let shared = self.shared();
        // The written count is read first: those bytes were queued before, so the difference never goes below
        // zero.
        let written = shared.progress.borrow().written_bytes;
        shared.lock().queued_bytes - written
    }
}

/// A frame in the queue.
#[derive(Debug)]
pub(crate) struct QueuedFrame {
    pub(crate) bytes: Bytes,
    /// What the recorder of the writer keeps with the frame.
    pub(crate) mark: Option<Bytes>,
}

fn frame_cost(frame: &Bytes) -> u32 {
    let bytes = (frame.len() + FRAME_COST_BYTES).min(QUEUE_LIMIT_BYTES);
    u32::try_from(bytes).expect("the limit fits into 32 bits")
}

/// Progress of the writing task.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteProgress {
    /// Number of bytes handed to the kernel since the link was opened.
    pub(crate) written_bytes: u64,
    /// Set once nothing more will be written.
    pub(crate) end: Option<WriteEnd>,
}

/// End of the writing.
#[derive(Debug, Clone)]
pub(crate) enum WriteEnd {
    /// Everything is written and the stream is half-closed.
    Finished,
    /// A write failed.
    Failed(Arc<io::Error>),
}

/// State shared by the outboxes and the writer.
#[derive(Debug)]
pub(crate) struct OutboxShared {
    queue: Mutex<FrameQueue>,
    permits: Semaphore,
    wake: Notify,
    progress: watch::Sender<WriteProgress>,
}

#[derive(Debug, Default)]
struct FrameQueue {
    frames: VecDeque<QueuedFrame>,
    /// Number of bytes ever queued.
    queued_bytes: u64,
    is_closing: bool,
}

impl OutboxShared {
    pub(crate) fn new() -> Self {
        Self {
            queue: Mutex::default(),
            permits: Semaphore::new(QUEUE_LIMIT_BYTES),
            wake: Notify::new(),
            progress: watch::Sender::new(WriteProgress::default()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, FrameQueue> {
        self.queue.lock().expect("nothing panics while it holds the queue")
    }

    fn closed(&self) -> LinkClosed {
        let cause = match &self.progress.borrow().end {
            Some(WriteEnd::Failed(error)) => Some(Arc::clone(error)),
            Some(WriteEnd::Finished) | None => None,
        };
        LinkClosed { cause }
    }

    fn push(&self, frame: QueuedFrame) -> Result<(), LinkClosed> {
        let mut queue = self.lock();
        if queue.is_closing {
            drop(queue);
            return Err(self.closed());
        }
        queue.queued_bytes += frame.bytes.len() as u64;
        queue.frames.push_back(frame);
        drop(queue);
        self.wake.notify_one();
        Ok(())
    }

    fn close(&self) {
        self.lock().is_closing = true;
        self.permits.close();
        self.wake.notify_one();
    }

    /// Takes all queued frames into the empty `batch`; `false` if there are none and none will follow.
    pub(crate) async fn take_frames(&self, batch: &mut VecDeque<QueuedFrame>) -> bool {
        loop {
            let is_closing = {
                let mut queue = self.lock();
                std::mem::swap(&mut queue.frames, batch);
                queue.is_closing
            };
            if !batch.is_empty() {
                return true;
            }
            if is_closing {
                return false;
            }
            self.wake.notified().await;
        }
    }

    /// Counts bytes as handed to the kernel.
    pub(crate) fn record_written(&self, bytes: usize) {
        self.progress.send_modify(|progress| progress.written_bytes += bytes as u64);
    }

    /// Returns the frame's cost to the queue's capacity.
    pub(crate) fn release(&self, frame: &Bytes) {
        self.permits.add_permits(frame_cost(frame) as usize);
    }

    /// Ends the writing; the first end counts. Wakes all waiting tasks.
    pub(crate) fn end_writing(&self, end: WriteEnd) {
        {
            let mut queue = self.lock();
            queue.is_closing = true;
            queue.frames.clear();
        }
        self.progress.send_modify(|progress| {
            progress.end.get_or_insert(end);
        });
        self.permits.close();
    }

    pub(crate) fn write_end(&self) -> Option<WriteEnd> {
        self.progress.borrow().end.clone()
    }
}
