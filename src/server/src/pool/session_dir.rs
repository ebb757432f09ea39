//! The directory of a session's temporary files.

use heeler_sys::dirs::{SessionTemporaryDir, SocketDir};

/// Creates the temporary directory of a session, if it needs one outside the session directory. Otherwise
/// temporary files are put into the session directory.
pub(super) fn create_temporary_dir(session: &SocketDir) -> Option<SessionTemporaryDir> {
    let created = SessionTemporaryDir::create(session);
    created
        .inspect_err(
            |error| tracing::warn!(%error, "no directory for temporary files; using the socket directory"),
        )
        .ok()?
}
