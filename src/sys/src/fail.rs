//! Fault injection for the tests. A process that reaches a named point may be killed, stopped, delayed, or
//! given a system error. Released programs are built without the feature `faults`; their points do nothing.
//!
//! `HEELER_FAIL=POINT:NTH:ACTION[,…]` arms points for a process and all its descendants, except tests. The
//! action is `kill`, `stop`, `sleep=MILLISECONDS`, or the name of an error at a point that can fail
//! (`ENOSPC`, `EROFS`, `EMFILE`, `ENOMEM`, `EAGAIN`, `EIO`). `NTH` is the pass at which the process acts;
//! `NTH+` means the Nth and every later pass. `HEELER_FAIL_ONCE` names a directory where the first acting
//! process leaves a file with its process id. Then no other process acts on that point, except with `NTH+`.

use std::ffi::OsStr;
#[cfg(not(feature = "faults"))]
use std::{io, time::SystemTime};

/// All points, and whether the operation at each can fail.
pub const POINTS: [(&str, bool); 35] = [
    ("worker.join", false),
    ("worker.lease", false),
    ("worker.journal.before", true),
    ("worker.journal.after", false),
    ("worker.sent", false),
    ("worker.reported", false),
    ("worker.drain", false),
    ("worker.proven", false),
    ("worker.drained", false),
    ("worker.fork-server", true),
    ("watchdog.join", false),
    ("watchdog.joined", false),
    ("watchdog.worker", true),
    ("watchdog.finish", false),
    ("watchdog.due", false),
    ("watchdog.announced", false),
    ("watchdog.completed", false),
    ("watchdog.confirmed", false),
    ("watchdog.leave", false),
    ("fork-server.fork", true),
    ("guard.fork", true),
    ("guard.started", false),
    ("guard.seize", true),
    ("guard.capture", false),
    ("guard.dump", true),
    ("guard.ended", false),
    ("run.dir", true),
    ("run.manifest", true),
    ("run.begun", false),
    ("run.drain", false),
    ("run.finish", false),
    ("run.relayed", false),
    ("run.completed", false),
    ("run.history", true),
    ("pool.watchdog", true),
];

/// Returns whether a variable only configures fault injection. Tests do not receive such variables.
#[must_use]
pub fn is_fault_variable(variable: &OsStr) -> bool {
    let names = ["HEELER_FAIL", "HEELER_FAIL_ONCE", "HEELER_FAIL_CLOCK"];
    cfg!(feature = "faults") && names.iter().any(|name| variable == *name)
}

/// Checks the fault injection settings. Every process does this first.
///
/// # Errors
/// The invalid part of the variable.
pub fn check() -> Result<(), impl std::error::Error> {
    #[cfg(feature = "faults")]
    return armed::check();
    #[cfg(not(feature = "faults"))]
    Ok::<_, std::convert::Infallible>(())
}

/// Passes a point. Returns `Ok` unless the point is armed with an error.
///
/// # Errors
/// The error that the point is armed with.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn at(_point: &'static str) -> io::Result<()> {
    Ok(())
}

/// Passes a point that cannot return an error.
#[inline(always)]
pub fn pass(point: &'static str) {
    // The operation at this point cannot fail.
    let _unwanted = at(point);
}

/// Returns the time of day. `HEELER_FAIL_CLOCK` lists offsets in seconds that are applied in turn,
/// cyclically.
#[cfg(not(feature = "faults"))]
#[inline(always)]
#[must_use]
pub fn now() -> SystemTime {
    SystemTime::now()
}

#[cfg(feature = "faults")]
pub use armed::{FaultSpecError, at, now};

#[cfg(feature = "faults")]
mod armed {
    use std::{
        fs::File,
        io::{self, Write as _},
        path::PathBuf,
        sync::{
            LazyLock,
            atomic::{AtomicU32, Ordering},
        },
        time::{Duration, Instant, SystemTime},
    };

    use crate::process::{Pid, Signal};

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum FaultAction {
        Signal(Signal),
        Sleep(Duration),
        Error(i32),
    }

    struct ArmedFault {
        point: String,
        nth: u32,
        is_repeated: bool,
        action: FaultAction,
        pass_count: AtomicU32,
    }

    static ARMED_FAULTS: LazyLock<Vec<ArmedFault>> = LazyLock::new(|| {
        std::env::var("HEELER_FAIL").map(|text| parse(&text)).unwrap_or(Ok(Vec::new())).unwrap_or_default()
    });

    /// Parse error of `HEELER_FAIL`.
    #[derive(Debug, thiserror::Error, PartialEq, Eq)]
    pub enum FaultSpecError {
        /// The value is not UTF-8.
        #[error("parse HEELER_FAIL: not valid UTF-8")]
        NotText,
        /// A part does not have the required form.
        #[error("parse HEELER_FAIL: expected POINT:NTH:ACTION, found \"{0}\"")]
        InvalidForm(String),
        /// The point does not exist.
        #[error("parse HEELER_FAIL: unknown point \"{0}\" (available: {list})", list = names())]
        UnknownPoint(String),
        /// The action does not exist, or is not possible at this point.
        #[error("parse HEELER_FAIL: invalid action \"{action}\" at {point} ({expected})")]
        InvalidAction {
            /// Requested action.
            action: String,
            point: String,
            /// Possible actions at the point.
            expected: &'static str,
        },
    }

    fn names() -> String {
        super::POINTS.map(|(name, _)| name).join(", ")
    }

    pub(super) fn check() -> Result<(), FaultSpecError> {
        match std::env::var("HEELER_FAIL") {
            Ok(text) => parse(&text).map(drop),
            Err(std::env::VarError::NotPresent) => Ok(()),
            Err(std::env::VarError::NotUnicode(_)) => Err(FaultSpecError::NotText),
        }
    }

    fn parse(text: &str) -> Result<Vec<ArmedFault>, FaultSpecError> {
        let one = |one: &str| {
            let form = || FaultSpecError::InvalidForm(one.to_owned());
            let [point, nth, word] = one.split(':').collect::<Vec<_>>()[..] else { return Err(form()) };
            let is_lasting = nth.ends_with('+');
            let nth = nth.strip_suffix('+').unwrap_or(nth).parse().map_err(|_| form())?;
            let found = super::POINTS.iter().find(|(name, _)| *name == point);
            let (_, can_fail) = found.ok_or_else(|| FaultSpecError::UnknownPoint(point.to_owned()))?;
            let expected = match can_fail {
                true => "expected kill, stop, sleep=MILLISECONDS, ENOSPC, EROFS, EMFILE, ENOMEM, EAGAIN, EIO",
                false => "expected kill, stop, sleep=MILLISECONDS",
            };
            let action =
                parse_action(word).filter(|action| *can_fail || !matches!(action, FaultAction::Error(_)));
            let wrong = || FaultSpecError::InvalidAction {
                action: word.to_owned(),
                point: point.to_owned(),
                expected,
            };
            let action = action.ok_or_else(wrong)?;
            Ok(ArmedFault {
                point: point.to_owned(),
                nth,
                is_repeated: is_lasting,
                action,
                pass_count: AtomicU32::new(0),
            })
        };
        text.split(',').filter(|one| !one.is_empty()).map(one).collect()
    }

    fn parse_action(word: &str) -> Option<FaultAction> {
        Some(match word {
            "kill" => FaultAction::Signal(Signal::KILL),
            "stop" => FaultAction::Signal(Signal::STOP),
            "ENOSPC" => FaultAction::Error(libc::ENOSPC),
            "EROFS" => FaultAction::Error(libc::EROFS),
            "EMFILE" => FaultAction::Error(libc::EMFILE),
            "ENOMEM" => FaultAction::Error(libc::ENOMEM),
            "EAGAIN" => FaultAction::Error(libc::EAGAIN),
            "EIO" => FaultAction::Error(libc::EIO),
            _ => FaultAction::Sleep(Duration::from_millis(word.strip_prefix("sleep=")?.parse().ok()?)),
        })
    }

    /// Passes a point. Returns `Ok` unless the point is armed with an error.
    ///
    /// # Errors
    /// The error that the point is armed with.
    pub fn at(point: &'static str) -> io::Result<()> {
        for armed in ARMED_FAULTS.iter().filter(|armed| armed.point == point) {
            let number = armed.pass_count.fetch_add(1, Ordering::Relaxed) + 1;
            let is_first = || claim_once(armed) || armed.is_repeated;
            if (number == armed.nth || (armed.is_repeated && number > armed.nth)) && is_first() {
                perform(armed.action)?;
            }
        }
        Ok(())
    }

    static CLOCK_OFFSETS: LazyLock<Vec<i64>> = LazyLock::new(|| {
        let text = std::env::var("HEELER_FAIL_CLOCK").unwrap_or_default();
        text.split(',').filter_map(|jump| jump.parse().ok()).collect()
    });

    /// Returns the time of day, shifted by `HEELER_FAIL_CLOCK`.
    #[must_use]
    pub fn now() -> SystemTime {
        static READ_COUNT: AtomicU32 = AtomicU32::new(0);
        let now = SystemTime::now();
        if CLOCK_OFFSETS.is_empty() {
            return now;
        }
        let jump = CLOCK_OFFSETS[READ_COUNT.fetch_add(1, Ordering::Relaxed) as usize % CLOCK_OFFSETS.len()];
        let by = Duration::from_secs(jump.unsigned_abs());
        if jump < 0 { now - by } else { now + by }
    }

    fn claim_once(armed: &ArmedFault) -> bool {
        let Some(dir) = std::env::var_os("HEELER_FAIL_ONCE").map(PathBuf::from) else { return true };
        match File::create_new(dir.join(&armed.point)) {
            Ok(mut file) => {
                // Readers of the file retry until it is complete.
                drop(write!(file, "{}", Pid::own()));
                true
            }
            Err(_) => false,
        }
    }

    fn perform(action: FaultAction) -> io::Result<()> {
        match action {
            FaultAction::Signal(signal) => {
                signal.raise()?;
                Ok(())
            }
            FaultAction::Sleep(pause) => {
                let until = Instant::now() + pause;
                while Instant::now() < until {
                    std::thread::park_timeout(until.saturating_duration_since(Instant::now()));
                }
                Ok(())
            }
            FaultAction::Error(errno) => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn points_are_armed_by_name_number_and_action() {
            let text = "worker.sent:1:kill,worker.join:2:sleep=50,guard.dump:3+:ENOSPC";
            let armed = parse(text).unwrap_or_default();
            let seen: Vec<_> =
                armed.iter().map(|one| (one.point.as_str(), one.nth, one.is_repeated, one.action)).collect();
            let expected = [
                ("worker.sent", 1, false, FaultAction::Signal(Signal::KILL)),
                ("worker.join", 2, false, FaultAction::Sleep(Duration::from_millis(50))),
                ("guard.dump", 3, true, FaultAction::Error(libc::ENOSPC)),
            ];
            assert_eq!(seen, expected);
        }

        #[test]
        fn parse_error_lists_valid_values() {
            let parse_error = |text: &str| parse(text).map(|armed| armed.len()).unwrap_err().to_string();
            assert!(
                parse_error("worker.nowhere:1:kill")
                    .contains("unknown point \"worker.nowhere\" (available: worker.join, ")
            );
            assert!(
                parse_error("worker.sent:1:ENOSPC").ends_with(" (expected kill, stop, sleep=MILLISECONDS)")
            );
            assert!(parse_error("guard.dump:1:EVERYTHING").contains("\"EVERYTHING\" at guard.dump"));
            assert_eq!(
                parse_error("worker.sent:x:kill"),
                "parse HEELER_FAIL: expected POINT:NTH:ACTION, found \"worker.sent:x:kill\""
            );
            assert_eq!(
                parse_error("worker.sent:kill"),
                "parse HEELER_FAIL: expected POINT:NTH:ACTION, found \"worker.sent:kill\""
            );
        }
    }
}
