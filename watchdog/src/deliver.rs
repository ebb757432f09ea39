//! The finish of a run: what is still due, then the attachments' end, then the completion, each behind the other and
//! with proof.
//!
//! ```text
//! due ──► callback ──proof──► completion ──proof──► done
//!             │ refused, broken, unproven    │ unproven
//!             ▼                              ▼
//!          all again, relayed ─────────► completion, relayed ──► done (order is the proof)
//! ```
//!
//! The completion is sent only when all before it is proven: otherwise updates that are sent again by the other way
//! could come after it.

use bytes::Bytes;
use link::{
    callback::{self, Broken, Callback},
    control::ControlSender,
};
use wire::{
    control::{CallbackAddress, DeliveryLimits, Finish, FromWatchdog, Proof},
    mtp::{RawChange, attachments_frame, completion_frame, updates_frame},
};

use crate::{errors::chain, journals};

/// Updates of one frame; clients show progress by frames, and some bound their messages.
const FRAME_CHANGES: usize = 500;
const FRAME_BYTES: usize = 1 << 20;

/// The watchdog's way to the client.
#[derive(Debug)]
pub(crate) struct Deliverer {
    control: ControlSender,
    limits: DeliveryLimits,
    line: Line,
}

#[derive(Debug)]
enum Line {
    /// Not dialled yet, or closed in good order.
    Down(CallbackAddress),
    Up(CallbackAddress, Box<Callback>),
    /// No port was offered, or what was sent there may be lost: the coordinator's connection from now on.
    Relayed,
}

/// How far the callback connection came.
enum Direct {
    Done(Proof),
    /// All is proven but the completion.
    Due,
    /// Nothing is.
    Lost,
}

impl Deliverer {
    /// Returns a deliverer that has dialled nobody yet.
    pub(crate) fn new(
        control: ControlSender,
        callback: Option<CallbackAddress>,
        limits: DeliveryLimits,
    ) -> Self {
        Self { control, limits, line: callback.map_or(Line::Relayed, Line::Down) }
    }

    /// Returns whether the client can be reached without the coordinator.
    pub(crate) fn has_own_way(&self) -> bool {
        match self.line {
            Line::Down(_) | Line::Up(_, _) => true,
            Line::Relayed => false,
        }
    }

    /// Finishes a run and returns what is to be told of it.
    ///
    /// Cancel safe: no, because what was sent is known only to the call.
    pub(crate) async fn finish(&mut self, finish: &Finish) -> FromWatchdog {
        let mut soft_errors = Vec::new();
        let direct = self.finish_directly(finish, &mut soft_errors).await;
        let (proof, is_relayed) = match direct {
            Direct::Done(proof) => (proof, false),
            Direct::Due | Direct::Lost => {
                let mut way = Way::Relay { control: &self.control, position: 0 };
                let relayed = async {
                    if matches!(direct, Direct::Lost) {
                        send_due(&mut way, finish, &mut soft_errors).await?;
                    }
                    way.send(completion_frame(&finish.run), 0).await
                };
                // Without the coordinator there is nobody to tell; the session's loop sees its end.
                let proof = relayed.await.map_or(Proof::None, |()| Proof::Ordered);
                (proof, true)
            }
        };
        FromWatchdog::Finished { run: finish.run.clone(), proof, is_relayed, soft_errors }
    }

    /// Closes the callback connection in good order.
    ///
    /// Cancel safe: no, because the connection is given up with the call.
    pub(crate) async fn close(self) {
        if let Line::Up(_, callback) = self.line {
            let proof = callback.finish().await;
            tracing::debug!(%proof, "closed the callback connection");
        }
    }

    async fn finish_directly(&mut self, finish: &Finish, soft_errors: &mut Vec<String>) -> Direct {
        let Some((address, mut callback)) = self.dialled(soft_errors).await else { return Direct::Lost };
        let (stage, outcome) = converse(&mut callback, finish, soft_errors).await;
        let trouble = match outcome {
            Ok(Proof::Answered) => {
                self.line = Line::Up(address, callback);
                return Direct::Done(Proof::Answered);
            }
            Ok(below) => format!("the client did not answer the barrier, which proves only \"{below}\""),
            Err(broken) => chain(&broken),
        };
        // The second way to a proof: the client reads to our end, and closes.
        let proof = callback.finish().await;
        let (direct, remedy) = match (stage, proof.is_enough()) {
            (Stage::Completion, true) => {
                self.line = Line::Down(address);
                return Direct::Done(proof);
            }
            (Stage::Completion, false) => {
                (Direct::Due, "the completion was sent again over the main connection")
            }
            (Stage::Due, true) => (Direct::Due, "the completion was sent over the main connection"),
            (Stage::Due, false) => (Direct::Lost, "all of it was sent again over the main connection"),
        };
        soft_errors.push(format!("callback connection of the watchdog: {trouble}; {remedy}"));
        direct
    }

    /// Takes the callback connection out, dialling it if need be; it is put back when it has proven itself.
    async fn dialled(&mut self, soft_errors: &mut Vec<String>) -> Option<(CallbackAddress, Box<Callback>)> {
        match std::mem::replace(&mut self.line, Line::Relayed) {
            Line::Relayed => None,
            Line::Up(address, callback) => Some((address, callback)),
            Line::Down(address) => match callback::dial(&address, &self.limits, "watchdog").await {
                Ok(callback) => Some((address, Box::new(callback))),
                Err(error) => {
                    let error = chain(&error);
                    let remedy = "the main connection was used";
                    soft_errors.push(format!("callback connection of the watchdog: {error}; {remedy}"));
                    None
                }
            },
        }
    }
}

/// What was being proven when a callback connection failed.
#[derive(Debug, Clone, Copy)]
enum Stage {
    Due,
    Completion,
}

/// Whether anything stands before the completion.
fn has_due(finish: &Finish) -> bool {
    !finish.resend.is_empty() || !finish.told.is_empty() || finish.has_attachments_stream
}

/// Says all of a finish on the callback connection, and proves it.
async fn converse(
    callback: &mut Callback,
    finish: &Finish,
    soft_errors: &mut Vec<String>,
) -> (Stage, Result<Proof, Broken>) {
    if has_due(finish) {
        let sent = send_due(&mut Way::Callback(callback), finish, soft_errors).await;
        let proof = match sent {
            Ok(()) => callback.prove().await,
            Err(broken) => return (Stage::Due, Err(broken)),
        };
        if proof != Proof::Answered {
            return (Stage::Due, Ok(proof));
        }
    }
    if let Err(broken) = callback.send(completion_frame(&finish.run)).await {
        return (Stage::Completion, Err(broken));
    }
    (Stage::Completion, Ok(callback.prove().await))
}

/// Where frames go.
enum Way<'a> {
    Callback(&'a mut Callback),
    /// `position` counts the results so far.
    Relay {
        control: &'a ControlSender,
        position: u64,
    },
}

impl Way<'_> {
    async fn send(&mut self, frame: Bytes, results: usize) -> Result<(), Broken> {
        match self {
            Self::Callback(callback) => callback.send(frame).await,
            Self::Relay { control, position } => {
                *position += results as u64;
                control.relay(*position, &frame).await.map_err(|_| Broken::Closed)
            }
        }
    }
}

/// Sends all that stands before the completion. Damage of journals is noted once, however often it is met.
async fn send_due(way: &mut Way<'_>, finish: &Finish, soft_errors: &mut Vec<String>) -> Result<(), Broken> {
    let raw = |change: &RawChange| change.as_bytes().to_vec();
    send_updates(way, &finish.run, finish.groups.iter().map(raw)).await?;
    for resend in &finish.resend {
        let settled = journals::settled(&finish.run_dir, resend.worker).await;
        if let Some(damage) = settled.damage.filter(|damage| !soft_errors.contains(damage)) {
            soft_errors.push(damage);
        }
        let proven = usize::try_from(resend.proven).unwrap_or(usize::MAX);
        let changes = settled.results.into_iter().skip(proven).map(|(_, change)| change);
        send_updates(way, &finish.run, changes).await?;
    }
    send_updates(way, &finish.run, finish.told.iter().map(raw)).await?;
    if !finish.attachments.is_empty() && finish.has_attachments_stream {
        way.send(attachments_frame(&finish.run, Some(finish.attachments.clone())), 0).await?;
    }
    if finish.has_attachments_stream {
        way.send(attachments_frame(&finish.run, None), 0).await?;
    }
    Ok(())
}

async fn send_updates(
    way: &mut Way<'_>,
    run: &str,
    changes: impl Iterator<Item = Vec<u8>>,
) -> Result<(), Broken> {
    let mut frame: Vec<Vec<u8>> = Vec::new();
    let mut bytes = 0;
    for change in changes {
        if frame.len() == FRAME_CHANGES || (!frame.is_empty() && bytes + change.len() > FRAME_BYTES) {
            send_frame(way, run, &mut frame).await?;
            bytes = 0;
        }
        bytes += change.len();
        frame.push(change);
    }
    send_frame(way, run, &mut frame).await
}

async fn send_frame(way: &mut Way<'_>, run: &str, changes: &mut Vec<Vec<u8>>) -> Result<(), Broken> {
    if changes.is_empty() {
        return Ok(());
    }
    let frame = updates_frame(run, changes.iter().map(Vec::as_slice));
    way.send(frame, changes.len()).await?;
    changes.clear();
    Ok(())
}
