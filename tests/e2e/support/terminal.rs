//! A command that runs on a new terminal.

use std::{
    io::{Read as _, Write as _},
    os::unix::process::CommandExt as _,
    process::{Child, Stdio},
    sync::{Arc, Mutex},
};

use super::{process::wait_until, world::TestWorld};

/// A command that runs on a new terminal, with its output.
pub(crate) struct TerminalCommand {
    child: Child,
    text: Arc<Mutex<String>>,
}

impl TerminalCommand {
    /// Starts a shell command line.
    pub(crate) fn start(world: &TestWorld, line: &str) -> Self {
        let quoted = line.replace('\'', r"'\''");
        let mut command = world.shell(&format!("exec script -qec '{quoted}' /dev/null"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap();
        let mut output = child.stdout.take().unwrap();
        let text = Arc::new(Mutex::new(String::new()));
        let printed = Arc::clone(&text);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                printed.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self { child, text }
    }

    /// Waits until this text has been printed.
    pub(crate) fn wait_for(&self, what: &str) {
        wait_until(what, || self.text.lock().unwrap().contains(what));
    }

    /// Types text like a user; `\n` ends a line.
    pub(crate) fn type_in(&mut self, line: &str) {
        self.child.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }

    /// Returns all output so far, including escape sequences and echoed input.
    pub(crate) fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    /// Waits until the command exits; returns whether it succeeded.
    pub(crate) fn ends_well(&mut self) -> bool {
        self.child.wait().unwrap().success()
    }
}
