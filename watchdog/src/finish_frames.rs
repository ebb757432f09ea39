//! Frames of a finish, in order, and their routes to the client.

use std::sync::Arc;

use bytes::Bytes;
use heeler_protocol::control::{ClientId, FinishRequest, FromWatchdog, OsText, RELAY_WINDOW, RunKey};
use heeler_recovery::finish::{self, ResentResults};
use heeler_transport::{
    callback::{CallbackBroken, CallbackConnection},
    control::ControlSender,
};
use tokio::sync::Semaphore;

use crate::journal_reader;

/// Route to the client through the coordinator.
#[derive(Debug, Clone)]
pub(crate) struct RelayRoute {
    pub(crate) client: ClientId,
    pub(crate) control: ControlSender,
    /// Number of frames that the coordinator still accepts before it confirms one. Closed when the
    /// coordinator is gone.
    window: Arc<Semaphore>,
}

impl RelayRoute {
    /// Creates the route to a client.
    pub(crate) fn new(control: ControlSender, client: ClientId) -> Self {
        Self { client, control, window: Arc::new(Semaphore::new(RELAY_WINDOW)) }
    }

    /// Records that the coordinator has handed one more frame to the client.
    pub(crate) fn confirm_frame(&self) {
        self.window.add_permits(1);
    }

    /// Closes the route because the coordinator is gone.
    pub(crate) fn close(&self) {
        self.window.close();
        self.control.close();
    }

    /// Waits until the route is closed.
    pub(crate) async fn closed(&self) {
        // More permits than can exist, so this waits until the window is closed.
        let _closed = self.window.acquire_many(u32::MAX).await;
    }

    /// Tells the coordinator which run the following frames belong to.
    pub(crate) async fn begin(&self, run: &RunKey) -> Result<(), CallbackBroken> {
        let relaying = FromWatchdog::Relaying { run: run.clone() };
        self.control.send(&relaying).await.map_err(|_| CallbackBroken::Closed)
    }

    /// Sends a frame. `position`: number of frames of the finish, including this one.
    async fn send(&self, position: u64, frame: &[u8]) -> Result<(), CallbackBroken> {
        self.window.acquire().await.map_err(|_| CallbackBroken::Closed)?.forget();
        self.control.forward(self.client, position, frame).await.map_err(|_| CallbackBroken::Closed)
    }
}

pub(crate) enum FrameRoute<'a> {
    Callback { callback: &'a mut CallbackConnection, run: &'a str },
    Relay(&'a RelayRoute),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameContent {
    /// Groups, which every connection needs.
    Groups,
    /// Results or attachments, which a client receives once.
    Results,
}

/// Sends the frames of a finish in order, except frames that the client already has from an earlier watchdog.
pub(crate) struct FrameSender<'a> {
    pub(crate) route: FrameRoute<'a>,
    pub(crate) count: u64,
    /// Number of frames that the client already has.
    pub(crate) sent: u64,
    /// Number of frames that the client already has on this connection.
    pub(crate) sent_here: u64,
}

impl FrameSender<'_> {
    async fn send(
        &mut self,
        frame: Bytes,
        changes: usize,
        content: FrameContent,
    ) -> Result<(), CallbackBroken> {
        self.count += 1;
        let sent = match content {
            FrameContent::Groups => self.sent_here,
            FrameContent::Results => self.sent,
        };
        if self.count <= sent {
            return Ok(());
        }
        match &mut self.route {
            FrameRoute::Callback { callback, run } => {
                callback.set_position(run, self.count);
                callback.send(run, frame, changes).await
            }
            FrameRoute::Relay(relay) => relay.send(self.count, &frame).await,
        }
    }
}

impl FrameRoute<'_> {
    pub(crate) async fn send_completion(
        &mut self,
        run_dir: &OsText,
        frame: Bytes,
    ) -> Result<(), CallbackBroken> {
        match self {
            Self::Callback { callback, run } => callback.send_completion(run, run_dir, frame).await,
            // No frame is counted after the completion.
            Self::Relay(relay) => relay.send(u64::MAX, &frame).await,
        }
    }

    pub(crate) fn is_relay(&self) -> bool {
        matches!(self, Self::Relay(_))
    }
}

/// Sends everything that precedes the completion. Damage of a journal is recorded only once, even if the
/// journal is read repeatedly.
pub(crate) async fn send_pending_updates(
    way: &mut FrameSender<'_>,
    finish: &FinishRequest,
    soft_errors: &mut Vec<String>,
) -> Result<(), CallbackBroken> {
    send_updates(way, finish, &finish::group_changes(finish), FrameContent::Groups).await?;
    for resend in &finish.resend {
        let journal = journal_reader::read_journal(&finish.run_dir, resend.worker).await;
        let ResentResults { changes, lost } = finish::resent_results(finish, resend, &journal);
        let worker = resend.worker;
        let lost = (lost > 0).then(|| {
            format!(
                "{lost} results of worker {worker} are missing from its journal and are sent again without details"
            )
        });
        for error in journal.damage().into_iter().chain(lost) {
            if !soft_errors.contains(&error) {
                soft_errors.push(error);
            }
        }
        send_updates(way, finish, &changes, FrameContent::Results).await?;
    }
    send_updates(way, finish, &finish::synthesized_changes(finish), FrameContent::Results).await?;
    for frame in finish::attachment_frames(finish) {
        way.send(frame, 0, FrameContent::Results).await?;
    }
    Ok(())
}

async fn send_updates(
    way: &mut FrameSender<'_>,
    finish: &FinishRequest,
    changes: &[Vec<u8>],
    content: FrameContent,
) -> Result<(), CallbackBroken> {
    for frame in finish::update_frames(finish.route.encoding, &finish.run.id, changes) {
        way.send(frame.bytes, frame.changes, content).await?;
    }
    Ok(())
}
