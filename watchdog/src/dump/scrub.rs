//! Removes the environment from a dump. It occurs as a stream, at the top of the first thread's stack, and in
//! fragments: a lookup of a variable leaves parts of its neighbours in vector registers, and functions copy
//! them.

use std::{collections::HashSet, ops::Range};

use host::process::Pid;

use super::layout::{self, Stream};

/// Minimum length of a fragment. Shorter ones carry no information, and would match by accident.
const PIECE_BYTES: usize = 8;
/// Size of the filter: large enough that a usual environment sets few of its bits.
const FILTER_BITS: usize = 1 << 18;

/// The environment that a process was started with.
pub(super) struct Environment {
    range: Option<Range<u64>>,
    pieces: HashSet<u64>,
    /// The hashes of the fragments; most bytes of a dump are rejected here, at the cost of one lookup.
    filter: Vec<bool>,
}

impl Environment {
    /// Reads the environment from procfs; a part that cannot be read is treated as empty. A process whose
    /// first thread has ended has no readable environment any more, but its other threads do.
    pub(super) fn of(pid: Pid, blamed: Pid) -> Self {
        let text = |pid| std::fs::read(format!("/proc/{pid}/environ")).ok().filter(|text| !text.is_empty());
        let text = text(pid).or_else(|| text(blamed)).unwrap_or_default();
        Self::new(range_of(pid).or_else(|| range_of(blamed)), &text)
    }

    fn new(range: Option<Range<u64>>, text: &[u8]) -> Self {
        let whole = text.windows(PIECE_BYTES).filter(|piece| !piece.contains(&0)).filter_map(number);
        let pieces: HashSet<u64> = whole.collect();
        let mut filter = vec![false; FILTER_BITS];
        for piece in &pieces {
            filter[hash(*piece)] = true;
        }
        Self { range, pieces, filter }
    }

    fn holds(&self, piece: u64) -> bool {
        self.filter[hash(piece)] && self.pieces.contains(&piece)
    }
}

/// Zeroes the environment stream, the environment in every range of memory, and fragments of it everywhere
/// except in text that the kernel provides openly, such as paths of libraries.
pub(super) fn scrub(dump: &mut [u8], environment: &Environment) {
    let streams = layout::streams(dump);
    for stream in &streams {
        match stream.kind {
            layout::LINUX_ENVIRON => {
                dump[stream.at..stream.at + stream.size].fill(0);
                // An empty stream means "no variables"; a stream of zeroes would mean "one without a name".
                dump[stream.entry + 4..stream.entry + 8].fill(0);
            }
            layout::MEMORY_LIST => {
                let Some(range) = &environment.range else { continue };
                for index in 0..layout::number(dump, stream.at).unwrap_or(0) {
                    scrub_range(dump, stream.at + 4 + 16 * index, range);
                }
            }
            _ => {}
        }
    }
    scrub_pieces(dump, &open_parts(&streams), environment);
}

/// Returns the parts whose contents are public, in order.
fn open_parts(streams: &[Stream]) -> Vec<Range<usize>> {
    let is_open = |stream: &&Stream| layout::is_open_text(stream.kind);
    let mut parts: Vec<Range<usize>> =
        streams.iter().filter(is_open).map(|stream| stream.at..stream.at + stream.size).collect();
    parts.sort_unstable_by_key(|part| part.start);
    parts
}

fn scrub_pieces(dump: &mut [u8], open: &[Range<usize>], environment: &Environment) {
    let mut at = 0;
    for part in open.iter().cloned().chain(std::iter::once(dump.len()..dump.len())) {
        if at < part.start {
            scrub_part(&mut dump[at..part.start], environment);
        }
        at = at.max(part.end);
    }
}

fn scrub_part(bytes: &mut [u8], environment: &Environment) {
    let mut found: Vec<Range<usize>> = Vec::new();
    for (at, piece) in bytes.windows(PIECE_BYTES).enumerate() {
        if number(piece).is_some_and(|piece| environment.holds(piece)) {
            match found.last_mut() {
                Some(last) if at <= last.end => last.end = at + PIECE_BYTES,
                _ => found.push(at..at + PIECE_BYTES),
            }
        }
    }
    for range in found {
        bytes[range].fill(0);
    }
}

/// Zeroes the environment in one range of memory. Its descriptor is a 64-bit address, a 32-bit size and the
/// offset of the bytes in the dump.
fn scrub_range(dump: &mut [u8], descriptor: usize, environment: &Range<u64>) {
    let Some(start) = layout::long_number(dump, descriptor) else { return };
    let (Some(size), Some(at)) =
        (layout::number(dump, descriptor + 8), layout::number(dump, descriptor + 12))
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

/// Returns the address range in which a process keeps the environment that it was started with.
fn range_of(pid: Pid) -> Option<Range<u64>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain anything; the numbers after it begin with field 3.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(field(50)?..field(51)?).filter(|range| range.start < range.end)
}

fn number(piece: &[u8]) -> Option<u64> {
    piece.try_into().ok().map(u64::from_le_bytes)
}

fn hash(piece: u64) -> usize {
    // The upper bits of a product depend on all bits of its factor.
    (piece.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - FILTER_BITS.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_taken_out_at_any_place_and_nothing_else_is() {
        let environment = Environment::new(None, b"TOKEN=hunter2-and-more\0HOME=/home/x\0");
        let mut bytes = b"..ER=unter2-and-mo,hunter\0\0/home/y".to_vec();
        scrub_part(&mut bytes, &environment);
        assert_eq!(bytes, b"..ER=\0\0\0\0\0\0\0\0\0\0\0\0\0,hunter\0\0/home/y");
    }

    #[test]
    fn an_empty_environment_takes_nothing_out() {
        let environment = Environment::new(None, b"");
        let mut bytes = [0; 64];
        bytes[3] = 7;
        let before = bytes;
        scrub_part(&mut bytes, &environment);
        assert_eq!(bytes, before);
    }

    #[test]
    fn parts_that_are_open_to_all_are_spared() {
        let environment = Environment::new(None, b"HOME=/home/somebody\0");
        let mut bytes = b"/home/somebody|/home/somebody|/home/somebody".to_vec();
        scrub_pieces(&mut bytes, &[0..2, 15..29], &environment);
        let zeroes = "\0".repeat(14);
        assert_eq!(bytes, format!("/h{}|/home/somebody|{zeroes}", &zeroes[2..]).into_bytes());
    }
}
