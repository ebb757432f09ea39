//! Memory mappings of a process (`/proc/PID/maps`, also found in minidumps): parses the lines, and groups
//! them into programs.

use std::{
    ffi::{OsStr, OsString},
    ops::Range,
    os::unix::ffi::OsStrExt as _,
};

const PAGE_BYTES: u64 = 4096;
/// Twice the largest alignment that linkers use for segments.
const MAX_SEGMENT_GAP_BYTES: u64 = 4 << 20;

/// One line: an address range that maps part of a file, or a special region (`[vdso]`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemoryMapping {
    pub(crate) range: Range<u64>,
    pub(crate) offset: u64,
    /// Path of the file as seen by the process, without ` (deleted)`, or a name in brackets.
    pub(crate) path: OsString,
    pub(crate) is_executable: bool,
}

/// Returns the mappings of files and of the vDSO, skipping other lines.
pub(crate) fn parse_maps(text: &[u8]) -> Vec<MemoryMapping> {
    text.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<MemoryMapping> {
    // "start-end rwxp offset major:minor inode      path with spaces"
    let mut words = line.splitn(6, |byte| *byte == b' ');
    let mut word = || std::str::from_utf8(words.next()?).ok();
    let (start, end) = word()?.split_once('-')?;
    let (rights, offset) = (word()?, word()?);
    let path = words.nth(2)?.trim_ascii_start();
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    if !path.starts_with(b"/") && path != b"[vdso]" {
        return None;
    }
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    let (start, end) = (number(start)?, number(end)?);
    // The kernel never writes such a line, but the text in a dump is untrusted.
    if start > end {
        return None;
    }
    Some(MemoryMapping {
        range: start..end,
        offset: number(offset)?,
        path: OsStr::from_bytes(path).to_owned(),
        is_executable: rights.as_bytes().get(2) == Some(&b'x'),
    })
}

/// Groups the mappings into programs and libraries. Adjacent mappings of the same file belong together if
/// their offsets fit. Besides the loader's mappings, a program may also map a file to read it, even its own.
pub(crate) fn group_by_module(mappings: Vec<MemoryMapping>) -> Vec<Vec<MemoryMapping>> {
    let mut groups: Vec<Vec<MemoryMapping>> = Vec::new();
    for mapping in mappings {
        match groups
            .last_mut()
            .filter(|group| group.last().is_some_and(|last| last.is_continued_by(&mapping)))
        {
            Some(group) => group.push(mapping),
            None => groups.push(vec![mapping]),
        }
    }
    groups.retain(|group| group.iter().any(|mapping| mapping.is_executable));
    groups
}

impl MemoryMapping {
    /// Returns whether `next` can be the next segment of the same program. Segments have the same order in
    /// the file and in memory. Their distance in memory may be larger, because linkers let adjacent segments
    /// share a page of the file, and align segments to large pages.
    fn is_continued_by(&self, next: &Self) -> bool {
        let length = self.range.end - self.range.start;
        let steps = next.range.start.checked_sub(self.range.start).zip(next.offset.checked_sub(self.offset));
        let is_near = |(in_memory, in_file): (u64, u64)| {
            in_memory.checked_sub(in_file).is_some_and(|further| further <= MAX_SEGMENT_GAP_BYTES)
                && length <= in_file.saturating_add(PAGE_BYTES)
        };
        self.path == next.path && steps.is_some_and(is_near)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
555555554000-555555556000 r--p 00000000 fe:00 42                         /home/a b/test (deleted)
555555556000-555555559000 r-xp 00002000 fe:00 42                         /home/a b/test (deleted)
555555559000-55555555a000 rw-p 00000000 00:00 0 
7ffff7a00000-7ffff7a28000 r--p 00000000 fe:00 99                         /data/table.bin
7ffff7fc5000-7ffff7fc7000 r-xp 00000000 00:00 0                          [vdso]
7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0                          [stack]
";

    #[test]
    fn path_keeps_spaces_and_loses_deleted_mark() {
        let mappings = parse_maps(MAPS.as_bytes());
        assert_eq!(mappings[1].path, "/home/a b/test");
        assert_eq!(mappings[1].range, 0x5555_5555_6000..0x5555_5555_9000);
        assert_eq!(mappings[1].offset, 0x2000);
        assert!(mappings[1].is_executable);
    }

    #[test]
    fn malformed_lines_are_ignored() {
        assert!(parse_maps(b"2000-1000 r-xp 00000000 fe:00 42 /a").is_empty());
        let last = "ffffffffffffe000-ffffffffffffffff r-xp ffffffffffffffff fe:00 42 /a\n";
        let first = "1000-2000 r-xp fffffffffffffffe fe:00 42 /a\n";
        assert_eq!(group_by_module(parse_maps(format!("{last}{first}{last}").as_bytes())).len(), 3);
    }

    #[test]
    fn mappings_without_code_are_not_modules() {
        let groups = group_by_module(parse_maps(MAPS.as_bytes()));
        let names: Vec<&str> = groups.iter().map(|group| group[0].path.to_str().unwrap()).collect();
        assert_eq!(names, ["/home/a b/test", "[vdso]"]);
    }

    #[test]
    fn path_keeps_bytes_that_are_no_text() {
        let mappings = parse_maps(b"1000-2000 r-xp 00000000 fe:00 7   /lib/\xff b.so (deleted)\nnoise\n");
        let [mapping] = &mappings[..] else { panic!("{mappings:?}") };
        assert_eq!((mapping.path.as_bytes(), mapping.is_executable), (&b"/lib/\xff b.so"[..], true));
    }

    #[test]
    fn library_mapped_twice_is_two_modules() {
        let twice = "\
1000-2000 r--p 00000000 fe:00 7 /lib/x.so
2000-3000 r-xp 00001000 fe:00 7 /lib/x.so
9000-a000 r--p 00000000 fe:00 7 /lib/x.so
a000-b000 r-xp 00001000 fe:00 7 /lib/x.so
";
        assert_eq!(group_by_module(parse_maps(twice.as_bytes())).len(), 2);
    }

    /// Checks the address ranges of the programs found in these mappings.
    #[track_caller]
    fn check(text: &str, expected: &[(u64, u64)]) {
        let groups = group_by_module(parse_maps(text.as_bytes()));
        let ranges: Vec<_> =
            groups.iter().map(|group| (group[0].range.start, group[group.len() - 1].range.end)).collect();
        assert_eq!(ranges, expected);
    }

    #[test]
    fn file_mapped_for_reading_does_not_extend_module() {
        let whole_below = "\
0ff00000-0ff09000 r--p 00000000 fe:00 7 /lib/x.so
10000000-10002000 r--p 00000000 fe:00 7 /lib/x.so
10002000-10006000 r-xp 00002000 fe:00 7 /lib/x.so
10007000-10009000 rw-p 00005000 fe:00 7 /lib/x.so
10009000-1000a000 r--p 00000000 fe:00 7 /lib/x.so
";
        check(whole_below, &[(0x1000_0000, 0x1000_9000)]);
        let piece_far_below = "\
0f000000-0f001000 r--p 00001000 fe:00 7 /lib/x.so
0f001000-0f002000 r-xp 00000000 fe:00 8 /lib/y.so
10000000-10002000 r--p 00000000 fe:00 7 /lib/x.so
10002000-10006000 r-xp 00002000 fe:00 7 /lib/x.so
";
        check(piece_far_below, &[(0xf00_1000, 0xf00_2000), (0x1000_0000, 0x1000_6000)]);
    }

    #[test]
    fn segments_on_large_or_shared_pages_are_grouped() {
        let large = "\
00400000-00401000 r--p 00000000 fe:00 7 /bin/x
00600000-00604000 r-xp 00000000 fe:00 7 /bin/x
00803000-00805000 rw-p 00003000 fe:00 7 /bin/x
";
        check(large, &[(0x40_0000, 0x80_5000)]);
    }
}
