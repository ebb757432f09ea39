//! Test output that is also written to the worker's own standard streams, in the order of the reads.

use tokio::io::AsyncWriteExt as _;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StandardStream {
    Output,
    Error,
}

/// Bytes for the worker's own standard streams. Updates are handed over after each read, so this contains the
/// bytes of one read, or more while the client is slower than the tests.
#[derive(Debug, Default)]
pub(crate) struct ShownOutput {
    chunks: Vec<(StandardStream, Vec<u8>)>,
}

impl ShownOutput {
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub(crate) fn push(&mut self, stream: StandardStream, bytes: &[u8]) {
        match self.chunks.last_mut() {
            _ if bytes.is_empty() => {}
            Some((last, chunk)) if *last == stream => chunk.extend_from_slice(bytes),
            Some(_) | None => self.chunks.push((stream, bytes.to_vec())),
        }
    }

    pub(crate) fn append(&mut self, other: Self) {
        for (stream, bytes) in other.chunks {
            self.push(stream, &bytes);
        }
    }

    /// Writes all output. Ignores errors: if a stream is closed, its owner does not want the output.
    ///
    /// Cancel safe: no, because part of the output may already be written.
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
