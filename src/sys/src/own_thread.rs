//! Blocking work on a separate thread.

use std::{sync::mpsc, thread};

/// Runs `work` on its own thread, which is never joined: the work reports its own result. If the system
/// cannot start a thread, runs the work on the calling thread, which blocks the caller but loses nothing. The
/// runtime's own threads for blocking work would panic in that case.
pub fn run<F: FnOnce() + Send + 'static>(name: &str, work: F) {
    // Hand over the work only after the thread exists.
    let (hand_over, received) = mpsc::sync_channel::<F>(1);
    let start = move || {
        if let Ok(work) = received.recv() {
            work();
        }
    };
    match thread::Builder::new().name(name.to_owned()).spawn(start) {
        // The thread receives, and the queue has room.
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
