//! Writes indented XML element by element, because a report may be larger than memory.

use std::io::{self, Write};

use quick_xml::{
    Writer,
    events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event},
};

/// Number of spaces per indentation level.
const INDENT: usize = 4;

/// Start tag of an element, with its attributes.
pub(super) struct ElementStart {
    start: BytesStart<'static>,
}

impl ElementStart {
    pub(super) fn new(tag: &'static str) -> Self {
        Self { start: BytesStart::new(tag) }
    }

    /// Adds an attribute, whose value may contain only characters that XML can represent.
    pub(super) fn attribute(mut self, name: &str, value: &str) -> Self {
        self.start.push_attribute((name, value));
        self
    }
}

pub(super) struct XmlWriter<'w> {
    writer: Writer<&'w mut dyn Write>,
}

impl<'w> XmlWriter<'w> {
    pub(super) fn begin(output: &'w mut dyn Write) -> io::Result<Self> {
        let mut writer = Writer::new_with_indent(output, b' ', INDENT);
        writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
        Ok(Self { writer })
    }

    pub(super) fn open(&mut self, element: ElementStart) -> io::Result<()> {
        self.writer.write_event(Event::Start(element.start))
    }

    /// Closes the innermost open element.
    pub(super) fn close(&mut self, tag: &'static str) -> io::Result<()> {
        self.writer.write_event(Event::End(BytesEnd::new(tag)))
    }

    /// Writes an element without content.
    pub(super) fn empty(&mut self, element: ElementStart) -> io::Result<()> {
        self.writer.write_event(Event::Empty(element.start))
    }

    /// Writes text into the open element. The text may contain only characters that XML can represent.
    pub(super) fn text(&mut self, text: &str) -> io::Result<()> {
        self.writer.write_event(Event::Text(BytesText::new(text)))
    }

    /// Writes an element that contains only text.
    pub(super) fn text_in(&mut self, element: ElementStart, text: &str) -> io::Result<()> {
        let end = element.start.to_end().into_owned();
        self.open(element)?;
        self.text(text)?;
        self.writer.write_event(Event::End(end))
    }

    /// Writes an element without attributes that contains only text.
    pub(super) fn text_element(&mut self, tag: &'static str, text: &str) -> io::Result<()> {
        self.text_in(ElementStart::new(tag), text)
    }

    /// Begins an indented line for the next element, after text.
    pub(super) fn indent(&mut self) -> io::Result<()> {
        self.writer.write_indent()
    }

    /// Writes the line end after the document.
    pub(super) fn end(mut self) -> io::Result<()> {
        self.writer.write_indent()
    }
}
