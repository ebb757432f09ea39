//! What the system says is mapped where (`/proc/PID/maps`, also found in minidumps), as lines and as programs.

use std::ops::Range;

/// One line: a range of memory that shows a part of a file, or what the system calls it (`[vdso]`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// The addresses.
    pub(crate) range: Range<u64>,
    /// Where in the file it begins.
    pub(crate) offset: u64,
    /// The file's path as the process saw it, without ` (deleted)`; or a name in brackets.
    pub(crate) path: String,
    /// Whether code may run there.
    pub(crate) is_executable: bool,
}

/// Returns the mappings of files and the one of the system's own code; lines that say nothing are left out.
pub(crate) fn parse(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<Mapping> {
    // "start-end rwxp offset major:minor inode      path with spaces"
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let offset = words.next()?;
    let path = words.nth(2)?.trim_start();
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    if !path.starts_with('/') && path != "[vdso]" {
        return None;
    }
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    Some(Mapping {
        range: number(start)?..number(end)?,
        offset: number(offset)?,
        path: path.to_owned(),
        is_executable: rights.as_bytes().get(2) == Some(&b'x'),
    })
}

/// Returns the mappings as programs and libraries: neighbours that show the same file belong together.
pub(crate) fn group(mappings: Vec<Mapping>) -> Vec<Vec<Mapping>> {
    let mut groups: Vec<Vec<Mapping>> = Vec::new();
    for mapping in mappings {
        // Two copies of one library (dlmopen) begin anew at offset 0.
        let belongs = |group: &Vec<Mapping>| {
            group.last().is_some_and(|last| last.path == mapping.path && last.offset <= mapping.offset)
        };
        match groups.iter_mut().rev().find(|group| belongs(group)) {
            Some(group) => group.push(mapping),
            None => groups.push(vec![mapping]),
        }
    }
    groups.retain(|group| group.iter().any(|mapping| mapping.is_executable));
    groups
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
    fn paths_keep_their_spaces_and_lose_the_mark_of_deletion() {
        let mappings = parse(MAPS);
        assert_eq!(mappings[1].path, "/home/a b/test");
        assert_eq!(mappings[1].range, 0x5555_5555_6000..0x5555_5555_9000);
        assert_eq!(mappings[1].offset, 0x2000);
        assert!(mappings[1].is_executable);
    }

    #[test]
    fn only_what_holds_code_is_a_program() {
        let groups = group(parse(MAPS));
        let names: Vec<&str> = groups.iter().map(|group| group[0].path.as_str()).collect();
        assert_eq!(names, ["/home/a b/test", "[vdso]"]);
    }

    #[test]
    fn the_same_library_twice_is_two_programs() {
        let twice = "\
1000-2000 r--p 00000000 fe:00 7 /lib/x.so
2000-3000 r-xp 00001000 fe:00 7 /lib/x.so
9000-a000 r--p 00000000 fe:00 7 /lib/x.so
a000-b000 r-xp 00001000 fe:00 7 /lib/x.so
";
        assert_eq!(group(parse(twice)).len(), 2);
    }
}
