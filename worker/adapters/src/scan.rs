//! Parsing of markers that the end of a chunk may cut: every step succeeds, fails, or needs more bytes.

/// Reason that a step did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanStop {
    /// The bytes do not match.
    Mismatch,
    /// The bytes match so far, but end before the marker does.
    NeedsMore,
}

/// The result of a step.
pub(super) type ScanResult<T> = Result<T, ScanStop>;

/// Returns the first alternative that succeeds, otherwise [`ScanStop::NeedsMore`] if either needs more bytes.
pub(super) fn either<T>(first: ScanResult<T>, second: impl FnOnce() -> ScanResult<T>) -> ScanResult<T> {
    match first {
        Ok(value) => Ok(value),
        Err(ScanStop::Mismatch) => second(),
        Err(ScanStop::NeedsMore) => second().map_err(|_| ScanStop::NeedsMore),
    }
}

/// A position in bytes that moves forward over recognized parts.
#[derive(Debug, Clone, Copy)]
pub(super) struct ByteCursor<'a> {
    bytes: &'a [u8],
    used: usize,
}

const LONGEST_NUMBER: usize = 20;

impl<'a> ByteCursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, used: 0 }
    }

    /// Returns the number of bytes recognized.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Returns the bytes not yet recognized.
    pub(super) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.used..]
    }

    /// Returns recognized bytes between two positions.
    pub(super) fn slice(&self, from: usize, to: usize) -> &'a [u8] {
        &self.bytes[from..to]
    }

    pub(super) fn advance(&mut self, count: usize) {
        self.used += count;
    }

    pub(super) fn literal(&mut self, literal: &[u8]) -> ScanResult<()> {
        let rest = self.rest();
        if rest.starts_with(literal) {
            self.used += literal.len();
            return Ok(());
        }
        Err(if literal.starts_with(rest) { ScanStop::NeedsMore } else { ScanStop::Mismatch })
    }

    /// Reads one of several literals and returns its index. No literal may be a prefix of another.
    pub(super) fn one_of(&mut self, literals: &[&[u8]]) -> ScanResult<usize> {
        let mut stop = ScanStop::Mismatch;
        for (place, literal) in literals.iter().enumerate() {
            match self.literal(literal) {
                Ok(()) => return Ok(place),
                Err(ScanStop::NeedsMore) => stop = ScanStop::NeedsMore,
                Err(ScanStop::Mismatch) => {}
            }
        }
        Err(stop)
    }

    /// Reads a decimal number that is followed by another byte.
    pub(super) fn number(&mut self) -> ScanResult<u64> {
        let rest = self.rest();
        let length = rest.iter().take(LONGEST_NUMBER).take_while(|byte| byte.is_ascii_digit()).count();
        if length == rest.len() {
            return Err(ScanStop::NeedsMore);
        }
        let text = std::str::from_utf8(&rest[..length]).map_err(|_| ScanStop::Mismatch)?;
        let number = text.parse().map_err(|_| ScanStop::Mismatch)?;
        self.used += length;
        Ok(number)
    }

    /// Reads a noun, in the plural form with `s` unless the number is 1.
    pub(super) fn noun(&mut self, noun: &[u8], number: u64) -> ScanResult<()> {
        self.literal(noun)?;
        if number == 1 { Ok(()) } else { self.literal(b"s") }
    }

    /// Reads everything before the next `end`, which must come within `limit` bytes. Consumes `end` too.
    pub(super) fn until(&mut self, end: &[u8], limit: usize) -> ScanResult<&'a [u8]> {
        let rest = self.rest();
        let window = &rest[..rest.len().min(limit + end.len())];
        match memchr::memmem::find(window, end) {
            Some(length) => {
                self.used += length + end.len();
                Ok(&rest[..length])
            }
            None if window.len() == limit + end.len() => Err(ScanStop::Mismatch),
            None => Err(ScanStop::NeedsMore),
        }
    }

    /// Reads the attributes of a tag up to `>` and a newline, which must come within `limit` bytes.
    /// Attributes cannot contain a `<`.
    pub(super) fn attributes(&mut self, limit: usize) -> ScanResult<&'a [u8]> {
        let rest = self.rest();
        let next_tag = memchr::memchr(b'<', &rest[..rest.len().min(limit)]);
        let mut tag = ByteCursor::new(&rest[..next_tag.unwrap_or(rest.len())]);
        match tag.until(b">\n", limit) {
            Ok(attributes) => {
                self.used += tag.used;
                Ok(attributes)
            }
            Err(ScanStop::NeedsMore) if next_tag.is_none() => Err(ScanStop::NeedsMore),
            Err(_) => Err(ScanStop::Mismatch),
        }
    }

    /// Reads a name as the listing spelled it. A U+FFFD in the name may represent one byte that was not
    /// UTF-8.
    pub(super) fn name(&mut self, name: &[u8]) -> ScanResult<()> {
        if self.literal(name).is_ok() {
            return Ok(());
        }
        let (used, of_name) = common_prefix(self.rest(), name);
        if of_name == name.len() {
            self.used += used;
            return Ok(());
        }
        let rest = &self.rest()[used..];
        Err(if name[of_name..].starts_with(rest) { ScanStop::NeedsMore } else { ScanStop::Mismatch })
    }
}

const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

/// Returns the length of the common prefix, measured in `bytes` and in `name`.
pub(super) fn common_prefix(bytes: &[u8], name: &[u8]) -> (usize, usize) {
    let (mut at, mut of_name) = (0, 0);
    while of_name < name.len() && at < bytes.len() {
        if bytes[at] == name[of_name] {
            at += 1;
            of_name += 1;
        } else if name[of_name..].starts_with(REPLACEMENT) && !bytes[at].is_ascii() {
            at += 1;
            of_name += REPLACEMENT.len();
        } else {
            break;
        }
    }
    (at, of_name)
}

/// Decodes bytes as text, with one U+FFFD for each byte that is not UTF-8, as listings spell names.
pub(super) fn decode_lossy(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

/// Returns the longest prefix of at most `limit` bytes.
pub(super) fn truncated(text: &str, limit: usize) -> &str {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_literal_needs_more_bytes() {
        assert_eq!(ByteCursor::new(b"[ RU").literal(b"[ RUN"), Err(ScanStop::NeedsMore));
        assert_eq!(ByteCursor::new(b"[ RX").literal(b"[ RUN"), Err(ScanStop::Mismatch));
        assert_eq!(ByteCursor::new(b"12").number(), Err(ScanStop::NeedsMore));
        assert_eq!(ByteCursor::new(b"12 ").number(), Ok(12));
        assert_eq!(ByteCursor::new(b"x").number(), Err(ScanStop::Mismatch));
        assert_eq!(ByteCursor::new(&[b'9'; 30]).number(), Err(ScanStop::Mismatch));
    }

    #[test]
    fn non_utf8_name_matches_its_replacements() {
        let name = decode_lossy(b"a\xff\xfe\xef\xbf\xbdb");
        let mut cursor = ByteCursor::new(b"a\xff\xfe\xef\xbf\xbdb!");
        assert_eq!(cursor.name(name.as_bytes()), Ok(()));
        assert_eq!(cursor.rest(), b"!");
        assert_eq!(ByteCursor::new(b"a\xff").name(name.as_bytes()), Err(ScanStop::NeedsMore));
        assert_eq!(ByteCursor::new(b"axx").name(name.as_bytes()), Err(ScanStop::Mismatch));
    }

    #[test]
    fn search_fails_at_its_limit() {
        assert_eq!(ByteCursor::new(b"abc\n").until(b"\n", 3), Ok(&b"abc"[..]));
        assert_eq!(ByteCursor::new(b"abcd\n").until(b"\n", 3), Err(ScanStop::Mismatch));
        assert_eq!(ByteCursor::new(b"abc").until(b"\n", 3), Err(ScanStop::NeedsMore));
    }
}
