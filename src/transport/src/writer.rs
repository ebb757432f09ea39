//! The task that owns the write half of a stream. Nothing else writes, so no write is ever cancelled half-way
//! while the link is open.

use std::{collections::VecDeque, io, sync::Arc};

use bytes::Bytes;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    task::JoinSet,
};

use crate::outbox::{LinkClosed, Outbox, OutboxShared, QueuedFrame, WriteEnd};

/// Size up to which small frames are gathered into one write: a system call costs about as much as copying
/// this many bytes.
const GATHER_BYTES: usize = 64 << 10;

/// Task that writes for a link, owned by the caller that opened it.
///
/// Dropping it cuts the writing side at once: queued frames are lost and later sends fail.
#[derive(Debug)]
#[must_use = "dropping the task cuts the link"]
pub struct LinkTask {
    tasks: JoinSet<()>,
    shared: Arc<OutboxShared>,
}

impl LinkTask {
    /// Waits for the end of the writing: after [`Outbox::close`] or the last clone's drop, or after a failed
    /// write.
    ///
    /// Cancel safe: yes, because the task lives in `self`.
    ///
    /// # Errors
    /// A write failed, or the task was cut or panicked; what the peer has is not known.
    pub async fn join(&mut self) -> Result<(), LinkClosed> {
        while self.tasks.join_next().await.is_some() {}
        match self.shared.write_end() {
            Some(WriteEnd::Finished) => Ok(()),
            Some(WriteEnd::Failed(error)) => Err(LinkClosed { cause: Some(error) }),
            None => Err(LinkClosed { cause: None }),
        }
    }

    /// Stops writing at once and waits until the task has released the stream. Queued frames are lost.
    ///
    /// Cancel safe: yes, because the task is aborted before the wait.
    pub async fn cut(&mut self) {
        self.tasks.shutdown().await;
    }
}

/// Records each frame before its first byte is written, so that another process can complete a frame that this one
/// was killed in.
pub(crate) trait FrameRecorder: Send {
    /// Records the next frame, with the mark that it was queued with.
    fn record(&mut self, frame: &[u8], mark: Option<&[u8]>);
}

/// Starts the task that writes. With a recorder, each frame is recorded and written by itself.
pub(crate) fn start<W: AsyncWrite + Unpin + Send + 'static>(
    half: W,
    recorder: Option<Box<dyn FrameRecorder>>,
) -> (Outbox, LinkTask) {
    let shared = Arc::new(OutboxShared::new());
    let mut tasks = JoinSet::new();
    tasks.spawn(run(half, recorder, EndGuard(Arc::clone(&shared))));
    (Outbox::new(Arc::clone(&shared)), LinkTask { tasks, shared })
}

/// Ends the link also if the task is cut or panics, so that no sender waits forever.
struct EndGuard(Arc<OutboxShared>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.end_writing(WriteEnd::Failed(Arc::new(io::Error::new(
            io::ErrorKind::ConnectionAborted,
            "the writing task was stopped",
        ))));
    }
}

async fn run<W: AsyncWrite + Unpin>(mut half: W, recorder: Option<Box<dyn FrameRecorder>>, guard: EndGuard) {
    let shared = &guard.0;
    let written = match recorder {
        Some(mut recorder) => write_recorded(&mut half, shared, recorder.as_mut()).await,
        None => write_all(&mut half, shared).await,
    };
    let end = match written {
        Ok(()) => WriteEnd::Finished,
        Err(error) => WriteEnd::Failed(Arc::new(error)),
    };
    shared.end_writing(end);
}

async fn write_recorded<W: AsyncWrite + Unpin>(
    half: &mut W,
    shared: &OutboxShared,
    recorder: &mut dyn FrameRecorder,
) -> io::Result<()> {
    let mut batch = VecDeque::new();
    while shared.take_frames(&mut batch).await {
        for frame in batch.drain(..) {
            recorder.record(&frame.bytes, frame.mark.as_deref());
            write(half, shared, &frame.bytes).await?;
            shared.release(&frame.bytes);
        }
        half.flush().await?;
    }
    half.shutdown().await
}

async fn write_all<W: AsyncWrite + Unpin>(half: &mut W, shared: &OutboxShared) -> io::Result<()> {
    let mut batch = VecDeque::new();
    let mut gathered = Vec::with_capacity(GATHER_BYTES);
    let mut in_gathered = Vec::new();
    while shared.take_frames(&mut batch).await {
        while let Some(QueuedFrame { bytes: frame, mark: _ }) = batch.pop_front() {
            if !gathered.is_empty() && gathered.len() + frame.len() > GATHER_BYTES {
                write_gathered(half, shared, &mut gathered, &mut in_gathered).await?;
            }
            if frame.len() >= GATHER_BYTES {
                write(half, shared, &frame).await?;
                shared.release(&frame);
            } else {
                gathered.extend_from_slice(&frame);
                in_gathered.push(frame);
            }
        }
        write_gathered(half, shared, &mut gathered, &mut in_gathered).await?;
        half.flush().await?;
    }
    half.shutdown().await
}

async fn write_gathered<W: AsyncWrite + Unpin>(
    half: &mut W,
    shared: &OutboxShared,
    gathered: &mut Vec<u8>,
    frames: &mut Vec<Bytes>,
) -> io::Result<()> {
    write(half, shared, gathered).await?;
    gathered.clear();
    for frame in frames.drain(..) {
        shared.release(&frame);
    }
    Ok(())
}

/// Writes all of `bytes`, recording each piece as progress: a stalled peer is recognised by the lack of
/// progress.
async fn write<W: AsyncWrite + Unpin>(
    half: &mut W,
    shared: &OutboxShared,
    mut bytes: &[u8],
) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = half.write(bytes).await?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        shared.record_written(count);
        bytes = &bytes[count..];
    }
    Ok(())
}
