//! Helpers of all tests: waiting with a deadline, pipes whose end proves an exit, and a guard with its
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
use host::{
    io::{pipe, socket_pair, wait_readable},
    process::stat,
    spawn::{Child, Spawn, Stream, Twin, spawn},
};
use wire::{
    Decode,
    control::{Command, FromGuard, OsBytes, RawEnd, ToGuard},
    packet::{self, Packet, Packets},
};

/// Deadline of every wait; none takes long unless something is wrong.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until a level is reached; a failure prints the last `state`.
pub(crate) fn until<T: std::fmt::Debug>(
    what: &str,
    state: impl Fn() -> T,
    is_reached: impl Fn(&T) -> bool,
) -> T {
    let deadline = Instant::now() + PATIENCE;
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
    stat(host::process::Pid(pid.cast_signed())).map(|stat| stat.state)
}

/// The reading end of a pipe that the observed processes hold open.
pub(crate) struct Feet {
    file: File,
    pub(crate) text: String,
}

impl Feet {
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

    /// Reads to the end, which comes when all holders are gone.
    pub(crate) fn wait_for_end(&mut self) -> &str {
        while self.read() {}
        &self.text
    }

    /// Returns the number in the line that begins with `key`.
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
        assert!(wait_readable(fds, Some(Instant::now() + PATIENCE)).unwrap()[0], "still {:?}", self.text);
        let mut chunk = [0; 4096];
        let count = self.file.read(&mut chunk).unwrap();
        self.text.push_str(&String::from_utf8_lossy(&chunk[..count]));
        count > 0
    }
}

/// A guard, its control connection, and the output of its test.
pub(crate) struct Guarded<P = Child> {
    pub(crate) guard: P,
    pub(crate) control: Option<UnixStream>,
    pub(crate) output: Feet,
    buffer: BytesMut,
}

impl Guarded {
    pub(crate) fn start() -> Self {
        Self::start_behind(&[])
    }

    /// Starts a guard that is executed by another program, whose command line is `wrapper`.
    pub(crate) fn start_behind(wrapper: &[std::ffi::OsString]) -> Self {
        Self::start_as(wrapper, &std::env::current_exe().unwrap())
    }

    /// Starts a guard from another path.
    pub(crate) fn start_as(wrapper: &[std::ffi::OsString], image: &std::path::Path) -> Self {
        let mut line = [wrapper, &[image.into(), "__guard".into()]].concat();
        let program = line.remove(0);
        let (output, writer) = Feet::new();
        let (ours, theirs) = socket_pair().unwrap();
        let stderr = writer.try_clone().unwrap();
        let guard = spawn(Spawn {
            args: line,
            stdin: Stream::Fd(theirs),
            stdout: Stream::Fd(writer),
            stderr: Stream::Fd(stderr),
            ..Spawn::new(program)
        })
        .unwrap();
        Self::of(guard, UnixStream::from(ours), output)
    }

    /// Starts a guard that runs a shell script.
    pub(crate) fn shell(script: &str) -> Self {
        let mut guarded = Self::start();
        guarded.send(&ToGuard::Exec(shell(script)));
        guarded
    }
}

/// The process of a guard, after its last message.
pub(crate) trait Leaving {
    fn check_left(&mut self);
}

impl Leaving for Child {
    fn check_left(&mut self) {
        assert_eq!(self.wait().unwrap().code, Some(0));
    }
}

impl Leaving for Twin {
    fn check_left(&mut self) {
        let readable = wait_readable([Some(self.pidfd.as_fd())], Some(Instant::now() + PATIENCE)).unwrap();
        assert!(readable[0], "the guard stays");
    }
}

impl<P: Leaving> Guarded<P> {
    pub(crate) fn of(guard: P, control: UnixStream, output: Feet) -> Self {
        Self { guard, control: Some(control), output, buffer: BytesMut::new() }
    }

    pub(crate) fn send(&mut self, message: &ToGuard) {
        self.control.as_mut().unwrap().write_all(&packet::message(message)).unwrap();
    }

    pub(crate) fn next(&mut self) -> Option<FromGuard> {
        let control = self.control.as_mut().unwrap();
        loop {
            match Packets.decode(&mut self.buffer).unwrap() {
                Some(Packet::Message(body)) => return Some(packet::read(&body).unwrap()),
                Some(other) => panic!("{other:?}"),
                None => {}
            }
            let fds = [Some(control.as_fd())];
            assert!(wait_readable(fds, Some(Instant::now() + PATIENCE)).unwrap()[0], "the guard is silent");
            let mut chunk = [0; 4096];
            match control.read(&mut chunk).unwrap() {
                0 => return None,
                count => self.buffer.extend_from_slice(&chunk[..count]),
            }
        }
    }

    pub(crate) fn started(&mut self) -> u32 {
        match self.next() {
            Some(FromGuard::Started { pid, .. }) => pid,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn ended(&mut self) -> RawEnd {
        match self.next() {
            Some(FromGuard::Ended(end)) => {
                assert_eq!(self.next(), None, "nothing follows the end");
                self.guard.check_left();
                end
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Returns a shell script as a guard's command.
pub(crate) fn shell(script: &str) -> Command {
    Command {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        env: std::env::vars_os()
            .map(|(name, value)| (OsBytes::from(name.as_os_str()), OsBytes::from(value.as_os_str())))
            .collect(),
        cwd: "/".into(),
        trace: None,
        memory_bytes: None,
        is_held: false,
    }
}
