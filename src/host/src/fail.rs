//! Failures at named points, for the tests: a process that reaches a point may be killed or stopped there, stand still for
//! a while, or be told an error of the system. Without the feature `faults`, which the shipped program is not built
//! with, a point is nothing at all.
//!
//! `HEELER_FAIL=POINT:NTH:ACTION[,…]` arms points for a process and all that it starts. The action is `kill`, `stop`,
//! `sleep=MILLISECONDS`, or an error by its name (`ENOSPC`, `EROFS`, `EMFILE`, `ENOMEM`, `EAGAIN`). `HEELER_FAIL_ONCE`
//! names a directory in which whoever acts first leaves a file with its process id; nobody else then acts on that point.

#[cfg(not(feature = "faults"))]
use std::{io, time::SystemTime};

/// Passes a point. `Ok` unless it is armed with an error.
///
/// # Errors
/// The one that the point is armed with.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn at(_point: &'static str) -> io::Result<()> {
    Ok(())
}

/// Passes a point where no error can be told.
#[inline(always)]
pub fn pass(point: &'static str) {
    // What stands at this point has no way to fail.
    let _unwanted = at(point);
}

/// Returns the time of day. `HEELER_FAIL_CLOCK` lists seconds by which it is wrong, one after the other and round again.
#[cfg(not(feature = "faults"))]
#[inline(always)]
#[must_use]
pub fn now() -> SystemTime {
    SystemTime::now()
}

#[cfg(feature = "faults")]
pub use armed::{at, now};

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
    enum Action {
        Signal(Signal),
        Sleep(Duration),
        Error(i32),
    }

    struct Armed {
        point: String,
        nth: u32,
        action: Action,
        passed: AtomicU32,
    }

    static ARMED: LazyLock<Vec<Armed>> =
        LazyLock::new(|| std::env::var("HEELER_FAIL").map(|text| read(&text)).unwrap_or_default());

    fn read(text: &str) -> Vec<Armed> {
        let one = |one: &str| {
            let mut parts = one.split(':');
            let (point, nth) = (parts.next()?.to_owned(), parts.next()?.parse().ok()?);
            Some(Armed { point, nth, action: action(parts.next()?)?, passed: AtomicU32::new(0) })
        };
        text.split(',').filter_map(one).collect()
    }

    fn action(word: &str) -> Option<Action> {
        Some(match word {
            "kill" => Action::Signal(Signal::KILL),
            "stop" => Action::Signal(Signal::STOP),
            "ENOSPC" => Action::Error(libc::ENOSPC),
            "EROFS" => Action::Error(libc::EROFS),
            "EMFILE" => Action::Error(libc::EMFILE),
            "ENOMEM" => Action::Error(libc::ENOMEM),
            "EAGAIN" => Action::Error(libc::EAGAIN),
            _ => Action::Sleep(Duration::from_millis(word.strip_prefix("sleep=")?.parse().ok()?)),
        })
    }

    /// Passes a point. `Ok` unless it is armed with an error.
    ///
    /// # Errors
    /// The one that the point is armed with.
    pub fn at(point: &'static str) -> io::Result<()> {
        for armed in ARMED.iter().filter(|armed| armed.point == point) {
            if armed.passed.fetch_add(1, Ordering::Relaxed) + 1 == armed.nth && is_first(armed) {
                act(armed.action)?;
            }
        }
        Ok(())
    }

    static JUMPS: LazyLock<Vec<i64>> = LazyLock::new(|| {
        let text = std::env::var("HEELER_FAIL_CLOCK").unwrap_or_default();
        text.split(',').filter_map(|jump| jump.parse().ok()).collect()
    });

    /// Returns the time of day, as wrong as `HEELER_FAIL_CLOCK` has it.
    #[must_use]
    pub fn now() -> SystemTime {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let now = SystemTime::now();
        if JUMPS.is_empty() {
            return now;
        }
        let jump = JUMPS[ASKED.fetch_add(1, Ordering::Relaxed) as usize % JUMPS.len()];
        let by = Duration::from_secs(jump.unsigned_abs());
        if jump < 0 { now - by } else { now + by }
    }

    fn is_first(armed: &Armed) -> bool {
        let Some(dir) = std::env::var_os("HEELER_FAIL_ONCE").map(PathBuf::from) else { return true };
        match File::create_new(dir.join(&armed.point)) {
            Ok(mut file) => {
                // Whoever wants to know looks again.
                drop(write!(file, "{}", Pid::own()));
                true
            }
            Err(_) => false,
        }
    }

    fn act(action: Action) -> io::Result<()> {
        match action {
            Action::Signal(signal) => {
                signal.raise()?;
                Ok(())
            }
            Action::Sleep(pause) => {
                let until = Instant::now() + pause;
                while Instant::now() < until {
                    std::thread::park_timeout(until.saturating_duration_since(Instant::now()));
                }
                Ok(())
            }
            Action::Error(errno) => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn points_are_armed_by_name_number_and_action() {
            let armed = read("a.b:1:kill,c:2:sleep=50,d:1:ENOSPC,nonsense,e:x:kill,f:1:what");
            let seen: Vec<_> = armed.iter().map(|one| (one.point.as_str(), one.nth, one.action)).collect();
            let expected = [
                ("a.b", 1, Action::Signal(Signal::KILL)),
                ("c", 2, Action::Sleep(Duration::from_millis(50))),
                ("d", 1, Action::Error(libc::ENOSPC)),
            ];
            assert_eq!(seen, expected);
        }
    }
}
