//! Output of tests that also goes to the worker's own standard streams while the tests run, in the order in
//! which it was read.

use tokio::io::AsyncWriteExt as _;

/// A standard stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StandardStream {
    Output,
    Error,
}

/// Bytes for the worker's own standard streams. Bounded by what one read returns, since a batch of updates is
/// handed over after each read, or grows while the client is slower than the tests.
#[derive(Debug, Default)]
pub(crate) struct ShownOutput {
    chunks: Vec<(StandardStream, Vec<u8>)>,
}

impl ShownOutput {
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Adds bytes behind those that were added before.
    pub(crate) fn push(&mut self, stream: StandardStream, bytes: &[u8]) {
        match self.chunks.last_mut() {
            _ if bytes.is_empty() => {}
            Some((last, chunk)) if *last == stream => chunk.extend_from_slice(bytes),
            Some(_) | None => self.chunks.push((stream, bytes.to_vec())),
        }
    }

    /// Adds other output behind this.
    pub(crate) fn append(&mut self, other: Self) {
        for (stream, bytes) in other.chunks {
            self.push(stream, &bytes);
        }
    }

    /// Writes everything. Errors are ignored: if a stream is closed, its owner does not want the output.
    ///
    /// Cancel safe: no, because an unknown part is written then.
    pub(crate) async fn write(&self) {
        for (stream, bytes) in &self.chunks {
            match stream {
                StandardStream::Output => write_all(&mut tokio::io::stdout(), bytes).await,
                StandardStream::Error => write_all(&mut tokio::io::stderr(), bytes).await,
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn text(&self) -> String {
        let chunk = |(stream, bytes): &(StandardStream, Vec<u8>)| {
            let mark = if *stream == StandardStream::Error { "!" } else { "" };
            format!("{mark}{}", String::from_utf8_lossy(bytes))
        };
        self.chunks.iter().map(chunk).collect()
    }
}

async fn write_all(stream: &mut (impl tokio::io::AsyncWrite + Unpin), bytes: &[u8]) {
    if stream.write_all(bytes).await.is_ok() {
        drop(stream.flush().await);
    }
}
