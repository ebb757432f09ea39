//! A session on a WebSocket connection. Each message is a text frame.

use std::time::Duration;

use heeler_http::{
    PendingWebSocket, WebSocketEnd, WebSocketError, WebSocketInput, WebSocketReceiver, WebSocketSender,
};
use heeler_transport::accept::StopSignal;
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};

use super::{
    MutationServer,
    responder::{Reply, ReplyChannel, ResultDelivery},
    session::{INPUT_QUEUE, Session, SessionInput},
    stream::REPLY_QUEUE,
};

/// Time between two pings.
const PING_INTERVAL: Duration = Duration::from_secs(15);
/// A client that sends no frame for this long has left three pings unanswered, and counts as gone.
const SILENCE_LIMIT: Duration = Duration::from_secs(50);
/// Time limit for the opening handshake, and for closing the connection.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// Serves a client until its connection ends or the server stops. Everything that the client started has
/// ended when this returns.
///
/// Cancel safe: no, because operations of the service would be dropped instead of cancelled.
pub(super) async fn serve_websocket(
    pending: PendingWebSocket,
    server: MutationServer,
    mut stopped: StopSignal,
) {
    let (sender, mut receiver) = match timeout(HANDSHAKE_LIMIT, pending.open()).await {
        Ok(Ok(halves)) => halves,
        Ok(Err(error)) => {
            tracing::debug!(error = heeler_core::error_chain(&error), "WebSocket handshake failed");
            return;
        }
        Err(_) => return,
    };
    // The session, and a task that writes its replies.
    let (inputs, session_inputs) = mpsc::channel(INPUT_QUEUE);
    let (replies, reply_receiver) = mpsc::channel(REPLY_QUEUE);
    let channel = ReplyChannel { sender: replies, delivery: ResultDelivery::Notifications, watchers: None };
    let mut session = JoinSet::new();
    session.spawn(Session::new(server).serve(session_inputs));
    let mut writing = JoinSet::new();
    let (end_sender, end) = mpsc::channel(1);
    writing.spawn(write_messages(reply_receiver, sender, end));
    let reason = tokio::select! {
        reason = read_messages(&mut receiver, &inputs, channel.clone()) => reason,
        _ = writing.join_next() => None,
        // The session ends by itself if no first request arrives.
        _ = session.join_next() => Some(WebSocketEnd::Refused),
        () = stopped.stopped() => Some(WebSocketEnd::GoingAway),
    };
    // Dropping these cancels the client's operations. The answers to them are still sent.
    drop((inputs, channel));
    match reason {
        // Do not wait for the writes: the client is gone.
        None => writing.shutdown().await,
        Some(reason) => {
            let (Ok(()) | Err(_)) = end_sender.try_send(reason);
        }
    }
    while let Some(ended) = session.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "internal error in a session");
        }
    }
    if timeout(HANDSHAKE_LIMIT, async { while writing.join_next().await.is_some() {} }).await.is_err() {
        tracing::debug!("a WebSocket client did not read the last messages of its session");
    }
}

/// Reads until the connection ends. Returns the reason to send when closing it, if any.
async fn read_messages(
    receiver: &mut WebSocketReceiver,
    inputs: &mpsc::Sender<SessionInput>,
    channel: ReplyChannel,
) -> Option<WebSocketEnd> {
    loop {
        match timeout(SILENCE_LIMIT, receiver.next()).await {
            Ok(Ok(Some(WebSocketInput::Text(body)))) => {
                if inputs.send(SessionInput { body, channel: channel.clone() }).await.is_err() {
                    return Some(WebSocketEnd::Refused);
                }
            }
            Ok(Ok(Some(WebSocketInput::Control))) => {}
            Ok(Ok(None)) => return None,
            Ok(Err(error)) => {
                tracing::debug!(error = heeler_core::error_chain(&error), "WebSocket connection closed");
                return match error {
                    WebSocketError::NotText => Some(WebSocketEnd::NotText),
                    WebSocketError::TooLong => Some(WebSocketEnd::TooLong),
                    WebSocketError::Upgrade(_) | WebSocketError::Broken(_) => None,
                };
            }
            Err(_) => {
                tracing::warn!(
                    "WebSocket connection closed: no message from the client for {} s",
                    SILENCE_LIMIT.as_secs()
                );
                return None;
            }
        }
    }
}

enum WriteEvent {
    Reply(Option<Reply>),
    Ping,
}

/// Writes until all replies are sent, then closes the connection.
async fn write_messages(
    mut replies: mpsc::Receiver<Reply>,
    mut sender: WebSocketSender,
    mut end: mpsc::Receiver<WebSocketEnd>,
) {
    let mut ping = interval(PING_INTERVAL);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let event = tokio::select! {
            reply = replies.recv() => WriteEvent::Reply(reply),
            _ = ping.tick() => WriteEvent::Ping,
        };
        let sent = match event {
            WriteEvent::Reply(Some(Reply::Notification(body) | Reply::Response(body))) => {
                sender.send(body).await
            }
            WriteEvent::Reply(Some(Reply::Started)) => Ok(()),
            WriteEvent::Reply(None) => break,
            WriteEvent::Ping => sender.ping().await,
        };
        if sent.is_err() {
            return;
        }
    }
    let reason = end.try_recv().unwrap_or(WebSocketEnd::GoingAway);
    // The client may be gone.
    let (Ok(()) | Err(_)) = sender.close(reason).await;
}
