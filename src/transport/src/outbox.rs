//! Sending end of a link: a queue of complete frames with a limit in bytes. The task in `writer` empties it.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex, MutexGuard},
};

use bytes::Bytes;
use tokio::sync::{Notify, Semaphore, watch};

/// Maximum number of bytes queued in one outbox. Large enough to keep sending while a reader pauses briefly,
/// and small enough that a thousand links to readers that never read fit into memory.
pub(crate) const QUEUE_LIMIT_BYTES: usize = 1 << 20;

/// Cost of a frame in addition to its bytes, which limits floods of tiny frames.
const FRAME_COST_BYTES: usize = 64;

/// The link accepts no more frames: it was closed, or a write failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("send over a closed connection")]
pub struct LinkClosed {
    /// Error of the failed write; `None` if this end closed the link.
    #[source]
    pub cause: Option<Arc<io::Error>>,
}

/// Why a frame was not queued immediately.
#[derive(Debug, Clone)]
pub enum TrySendError {
    /// The queue is full. Contains the rejected frame.
    Full(Bytes),
    Closed(LinkClosed),
}

/// Sending end of a link. Clones share one ordered queue. The link half-closes when the last clone is
/// dropped.
#[derive(Debug, Clone)]
pub struct Outbox {
    owner: Arc<OutboxOwner>,
}

/// Shared by all clones of an outbox. The writer owns only the inner part, so the queue closes when all
/// clones are gone.
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

    /// Queues one complete frame after all earlier ones; waits while `QUEUE_LIMIT_BYTES` are queued. A larger
    /// frame waits until the queue is empty, and is sent alone.
    ///
    /// Cancel safe: yes, because the frame is queued in one step after the wait; a cancelled call has sent
    /// nothing.
    ///
    /// # Errors
    /// The link is closed, or was closed during the wait. The peer may lack earlier frames.
    pub async fn send(&self, frame: Bytes) -> Result<(), LinkClosed> {
        self.send_marked(frame, None).await
    }

    /// Queues a frame like [`Self::send`], with a mark for the recorder of the link's writer.
    ///
    /// Cancel safe: yes, because [`Self::send`] is.
    ///
    /// # Errors
    /// Like [`Self::send`].
    pub(crate) async fn send_marked(&self, bytes: Bytes, mark: Option<Bytes>) -> Result<(), LinkClosed> {
        let shared = self.shared();
        let permit = shared.permits.acquire_many(frame_cost(&bytes)).await.map_err(|_| shared.closed())?;
        permit.forget();
        shared.push(QueuedFrame { bytes, mark })
    }

    /// Queues one complete frame if there is space now.
    ///
    /// # Errors
    /// [`TrySendError::Full`] returns the frame.
    pub fn try_send(&self, frame: Bytes) -> Result<(), TrySendError> {
        self.try_send_marked(frame, None)
    }

    /// Queues a frame like [`Self::try_send`], with a mark for the recorder of the link's writer.
    ///
    /// # Errors
    /// Like [`Self::try_send`].
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

    /// Waits until everything queued before this call has been handed to the kernel.
    ///
    /// Cancel safe: yes, because it only watches.
    ///
    /// # Errors
    /// A write has failed.
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

    /// Rejects further frames from any clone, lets the task write the queue, and then half-closes the stream.
    pub fn close(&self) {
        self.shared().close();
    }

    /// Returns the number of bytes handed to the kernel since the link was opened.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.shared().progress.borrow().written_bytes
    }

    /// Returns the number of queued bytes that have not been handed to the kernel.
    #[must_use]
    pub fn backlog_bytes(&self) -> u64 {
        let shared = self.shared();
        // Read the written count first: those bytes were queued before, so the difference cannot be negative.
        let written = shared.progress.borrow().written_bytes;
        shared.lock().queued_bytes - written
    }
}

#[derive(Debug)]
pub(crate) struct QueuedFrame {
    pub(crate) bytes: Bytes,
    /// Mark that the writer's recorder stores with the frame.
    pub(crate) mark: Option<Bytes>,
}

fn frame_cost(frame: &Bytes) -> u32 {
    let bytes = (frame.len() + FRAME_COST_BYTES).min(QUEUE_LIMIT_BYTES);
    u32::try_from(bytes).expect("the limit fits into 32 bits")
}

/// Progress of the writing task.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteProgress {
    /// Bytes handed to the kernel since the link was opened.
    pub(crate) written_bytes: u64,
    /// Set when nothing more will be written.
    pub(crate) end: Option<WriteEnd>,
}

/// How writing ended.
#[derive(Debug, Clone)]
pub(crate) enum WriteEnd {
    /// Everything is written, and the stream is half-closed.
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

    /// Moves all queued frames into the empty `batch`; `false` if the queue is empty and closed.
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

    /// Releases the queue capacity that the frame used.
    pub(crate) fn release(&self, frame: &Bytes) {
        self.permits.add_permits(frame_cost(frame) as usize);
    }

    /// Ends writing and wakes all waiting tasks. Later calls have no effect.
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
