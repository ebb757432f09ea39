//! A test's world: a directory with programs and configuration, a clean environment, and the real `heeler`
//! running in it.

use std::{
    cell::RefCell,
    fs,
    io::Read,
    os::unix::{
        fs::{PermissionsExt as _, chown, symlink},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc::sync_channel,
    time::Instant,
};

use super::{fixtures, recorder::DEADLINE, rendezvous::TestRendezvous};

pub(crate) struct TestWorld {
    dir: tempfile::TempDir,
    env: RefCell<Vec<(String, String)>>,
    /// The user who owns the world, if not the current user.
    user: Option<u32>,
}

/// A finished `heeler` process.
#[derive(Debug)]
pub(crate) struct FinishedCommand {
    pub(crate) code: Option<i32>,
    /// Standard output. `heeler run` prints results to standard error, so for that command this contains both
    /// outputs. [`TestWorld::run_with_separate_outputs`] keeps them separate.
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A start of a test program, as recorded by the program.
#[derive(Debug, Clone)]
pub(crate) struct ProgramStart {
    pub(crate) pid: u32,
    pub(crate) line: String,
}

impl TestWorld {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("heeler-it-").tempdir().unwrap();
        for name in ["tmp", "run", "home"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir, env: RefCell::default(), user: None }
    }

    /// Returns a world with one GoogleTest program.
    pub(crate) fn with_gtest(name: &str) -> Self {
        let world = Self::new();
        world.gtest(name);
        world
    }

    /// Returns a world with the libtest program, named `libtest`.
    pub(crate) fn with_libtest() -> Self {
        let world = Self::new();
        symlink(fixtures::libtest(), world.path("libtest")).unwrap();
        world
    }

    /// Returns a world with the fake in one of its roles.
    pub(crate) fn with_fake(role: &str) -> Self {
        let world = Self::new();
        world.fake(role);
        world
    }

    /// Adds a GoogleTest program.
    pub(crate) fn gtest(&self, name: &str) {
        symlink(fixtures::gtest(name), self.path(name)).unwrap();
    }

    /// Adds the fake in one of its roles.
    pub(crate) fn fake(&self, role: &str) {
        symlink(super::fake(), self.path(role)).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Writes an executable script.
    pub(crate) fn write_program(&self, name: &str, script: &str) {
        self.write(name, script);
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o700)).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Sets an environment variable for every later start.
    pub(crate) fn env(&self, name: &str, value: &str) {
        self.env.borrow_mut().push((name.to_owned(), value.to_owned()));
    }

    /// Makes the programs record their starts; see [`TestWorld::starts`].
    pub(crate) fn note_starts(&self) {
        self.env("HEELER_FIXTURE_STARTS", self.path("starts").to_str().unwrap());
    }

    /// Returns the starts of test programs, in order and without listings.
    pub(crate) fn starts(&self) -> Vec<ProgramStart> {
        let text = fs::read_to_string(self.path("starts")).unwrap_or_default();
        let read = |line: &str| {
            let (pid, line) = line.split_once(' ').unwrap();
            ProgramStart { pid: pid.parse().unwrap(), line: line.to_owned() }
        };
        text.lines().map(read).filter(|start| !start.line.contains("list")).collect()
    }

    /// Opens the rendezvous socket of the tests.
    pub(crate) fn open_rendezvous(&self) -> TestRendezvous {
        let rendezvous = TestRendezvous::new(self.dir());
        self.env("HEELER_FIXTURE_MEET", rendezvous.path.to_str().unwrap());
        rendezvous
    }

    /// Makes another user the owner of this world. All programs are copied, because that user may not have
    /// access to the originals. All users may enter the directory, as they usually can below `/tmp` or in a
    /// home directory.
    pub(crate) fn change_owner(&mut self, user: u32) {
        copy_program(Path::new(env!("CARGO_BIN_EXE_heeler")), &self.path("heeler"));
        fs::set_permissions(self.dir(), fs::Permissions::from_mode(0o755)).unwrap();
        chown(self.dir(), Some(user), Some(user)).unwrap();
        for entry in fs::read_dir(self.dir()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_symlink() {
                let program = fs::canonicalize(&path).unwrap();
                fs::remove_file(&path).unwrap();
                copy_program(&program, &path);
            }
            chown(&path, Some(user), Some(user)).unwrap();
        }
        self.user = Some(user);
    }

    /// Returns a `heeler` command in this world, without the current user's environment.
    pub(crate) fn heeler(&self, words: &[&str]) -> Command {
        let program = self.user.map_or_else(super::heeler, |_| self.path("heeler"));
        self.command(Command::new(program), words)
    }

    /// Returns a shell command in this world.
    pub(crate) fn shell(&self, line: &str) -> Command {
        self.command(Command::new("bash"), &["-c", line])
    }

    /// Returns any command in this world.
    pub(crate) fn command(&self, mut command: Command, words: &[&str]) -> Command {
        command.args(words).current_dir(self.dir()).env_clear();
        for name in ["PATH", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        if std::env::var_os("CARGO_HOME").is_none()
            && let Some(home) = std::env::home_dir()
        {
            command.env("CARGO_HOME", home.join(".cargo"));
            command
                .env("RUSTUP_HOME", std::env::var_os("RUSTUP_HOME").unwrap_or(home.join(".rustup").into()));
        }
        command.env("HOME", self.path("home")).env("TMPDIR", self.path("tmp")).env("LANG", "C.UTF-8");
        command.env("XDG_RUNTIME_DIR", self.path("run"));
        // Tests of other features decide how many processes run at once.
        command.env("HEELER_MACHINE_SLOTS", "off");
        command.envs(self.env.borrow().iter().map(|(name, value)| (name, value)));
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    /// Runs `heeler` until it exits, then checks that it left nothing behind.
    pub(crate) fn run(&self, words: &[&str]) -> FinishedCommand {
        let ran = run(self.heeler(words));
        self.check_tidy();
        ran
    }

    /// Runs `heeler` until it exits, and keeps standard output and standard error separate.
    pub(crate) fn run_with_separate_outputs(&self, words: &[&str]) -> FinishedCommand {
        run_with_separate_outputs(self.heeler(words))
    }

    /// Panics if a socket or temporary file was left behind.
    pub(crate) fn check_tidy(&self) {
        for name in ["tmp", "run"] {
            let entries = fs::read_dir(self.path(name)).unwrap().map(|entry| entry.unwrap().path());
            let left: Vec<_> = entries.filter(|path| !are_free_slots(path)).collect();
            assert!(left.is_empty(), "left behind: {left:?}");
        }
    }
}

/// Returns whether a path is the directory of the machine's slots, and no run is registered there.
fn are_free_slots(path: &Path) -> bool {
    let names = || fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
    path.ends_with("heeler-slots") && names().eq(["slots"])
}

/// Copies a program in a child process. If this process wrote the copy, a process started by a test on
/// another thread could inherit the open descriptor, and a program that is open for writing cannot be
/// executed.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    let status = Command::new("cp").arg(from).arg(to).status().unwrap();
    assert!(status.success(), "copy {} to {}", from.display(), to.display());
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs a command until it and every process that has its outputs open have exited.
pub(crate) fn run(command: Command) -> FinishedCommand {
    // `heeler run` may also be started by a shell or another program.
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    let is_run = words.first().is_some_and(|word| word == "run") || words.join(" ").contains("heeler run ");
    let ran = run_with_separate_outputs(command);
    if is_run { FinishedCommand { stdout: format!("{}{}", ran.stdout, ran.stderr), ..ran } } else { ran }
}

/// Like [`run`], but keeps the outputs of `heeler run` separate.
pub(crate) fn run_with_separate_outputs(mut command: Command) -> FinishedCommand {
    let start = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let stdout = read_all(child.stdout.take().unwrap());
    let stderr = read_all(child.stderr.take().unwrap());
    let wait = |output: &std::sync::mpsc::Receiver<String>| {
        output.recv_timeout((DEADLINE * 2).saturating_sub(start.elapsed())).ok()
    };
    let (Some(stdout), Some(stderr)) = (wait(&stdout), wait(&stderr)) else {
        let state = child.try_wait();
        child.kill().unwrap();
        panic!("{command:?} does not come to its end; its own process: {state:?}");
    };
    FinishedCommand { code: child.wait().unwrap().code(), stdout, stderr }
}

/// Reads an output to its end on a separate thread.
pub(crate) fn read_all(mut from: impl Read + Send + 'static) -> std::sync::mpsc::Receiver<String> {
    let (sender, receiver) = sync_channel(1);
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        // The receiver may have been dropped.
        sender.send(String::from_utf8_lossy(&bytes).into_owned()).ok();
    });
    receiver
}

impl FinishedCommand {
    /// Panics unless the exit code equals `code`.
    #[track_caller]
    pub(crate) fn assert_code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self}");
        self
    }

    /// Returns the first line of standard output that contains all these texts; panics if there is none.
    #[track_caller]
    pub(crate) fn line_with(&self, texts: &[&str]) -> &str {
        let found = self.stdout.lines().find(|line| texts.iter().all(|text| line.contains(text)));
        found.unwrap_or_else(|| panic!("no line holds {texts:?}\n{self}"))
    }

    /// Panics unless standard output contains the text.
    #[track_caller]
    pub(crate) fn assert_stdout(&self, text: &str) -> &Self {
        assert!(self.stdout.contains(text), "{text:?} is not said\n{self}");
        self
    }

    /// Panics unless standard error contains the text.
    #[track_caller]
    pub(crate) fn assert_stderr(&self, text: &str) -> &Self {
        assert!(self.stderr.contains(text), "{text:?} is no complaint\n{self}");
        self
    }
}

impl std::fmt::Display for FinishedCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { code, stdout, stderr } = self;
        write!(f, "exit code {code:?}\n--- stdout ---\n{stdout}\n--- stderr ---\n{stderr}")
    }
}
