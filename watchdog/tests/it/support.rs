//! Helpers for all tests: waiting with a deadline, pipes whose end proves an exit, and a guard with its
//! control connection.

use std::{
    fs::File,
    io::{Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::{Duration, Instant},
};

use bytes::BytesMut;
use heeler_protocol::{
    StreamDecoder,
    control::{FromGuard, OsText, ProcessExit, TestCommand, ToGuard},
    packet::{self, ControlPacket, PacketDecoder},
};
use heeler_sys::{
    io::{pipe, socket_pair, wait_readable},
    process::stat,
    spawn::{ChildStdio, ForkedChild, SpawnOptions, SpawnedChild, spawn},
};

/// Deadline of every wait. No wait takes long unless something is wrong.
pub(crate) const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// Waits until a state is reached. A failure prints the last `state`.
pub(crate) fn wait_until<T: std::fmt::Debug>(
    what: &str,
    state: impl Fn() -> T,
    is_reached: impl Fn(&T) -> bool,
) -> T {
    let deadline = Instant::now() + WAIT_LIMIT;
    loop {
        let now = state();
        if is_reached(&now) {
            return now;
        }
        assert!(Instant::now() < deadline, "waited for {what}, and it is {now:?}");
        wait_readable([], Some(Instant::now() + Duration::from_millis(1))).unwrap();
    }
}

pub(crate) fn is_gone(pid: u32) -> bool {
    state_of(pid).is_none_or(|state| state == 'Z')
}

pub(crate) fn state_of(pid: u32) -> Option<char> {
    stat(heeler_sys::process::Pid(pid.cast_signed())).map(|stat| stat.state)
}

/// Read end of a pipe that the observed processes hold open.
pub(crate) struct HeldPipe {
    file: File,
    pub(crate) text: String,
}

impl HeldPipe {
    pub(crate) fn new() -> (Self, OwnedFd) {
        let (reader, writer) = pipe().unwrap();
        (Self { file: File::from(reader), text: String::new() }, writer)
    }

    /// Reads until the text contains `end`.
    pub(crate) fn wait_for(&mut self, end: &str) {
        while !self.text.contains(end) {
            assert!(self.read(), "the end came without {end:?}: {:?}", self.text);
        }
    }

    /// Reads to the end of the pipe, which comes when all holders are gone.
    pub(crate) fn wait_for_end(&mut self) -> &str {
        while self.read() {}
        &self.text
    }

    /// Returns the number in the line that starts with `key`.
    pub(crate) fn number(&mut self, key: &str) -> u32 {
        loop {
            let line = self.text.split_inclusive('\n').find_map(|line| line.strip_prefix(key));
            if let Some(number) = line.filter(|line| line.ends_with('\n')) {
                return number.trim().parse().unwrap();
            }
            assert!(self.read(), "the end came without {key:?}: {:?}", self.text);
        }
    }

    fn read(&mut self) -> bool {
        let fds = [Some(self.file.as_fd())];
        assert!(wait_readable(fds, Some(Instant::now() + WAIT_LIMIT)).unwrap()[0], "still {:?}", self.text);
        let mut chunk = [0; 4096];
        let count = self.file.read(&mut chunk).unwrap();
        self.text.push_str(&String::from_utf8_lossy(&chunk[..count]));
        count > 0
    }
}

/// A guard, its control connection, and the output of its test.
pub(crate) struct GuardedTest<P = SpawnedChild> {
    pub(crate) guard: P,
    pub(crate) control: Option<UnixStream>,
    pub(crate) output: HeldPipe,
    buffer: BytesMut,
}

impl GuardedTest {
    pub(crate) fn start() -> Self {
        Self::start_under(&[])
    }

    /// Starts a guard that is executed by another program with the command line `wrapper`.
    pub(crate) fn start_under(wrapper: &[std::ffi::OsString]) -> Self {
        Self::start_as(wrapper, &std::env::current_exe().unwrap())
    }

    /// Starts a guard from another path.
    pub(crate) fn start_as(wrapper: &[std::ffi::OsString], image: &std::path::Path) -> Self {
        let mut line = [wrapper, &[image.into(), "__guard".into()]].concat();
        let program = line.remove(0);
        let (output, writer) = HeldPipe::new();
        let (ours, theirs) = socket_pair().unwrap();
        let stderr = writer.try_clone().unwrap();
        let guard = spawn(SpawnOptions {
            args: line,
            stdin: ChildStdio::Fd(theirs),
            stdout: ChildStdio::Fd(writer),
            stderr: ChildStdio::Fd(stderr),
            ..SpawnOptions::new(program)
        })
        .unwrap();
        Self::of(guard, UnixStream::from(ours), output)
    }

    /// Starts a guard that runs a shell script.
    pub(crate) fn shell(script: &str) -> Self {
        let mut guarded = Self::start();
        guarded.send(&ToGuard::Exec(shell_command(script)));
        guarded
    }
}

/// Process of a guard, after its last message.
pub(crate) trait GuardExit {
    fn assert_exited(&mut self);
}

impl GuardExit for SpawnedChild {
    fn assert_exited(&mut self) {
        assert_eq!(self.wait().unwrap().code, Some(0));
    }
}

impl GuardExit for ForkedChild {
    fn assert_exited(&mut self) {
        let readable = wait_readable([Some(self.pidfd.as_fd())], Some(Instant::now() + WAIT_LIMIT)).unwrap();
        assert!(readable[0], "the guard stays");
    }
}

impl<P: GuardExit> GuardedTest<P> {
    pub(crate) fn of(guard: P, control: UnixStream, output: HeldPipe) -> Self {
        Self { guard, control: Some(control), output, buffer: BytesMut::new() }
    }

    pub(crate) fn send(&mut self, message: &ToGuard) {
        self.control.as_mut().unwrap().write_all(&packet::encode_message(message)).unwrap();
    }

    pub(crate) fn next_message(&mut self) -> Option<FromGuard> {
        let control = self.control.as_mut().unwrap();
        loop {
            match PacketDecoder.decode(&mut self.buffer).unwrap() {
                Some(ControlPacket::Message(body)) => return Some(packet::decode_message(&body).unwrap()),
                Some(other) => panic!("{other:?}"),
                None => {}
            }
            let fds = [Some(control.as_fd())];
            assert!(wait_readable(fds, Some(Instant::now() + WAIT_LIMIT)).unwrap()[0], "the guard is silent");
            let mut chunk = [0; 4096];
            match control.read(&mut chunk).unwrap() {
                0 => return None,
                count => self.buffer.extend_from_slice(&chunk[..count]),
            }
        }
    }

    pub(crate) fn expect_started(&mut self) -> u32 {
        match self.next_message() {
            Some(FromGuard::Started { pid, .. }) => pid,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn expect_ended(&mut self) -> ProcessExit {
        match self.next_message() {
            Some(FromGuard::Ended(end)) => {
                assert_eq!(self.next_message(), None, "nothing follows the end");
                self.guard.assert_exited();
                end
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Returns a guard's command that runs a shell script.
pub(crate) fn shell_command(script: &str) -> TestCommand {
    TestCommand {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        env: std::env::vars_os()
            .map(|(name, value)| (OsText::from(name.as_os_str()), OsText::from(value.as_os_str())))
            .collect(),
        cwd: "/".into(),
        trace: None,
        memory_bytes: None,
        is_stopped_at_start: false,
        is_channel_standard_input: false,
    }
}
