//! A session on a stream with `Content-Length`: standard input and output, or a TCP connection.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use heeler_http::{STALL_LIMIT, StallLimited};
use heeler_protocol::{
    frame::{self, FrameDecoder, FrameError},
    mutation::BODY_LIMIT_BYTES,
};
use heeler_transport::{Inbox, LinkError, Outbox};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
    task::JoinSet,
    time::timeout,
};

use super::{
    MutationService, MutationSessionOptions,
    responder::{Reply, ReplyChannel, ResultDelivery},
    session::{INPUT_QUEUE, Session, SessionHost, SessionInput},
};

/// Time limit for a message's headers, which are a few dozen bytes and written at once. Between messages, and
/// in the middle of a body, a client has unlimited time.
const HEADERS_DEADLINE: Duration = Duration::from_secs(60);
/// Number of replies that wait for the connection.
pub(super) const REPLY_QUEUE: usize = 64;
/// Time limit for sending what is queued, at the end of the session.
const LAST_WORDS_LIMIT: Duration = Duration::from_secs(3);

/// Serves one client on a stream, until the stream ends or `stop` is over. Everything that the client started
/// has ended then.
///
/// Cancel safe: no, because operations of the service would be dropped instead of cancelled.
pub async fn serve_stream<S>(
    stream: S,
    service: Arc<dyn MutationService>,
    options: MutationSessionOptions,
    stop: impl Future<Output = ()>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    serve_framed(stream, SessionHost::new(service), options, stop).await;
}

/// Serves as [`serve_stream`] does, as one of several clients.
///
/// Cancel safe: no, as [`serve_stream`].
pub(super) async fn serve_framed<S>(
    stream: S,
    host: SessionHost,
    options: MutationSessionOptions,
    stop: impl Future<Output = ()>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let decoder = FrameDecoder::with_limit(BODY_LIMIT_BYTES);
    let (outbox, mut inbox, mut link) =
        heeler_transport::open(StallLimited::new(stream, STALL_LIMIT), decoder);
    inbox.limit_heads(HEADERS_DEADLINE);
    let (inputs, session_inputs) = mpsc::channel(INPUT_QUEUE);
    let (sender, replies) = mpsc::channel(REPLY_QUEUE);
    let channel = ReplyChannel { sender, delivery: ResultDelivery::Notifications, watchers: None };
    let mut session = JoinSet::new();
    session.spawn(Session::new(host, options).serve(session_inputs));
    let mut writing = JoinSet::new();
    writing.spawn(write_replies(replies, outbox.clone()));
    tokio::select! {
        () = read_bodies(&mut inbox, &inputs, channel.clone()) => {}
        _ = writing.join_next() => {}
        // It ends by itself where no first request arrives.
        _ = session.join_next() => {}
        () = stop => {}
    }
    drop((inputs, channel));
    while let Some(ended) = session.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "a session failed inside");
        }
    }
    let last_words = async {
        while writing.join_next().await.is_some() {}
        outbox.close();
        // The client may be gone before it has read everything.
        let _gone = link.join().await;
    };
    if timeout(LAST_WORDS_LIMIT, last_words).await.is_err() {
        tracing::debug!("a client did not read the end of its session");
    }
}

async fn read_bodies(
    inbox: &mut Inbox<FrameDecoder>,
    inputs: &mpsc::Sender<SessionInput>,
    channel: ReplyChannel,
) {
    loop {
        let body: Result<Option<Bytes>, LinkError<FrameError>> = inbox.next().await;
        match body {
            Ok(Some(body)) => {
                if inputs.send(SessionInput { body, channel: channel.clone() }).await.is_err() {
                    return;
                }
            }
            Ok(None) => return,
            Err(error) => {
                tracing::error!("a connection is closed: failed to {}", heeler_core::error_chain(&error));
                return;
            }
        }
    }
}

async fn write_replies(mut replies: mpsc::Receiver<Reply>, outbox: Outbox) {
    while let Some(reply) = replies.recv().await {
        let (Reply::Notification(body) | Reply::Response(body)) = reply else { continue };
        if outbox.send(frame::encode(&body)).await.is_err() {
            return;
        }
    }
}
