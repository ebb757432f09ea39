//! Waits for file system events, checks for changes, and reports them to a client.

use std::{future::pending, io, sync::Arc};

use heeler_protocol::mtp::programs_changed_frame;
use heeler_sys::directory_watch::{DirectoryEvent, EVENT_BUFFER_BYTES, parse_directory_events};
use heeler_transport::{Outbox, TrySendError};
use tokio::{
    net::unix::pipe::Receiver,
    time::{Instant, sleep_until},
};

use super::{
    super::program_finder::{CurrentProgram, ProgramFinder},
    debounce::ChangeDebounce,
    snapshot::ProgramSnapshot,
    watched_directories::WatchedDirectories,
};

/// Notifies the client of program changes from now on, until the future is dropped or the client is gone.
/// `known` are the programs that the client knows; any other program is reported as new.
///
/// Cancel safe: yes, because only a check of the file system may outlive the future, and it ends by itself.
pub(crate) fn watch_programs(
    finder: Arc<dyn ProgramFinder>,
    known: Vec<CurrentProgram>,
    client: Outbox,
) -> impl Future<Output = ()> + Send {
    let reported = ProgramSnapshot::read(known);
    async {
        if let Err(error) = ProgramWatcher::serve(finder, reported, client).await {
            tracing::warn!(%error, "cannot watch for changes of test programs");
        }
    }
}

struct ProgramWatcher {
    finder: Arc<dyn ProgramFinder>,
    client: Outbox,
    directories: WatchedDirectories,
    /// The state last reported to the client.
    reported: ProgramSnapshot,
    debounce: ChangeDebounce,
    /// Whether events were lost since the last notification.
    has_lost_events: bool,
}

/// Result of a check of the file system.
struct ProgramLook {
    directories: WatchedDirectories,
    snapshot: ProgramSnapshot,
}

impl ProgramWatcher {
    async fn serve(
        finder: Arc<dyn ProgramFinder>,
        reported: ProgramSnapshot,
        client: Outbox,
    ) -> io::Result<()> {
        let directories = WatchedDirectories::new()?;
        // Tokio's pipe type can read any pollable descriptor in safe code.
        let events = Receiver::from_owned_fd_unchecked(directories.watch().event_descriptor()?)?;
        let mut buffer = vec![0; EVENT_BUFFER_BYTES];
        let mut watcher = Self {
            finder,
            client,
            directories,
            reported,
            debounce: ChangeDebounce::default(),
            has_lost_events: false,
        };
        // Report changes since the client received its programs.
        watcher = watcher.look_for_changes().await?;
        loop {
            let next_look = watcher.debounce.next_look();
            let due = async {
                match next_look {
                    Some(time) => sleep_until(time).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                () = due => {
                    watcher = watcher.look_for_changes().await?;
                    if watcher.client.is_closed() {
                        return Ok(());
                    }
                }
                ready = events.readable() => {
                    ready?;
                    match events.try_read(&mut buffer) {
                        Ok(count) => watcher.on_events(&parse_directory_events(&buffer[..count])),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }

    fn on_events(&mut self, events: &[DirectoryEvent]) {
        self.has_lost_events |= events.contains(&DirectoryEvent::Overflow);
        if events.iter().any(|event| self.directories.is_relevant(event)) {
            self.debounce.on_event(Instant::now());
        }
    }

    /// Checks for changes and reports them. If the client's connection has no room, they are reported later
    /// together with further changes.
    async fn look_for_changes(mut self) -> io::Result<Self> {
        self.debounce.on_look(Instant::now());
        let ProgramLook { directories, snapshot } = look(Arc::clone(&self.finder), self.directories).await?;
        self.directories = directories;
        let Some(mut changes) = snapshot.changes_since(&self.reported, self.has_lost_events) else {
            return Ok(self);
        };
        changes.is_incomplete |= self.directories.is_incomplete;
        match self.client.try_send(programs_changed_frame(&changes)) {
            Ok(()) | Err(TrySendError::Closed(_)) => {
                self.reported = snapshot;
                self.has_lost_events = false;
            }
            Err(TrySendError::Full(_)) => self.debounce.on_event(Instant::now()),
        }
        Ok(self)
    }
}

/// Finds the programs and watches their directories. The watches are set before the snapshot is read, so that
/// a later change causes an event.
async fn look(
    finder: Arc<dyn ProgramFinder>,
    mut directories: WatchedDirectories,
) -> io::Result<ProgramLook> {
    let looking = tokio::task::spawn_blocking(move || {
        // The second search includes programs that appeared before the watches were set.
        directories.update(&finder.current_programs());
        let current = finder.current_programs();
        directories.update(&current);
        ProgramLook { directories, snapshot: ProgramSnapshot::read(current.programs) }
    });
    looking.await.map_err(io::Error::other)
}
