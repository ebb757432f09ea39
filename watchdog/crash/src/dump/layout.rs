//! Layout of a minidump: the parts of its stream directory that Heeler changes or checks.

/// Stream with the threads, their registers and stacks.
pub(super) const THREAD_LIST: u32 = 3;
/// Stream with the memory ranges.
pub(super) const MEMORY_LIST: u32 = 5;
/// `/proc/PID/environ`.
pub(super) const LINUX_ENVIRON: u32 = 0x4767_0007;
/// `/proc/PID/status`.
pub(super) const LINUX_STATUS: u32 = 0x4767_0004;
/// `/proc/PID/cmdline`.
pub(super) const LINUX_COMMAND_LINE: u32 = 0x4767_0006;
/// `/proc/PID/maps`.
pub(super) const LINUX_MAPS: u32 = 0x4767_0009;
/// Stream with the writer's soft errors.
pub(super) const SOFT_ERRORS: u32 = 0x4d7a_0004;

/// Returns whether a stream is text that the kernel shows to everybody, not memory of the process.
pub(super) fn is_public_text(kind: u32) -> bool {
    let is_of_linux = (0x4767_0003..=0x4767_000a).contains(&kind) && kind != LINUX_ENVIRON;
    is_of_linux || (0x4d7a_0000..=0x4d7a_ffff).contains(&kind)
}

#[derive(Debug, Clone, Copy)]
pub(super) struct DumpStream {
    pub(super) kind: u32,
    pub(super) size: usize,
    /// Offset of the stream's bytes.
    pub(super) offset: usize,
    /// Offset of the directory entry.
    pub(super) entry_offset: usize,
}

/// Returns the streams of a dump, skipping streams that reach beyond its end.
pub(super) fn streams(dump: &[u8]) -> Vec<DumpStream> {
    let (Some(count), Some(directory)) = (read_u32(dump, 8), read_u32(dump, 12)) else { return Vec::new() };
    let stream = |index: usize| {
        let entry = directory.checked_add(index.checked_mul(12)?)?;
        let (size, at) = (read_u32(dump, entry + 4)?, read_u32(dump, entry + 8)?);
        let kind = u32::try_from(read_u32(dump, entry)?).ok()?;
        (at.checked_add(size)? <= dump.len()).then_some(DumpStream {
            kind,
            size,
            offset: at,
            entry_offset: entry,
        })
    };
    (0..count.min(1024)).filter_map(stream).collect()
}

/// Returns the bytes of the first stream of a type.
pub(super) fn stream(dump: &[u8], kind: u32) -> Option<&[u8]> {
    let found = streams(dump).into_iter().find(|stream| stream.kind == kind)?;
    Some(&dump[found.offset..found.offset + found.size])
}

pub(super) fn read_u32(dump: &[u8], at: usize) -> Option<usize> {
    let bytes = dump.get(at..at.checked_add(4)?)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(bytes)).ok()
}

pub(super) fn read_u64(dump: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(dump.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

pub(super) fn thread_count(dump: &[u8]) -> usize {
    stream(dump, THREAD_LIST).and_then(|list| read_u32(list, 0)).unwrap_or(0)
}

/// Returns the writer's soft errors, one per entry.
pub(super) fn soft_errors(dump: &[u8]) -> Vec<String> {
    let Some(bytes) = stream(dump, SOFT_ERRORS) else { return Vec::new() };
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_matches(['\0', ' ', '\n']);
    let Ok(serde_json::Value::Array(list)) = serde_json::from_str(text) else {
        return if text.is_empty() { Vec::new() } else { vec![text.to_owned()] };
    };
    list.into_iter().map(|error| error.to_string()).collect()
}
