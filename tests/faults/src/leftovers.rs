//! Detects leftovers of a round: processes, sockets, files and mounts.

use std::{
    fs,
    os::unix::ffi::OsStrExt,
    path::Path,
    time::{Duration, Instant},
};

use crate::heeler_process::MARK;

/// Heeler guarantees one second. A machine that is busy with many rounds needs more.
const GONE_WITHIN: Duration = Duration::from_secs(15);

/// Waits until a round has left nothing behind; returns what is left at the timeout. `has_owner` is false if
/// no process survived that could remove files.
pub(crate) fn wait_clean(dir: &Path, mark: &str, has_owner: bool) -> Vec<String> {
    let until = Instant::now() + GONE_WITHIN;
    let mut pause = Duration::from_millis(2);
    loop {
        let mut left = processes(dir, mark);
        if has_owner {
            left.extend(files(dir));
        }
        left.extend(mounts(dir));
        if left.is_empty() || Instant::now() > until {
            return left;
        }
        std::thread::park_timeout(pause);
        pause = (pause * 2).min(Duration::from_millis(200));
    }
}

/// Returns the processes that have the mark in their environment or the round's directory as their working
/// directory.
fn processes(dir: &Path, mark: &str) -> Vec<String> {
    let wanted = format!("{MARK}={mark}");
    let is_of_round = |process: &Path| {
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        let is_marked = environment.split(|byte| *byte == 0).any(|one| one == wanted.as_bytes());
        is_marked || fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(dir))
    };
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.file_name().as_bytes().iter().all(u8::is_ascii_digit))
        .map(|entry| entry.path())
        .filter(|process| is_of_round(process))
        .map(|process| {
            let words = fs::read(process.join("cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).replace('\0', " ");
            format!("process {} {words}", process.display())
        })
        .collect()
}

/// Returns the entries in the directories for sockets and temporary files.
fn files(dir: &Path) -> Vec<String> {
    ["tmp", "run"]
        .iter()
        .flat_map(|name| fs::read_dir(dir.join(name)).into_iter().flatten().flatten())
        .filter(|entry| !is_for_journals(&entry.path()) && !is_of_compiler(&entry.path()))
        .map(|entry| format!("file {}", entry.path().display()))
        .collect()
}

/// Returns whether the path is a temporary file of a C compiler or linker, such as `ccXXXXXX.s`, `.o`, `.res`
/// or `.cdtor.c`. A compiler that is killed together with the coordinator leaves these files behind.
fn is_of_compiler(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (stem, extension) = name.split_once('.').unwrap_or_default();
    let is_part = ["s", "o", "res", "ld", "le", "cdtor.c", "cdtor.o"].contains(&extension);
    is_part && stem.len() == "ccXXXXXX".len() && stem.starts_with("cc")
}

/// Returns whether the path is the directory for journals that could not be written to the state directory.
/// These journals are kept, and the client gets their path. The directory is empty if the process is killed
/// just after creating it.
fn is_for_journals(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_named = name == format!("heeler-{}", heeler_sys::process::effective_uid());
    let is_empty = fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    (is_named && is_empty) || ((is_named || name.starts_with("heeler-runs")) && path.join("runs").is_dir())
}

fn mounts(dir: &Path) -> Vec<String> {
    let dir = dir.to_string_lossy();
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    // The harness mounts the round's own disk.
    let is_left = |line: &&str| line.contains(&*dir) && !line.starts_with("heeler-faults ");
    table.lines().filter(is_left).map(|line| format!("mount {line}")).collect()
}

/// Returns leftovers in places that all rounds share: Heeler's control groups and shared memory.
pub(crate) fn shared_leftovers() -> Vec<String> {
    let mut left = Vec::new();
    let mut waiting = vec![Path::new("/sys/fs/cgroup").to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            let leaf = name.to_str().and_then(|name| name.strip_prefix("heeler-leaf-"));
            if let Some(leaf) = leaf {
                // The owner of this group is still running.
                let owner = leaf.split('-').next().unwrap_or_default();
                if Path::new("/proc").join(owner).exists() {
                    continue;
                }
                left.push(format!("control group {}", path.display()));
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(path);
            }
        }
    }
    let shared = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    left.extend(shared.map(|entry| format!("shared memory {}", entry.path().display())));
    left
}
