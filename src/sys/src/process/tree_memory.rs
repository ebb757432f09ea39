//! Memory of a process tree, counting shared memory once: the pages of its processes, and shared memory that
//! they hold through descriptors, whether mapped or not.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::fs::MetadataExt,
    path::Path,
};

use super::{Pid, process_tree::descendants};

/// Size of the blocks in a file's `st_blocks`.
const BLOCK_BYTES: u64 = 512;
/// Prefixes of the link targets of shared-memory descriptors in procfs.
const SHARED_MEMORY_PATHS: [&[u8]; 2] = [b"/memfd:", b"/dev/shm/"];

/// A file in memory, identified by device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct MemoryFileId {
    device: u64,
    inode: u64,
}

/// Returns the memory of a process and all its descendants if it exceeds this number of bytes. Exited
/// processes use none.
///
/// First adds up resident pages and files in memory, which is fast and never too low. Only if this sum
/// exceeds the limit, counts pages shared by several processes once.
#[must_use]
pub fn memory_above(root: Pid, limit_bytes: u64) -> Option<u64> {
    let processes: Vec<Pid> = descendants(root).into_iter().chain([root]).collect();
    let files = memory_files(&processes);
    let in_files: u64 = files.values().sum();
    let page = rustix::param::page_size() as u64;
    let resident = |pid: &Pid| resident_pages(*pid).unwrap_or(0).saturating_mul(page);
    if processes.iter().map(resident).fold(in_files, u64::saturating_add) <= limit_bytes {
        return None;
    }
    let share = |pid: &Pid| proportional_bytes(*pid, &files).unwrap_or_else(|| resident(pid));
    let used = processes.iter().map(share).fold(in_files, u64::saturating_add);
    (used > limit_bytes).then_some(used)
}

fn resident_pages(pid: Pid) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Returns the files in memory that processes hold through descriptors, with their sizes.
fn memory_files(processes: &[Pid]) -> HashMap<MemoryFileId, u64> {
    let mut found = HashMap::new();
    for pid in processes {
        // Descriptors of another user's process cannot be read.
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            if is_shared_memory(&path)
                && let Ok(file) = fs::metadata(&path)
            {
                let id = MemoryFileId { device: file.dev(), inode: file.ino() };
                found.insert(id, file.blocks().saturating_mul(BLOCK_BYTES));
            }
        }
    }
    found
}

fn is_shared_memory(descriptor: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt as _;
    fs::read_link(descriptor).is_ok_and(|target| {
        SHARED_MEMORY_PATHS.iter().any(|begin| target.as_os_str().as_bytes().starts_with(begin))
    })
}

/// Returns a process's proportional share of its pages (each divided by the number of processes that map it),
/// without mappings of `files`. `None` if the process is gone or belongs to another user.
fn proportional_bytes(pid: Pid, files: &HashMap<MemoryFileId, u64>) -> Option<u64> {
    let mut lines = BufReader::new(File::open(format!("/proc/{pid}/smaps")).ok()?);
    let (mut total_kib, mut is_counted) = (0_u64, true);
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line).ok()? == 0 {
            return Some(total_kib.saturating_mul(1024));
        }
        let text = String::from_utf8_lossy(&line);
        if let Some(share) = text.strip_prefix("Pss:") {
            let kib: u64 = share.trim().trim_end_matches(" kB").parse().unwrap_or(0);
            total_kib += if is_counted { kib } else { 0 };
        } else if let Some(id) = mapped_file(&text) {
            is_counted = !files.contains_key(&id);
        }
    }
}

/// Parses the first line of a mapping and returns the mapped file (device and inode are 0 without one).
/// Returns `None` for other lines.
fn mapped_file(line: &str) -> Option<MemoryFileId> {
    // "start-end rwxs offset major:minor inode path"
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    u64::from_str_radix(start, 16).ok()?;
    u64::from_str_radix(end, 16).ok()?;
    let (major, minor) = words.nth(2)?.split_once(':')?;
    let number = |digits| u32::from_str_radix(digits, 16).ok();
    let device = rustix::fs::makedev(number(major)?, number(minor)?);
    Some(MemoryFileId { device, inode: words.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_line_of_a_mapping_names_its_file() {
        let line = "7f0000000000-7f0000100000 rw-s 00000000 00:01 1029    /memfd:x y (deleted)\n";
        assert_eq!(mapped_file(line), Some(MemoryFileId { device: 1, inode: 1029 }));
        for other in ["Pss:                1024 kB\n", "VmFlags: rd wr sh mr mw me ms sd\n", "", "a-b\n"] {
            assert_eq!(mapped_file(other), None, "{other}");
        }
    }

    #[test]
    fn memory_of_this_process_is_above_a_low_limit_only() {
        let used = memory_above(Pid::own(), 0).unwrap();
        assert!(used > 1 << 20, "{used}");
        assert_eq!(memory_above(Pid::own(), u64::MAX), None);
    }
}
