//! Task that owns the write half of a stream. No other code writes, so no write is cancelled midway while the
//! link is open.

use std::{collections::VecDeque, io, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    task::JoinSet,
    time::timeout,
};

use crate::outbox::{LinkClosed, Outbox, OutboxShared, QueuedFrame, WriteEnd};

/// Maximum size of small frames combined into one write. A system call costs about as much as copying this
/// many bytes.
const GATHER_BYTES: usize = 64 << 10;

/// Task that writes for a link, owned by the caller that opened the link.
///
/// Dropping the task cuts the writing side immediately: queued frames are lost, and later sends fail.
#[derive(Debug)]
#[must_use = "dropping the task cuts the link"]
pub struct LinkTask {
    tasks: JoinSet<()>,
    shared: Arc<OutboxShared>,
}

impl LinkTask {
    /// Waits for the end of writing: after [`Outbox::close`], after the last clone is dropped, or after a
    /// failed write.
    ///
    /// Cancel safe: yes, because the task lives in `self`.
    ///
    /// # Errors
    /// A write failed, or the task was cut or panicked. The peer may lack queued frames.
    pub async fn join(&mut self) -> Result<(), LinkClosed> {
        while self.tasks.join_next().await.is_some() {}
        match self.shared.write_end() {
            Some(WriteEnd::Finished) => Ok(()),
            Some(WriteEnd::Failed(error)) => Err(LinkClosed { cause: Some(error) }),
            None => Err(LinkClosed { cause: None }),
        }
    }

    /// Stops writing immediately, and waits until the task has released the stream. Queued frames are lost.
    ///
    /// Cancel safe: yes, because the task is aborted before the wait.
    pub async fn cut(&mut self) {
        self.tasks.shutdown().await;
    }
}

/// Records each piece before its first byte is written. If this process is killed within a piece, another
/// process can complete the piece. A piece is one frame, or several small ones.
pub(crate) trait FrameRecorder: Send {
    /// Records the next piece with the last mark that a frame of the piece carries. Marks are opaque data of
    /// the sender.
    fn record(&mut self, piece: &[u8], mark: Option<&[u8]>);
}

/// Optional features of a writing task.
#[derive(Default)]
pub(crate) struct WriterOptions {
    /// Recorder of the pieces.
    pub(crate) recorder: Option<Box<dyn FrameRecorder>>,
    /// Heartbeat written after [`HEARTBEAT_INTERVAL`] without other writes.
    pub(crate) heartbeat: Option<&'static [u8]>,
}

/// Interval of heartbeats: several fit into the silence limit.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(3);

/// Starts the writing task.
pub(crate) fn start<W: AsyncWrite + Unpin + Send + 'static>(
    half: W,
    options: WriterOptions,
) -> (Outbox, LinkTask) {
    let shared = Arc::new(OutboxShared::new());
    let mut tasks = JoinSet::new();
    tasks.spawn(run(half, options, EndGuard(Arc::clone(&shared))));
    (Outbox::new(Arc::clone(&shared)), LinkTask { tasks, shared })
}

/// Ends the link even if the task is cut or panics; otherwise senders would wait forever.
struct EndGuard(Arc<OutboxShared>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.end_writing(WriteEnd::Failed(Arc::new(io::Error::new(
            io::ErrorKind::ConnectionAborted,
            "the writing task was stopped",
        ))));
    }
}

async fn run<W: AsyncWrite + Unpin>(half: W, options: WriterOptions, guard: EndGuard) {
    let shared = &guard.0;
    let writer =
        FrameWriter { half, shared, options, gathered: Vec::with_capacity(GATHER_BYTES), frames: Vec::new() };
    let end = match writer.write_all().await {
        Ok(()) => WriteEnd::Finished,
        Err(error) => WriteEnd::Failed(Arc::new(error)),
    };
    shared.end_writing(end);
}

struct FrameWriter<'a, W> {
    half: W,
    shared: &'a OutboxShared,
    options: WriterOptions,
    /// Small frames to be written together.
    gathered: Vec<u8>,
    /// The frames in `gathered`.
    frames: Vec<QueuedFrame>,
}

impl<W: AsyncWrite + Unpin> FrameWriter<'_, W> {
    async fn write_all(mut self) -> io::Result<()> {
        let mut batch = VecDeque::new();
        while self.next_frames(&mut batch).await? {
            while let Some(frame) = batch.pop_front() {
                if !self.gathered.is_empty() && self.gathered.len() + frame.bytes.len() > GATHER_BYTES {
                    self.write_gathered().await?;
                }
                if frame.bytes.len() >= GATHER_BYTES {
                    self.write(&frame.bytes, frame.mark.as_deref()).await?;
                    self.shared.release(&frame.bytes);
                } else {
                    self.gathered.extend_from_slice(&frame.bytes);
                    self.frames.push(frame);
                }
            }
            self.write_gathered().await?;
        }
        self.half.shutdown().await
    }

    /// Takes all queued frames; `false` if the queue is empty and closed. Writes heartbeats while it waits.
    async fn next_frames(&mut self, batch: &mut VecDeque<QueuedFrame>) -> io::Result<bool> {
        let Some(heartbeat) = self.options.heartbeat else { return Ok(self.shared.take_frames(batch).await) };
        loop {
            if let Ok(has_frames) = timeout(HEARTBEAT_INTERVAL, self.shared.take_frames(batch)).await {
                return Ok(has_frames);
            }
            // A heartbeat is not counted as progress, because it was not queued.
            self.half.write_all(heartbeat).await?;
            self.half.flush().await?;
        }
    }

    async fn write_gathered(&mut self) -> io::Result<()> {
        let gathered = std::mem::take(&mut self.gathered);
        let mark = self.frames.iter().rev().find_map(|frame| frame.mark.clone());
        self.write(&gathered, mark.as_deref()).await?;
        self.gathered = gathered;
        self.gathered.clear();
        for frame in self.frames.drain(..) {
            self.shared.release(&frame.bytes);
        }
        Ok(())
    }

    /// Writes all of `bytes`. Counts each part that the kernel accepts as progress, so a stalled peer shows
    /// as a lack of progress.
    async fn write(&mut self, mut bytes: &[u8], mark: Option<&[u8]>) -> io::Result<()> {
        if let Some(recorder) = self.options.recorder.as_mut().filter(|_| !bytes.is_empty()) {
            recorder.record(bytes, mark);
        }
        while !bytes.is_empty() {
            let count = self.half.write(bytes).await?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            // Buffered writers such as standard output accept bytes before the kernel does.
            self.half.flush().await?;
            self.shared.record_written(count);
            bytes = &bytes[count..];
        }
        Ok(())
    }
}
