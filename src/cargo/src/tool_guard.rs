//! A guard around a tool. When the tool ends or is cancelled, or this process dies, the guard kills
//! everything that the tool has started, such as the compilers of a shell's `make`.

use std::{
    ffi::OsString,
    io::{self, Read as _, Write as _},
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::{Path, PathBuf},
};

use bytes::BytesMut;
use heeler_protocol::{
    StreamDecoder as _,
    control::{FromGuard, OsText, TestCommand, ToGuard},
    packet::{self, ControlPacket, PacketDecoder},
};
use heeler_sys::{
    io::socket_pair,
    process::{ExitStatus, shared_program_path},
    spawn::SpawnOptions,
};

/// Role name of a guard process.
const GUARD_ROLE: &str = "__guard";
/// Size of one read. Messages about a tool's end are small.
const READ_BYTES: usize = 4 << 10;

/// Connection to a tool's guard. Dropping it kills the tool.
#[derive(Debug)]
pub(super) struct ToolGuard {
    stream: UnixStream,
    buffer: BytesMut,
}

impl ToolGuard {
    /// Creates a connection; returns also the guard's spawn options and its end of the socket. The guard's
    /// outputs become the tool's outputs.
    ///
    /// # Errors
    /// The system has no free file descriptors.
    pub(super) fn connect() -> io::Result<(Self, SpawnOptions, OwnedFd)> {
        let (own, theirs) = socket_pair()?;
        let guard =
            SpawnOptions { args: vec![GUARD_ROLE.into()], ..SpawnOptions::new(shared_program_path()) };
        Ok((Self { stream: UnixStream::from(own), buffer: BytesMut::new() }, guard, theirs))
    }

    /// Makes the guard start a tool with this environment.
    ///
    /// # Errors
    /// The guard is gone.
    pub(super) fn start(
        &mut self,
        program: &Path,
        args: &[OsString],
        env: Option<Vec<(OsString, OsString)>>,
        dir: Option<PathBuf>,
    ) -> io::Result<()> {
        let text = |text: &OsString| OsText::from(text.as_os_str());
        let env = env.unwrap_or_else(|| std::env::vars_os().collect());
        let dir = match dir {
            Some(dir) => dir,
            None => std::env::current_dir()?,
        };
        let command = TestCommand {
            program: OsText::from(program),
            args: args.iter().map(text).collect(),
            env: env.iter().map(|(name, value)| (text(name), text(value))).collect(),
            cwd: OsText::from(dir.as_path()),
            ..TestCommand::default()
        };
        self.stream.write_all(&packet::encode_message(&ToGuard::Exec(command)))
    }

    /// Waits until the tool and all its processes have ended.
    ///
    /// # Errors
    /// The tool could not be started, or its guard is gone.
    pub(super) fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            match self.next_message()? {
                FromGuard::Ended(exit) => {
                    return Ok(ExitStatus { code: exit.code, signal: exit.signal, ..ExitStatus::default() });
                }
                FromGuard::StartFailed { error } => return Err(io::Error::other(error)),
                // Other messages are irrelevant here.
                _ => {}
            }
        }
    }

    fn next_message(&mut self) -> io::Result<FromGuard> {
        let invalid = |error: String| io::Error::new(io::ErrorKind::InvalidData, error);
        loop {
            match PacketDecoder.decode(&mut self.buffer) {
                Ok(Some(ControlPacket::Message(body))) => {
                    return packet::decode_message(&body).map_err(|error| invalid(error.to_string()));
                }
                Ok(Some(ControlPacket::Forward { .. } | ControlPacket::Heartbeat)) => {}
                Ok(None) => {
                    let mut bytes = [0; READ_BYTES];
                    match self.stream.read(&mut bytes) {
                        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                        Ok(count) => self.buffer.extend_from_slice(&bytes[..count]),
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(error),
                    }
                }
                Err(error) => return Err(invalid(error.to_string())),
            }
        }
    }
}
