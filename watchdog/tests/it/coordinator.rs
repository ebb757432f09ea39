//! The coordinator's end of a watchdog's connection, played by the test.

use std::{future::Future, path::PathBuf};

use bytes::Bytes;
use heeler_protocol::control::{
    CallbackAddress, ClientRoute, DeliveryLimits, FromWatchdog, JoinMessage, ToWatchdog,
};
use heeler_sys::{
    dirs::{SocketDir, socket_dir},
    process::own_program_path,
    spawn::{ChildStdio, SpawnOptions, SpawnedChild, spawn},
};
use heeler_transport::{
    LinkTask,
    control::{ControlReceiver, ControlSender, ReceivedPacket},
    local::LocalListener,
};
use tokio::time::timeout;

use crate::support::{HeldPipe, WAIT_LIMIT};

/// Limits that are long enough for a client on a busy machine.
const LIMITS: DeliveryLimits = DeliveryLimits {
    connect_ms: 10_000,
    stall_ms: 10_000,
    drain_ms: 10_000,
    answer_ms: 10_000,
    first_answer_ms: 10_000,
};

/// Environment variable with the role of the test worker that a watchdog starts. See `sessions::worker`.
pub(crate) const WORKER_ROLE: &str = "HEELER_TEST_WORKER";

pub(crate) struct TestCoordinator {
    pub(crate) watchdog: SpawnedChild,
    /// Standard error of the watchdog and its descendants.
    pub(crate) stderr: HeldPipe,
    pub(crate) control: ControlSender,
    receiver: ControlReceiver,
    writer: LinkTask,
    listener: LocalListener,
    directory: SocketDir,
    /// Route to the client of all runs.
    pub(crate) route: ClientRoute,
    /// Number of completions announced before the watchdog sent them on its own connection.
    pub(crate) announced: usize,
}

/// Runs an asynchronous test on the main thread.
pub(crate) fn run_async(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(WAIT_LIMIT * 3, test).await.unwrap() });
}

impl TestCoordinator {
    /// Starts a watchdog whose workers play the role `worker`.
    pub(crate) async fn start(worker: &str, callback: Option<CallbackAddress>) -> Self {
        Self::start_with(worker, callback, LIMITS).await
    }

    /// Starts a watchdog with short limits, for a client that exceeds all of them.
    pub(crate) async fn start_impatient(callback: Option<CallbackAddress>) -> Self {
        Self::start_with("exit", callback, DeliveryLimits { drain_ms: 300, first_answer_ms: 300, ..LIMITS })
            .await
    }

    async fn start_with(worker: &str, callback: Option<CallbackAddress>, limits: DeliveryLimits) -> Self {
        let directory = socket_dir().unwrap();
        let path = directory.path().join("control");
        let mut listener = LocalListener::bind(&path).unwrap();
        let (feet, stderr) = HeldPipe::new();
        let mut env: Vec<_> = std::env::vars_os().collect();
        env.push((WORKER_ROLE.into(), worker.into()));
        let watchdog = spawn(SpawnOptions {
            args: vec!["__watchdog".into(), path.into()],
            env: Some(env),
            stdout: ChildStdio::Null,
            stderr: ChildStdio::Fd(stderr),
            ..SpawnOptions::new(own_program_path())
        })
        .unwrap();
        let stream = timeout(WAIT_LIMIT, listener.accept()).await.unwrap().unwrap();
        let (control, mut receiver, writer) = heeler_transport::control::open(stream);
        let joined = receiver.next::<JoinMessage>().await.unwrap();
        let join = JoinMessage::Watchdog { pid: watchdog.pid().as_u32() };
        assert_eq!(joined, Some(ReceivedPacket::Message(join)));
        let route = ClientRoute { callback, limits, ..ClientRoute::default() };
        Self { watchdog, stderr: feet, control, receiver, writer, listener, directory, route, announced: 0 }
    }

    /// Sends a message. A finish gets the client's route.
    pub(crate) async fn send(&self, mut message: ToWatchdog) {
        if let ToWatchdog::Finish(finish) = &mut message {
            finish.route = self.route.clone();
        }
        self.control.send(&message).await.unwrap();
    }

    /// Returns the next message, skipping announcements of relayed frames. Announcements of completions are
    /// skipped too, but counted.
    pub(crate) async fn next(&mut self) -> ReceivedPacket<FromWatchdog> {
        loop {
            let next = timeout(WAIT_LIMIT, self.receiver.next()).await.expect("the watchdog is silent");
            match next.unwrap().expect("the watchdog has left") {
                ReceivedPacket::Message(FromWatchdog::Completing { .. }) => self.announced += 1,
                ReceivedPacket::Message(FromWatchdog::Relaying { .. }) => {}
                other => return other,
            }
        }
    }

    pub(crate) async fn next_message(&mut self) -> FromWatchdog {
        match self.next().await {
            ReceivedPacket::Message(message) => message,
            ReceivedPacket::Forward { .. } => panic!("a relayed frame instead of a message"),
        }
    }

    /// Returns the relayed frames with their positions, confirming each, and the message after them.
    pub(crate) async fn next_relayed(&mut self) -> (Vec<(u64, Bytes)>, FromWatchdog) {
        let mut frames = Vec::new();
        loop {
            match self.next().await {
                ReceivedPacket::Message(message) => return (frames, message),
                ReceivedPacket::Forward { client, position, frame } => {
                    frames.push((position, frame));
                    self.send(ToWatchdog::FrameForwarded { client }).await;
                }
            }
        }
    }

    /// Ends the watchdog like the end of a session.
    pub(crate) async fn end_session(mut self) {
        self.send(ToWatchdog::Exit).await;
        self.control.flush().await.unwrap();
        self.stderr.wait_for_end();
        assert_eq!(self.watchdog.wait().unwrap().code, Some(0));
    }

    /// Cuts the connection like the kernel does for a killed coordinator. Returns what remains: the watchdog,
    /// its output pipe, and the directory, which a killed coordinator does not remove.
    pub(crate) async fn cut_connection(mut self) -> (SpawnedChild, HeldPipe, PathBuf) {
        let path = self.directory.path().to_owned();
        std::mem::forget(self.directory);
        drop(self.listener);
        drop(self.control);
        self.writer.cut().await;
        drop(self.receiver);
        (self.watchdog, self.stderr, path)
    }
}
