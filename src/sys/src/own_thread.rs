//! Work that blocks, beside a thread that must go on.

use std::{sync::mpsc, thread};

/// Runs `work` on a thread of its own, which nobody joins: it reports by itself. Where the system can't start
/// a thread, runs it here: the caller is held up, and nothing is lost. The runtime's own threads for blocking
/// work would panic there.
pub fn run<F: FnOnce() + Send + 'static>(name: &str, work: F) {
    // The work is handed over only to a thread that exists.
    let (hand_over, received) = mpsc::sync_channel::<F>(1);
    let start = move || {
        if let Ok(work) = received.recv() {
            work();
        }
    };
    match thread::Builder::new().name(name.to_owned()).spawn(start) {
        // It receives, and the queue has room.
        Ok(_thread) => drop(hand_over.send(work)),
        Err(_none_left) => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_runs_on_a_thread_of_its_name() {
        let (report, reported) = mpsc::sync_channel(1);
        run("heeler-test", move || report.send(thread::current().name().map(str::to_owned)).unwrap());
        assert_eq!(reported.recv().unwrap().as_deref(), Some("heeler-test"));
    }
}
