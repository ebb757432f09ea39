//! The program under test, started by a round.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, sync_channel},
    },
};

use crate::support::recorder::DEADLINE;

/// Environment variable that contains the round's id and marks all processes of the round.
pub(crate) const MARK: &str = "HEELER_FAULT_ROUND";

/// A running program; killed on drop.
pub(crate) struct HeelerProcess {
    pub(crate) child: Mutex<Child>,
    pub(crate) pid: u32,
    errors: Arc<Mutex<String>>,
    all_gone: Mutex<Receiver<()>>,
}

impl HeelerProcess {
    /// Starts a command with pipes as its standard streams.
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (errors, all_gone) = listen_to_errors(child.stderr.take().unwrap());
        Self { pid: child.id(), child: Mutex::new(child), errors, all_gone: Mutex::new(all_gone) }
    }

    /// Waits until every Heeler process has closed the inherited standard error; returns false on timeout.
    pub(crate) fn wait_gone(&self) -> bool {
        self.all_gone.lock().unwrap().recv_timeout(DEADLINE).is_ok()
    }

    /// Returns whether the program itself has exited.
    pub(crate) fn has_exited(&self) -> bool {
        self.child.lock().unwrap().try_wait().unwrap().is_some()
    }

    pub(crate) fn exit_code(&self) -> Option<i32> {
        self.child.lock().unwrap().wait().unwrap().code()
    }

    /// Returns the standard error so far.
    pub(crate) fn errors(&self) -> String {
        self.errors.lock().unwrap().clone()
    }
}

impl Drop for HeelerProcess {
    fn drop(&mut self) {
        let mut child = self.child.lock().unwrap();
        // The process may have exited already.
        child.kill().ok();
        child.wait().ok();
    }
}

/// Returns a `heeler` command in a round's directory, without the environment of the harness.
pub(crate) fn heeler(dir: &Path, mark: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.current_dir(dir).env_clear();
    for name in ["PATH", "HEELER_LOG"] {
        command.envs(std::env::var_os(name).map(|value| (name, value)));
    }
    command.env("HOME", dir.join("home")).env("TMPDIR", dir.join("tmp")).env("LANG", "C.UTF-8");
    command.env("XDG_RUNTIME_DIR", dir.join("run")).env("HEELER_MACHINE_SLOTS", "off").env(MARK, mark);
    command
}

fn listen_to_errors(from: impl Read + Send + 'static) -> (Arc<Mutex<String>>, Receiver<()>) {
    let errors = Arc::new(Mutex::new(String::new()));
    let (sender, all_gone) = sync_channel(1);
    let text = Arc::clone(&errors);
    std::thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            let mut text = text.lock().unwrap();
            text.push_str(&String::from_utf8_lossy(&line));
            text.push('\n');
        }
        // The receiver may have been dropped.
        sender.send(()).ok();
    });
    (errors, all_gone)
}
