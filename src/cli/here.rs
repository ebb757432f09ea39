//! A session with a coordinator in this process: the command line is a client like any other, over a connection in
//! memory and a callback port of its own.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::Instant,
};

use crate::{
    client::{Client, ClientError, ClientOptions, Events},
    config::Settings,
    discover::ProgramSource,
    front::{Session, SessionCommand, SessionEnd, SessionOptions},
    runs::Provenance,
};

/// What the memory between client and session holds: as much as a socket's buffer.
const CONNECTION_BYTES: usize = 256 << 10;
/// What an orderly end may take.
const EXIT_DEADLINE: Duration = Duration::from_secs(15);

/// The session and our end of it.
pub(super) struct Here {
    pub(super) client: Client,
    session: JoinSet<SessionEnd>,
    commands: mpsc::Sender<SessionCommand>,
}

impl Here {
    /// Starts a session and joins it.
    pub(super) async fn start(
        settings: Arc<Settings>,
        (sources, provenance): (Vec<ProgramSource>, Provenance),
        client: ClientOptions,
    ) -> Result<(Self, Events), ClientError> {
        let (ours, theirs) = tokio::io::duplex(CONNECTION_BYTES);
        let options = SessionOptions {
            settings,
            sources,
            client_host: "127.0.0.1".to_owned(),
            exit_with: None,
            initialize_within: None,
            is_debug: false,
            provenance,
        };
        let (commands, receiver) = mpsc::channel(4);
        let mut session = JoinSet::new();
        session.spawn(Session::new(theirs, options).serve(receiver));
        let (client, events) = Client::connect(ours, client).await?;
        Ok((Self { client, session, commands }, events))
    }

    /// Stops all test processes; returns when they stand still.
    pub(super) async fn pause(&self) {
        let (sender, receiver) = oneshot::channel();
        if self.commands.send(SessionCommand::Pause(sender)).await.is_ok() {
            // A session that is gone has nothing to stop.
            let _gone = receiver.await;
        }
    }

    /// Lets them go on.
    pub(super) async fn resume(&self) {
        // A session that is gone has nothing to go on with.
        let _gone = self.commands.send(SessionCommand::Resume).await;
    }

    /// Ends the session; nothing of it is left when this returns.
    pub(super) async fn end(mut self, mut events: Events) -> Result<(), ClientError> {
        // The client's readers stop when nobody reads its events.
        let mut reader = JoinSet::new();
        reader.spawn(async move { while events.next().await.is_some() {} });
        let left = self.client.exit(Instant::now() + EXIT_DEADLINE).await;
        drop(self.commands);
        while self.session.join_next().await.is_some() {}
        left
    }
}
