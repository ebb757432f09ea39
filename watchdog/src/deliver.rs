//! Sends the finish of a run: the due updates, then the end of the attachments, then the completion. Each
//! step begins only when the one before it is proven. The order of the steps and their route are decided by
//! [`model::finish::Delivery`].

use bytes::Bytes;
use link::{
    callback::{self, Broken, Callback},
    control::ControlSender,
};
use model::finish::{self, Delivered, Delivery, Order, Went};
use wire::{
    control::{CallbackAddress, DeliveryLimits, Finish, FromWatchdog, Proof},
    mtp::{RawChange, attachments_frame, completion_frame, updates_frame},
};

use crate::{errors::chain, journals};

/// Maximum number of updates in a frame. Clients show progress frame by frame, and some bound their messages.
const FRAME_CHANGES: usize = 500;
const FRAME_BYTES: usize = 1 << 20;

/// The watchdog's connection to the client.
#[derive(Debug)]
pub(crate) struct Deliverer {
    control: ControlSender,
    limits: DeliveryLimits,
    line: Line,
}

#[derive(Debug)]
enum Line {
    /// Not dialled yet, or closed cleanly.
    Down(CallbackAddress),
    Up(CallbackAddress, Box<Callback>),
    /// Without a callback port, or after frames sent there may have been lost: every later frame goes through
    /// the coordinator's connection.
    Relayed,
}

impl Line {
    fn kind(&self) -> finish::Line {
        match self {
            Self::Down(_) => finish::Line::Down,
            Self::Up(_, _) => finish::Line::Up,
            Self::Relayed => finish::Line::Relayed,
        }
    }
}

/// State of a finish that is being sent.
struct Conversation<'a> {
    finish: &'a Finish,
    /// The best proof for the last frames sent on the watchdog's own connection.
    proof: Proof,
    /// The error that made the watchdog's own connection unusable.
    trouble: Option<String>,
    /// Results relayed so far.
    relayed: u64,
    soft_errors: Vec<String>,
}

impl Deliverer {
    /// Returns a deliverer that has not dialled the client yet.
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

    /// Closes the route through the coordinator, which is gone.
    pub(crate) fn lose_relay(&mut self) {
        self.control.close();
    }

    /// Finishes a run and returns the report for the coordinator.
    ///
    /// Cancel safe: no, because only this call knows which frames were sent.
    pub(crate) async fn finish(&mut self, finish: &Finish) -> FromWatchdog {
        host::fail::pass("watchdog.finish");
        let mut delivery = Delivery::new(self.line.kind(), has_due(finish));
        let mut conversation =
            Conversation { finish, proof: Proof::None, trouble: None, relayed: 0, soft_errors: Vec::new() };
        let delivered = loop {
            match delivery.order() {
                Ok(order) => {
                    let went = self.obey(order, &mut conversation).await;
                    if self.control.is_closed() {
                        delivery.lose_relay();
                    }
                    delivery.went(went);
                    if delivery.line() == finish::Line::Relayed {
                        self.line = Line::Relayed;
                    }
                    if order == Order::Close {
                        conversation.note_remedy(delivery.order());
                    }
                }
                Err(delivered) => break delivered,
            }
        };
        let (proof, is_relayed) = match delivered {
            Delivered::Directly => (conversation.proof, false),
            Delivered::Relayed => (Proof::Ordered, true),
            // Without the coordinator the report has no receiver; the session's loop sees that the
            // coordinator is gone.
            Delivered::Nowhere => (Proof::None, true),
        };
        let soft_errors = conversation.soft_errors;
        FromWatchdog::Finished { run: finish.run.clone(), proof, is_relayed, soft_errors }
    }

    /// Closes the callback connection cleanly.
    ///
    /// Cancel safe: no, because cancelling the call drops the connection.
    pub(crate) async fn close(self) {
        if let Line::Up(_, callback) = self.line {
            let proof = callback.finish().await;
            tracing::debug!(%proof, "closed the callback connection");
        }
    }

    async fn obey(&mut self, order: Order, conversation: &mut Conversation<'_>) -> Went {
        let is_well = match order {
            Order::Dial => self.dial(conversation).await,
            Order::SendDue(way) => {
                let Conversation { finish, relayed, soft_errors, .. } = conversation;
                let sent = send_due(&mut self.way(way, relayed), finish, soft_errors).await;
                host::fail::pass("watchdog.due");
                conversation.note(sent)
            }
            Order::Prove => self.prove(conversation).await,
            Order::Close => self.give_up(conversation).await,
            Order::Announce => {
                let completing = FromWatchdog::Completing { run: conversation.finish.run.clone() };
                // Once the kernel has the message, the coordinator reads it even if the watchdog is killed
                // now.
                let is_told =
                    self.control.send(&completing).await.is_ok() && self.control.flush().await.is_ok();
                host::fail::pass("watchdog.announced");
                is_told
            }
            Order::SendCompletion(way) => {
                let completion = completion_frame(&conversation.finish.run);
                let sent = self.way(way, &mut conversation.relayed).send(completion, 0).await;
                host::fail::pass("watchdog.completed");
                conversation.note(sent)
            }
        };
        if is_well { Went::Well } else { Went::Badly }
    }

    fn way<'a>(&'a mut self, way: finish::Way, position: &'a mut u64) -> Way<'a> {
        match (way, &mut self.line) {
            (finish::Way::Own, Line::Up(_, callback)) => Way::Callback(callback),
            (finish::Way::Own | finish::Way::Relay, _) => Way::Relay { control: &self.control, position },
        }
    }

    async fn dial(&mut self, conversation: &mut Conversation<'_>) -> bool {
        let Line::Down(address) = std::mem::replace(&mut self.line, Line::Relayed) else { return false };
        match callback::dial(&address, &self.limits, "watchdog").await {
            Ok(callback) => {
                self.line = Line::Up(address, Box::new(callback));
                true
            }
            Err(error) => {
                conversation.complain(&chain(&error), "the main connection was used");
                false
            }
        }
    }

    async fn prove(&mut self, conversation: &mut Conversation<'_>) -> bool {
        let Line::Up(_, callback) = &mut self.line else { return false };
        conversation.proof = callback.prove().await;
        let below = conversation.proof;
        if below != Proof::Answered {
            conversation.trouble =
                Some(format!("the client did not answer the barrier, which proves only \"{below}\""));
        }
        below == Proof::Answered
    }

    /// Tries the second kind of proof: the client reads to the end of the stream and closes.
    async fn give_up(&mut self, conversation: &mut Conversation<'_>) -> bool {
        let Line::Up(address, callback) = std::mem::replace(&mut self.line, Line::Relayed) else {
            return false;
        };
        conversation.proof = callback.finish().await;
        self.line = Line::Down(address);
        conversation.proof.is_enough()
    }
}

impl Conversation<'_> {
    /// Records the result of sending.
    fn note(&mut self, sent: Result<(), Broken>) -> bool {
        self.trouble = sent.as_ref().err().map(|broken| chain(broken));
        sent.is_ok()
    }

    /// Records how frames that the watchdog's own connection could not prove were sent instead; `next` is the
    /// step that follows its end.
    fn note_remedy(&mut self, next: Result<Order, Delivered>) {
        let remedy = match next {
            Ok(Order::SendDue(_)) => "all of it was sent again over the main connection",
            Ok(_) if self.proof.is_enough() => "the completion was sent over the main connection",
            Ok(_) => "the completion was sent again over the main connection",
            // The client's close was proof enough.
            Err(_) => return,
        };
        if let Some(trouble) = self.trouble.take() {
            self.complain(&trouble, remedy);
        }
    }

    fn complain(&mut self, trouble: &str, remedy: &str) {
        self.soft_errors.push(format!("callback connection of the watchdog: {trouble}; {remedy}"));
    }
}

/// Returns whether anything must be sent before the completion.
fn has_due(finish: &Finish) -> bool {
    !finish.resend.is_empty() || !finish.told.is_empty() || finish.has_attachments_stream
}

/// Destination of frames.
enum Way<'a> {
    Callback(&'a mut Callback),
    /// `position` counts the results sent so far.
    Relay {
        control: &'a ControlSender,
        position: &'a mut u64,
    },
}

impl Way<'_> {
    async fn send(&mut self, frame: Bytes, results: usize) -> Result<(), Broken> {
        match self {
            Self::Callback(callback) => callback.send(frame).await,
            Self::Relay { control, position } => {
                **position += results as u64;
                control.relay(**position, &frame).await.map_err(|_| Broken::Closed)
            }
        }
    }
}

/// Sends everything that precedes the completion. Damage of a journal is recorded once, however often the
/// journal is read.
async fn send_due(way: &mut Way<'_>, finish: &Finish, soft_errors: &mut Vec<String>) -> Result<(), Broken> {
    let raw = |change: &RawChange| change.as_bytes().to_vec();
    send_updates(way, &finish.run, finish.groups.iter().map(raw)).await?;
    for resend in &finish.resend {
        let settled = journals::settled(&finish.run_dir, resend.worker).await;
        if let Some(damage) = settled.damage.filter(|damage| !soft_errors.contains(damage)) {
            soft_errors.push(damage);
        }
        let journalled = settled.results.len();
        let proven = usize::try_from(resend.proven).unwrap_or(usize::MAX);
        let changes = settled.results.into_iter().skip(proven).map(|(_, change)| change);
        send_updates(way, &finish.run, changes).await?;
        let lost = resend.behind(journalled).count();
        if lost > 0 {
            let worker = resend.worker;
            let text = format!(
                "{lost} results of worker {worker} are in no journal and are told again without their details"
            );
            if !soft_errors.contains(&text) {
                soft_errors.push(text);
            }
            send_updates(way, &finish.run, resend.behind(journalled).map(raw)).await?;
        }
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
