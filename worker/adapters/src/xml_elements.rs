//! Parts of the reporters' XML: attribute spelling, which doctest took from Catch2, and elements that the end
//! of a chunk may cut.

use super::scan::{ByteCursor, ScanResult, ScanStop, decode_lossy};

/// Maximum size of a recognized element. Larger elements are treated as output.
const ELEMENT_BYTES: usize = 64 * 1024;

/// Returns an attribute value as the reporters' XML writer spells it.
pub(super) fn escape_attribute(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    let mut before: (char, char) = ('\0', '\0');
    for (at, character) in value.char_indices() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '>' if at > 2 && before == (']', ']') => escaped.push_str("&gt;"),
            _ => escaped.push(character),
        }
        before = (before.1, character);
    }
    escaped
}

/// Returns the text of an attribute or a text node, unescaped.
pub(super) fn unescape(text: &[u8]) -> String {
    let text = decode_lossy(text);
    quick_xml::escape::unescape(&text).map_or_else(|_| text.clone(), std::borrow::Cow::into_owned)
}

/// Returns the value of an attribute in a tag.
pub(super) fn attribute(tag: &[u8], name: &str) -> Option<String> {
    let start = format!(" {name}=\"");
    let start = memchr::memmem::find(tag, start.as_bytes())? + start.len();
    let length = memchr::memchr(b'"', &tag[start..])?;
    Some(unescape(&tag[start..start + length]))
}

/// Returns the texts of all children with this name, without indentation.
pub(super) fn child_texts(body: &[u8], name: &str) -> Vec<String> {
    let (open, close) = (format!("<{name}"), format!("</{name}>\n"));
    let mut texts = Vec::new();
    let mut rest = body;
    while let Some(start) = memchr::memmem::find(rest, open.as_bytes()) {
        rest = &rest[start + open.len()..];
        let Some(tag_end) = memchr::memmem::find(rest, b">\n") else { break };
        // Another child's name may begin with this name.
        if !matches!(rest.first(), Some(b'>' | b' ')) {
            continue;
        }
        rest = &rest[tag_end + 2..];
        let Some(end) = memchr::memmem::find(rest, close.as_bytes()) else { break };
        texts.push(unescape(rest[..end].trim_ascii()));
        rest = &rest[end + close.len()..];
    }
    texts
}

/// An element with its attributes and its content.
pub(super) struct XmlElement<'a> {
    pub(super) attributes: &'a [u8],
    pub(super) body: &'a [u8],
}

/// Forms of a child's tag: opening without attributes, closing, opening with attributes.
const TAGS_OF_CHILD: usize = 3;

/// Reads a whole element that contains only text and these children. Any other tag is a mismatch: a test that
/// prints half an element must not hide the markers after it.
pub(super) fn read_element<'a>(
    cursor: &mut ByteCursor<'a>,
    name: &str,
    children: &[&str],
) -> ScanResult<XmlElement<'a>> {
    cursor.literal(format!("<{name} ").as_bytes())?;
    // Start one byte earlier, so that the first attribute has a leading space like the others.
    let start = cursor.used() - 1;
    let attributes = cursor.attributes(ELEMENT_BYTES)?;
    let attributes = cursor.slice(start, start + 1 + attributes.len());
    // A child may have attributes too.
    let tags: Vec<String> = children
        .iter()
        .flat_map(|child| [format!("<{child}>\n"), format!("</{child}>\n"), format!("<{child} ")])
        .collect();
    let rest = cursor.rest();
    let mut at = 0;
    loop {
        let Some(next) = memchr::memchr(b'<', &rest[at..]) else {
            return Err(if rest.len() > ELEMENT_BYTES { ScanStop::Mismatch } else { ScanStop::NeedsMore });
        };
        at += next;
        if at > ELEMENT_BYTES {
            return Err(ScanStop::Mismatch);
        }
        let mut tag = ByteCursor::new(&rest[at..]);
        match read_end_tag(&mut tag, name) {
            Ok(()) => {
                cursor.advance(at + tag.used());
                return Ok(XmlElement { attributes, body: &rest[..at] });
            }
            Err(ScanStop::NeedsMore) => return Err(ScanStop::NeedsMore),
            Err(ScanStop::Mismatch) => {}
        }
        let all: Vec<&[u8]> = tags.iter().map(String::as_bytes).collect();
        let is_open = tag.one_of(&all)? % TAGS_OF_CHILD == TAGS_OF_CHILD - 1;
        if is_open {
            tag.attributes(ELEMENT_BYTES)?;
        }
        at += tag.used();
    }
}

/// Reads a closing tag and the line break after it. Catch2 writes this line break only before its next tag,
/// so output of the test may follow the tag directly.
pub(super) fn read_end_tag(cursor: &mut ByteCursor<'_>, name: &str) -> ScanResult<()> {
    cursor.literal(format!("</{name}>").as_bytes())?;
    let next = cursor.rest().first().ok_or(ScanStop::NeedsMore)?;
    cursor.advance(usize::from(*next == b'\n'));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_spelled_as_the_reporters_spell_them() {
        assert_eq!(escape_attribute("a<b>&\"c\"]]>'"), "a&lt;b>&amp;&quot;c&quot;]]&gt;'");
        assert_eq!(escape_attribute("]]>"), "]]>");
        let tag = b" name=\"a &lt;b> &quot;\" line=\"7\"";
        assert_eq!(attribute(tag, "name").as_deref(), Some("a <b> \""));
        assert_eq!((attribute(tag, "line").as_deref(), attribute(tag, "file")), (Some("7"), None));
    }

    #[test]
    fn element_with_a_foreign_tag_is_none() {
        let read = |text: &str| {
            let mut cursor = ByteCursor::new(text.as_bytes());
            read_element(&mut cursor, "E", &["A"]).map(|element| element.body.len())
        };
        assert_eq!(read("<E x=\"1\">\n<A>\nt\n</A>\n</E>\n"), Ok(11));
        assert_eq!(read("<E x=\"1\">\n<A>\nt\n</"), Err(ScanStop::NeedsMore));
        assert_eq!(read("<E x=\"1\">\n<A>\nt\n</A>\n</E>"), Err(ScanStop::NeedsMore));
        assert_eq!(read("<E x=\"1\">\n<A>\nt\n</A>\n</E>output"), Ok(11));
        assert_eq!(read("<E x=\"1\">\n<B>\n"), Err(ScanStop::Mismatch));
        assert_eq!(read("<E x=\"1\">\n<A y=\"2\">\nt\n</A>\n</E>\n"), Ok(17));
        assert_eq!(read("<E x=\"1\">\n<A y=\"2"), Err(ScanStop::NeedsMore));
        assert_eq!(read("<E x=\"1\">\n<A y=\"<\">\n"), Err(ScanStop::Mismatch));
        assert_eq!(read(&format!("<E x=\"1\">\n{}", "t".repeat(ELEMENT_BYTES + 1))), Err(ScanStop::Mismatch));
    }
}
