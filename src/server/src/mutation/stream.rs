//! A session on a stream with `Content-Length`: standard input and output, or a TCP connection.

use std::time::Duration;

use heeler_http::STALL_LIMIT;
use heeler_protocol::{
    frame::{self, FrameDecoder},
    mutation::BODY_LIMIT_BYTES,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
    task::JoinSet,
};

use super::{
    MutationServer,
    responder::{Reply, ReplyChannel, ResultDelivery},
    session::{INPUT_QUEUE, Session, SessionInput},
};
use crate::listen::{LinkEvent, LinkLimits, SessionCommand, SessionEnd, SessionLink};

/// Time limit for receiving a message's headers.
const HEADERS_DEADLINE: Duration = Duration::from_secs(60);
/// Number of replies queued for the connection.
pub(super) const REPLY_QUEUE: usize = 64;
/// Time limit for sending queued replies at the end of the session.
const LAST_WORDS_LIMIT: Duration = Duration::from_secs(3);

/// Serves one client on a stream until the stream or the owner ends the session. Everything that the client
/// started has ended when this returns.
///
/// Cancel safe: no, because operations of the service would be dropped instead of cancelled.
pub(super) async fn serve_framed<S>(
    stream: S,
    server: MutationServer,
    commands: mpsc::Receiver<SessionCommand>,
) -> SessionEnd
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // `Session` limits the time until the first request, also for WebSocket clients.
    let limits =
        LinkLimits { head: Some(HEADERS_DEADLINE), stall: Some(STALL_LIMIT), ..LinkLimits::default() };
    let mut link = SessionLink::open(stream, FrameDecoder::with_limit(BODY_LIMIT_BYTES), commands, limits);
    let (inputs, session_inputs) = mpsc::channel(INPUT_QUEUE);
    let (sender, mut replies) = mpsc::channel(REPLY_QUEUE);
    let channel = ReplyChannel { sender, delivery: ResultDelivery::Notifications, watchers: None };
    let mut session = JoinSet::new();
    session.spawn(Session::new(server).serve(session_inputs));
    let end = loop {
        let has_room = inputs.capacity() > 0;
        tokio::select! {
            event = link.next_event(has_room) => match event {
                LinkEvent::Message(body) => {
                    // The queue has room; if the session has ended, that is detected below.
                    let _ended = inputs.try_send(SessionInput { body, channel: channel.clone() });
                }
                LinkEvent::Sent | LinkEvent::Command(SessionCommand::Resume | SessionCommand::Pause(_)) => {}
                LinkEvent::Command(SessionCommand::Exit)
                | LinkEvent::InputEnded
                | LinkEvent::Unwritable
                | LinkEvent::EndTimedOut => break SessionEnd::Exit,
                LinkEvent::Unreadable(error) => {
                    let error = heeler_core::error_chain(&error);
                    tracing::error!("connection closed: failed to {error}");
                    break SessionEnd::Exit;
                }
                LinkEvent::Over(end) => break end,
            },
            Ok(_permit) = inputs.reserve(), if !has_room => {}
            Some(reply) = replies.recv(), if !link.output.has_unsent() => send(&mut link, reply),
            // The session ends by itself if no first request arrives.
            _ = session.join_next() => break SessionEnd::Disconnected,
        }
    };
    // Dropping these cancels the client's operations. The answers to them are still sent.
    drop((inputs, channel));
    while let Some(reply) = replies.recv().await {
        send(&mut link, reply);
    }
    while let Some(ended) = session.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "internal error in a session");
        }
    }
    link.finish(LAST_WORDS_LIMIT).await;
    end
}

fn send(link: &mut SessionLink<FrameDecoder>, reply: Reply) {
    if let Reply::Notification(body) | Reply::Response(body) = reply {
        link.output.send(frame::encode(&body));
    }
}
