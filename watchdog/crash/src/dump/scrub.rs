//! Removes the environment from a dump. The environment occurs as a stream, at the top of the first thread's
//! stack, and as fragments: looking up a variable leaves parts of its neighbours in vector registers, and
//! functions copy them.

use std::{collections::HashSet, ops::Range};

use heeler_sys::process::Pid;

use super::layout::{self, DumpStream};

/// Minimum length of a fragment. Shorter fragments carry no information, and would match by accident.
const FRAGMENT_BYTES: usize = 8;
/// Size of the filter. Large enough that a typical environment sets few of its bits.
const FILTER_BITS: usize = 1 << 18;

/// Environment of a process at its start.
pub(super) struct ProcessEnvironment {
    range: Option<Range<u64>>,
    fragments: HashSet<u64>,
    /// Filter by hashes of the fragments, which rejects most bytes of a dump with one lookup.
    filter: Vec<bool>,
}

impl ProcessEnvironment {
    /// Reads the environment from procfs. An unreadable part counts as empty. If the first thread of a
    /// process has ended, the environment is readable only through the other threads.
    pub(super) fn read(pid: Pid, blamed: Pid) -> Self {
        let text = |pid| std::fs::read(format!("/proc/{pid}/environ")).ok().filter(|text| !text.is_empty());
        let text = text(pid).or_else(|| text(blamed)).unwrap_or_default();
        Self::new(environment_range(pid).or_else(|| environment_range(blamed)), &text)
    }

    fn new(range: Option<Range<u64>>, text: &[u8]) -> Self {
        let whole =
            text.windows(FRAGMENT_BYTES).filter(|piece| !piece.contains(&0)).filter_map(fragment_number);
        let fragments: HashSet<u64> = whole.collect();
        let mut filter = vec![false; FILTER_BITS];
        for piece in &fragments {
            filter[fragment_hash(*piece)] = true;
        }
        Self { range, fragments, filter }
    }

    fn contains(&self, piece: u64) -> bool {
        self.filter[fragment_hash(piece)] && self.fragments.contains(&piece)
    }
}

/// Zeroes the environment stream, the environment in all memory ranges, and fragments of the environment
/// elsewhere. Text that the kernel shows to everybody, such as paths of libraries, stays unchanged.
pub(super) fn scrub(dump: &mut [u8], environment: &ProcessEnvironment) {
    let streams = layout::streams(dump);
    for stream in &streams {
        match stream.kind {
            layout::LINUX_ENVIRON => {
                dump[stream.offset..stream.offset + stream.size].fill(0);
                // An empty stream means "no variables". A stream of zeroes would mean "one variable without a
                // name".
                dump[stream.entry_offset + 4..stream.entry_offset + 8].fill(0);
            }
            layout::MEMORY_LIST => {
                let Some(range) = &environment.range else { continue };
                for index in 0..layout::read_u32(dump, stream.offset).unwrap_or(0) {
                    scrub_range(dump, stream.offset + 4 + 16 * index, range);
                }
            }
            _ => {}
        }
    }
    scrub_fragments(dump, &public_parts(&streams), environment);
}

/// Returns the parts with public contents, in order.
fn public_parts(streams: &[DumpStream]) -> Vec<Range<usize>> {
    let is_open = |stream: &&DumpStream| layout::is_public_text(stream.kind);
    let mut parts: Vec<Range<usize>> =
        streams.iter().filter(is_open).map(|stream| stream.offset..stream.offset + stream.size).collect();
    parts.sort_unstable_by_key(|part| part.start);
    parts
}

fn scrub_fragments(dump: &mut [u8], open: &[Range<usize>], environment: &ProcessEnvironment) {
    let mut at = 0;
    for part in open.iter().cloned().chain(std::iter::once(dump.len()..dump.len())) {
        if at < part.start {
            scrub_bytes(&mut dump[at..part.start], environment);
        }
        at = at.max(part.end);
    }
}

fn scrub_bytes(bytes: &mut [u8], environment: &ProcessEnvironment) {
    let mut found: Vec<Range<usize>> = Vec::new();
    for (at, piece) in bytes.windows(FRAGMENT_BYTES).enumerate() {
        if fragment_number(piece).is_some_and(|piece| environment.contains(piece)) {
            match found.last_mut() {
                Some(last) if at <= last.end => last.end = at + FRAGMENT_BYTES,
                _ => found.push(at..at + FRAGMENT_BYTES),
            }
        }
    }
    for range in found {
        bytes[range].fill(0);
    }
}

/// Zeroes the environment in one memory range. A range's descriptor consists of a 64-bit address, a 32-bit
/// size, and the offset of the bytes in the dump.
fn scrub_range(dump: &mut [u8], descriptor: usize, environment: &Range<u64>) {
    let Some(start) = layout::read_u64(dump, descriptor) else { return };
    let (Some(size), Some(at)) =
        (layout::read_u32(dump, descriptor + 8), layout::read_u32(dump, descriptor + 12))
    else {
        return;
    };
    let from = start.max(environment.start);
    let to = start.saturating_add(size as u64).min(environment.end);
    if from >= to {
        return;
    }
    let place = |address: u64| usize::try_from(address - start).ok()?.checked_add(at);
    let (Some(from), Some(to)) = (place(from), place(to)) else { return };
    if let Some(bytes) = dump.get_mut(from..to) {
        bytes.fill(0);
    }
}

/// Returns the address range of the initial environment of a process.
fn environment_range(pid: Pid) -> Option<Range<u64>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The process name, in parentheses, may contain anything. The numbers after it begin with field 3.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(field(50)?..field(51)?).filter(|range| range.start < range.end)
}

fn fragment_number(piece: &[u8]) -> Option<u64> {
    piece.try_into().ok().map(u64::from_le_bytes)
}

fn fragment_hash(piece: u64) -> usize {
    // The upper bits of a product depend on all bits of its factors.
    (piece.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - FILTER_BITS.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_fragments_are_zeroed_at_any_offset() {
        let environment = ProcessEnvironment::new(None, b"TOKEN=hunter2-and-more\0HOME=/home/x\0");
        let mut bytes = b"..ER=unter2-and-mo,hunter\0\0/home/y".to_vec();
        scrub_bytes(&mut bytes, &environment);
        assert_eq!(bytes, b"..ER=\0\0\0\0\0\0\0\0\0\0\0\0\0,hunter\0\0/home/y");
    }

    #[test]
    fn empty_environment_scrubs_nothing() {
        let environment = ProcessEnvironment::new(None, b"");
        let mut bytes = [0; 64];
        bytes[3] = 7;
        let before = bytes;
        scrub_bytes(&mut bytes, &environment);
        assert_eq!(bytes, before);
    }

    #[test]
    fn public_parts_are_not_scrubbed() {
        let environment = ProcessEnvironment::new(None, b"HOME=/home/somebody\0");
        let mut bytes = b"/home/somebody|/home/somebody|/home/somebody".to_vec();
        scrub_fragments(&mut bytes, &[0..2, 15..29], &environment);
        let zeroes = "\0".repeat(14);
        assert_eq!(bytes, format!("/h{}|/home/somebody|{zeroes}", &zeroes[2..]).into_bytes());
    }
}
