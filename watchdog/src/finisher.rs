//! Sends the finish of a run: due updates, then the end of the attachments, then the completion. Each step
//! waits for the proof of the previous one. [`heeler_core::delivery::Delivery`] decides the order of the
//! steps and their route.

use std::{io, time::Duration};

use heeler_core::{
    delivery::{self, Delivery, DeliveryResult, DeliveryStep, StepResult},
    redial::{AfterConnection, ConnectionEnd, RedialState},
};
use heeler_protocol::control::{
    CallbackAddress, ClientId, ClientRoute, DeliveryLimits, FinishRequest, FromWatchdog, ProofLevel, RunKey,
};
use heeler_transport::{
    callback::{self, CallbackBroken, CallbackConnection, CallbackDialError, StreamHolders},
    control::ControlSender,
    tcp::DialError,
};
use tokio::time::{sleep, timeout};

use crate::finish_frames::{FrameRoute, FrameSender, RelayRoute, send_pending_updates};
use heeler_core::error_chain;

/// Number of times a client that refused or broke a connection is redialled, once per further finish. Reset
/// when a finish succeeds.
const MAX_REDIALS: u32 = 8;

/// Time limit for a client to answer when the coordinator is dead. Part of the time for the whole finish.
const ORPHANED_OPENING_LIMIT: Duration = Duration::from_secs(10);

/// The watchdog's connection to one client.
#[derive(Debug)]
pub(crate) struct RunFinisher {
    client: ClientId,
    relay: RelayRoute,
    control: ControlSender,
    /// Processes that complete the stream if this watchdog dies.
    holders: StreamHolders,
    limits: DeliveryLimits,
    /// The client's callback port, if it offered one.
    address: Option<CallbackAddress>,
    callback: CallbackState,
    /// Number of redials left after failures.
    redials: u32,
    step: Option<DeliveryStep>,
}

#[derive(Debug)]
enum CallbackState {
    /// Not dialled yet, or closed cleanly.
    Closed(CallbackAddress),
    Open(CallbackAddress, Box<CallbackConnection>),
    /// The client has no callback port, or frames sent to the port may have been lost. Every later frame goes
    /// over the coordinator's connection.
    Relayed,
}

impl CallbackState {
    fn connection(&self) -> delivery::FinisherConnection {
        match self {
            Self::Closed(_) => delivery::FinisherConnection::Closed,
            Self::Open(_, _) => delivery::FinisherConnection::Open,
            Self::Relayed => delivery::FinisherConnection::Relayed,
        }
    }
}

/// State of a finish that is being sent.
struct FinishProgress<'a> {
    finish: &'a FinishRequest,
    /// Best proof for the last frames sent on the watchdog's own connection.
    proof: ProofLevel,
    /// Why the watchdog's own connection became unusable.
    failure: Option<String>,
    /// How far the finish got on the watchdog's own connection.
    reached: ConnectionEnd,
    /// Number of initial frames that the client is proven to have.
    sent_frames: u64,
    soft_errors: Vec<String>,
}

impl RunFinisher {
    /// Creates a finisher that has not dialled the client yet.
    pub(crate) fn new(relay: RelayRoute, holders: StreamHolders, route: ClientRoute) -> Self {
        let ClientRoute { callback, limits, encoding: _, has_attachments_stream: _ } = route;
        Self {
            client: relay.client,
            control: relay.control.clone(),
            relay,
            holders,
            limits,
            address: callback.clone(),
            callback: callback.map_or(CallbackState::Relayed, CallbackState::Closed),
            redials: MAX_REDIALS,
            step: None,
        }
    }

    pub(crate) fn client(&self) -> ClientId {
        self.client
    }

    /// Returns whether the client can be reached without the coordinator.
    pub(crate) fn has_callback_route(&self) -> bool {
        self.address.is_some()
    }

    /// Returns the client action that the current step waits for, for a log line.
    pub(crate) fn awaited(&self) -> &'static str {
        match self.step {
            None | Some(DeliveryStep::Dial | DeliveryStep::GiveUp) => "accept a connection",
            Some(DeliveryStep::SendDue(_) | DeliveryStep::Announce) => "read the remaining results",
            Some(DeliveryStep::Prove) => "confirm the remaining results",
            Some(DeliveryStep::SendCompletion(_)) => "read the completion",
            Some(DeliveryStep::ProveCompletion) => "confirm the completion",
        }
    }

    /// Finishes a run and returns the report for the coordinator.
    ///
    /// Cancel safe: no, because only this call knows which frames were sent.
    pub(crate) async fn finish(&mut self, finish: &FinishRequest) -> FromWatchdog {
        heeler_sys::fail::pass("watchdog.finish");
        self.renew_callback();
        let has_pending = has_pending_updates(finish);
        let connection = match self.callback.connection() {
            _ if finish.is_relayed => delivery::FinisherConnection::Relayed,
            connection => connection,
        };
        let mut delivery = Delivery::new(connection, has_pending);
        let mut progress = FinishProgress {
            finish,
            // There is nothing to send, so no update can be missing.
            proof: if has_pending { ProofLevel::None } else { ProofLevel::Handled },
            failure: None,
            reached: ConnectionEnd::DueUnproven,
            sent_frames: finish.sent_frames.max(finish.relayed_frames),
            soft_errors: Vec::new(),
        };
        let delivered = self.deliver_or_redial(&mut delivery, &mut progress).await;
        if delivered == DeliveryResult::Directly || progress.reached == ConnectionEnd::CompletionUnproven {
            self.redials = MAX_REDIALS;
        }
        let proof = match delivered {
            DeliveryResult::Directly => progress.proof,
            DeliveryResult::Relayed => ProofLevel::Ordered,
            // Without the coordinator, the report has no receiver. The session's loop notices that the
            // coordinator is gone.
            DeliveryResult::Undelivered => ProofLevel::None,
        };
        let soft_errors = progress.soft_errors;
        FromWatchdog::Finished { run: finish.run.clone(), proof, soft_errors }
    }

    /// Switches back to the callback port for another finish, if the client closed the connection cleanly, if
    /// a failed connection may work now, or if the coordinator that relayed the updates instead is dead.
    fn renew_callback(&mut self) {
        let Some(address) = &self.address else { return };
        let is_only_route = self.control.is_closed();
        let may_redial = self.redials > 0 && !self.holders.shared_progress().answers().has_stopped();
        let is_renewed = match &self.callback {
            CallbackState::Closed(_) => false,
            CallbackState::Open(_, callback) => callback.break_reason().is_some(),
            CallbackState::Relayed => is_only_route || may_redial,
        };
        if is_renewed {
            self.redials = self.redials.saturating_sub(1);
            self.callback = CallbackState::Closed(address.clone());
        }
    }

    /// Delivers the end of a run. If the coordinator is dead and the client drops the connection, the client
    /// is redialled as long as its port is listening.
    async fn deliver_or_redial(
        &mut self,
        delivery: &mut Delivery,
        progress: &mut FinishProgress<'_>,
    ) -> DeliveryResult {
        let mut redial = RedialState::new(has_pending_updates(progress.finish));
        loop {
            let delivered = self.deliver(delivery, progress).await;
            let Some(address) = self.address.clone().filter(|_| self.control.is_closed()) else {
                return delivered;
            };
            if delivered != DeliveryResult::Undelivered {
                return delivered;
            }
            match redial.on_connection_end(progress.reached) {
                AfterConnection::Redial { pause, has_due } => {
                    sleep(pause).await;
                    self.callback = CallbackState::Closed(address);
                    *delivery = Delivery::new(self.callback.connection(), has_due);
                    delivery.lose_relay();
                }
                AfterConnection::GiveUp(reason) => {
                    let run = &progress.finish.run.id;
                    tracing::warn!(run, ?reason, "cannot reach the client to report the end of its run");
                    return delivered;
                }
                AfterConnection::Done => return DeliveryResult::Directly,
            }
        }
    }

    /// Carries out the steps of a delivery.
    async fn deliver(
        &mut self,
        delivery: &mut Delivery,
        progress: &mut FinishProgress<'_>,
    ) -> DeliveryResult {
        loop {
            match delivery.next_step() {
                Ok(order) => {
                    self.step = Some(order);
                    let went = self.run_step(order, progress).await;
                    progress.record_step(order, went);
                    if self.control.is_closed() {
                        delivery.lose_relay();
                    }
                    delivery.on_step_result(went);
                    // Keep the connection for the finishes of other runs, unless it failed.
                    let is_relayed = delivery.connection() == delivery::FinisherConnection::Relayed;
                    if is_relayed && !progress.finish.is_relayed {
                        self.callback = CallbackState::Relayed;
                    }
                    if order == DeliveryStep::GiveUp {
                        progress.record_fallback(delivery.next_step());
                    }
                }
                Err(delivered) => return delivered,
            }
        }
    }

    /// Closes the callback connection cleanly.
    ///
    /// Cancel safe: no, because cancelling drops the connection.
    pub(crate) async fn close(self) {
        if let CallbackState::Open(_, callback) = self.callback {
            let proof = callback.finish().await;
            tracing::debug!(%proof, "closed the callback connection");
        }
    }

    async fn run_step(&mut self, order: DeliveryStep, progress: &mut FinishProgress<'_>) -> StepResult {
        let is_well = match order {
            DeliveryStep::Dial => self.dial(progress).await,
            DeliveryStep::SendDue(way) => {
                let FinishProgress { finish, sent_frames, soft_errors, .. } = progress;
                let sent = match self.frame_route(way, &finish.run).await {
                    Ok(route) => {
                        let sent_here = if route.is_relay() { finish.relayed_frames } else { 0 };
                        let mut sender = FrameSender { route, count: 0, sent: *sent_frames, sent_here };
                        send_pending_updates(&mut sender, finish, soft_errors).await
                    }
                    Err(broken) => Err(broken),
                };
                heeler_sys::fail::pass("watchdog.due");
                progress.record_sent(sent)
            }
            DeliveryStep::Prove => self.prove(progress).await,
            DeliveryStep::ProveCompletion => self.prove_completion(progress).await,
            DeliveryStep::GiveUp => self.give_up_connection(progress).await,
            DeliveryStep::Announce => {
                let completing = FromWatchdog::Completing { run: progress.finish.run.clone() };
                // Once the kernel has the message, the coordinator reads it even if the watchdog is killed
                // now.
                let is_sent =
                    self.control.send(&completing).await.is_ok() && self.control.flush().await.is_ok();
                heeler_sys::fail::pass("watchdog.announced");
                is_sent
            }
            DeliveryStep::SendCompletion(way) => {
                let FinishRequest { run, route, run_dir, .. } = progress.finish;
                let completion = route.encoding.completion(&run.id);
                if way == delivery::DeliveryRoute::Direct && !self.may_complete_directly().await {
                    return StepResult::Failed;
                }
                let sent = match self.frame_route(way, run).await {
                    Ok(mut route) => route.send_completion(run_dir, completion).await,
                    Err(broken) => Err(broken),
                };
                heeler_sys::fail::pass("watchdog.completed");
                progress.record_sent(sent)
            }
        };
        if is_well { StepResult::Ok } else { StepResult::Failed }
    }

    /// Returns whether the completion may be sent on the watchdog's own connection. The client must answer
    /// the barrier that follows, so that the response cannot overtake the completion. If the coordinator is
    /// dead, no response is sent, and there is no other route.
    async fn may_complete_directly(&mut self) -> bool {
        match &mut self.callback {
            CallbackState::Open(_, callback) => {
                self.control.is_closed() || callback.answers_completion_barriers().await
            }
            CallbackState::Closed(_) | CallbackState::Relayed => false,
        }
    }

    async fn frame_route<'a>(
        &'a mut self,
        way: delivery::DeliveryRoute,
        run: &'a RunKey,
    ) -> Result<FrameRoute<'a>, CallbackBroken> {
        match (way, &mut self.callback) {
            (delivery::DeliveryRoute::Direct, CallbackState::Open(_, callback)) => {
                Ok(FrameRoute::Callback { callback, run: &run.id })
            }
            (delivery::DeliveryRoute::Direct | delivery::DeliveryRoute::Relay, _) => {
                self.relay.begin(run).await?;
                Ok(FrameRoute::Relay(&self.relay))
            }
        }
    }

    async fn dial(&mut self, progress: &mut FinishProgress<'_>) -> bool {
        let CallbackState::Closed(address) = std::mem::replace(&mut self.callback, CallbackState::Relayed)
        else {
            return false;
        };
        match callback::dial(&address, &self.limits, "watchdog", Some(&self.holders)).await {
            Ok(mut callback) => {
                let opened = self.open_updates(&mut callback, &progress.finish.run.id).await;
                if let Err(broken) = opened {
                    progress.add_soft_error(&error_chain(&broken), "the main connection was used instead");
                    progress.reached = ConnectionEnd::DueUnproven;
                    callback.give_up().await;
                    return false;
                }
                self.callback = CallbackState::Open(address, Box::new(callback));
                true
            }
            Err(error) => {
                progress.add_soft_error(&error_chain(&error), "the main connection was used instead");
                progress.reached = end_of_dial(&error);
                false
            }
        }
    }

    /// Asks the client to open a connection for updates. Without the coordinator, there is no other route. A
    /// client that does not answer for a while then gets the updates anyway.
    async fn open_updates(
        &mut self,
        callback: &mut CallbackConnection,
        run: &str,
    ) -> Result<(), CallbackBroken> {
        let opened = tokio::select! {
            biased;
            () = self.relay.closed() => None,
            opened = callback.open_updates(run) => Some(opened),
        };
        let opened = match opened {
            Some(opened) => opened,
            None => match timeout(ORPHANED_OPENING_LIMIT, callback.open_updates(run)).await {
                Ok(opened) => opened,
                Err(_elapsed) => Err(CallbackBroken::Unopened),
            },
        };
        if self.control.is_closed() && opened == Err(CallbackBroken::Unopened) {
            callback.send_unopened();
            return Ok(());
        }
        opened
    }

    async fn prove(&mut self, progress: &mut FinishProgress<'_>) -> bool {
        let CallbackState::Open(_, callback) = &mut self.callback else { return false };
        progress.proof = callback.prove().await;
        let below = progress.proof;
        if !below.is_enough() {
            progress.failure = Some("the client stopped handling updates".to_owned());
        }
        below.is_enough()
    }

    async fn prove_completion(&mut self, progress: &mut FinishProgress<'_>) -> bool {
        let is_orphaned = self.control.is_closed();
        let CallbackState::Open(_, callback) = &mut self.callback else { return false };
        if is_orphaned && callback.is_client_silent() {
            let is_proven = callback.prove_unanswered_end().await != ProofLevel::None;
            heeler_sys::fail::pass("watchdog.confirmed");
            return is_proven;
        }
        // Write nothing after a completion that is not acknowledged. If the client has read it and closes,
        // the write would reset the connection. The client would then be redialled and receive the completion
        // twice.
        if is_orphaned && callback.prove_delivery().await == ProofLevel::None {
            return false;
        }
        // A client that answers no requests cannot be asked whether it has handled the completion.
        let is_proven = callback.prove_completion().await != ProofLevel::None || is_orphaned;
        heeler_sys::fail::pass("watchdog.confirmed");
        if !is_proven {
            progress.failure = Some("the client did not confirm the completion".to_owned());
        }
        is_proven
    }

    /// Gives up the watchdog's own connection, after recording what the client has handled.
    async fn give_up_connection(&mut self, progress: &mut FinishProgress<'_>) -> bool {
        if let CallbackState::Open(address, mut callback) =
            std::mem::replace(&mut self.callback, CallbackState::Relayed)
        {
            let handled = callback.handled_position(&progress.finish.run.id);
            progress.sent_frames = progress.sent_frames.max(handled);
            if callback.is_all_handled() {
                // Only the completion is sent over another route.
                callback.finish().await;
            } else {
                callback.give_up().await;
            }
            self.callback = CallbackState::Closed(address);
        }
        true
    }
}

impl FinishProgress<'_> {
    /// Records how far the watchdog's own connection got.
    fn record_step(&mut self, step: DeliveryStep, went: StepResult) {
        if (step, went) == (DeliveryStep::Dial, StepResult::Ok) {
            self.reached = ConnectionEnd::DueUnproven;
        } else if (step, went) == (DeliveryStep::Prove, StepResult::Ok) && self.proof == ProofLevel::Handled {
            // Updates that only the client's kernel has may be lost with the connection, and are resent.
            self.reached = ConnectionEnd::CompletionUnproven;
        }
    }

    /// Records whether sending succeeded.
    fn record_sent(&mut self, sent: Result<(), CallbackBroken>) -> bool {
        self.failure = sent.as_ref().err().map(|broken| error_chain(broken));
        sent.is_ok()
    }

    /// Records how frames without proof on the watchdog's own connection were sent instead. `next`: the step
    /// after that connection was given up.
    fn record_fallback(&mut self, next: Result<DeliveryStep, DeliveryResult>) {
        let remedy = match next {
            Ok(DeliveryStep::SendDue(_)) => "unconfirmed updates were sent again over the main connection",
            Ok(_) | Err(_) => "the completion was sent over the main connection",
        };
        if let Some(failure) = self.failure.take() {
            self.add_soft_error(&failure, remedy);
        }
    }

    fn add_soft_error(&mut self, failure: &str, remedy: &str) {
        self.soft_errors.push(format!("the watchdog's callback connection failed: {failure}; {remedy}"));
    }
}

/// Returns the meaning of a failed dial. A port that another user listens on counts as refused.
fn end_of_dial(error: &CallbackDialError) -> ConnectionEnd {
    match error {
        CallbackDialError::TcpPort(DialError::Refused { source, .. }) => match source.kind() {
            io::ErrorKind::ConnectionRefused => ConnectionEnd::Refused,
            _ => ConnectionEnd::Unreached,
        },
        CallbackDialError::TcpPort(DialError::UntrustedPeer { .. }) => ConnectionEnd::Refused,
        CallbackDialError::TcpPort(DialError::Lookup { .. } | DialError::TimedOut { .. })
        | CallbackDialError::Introduce(_) => ConnectionEnd::Unreached,
    }
}

/// Returns whether anything must be sent before the completion.
fn has_pending_updates(finish: &FinishRequest) -> bool {
    !finish.resend.is_empty()
        || !finish.synthesized.is_empty()
        || !finish.program_failures.is_empty()
        || finish.has_attachments_stream
}
