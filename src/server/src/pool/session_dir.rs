//! The directory of a session's temporary files.

use heeler_sys::dirs::{SessionTemporaryDir, SocketDir};

/// Creates the directory of temporary files of the session with this directory, where it needs one of its
/// own. Without it they are in the session's directory.
pub(super) fn create_temporary_dir(session: &SocketDir) -> Option<SessionTemporaryDir> {
    let created = SessionTemporaryDir::create(session);
    created
        .inspect_err(|error| tracing::warn!(%error, "temporary files of tests are beside the sockets"))
        .ok()?
}
