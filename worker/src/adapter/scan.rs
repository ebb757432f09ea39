//! Parsing of markers that may be cut by the end of a chunk: every step either succeeds, fails, or needs more
//! bytes. Works on bytes only.

/// The reason why a step did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The bytes do not match.
    No,
    /// The bytes match so far, and end before the marker does.
    Partial,
}

/// The result of a step.
pub(super) type Step<T> = Result<T, Stop>;

/// Returns the first of two alternatives that succeeds, otherwise [`Stop::Partial`] if one of them needs more
/// bytes.
pub(super) fn either<T>(first: Step<T>, second: impl FnOnce() -> Step<T>) -> Step<T> {
    match first {
        Ok(value) => Ok(value),
        Err(Stop::No) => second(),
        Err(Stop::Partial) => second().map_err(|_| Stop::Partial),
    }
}

/// A position in bytes that moves forward over recognized parts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    used: usize,
}

const LONGEST_NUMBER: usize = 20;

impl<'a> Cursor<'a> {
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

    pub(super) fn advance(&mut self, count: usize) {
        self.used += count;
    }

    pub(super) fn literal(&mut self, literal: &[u8]) -> Step<()> {
        let rest = self.rest();
        if rest.starts_with(literal) {
            self.used += literal.len();
            return Ok(());
        }
        Err(if literal.starts_with(rest) { Stop::Partial } else { Stop::No })
    }

    /// Reads one of several literals, of which none is a prefix of another; returns its index.
    pub(super) fn one_of(&mut self, literals: &[&[u8]]) -> Step<usize> {
        let mut stop = Stop::No;
        for (place, literal) in literals.iter().enumerate() {
            match self.literal(literal) {
                Ok(()) => return Ok(place),
                Err(Stop::Partial) => stop = Stop::Partial,
                Err(Stop::No) => {}
            }
        }
        Err(stop)
    }

    /// Reads a decimal number that is followed by another byte.
    pub(super) fn number(&mut self) -> Step<u64> {
        let rest = self.rest();
        let length = rest.iter().take(LONGEST_NUMBER).take_while(|byte| byte.is_ascii_digit()).count();
        if length == rest.len() {
            return Err(Stop::Partial);
        }
        let text = std::str::from_utf8(&rest[..length]).map_err(|_| Stop::No)?;
        let number = text.parse().map_err(|_| Stop::No)?;
        self.used += length;
        Ok(number)
    }

    /// Reads a noun that ends with an `s` unless the number before it is 1.
    pub(super) fn noun(&mut self, noun: &[u8], number: u64) -> Step<()> {
        self.literal(noun)?;
        if number == 1 { Ok(()) } else { self.literal(b"s") }
    }

    /// Reads everything before the next `end`, which must come within `limit` bytes; `end` itself is consumed
    /// too.
    pub(super) fn until(&mut self, end: &[u8], limit: usize) -> Step<&'a [u8]> {
        let rest = self.rest();
        let window = &rest[..rest.len().min(limit + end.len())];
        match memchr::memmem::find(window, end) {
            Some(length) => {
                self.used += length + end.len();
                Ok(&rest[..length])
            }
            None if window.len() == limit + end.len() => Err(Stop::No),
            None => Err(Stop::Partial),
        }
    }

    /// Reads a name as the listing spelled it. Each U+FFFD in it may represent one byte that was not UTF-8.
    pub(super) fn name(&mut self, name: &[u8]) -> Step<()> {
        if self.literal(name).is_ok() {
            return Ok(());
        }
        let (used, of_name) = common(self.rest(), name);
        if of_name == name.len() {
            self.used += used;
            return Ok(());
        }
        let rest = &self.rest()[used..];
        Err(if name[of_name..].starts_with(rest) { Stop::Partial } else { Stop::No })
    }
}

const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

/// Returns the lengths of the common prefix of `bytes` and `name`, in each of the two.
pub(super) fn common(bytes: &[u8], name: &[u8]) -> (usize, usize) {
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

/// Decodes bytes as text, with one U+FFFD for each byte that is not UTF-8: the form in which listings spell
/// names.
pub(super) fn spell(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

/// Returns the longest prefix of at most `limit` bytes.
pub(super) fn head(text: &str, limit: usize) -> &str {
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
    fn a_torn_literal_wants_more_and_a_wrong_one_does_not() {
        assert_eq!(Cursor::new(b"[ RU").literal(b"[ RUN"), Err(Stop::Partial));
        assert_eq!(Cursor::new(b"[ RX").literal(b"[ RUN"), Err(Stop::No));
        assert_eq!(Cursor::new(b"12").number(), Err(Stop::Partial));
        assert_eq!(Cursor::new(b"12 ").number(), Ok(12));
        assert_eq!(Cursor::new(b"x").number(), Err(Stop::No));
        assert_eq!(Cursor::new(&[b'9'; 30]).number(), Err(Stop::No));
    }

    #[test]
    fn a_name_that_is_no_text_is_matched_byte_for_replacement() {
        let name = spell(b"a\xff\xfe\xef\xbf\xbdb");
        let mut cursor = Cursor::new(b"a\xff\xfe\xef\xbf\xbdb!");
        assert_eq!(cursor.name(name.as_bytes()), Ok(()));
        assert_eq!(cursor.rest(), b"!");
        assert_eq!(Cursor::new(b"a\xff").name(name.as_bytes()), Err(Stop::Partial));
        assert_eq!(Cursor::new(b"axx").name(name.as_bytes()), Err(Stop::No));
    }

    #[test]
    fn a_search_gives_up_at_its_limit() {
        assert_eq!(Cursor::new(b"abc\n").until(b"\n", 3), Ok(&b"abc"[..]));
        assert_eq!(Cursor::new(b"abcd\n").until(b"\n", 3), Err(Stop::No));
        assert_eq!(Cursor::new(b"abc").until(b"\n", 3), Err(Stop::Partial));
    }
}
