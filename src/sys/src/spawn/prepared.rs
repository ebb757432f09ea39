//! Data of a process start, allocated before the child is created, because the child must not allocate.

use std::{
    ffi::{CString, OsString, c_char},
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
    sync::atomic::AtomicI32,
};

use super::{
    ChildStdio, SpawnError, SpawnOptions,
    child::{STREAM_COUNT, SpawnPlan, SpawnStep},
};
use crate::process::Pid;

/// A process start with all data for the child, allocated before the child is created.
#[derive(Debug)]
pub(crate) struct PreparedSpawn {
    program: PathBuf,
    cwd: Option<PathBuf>,
    strings: ExecStrings,
    streams: [ChildStdio; STREAM_COUNT],
    null: Option<OwnedFd>,
}

impl PreparedSpawn {
    pub(crate) fn new(spawn: SpawnOptions) -> Result<Self, SpawnError> {
        let SpawnOptions { program, args, env, cwd, stdin, stdout, stderr, channel } = spawn;
        let strings = ExecStrings::new(&program, args, env, cwd.as_deref())?;
        let streams = [stdin, stdout, stderr, channel.map_or(ChildStdio::Inherit, ChildStdio::Fd)];
        let null = open_null_if_needed(streams.each_ref())?;
        Ok(Self { program, cwd, strings, streams, null })
    }

    /// Returns the input of the child, valid while `self` is not moved.
    pub(crate) fn plan(&self) -> SpawnPlan {
        let streams = self.streams.each_ref().map(|stream| match stream {
            ChildStdio::Null => self.null.as_ref().map_or(-1, AsRawFd::as_raw_fd),
            ChildStdio::Inherit => -1,
            ChildStdio::Fd(fd) => fd.as_raw_fd(),
        });
        SpawnPlan {
            program: self.strings.program.as_ptr(),
            argv: self.strings.argv.as_ptr(),
            envp: self.strings.envp.as_ptr(),
            cwd: self.strings.cwd.as_ref().map_or(std::ptr::null(), |cwd| cwd.as_ptr()),
            streams,
            parent: Pid::own().0,
            gate: [-1; 2],
            step: AtomicI32::new(SpawnStep::Start as i32),
            errno: AtomicI32::new(0),
        }
    }

    /// Returns whether the child receives a report channel.
    pub(crate) fn has_channel(&self) -> bool {
        let [.., channel] = &self.streams;
        matches!(channel, ChildStdio::Fd(_))
    }

    pub(crate) fn create_error(self, source: io::Error) -> SpawnError {
        SpawnError::Create { program: self.program, source }
    }

    /// Converts a child's failure report into an error.
    pub(crate) fn step_error(self, step: i32, errno: i32) -> SpawnError {
        let Self { program, cwd, .. } = self;
        let source = io::Error::from_raw_os_error(errno);
        match SpawnStep::ALL.into_iter().find(|one| *one as i32 == step) {
            Some(SpawnStep::Execute) => SpawnError::Execute { program, source },
            Some(SpawnStep::Directory) => SpawnError::Directory {
                cwd: cwd.expect("only a given directory is entered"),
                program,
                source,
            },
            other => SpawnError::Prepare {
                step: other.map_or("preparation", SpawnStep::description),
                program,
                source,
            },
        }
    }
}

fn open_null_if_needed(streams: [&ChildStdio; STREAM_COUNT]) -> Result<Option<OwnedFd>, SpawnError> {
    if !streams.iter().any(|stream| matches!(stream, ChildStdio::Null)) {
        return Ok(None);
    }
    let file = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null");
    file.map(|file| Some(file.into())).map_err(|source| SpawnError::NullDevice { source })
}

/// Arguments of exec, allocated before the child is created, because the child must not allocate.
#[derive(Debug)]
struct ExecStrings {
    program: CString,
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
    cwd: Option<CString>,
    /// Owner of the data behind the pointers above. The strings' heap blocks never move.
    _owned: Vec<CString>,
}

impl ExecStrings {
    fn new(
        program: &Path,
        args: Vec<OsString>,
        env: Option<Vec<(OsString, OsString)>>,
        cwd: Option<&Path>,
    ) -> Result<Self, SpawnError> {
        let string = |bytes: Vec<u8>| {
            CString::new(bytes).map_err(|error| SpawnError::NulByte {
                program: program.to_owned(),
                text: String::from_utf8_lossy(&error.into_vec()).into_owned(),
            })
        };
        let env = env.unwrap_or_else(|| std::env::vars_os().collect());
        let (mut argv, mut envp) = (Vec::with_capacity(args.len() + 2), Vec::with_capacity(env.len() + 1));
        let mut owned = Vec::with_capacity(args.len() + env.len());
        let program_string = string(program.as_os_str().to_owned().into_vec())?;
        argv.push(program_string.as_ptr());
        for arg in args {
            let arg = string(arg.into_vec())?;
            argv.push(arg.as_ptr());
            owned.push(arg);
        }
        for (name, value) in env {
            let mut pair = name.into_vec();
            pair.push(b'=');
            pair.extend_from_slice(&value.into_vec());
            let pair = string(pair)?;
            envp.push(pair.as_ptr());
            owned.push(pair);
        }
        argv.push(std::ptr::null());
        envp.push(std::ptr::null());
        let cwd = cwd.map(|cwd| string(cwd.as_os_str().to_owned().into_vec())).transpose()?;
        Ok(Self { program: program_string, argv, envp, cwd, _owned: owned })
    }
}
