//! Repeats the exec of a traced process without its tracer, so that the process gets the privileges of the
//! program's file.
//!
//! The kernel withholds set-user-id bits and file capabilities from a traced process, and reports the exec
//! afterwards. The program has then not run any instruction, and its arguments and environment are unchanged,
//! so the same exec can be repeated. The exec's instructions overwrite the first instructions of the program,
//! and disappear with it.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    os::unix::{ffi::OsStrExt, fs::FileExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use super::{
    arch,
    requests::{detach, general_registers, set_general_registers, write_words},
};
use crate::process::Pid;

/// Path of a process's own executable, with the terminating NUL.
const OWN_PROGRAM: &[u8; 16] = b"/proc/self/exe\0\0";
/// Distance below the stack pointer where the path is written. The kernel maps at least this much of a new
/// stack.
const PATH_BELOW_STACK: u64 = 256;
/// `AT_EXECFN`: address of the executed path.
const EXECUTED_PATH_ENTRY: u64 = 31;
/// Longest path that the kernel executes.
const LONGEST_PATH: usize = 4096;
const WORD_BYTES: u64 = size_of::<u64>() as u64;

/// Arguments of an exec, as addresses in the executing process.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExecCall {
    pub(super) path: u64,
    pub(super) argv: u64,
    pub(super) envp: u64,
}

/// Releases a process that is stopped after its exec, and lets it repeat the exec untraced.
///
/// # Errors
/// The memory of the process cannot be read, because its user may not read its file, or the program is not a
/// 64-bit program. The process is still stopped then.
pub fn repeat_exec_untraced(pid: Pid) -> io::Result<()> {
    let unsupported = || io::Error::from(io::ErrorKind::Unsupported);
    let mut class = [0; 5];
    File::open(format!("/proc/{pid}/exe"))?.read_exact_at(&mut class, 0)?;
    // Without procfs in its own file system, the process could not find its program again.
    if &class != b"\x7fELF\x02" || fs::symlink_metadata(place_of(pid).join("root/proc/self")).is_err() {
        return Err(unsupported());
    }
    let mut registers = general_registers(pid)?;
    let stack = arch::stack_pointer(&registers);
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let argument_count = read_word(&memory, stack)?;
    let argv = stack + WORD_BYTES;
    let envp = argument_count
        .checked_add(1)
        .and_then(|words| words.checked_mul(WORD_BYTES))
        .and_then(|bytes| argv.checked_add(bytes))
        .ok_or_else(unsupported)?;
    let path = match executed_path(pid, &memory) {
        Some(address) => address,
        None => {
            let address = stack.saturating_sub(PATH_BELOW_STACK) & !(WORD_BYTES - 1);
            write_words(pid, address, OWN_PROGRAM)?;
            address
        }
    };
    write_words(pid, arch::instruction_pointer(&registers), &arch::EXEC_INSTRUCTIONS)?;
    arch::set_exec_call(&mut registers, ExecCall { path, argv, envp });
    set_general_registers(pid, registers)?;
    detach(pid, None)
}

/// Returns a process's directory in procfs.
fn place_of(pid: Pid) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// Returns the address of the executed path if it leads to the program; a script's path does not.
fn executed_path(pid: Pid, memory: &File) -> Option<u64> {
    let entries = fs::read(format!("/proc/{pid}/auxv")).ok()?;
    let address = entries.chunks_exact(2 * size_of::<u64>()).find_map(|entry| {
        let (key, value) = entry.split_at(size_of::<u64>());
        let number = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_ne_bytes);
        (number(key)? == EXECUTED_PATH_ENTRY).then(|| number(value))?
    })?;
    let mut bytes = vec![0; LONGEST_PATH];
    let length = memory.read_at(&mut bytes, address).ok()?;
    let path = bytes[..length].split(|byte| *byte == 0).next().filter(|path| path.len() < length)?;
    let path = Path::new(OsStr::from_bytes(path));
    let place = place_of(pid);
    let seen = match path.strip_prefix("/") {
        Ok(below_root) => place.join("root").join(below_root),
        Err(_) => place.join("cwd").join(path),
    };
    let (named, executed) = (fs::metadata(seen).ok()?, fs::metadata(place.join("exe")).ok()?);
    ((named.dev(), named.ino()) == (executed.dev(), executed.ino())).then_some(address)
}

fn read_word(memory: &File, address: u64) -> io::Result<u64> {
    let mut bytes = [0; size_of::<u64>()];
    memory.read_exact_at(&mut bytes, address)?;
    Ok(u64::from_ne_bytes(bytes))
}
