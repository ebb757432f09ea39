//! Time limits of the pool.

use std::time::Duration;

/// Time limit for a new process to join.
pub(super) const START_DEADLINE: Duration = Duration::from_secs(20);
/// How long `fork` is retried after `EAGAIN` when the first watchdog starts.
pub(super) const SPAWN_RETRY_FOR: Duration = Duration::from_secs(2);
/// Pause between two attempts.
pub(super) const SPAWN_RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Maximum time between the two signs of a worker's death: the end of its connection and the watchdog's
/// report.
pub(super) const DEATH_DEADLINE: Duration = Duration::from_secs(5);
/// Time limit for sending a control message. A process that does not accept it by then never will.
pub(super) const SEND_DEADLINE: Duration = Duration::from_secs(10);
/// Time limit for a process tree to exit at shutdown.
pub(super) const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(2);
