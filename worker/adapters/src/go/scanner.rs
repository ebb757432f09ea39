//! Splits standard output into markers and output.

use super::{
    adapter::Go,
    marker::{self, FRAME, GoMarker, MARKER_BYTES},
};

/// Start of markers that may follow output without a newline, before Go 1.20.
const LINE_WORDS: [&[u8]; 2] = [b"=== ", b"--- "];
/// Indentation of a part's marker below the end of its test, before Go 1.20.
const INDENT: &[u8] = b"    ";

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Piece<'a> {
    Output(&'a [u8]),
    /// A marker, its line, and whether the line is indented.
    Marker {
        marker: GoMarker,
        line: &'a [u8],
        is_indented: bool,
    },
}

/// Finds markers in chunked output. Buffers no more than the longest marker.
#[derive(Debug)]
pub(super) struct Scanner {
    variant: Go,
    buffered: Vec<u8>,
}

impl Scanner {
    pub(super) fn new(variant: Go) -> Self {
        Self { variant, buffered: Vec::new() }
    }

    /// Reads a chunk. `take` returns whether a marker is valid in its position; an invalid marker is output.
    pub(super) fn read(&mut self, chunk: &[u8], take: &mut dyn FnMut(Piece<'_>) -> bool) {
        let mut bytes = std::mem::take(&mut self.buffered);
        let whole = if bytes.is_empty() {
            chunk
        } else {
            bytes.extend_from_slice(chunk);
            &bytes
        };
        let done = match self.variant {
            Go::Framed => read_framed(whole, take),
            Go::Plain => read_lines(whole, take),
        };
        self.buffered = whole[done..].to_vec();
    }

    /// Returns the bytes left at the end of the output.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffered)
    }

    #[cfg(test)]
    pub(super) fn buffered_bytes(&self) -> usize {
        self.buffered.len()
    }
}

fn take_output(bytes: &[u8], take: &mut dyn FnMut(Piece<'_>) -> bool) {
    if !bytes.is_empty() {
        take(Piece::Output(bytes));
    }
}

/// Reads output whose markers begin with a marker byte, at any position; returns the number of bytes read.
fn read_framed(bytes: &[u8], take: &mut dyn FnMut(Piece<'_>) -> bool) -> usize {
    let (mut done, mut from) = (0, 0);
    while let Some(found) = memchr::memchr(FRAME, &bytes[from..]) {
        let at = from + found;
        let rest = &bytes[at + 1..];
        let Some(end) = memchr::memchr(b'\n', rest) else {
            if marker::may_become_marker(rest) {
                take_output(&bytes[done..at], take);
                return at;
            }
            from = at + 1;
            continue;
        };
        let line = &rest[..=end];
        let Some(marker) = marker::read(line).filter(|_| line.len() <= MARKER_BYTES) else {
            from = at + 1;
            continue;
        };
        take_output(&bytes[done..at], take);
        if take(Piece::Marker { marker, line, is_indented: false }) {
            done = at + 1 + line.len();
        } else {
            done = at;
        }
        from = at + 1 + line.len();
    }
    take_output(&bytes[done..], take);
    bytes.len()
}

/// Reads whole lines; returns the number of bytes read.
fn read_lines(bytes: &[u8], take: &mut dyn FnMut(Piece<'_>) -> bool) -> usize {
    let mut done = 0;
    while let Some(end) = memchr::memchr(b'\n', &bytes[done..]) {
        let line = &bytes[done..=done + end];
        read_line(line, take);
        done += line.len();
    }
    if bytes.len() - done > MARKER_BYTES {
        take_output(&bytes[done..], take);
        done = bytes.len();
    }
    done
}

fn read_line(line: &[u8], take: &mut dyn FnMut(Piece<'_>) -> bool) {
    let mut indent = 0;
    while line[indent..].starts_with(INDENT) {
        indent += INDENT.len();
    }
    if let Some(marker) = marker::read(&line[indent..])
        && line.len() <= MARKER_BYTES
        && take(Piece::Marker { marker, line, is_indented: indent > 0 })
    {
        return;
    }
    // A test may have written text before the marker on the same line.
    let words = LINE_WORDS.iter().flat_map(|word| memchr::memmem::find_iter(line, word));
    let mut starts: Vec<usize> = words.filter(|start| *start > indent).take(MARKERS_IN_LINE).collect();
    starts.sort_unstable();
    for start in starts {
        let (before, rest) = line.split_at(start);
        let Some(marker) = marker::read(rest).filter(|_| rest.len() <= MARKER_BYTES) else { continue };
        let mut is_taken = false;
        // Emit the text before the marker first.
        take(Piece::Output(before));
        is_taken |= take(Piece::Marker { marker, line: rest, is_indented: false });
        if !is_taken {
            take(Piece::Output(rest));
        }
        return;
    }
    take_output(line, take);
}

/// Maximum number of positions in a line that are checked for a marker.
const MARKERS_IN_LINE: usize = 16;

#[cfg(test)]
mod cases {
    use super::*;

    fn scanned(variant: Go, pieces: &[&[u8]]) -> (String, usize) {
        let mut scanner = Scanner::new(variant);
        let mut seen = String::new();
        let mut largest = 0;
        for piece in pieces {
            scanner.read(piece, &mut |piece| {
                match piece {
                    Piece::Output(bytes) => seen.push_str(&String::from_utf8_lossy(bytes)),
                    Piece::Marker { line, is_indented, .. } => {
                        let mark = if is_indented { '>' } else { '!' };
                        seen.push_str(&format!("[{mark}{}]", String::from_utf8_lossy(line).trim()));
                    }
                }
                true
            });
            largest = largest.max(scanner.buffered_bytes());
        }
        seen.push_str(&String::from_utf8_lossy(&scanner.finish()));
        (seen, largest)
    }

    const FRAMED: &str =
        "a\n~=== RUN   TestA\nno newline~--- PASS: TestA (0.00s)\n~~=== NAME  \n~x\nPASS\n~PASS\nend~=";
    const PLAIN: &str = "a\n=== RUN   TestA\nno newline--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/b (0.00s)\n--- x --- PASS: TestB (1.00s)\n  PASS\nend";

    #[test]
    fn markers_are_found_wherever_the_output_is_cut() {
        let framed = FRAMED.replace('~', "\u{16}");
        let expected =
            "a\n[!=== RUN   TestA]no newline[!--- PASS: TestA (0.00s)]~[!=== NAME]~x\nPASS\n[!PASS]end~=";
        let expected = expected.replace('~', "\u{16}");
        assert_eq!(scanned(Go::Framed, &[framed.as_bytes()]).0, expected);
        let lines = "a\n[!=== RUN   TestA]no newline[!--- FAIL: TestA (0.00s)][>--- FAIL: TestA/b (0.00s)]--- x [!--- PASS: TestB (1.00s)]  PASS\nend";
        assert_eq!(scanned(Go::Plain, &[PLAIN.as_bytes()]).0, lines);
        for cut in 0..=framed.len() {
            let (head, tail) = framed.as_bytes().split_at(cut);
            assert_eq!(scanned(Go::Framed, &[head, tail]).0, expected, "cut at {cut}");
        }
        for cut in 0..=PLAIN.len() {
            let (head, tail) = PLAIN.as_bytes().split_at(cut);
            assert_eq!(scanned(Go::Plain, &[head, tail]).0, lines, "cut at {cut}");
        }
    }

    #[test]
    fn endless_line_is_not_kept() {
        let block = vec![b'x'; 10_000];
        for (variant, start) in [(Go::Framed, &b"\x16=== RUN   "[..]), (Go::Plain, b"=== RUN   ")] {
            let mut pieces = vec![start];
            pieces.extend(std::iter::repeat_n(block.as_slice(), 50));
            let (seen, largest) = scanned(variant, &pieces);
            assert_eq!(seen.len(), start.len() + 500_000);
            assert!(largest <= MARKER_BYTES + block.len(), "{largest}");
        }
    }
}
