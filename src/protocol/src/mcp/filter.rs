//! Production filter between a client and a server. `mcp.test.*` tools are neither listed nor called, and
//! every other byte passes unchanged. Pure: bytes in, bytes out.
//!
//! Only two kinds of messages matter: requests to call or list tools, and responses that list tools. Anything
//! that a lenient reader could mistake for one of them is treated as one. Ids are not compared: libraries
//! disagree on which ids are equal, and a client may use an id twice.

use std::borrow::Cow;

use bytes::BytesMut;

use super::{
    is_test_tool,
    scan::{self, LineEnd, Span},
};
use crate::rpc::{RpcError, code};

/// Maximum length of a line that must be read as a whole: every line of the client, and the server's lines
/// while a list of tools is expected.
pub const LINE_LIMIT_BYTES: usize = 16 << 20;
/// Maximum length of a tool name in an error.
const SHOWN_NAME_CHARS: usize = 200;
/// Line ends besides LF in three readers: Python's text streams, Node's `readline`, Python's `splitlines`.
const OTHER_LINE_ENDS: [&[char]; 3] = [
    &['\r'],
    &['\r', '\u{2028}', '\u{2029}'],
    &['\r', '\u{2028}', '\u{2029}', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}'],
];

/// A line that is too long to be read as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    #[error("read a line of the client: it exceeds {LINE_LIMIT_BYTES} bytes")]
    ClientLine,
    #[error("read the server's list of tools: the line exceeds {LINE_LIMIT_BYTES} bytes")]
    ServerLine,
}

/// Bytes to write.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FilterOutput {
    pub to_server: BytesMut,
    pub to_client: BytesMut,
}

/// State of the filter for one connection.
#[derive(Debug, Default)]
pub struct ToolFilter {
    /// Incomplete line of the client.
    client_line: Vec<u8>,
    /// Incomplete line of the server, if it must be read as a whole.
    server_line: Vec<u8>,
    /// Treatment of the rest of the server's line; `None` between lines.
    server_mode: Option<ServerLineMode>,
    /// Responses of the filter that wait for the end of the server's line.
    held_answers: BytesMut,
    /// Whether a list has ever been requested, so responses may contain tools.
    is_listing: bool,
    /// Requested lists that have not arrived. A list that is refused or cancelled remains counted forever.
    due_lists: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerLineMode {
    /// The line is forwarded unread: no list was requested when it began, or it is too long to be a message.
    Passed,
    Collected,
}

/// Returns the text if the bytes can only be read as UTF-8. Some JSON readers detect UTF-16 and UTF-32, but
/// those contain null bytes or are not valid UTF-8.
#[must_use]
pub fn plain_text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|_| memchr::memchr(0, bytes).is_none())
}

/// Returns whether this filter can read a body as JSON, so no reader finds other messages in it.
#[must_use]
pub fn is_readable_message(body: &[u8]) -> bool {
    let (values, end) = scan::values(body);
    let is_readable = |value: &Span| match body[value.start] {
        b'{' => scan::members(body, value).is_some_and(|members| {
            members.iter().all(|(_, value)| body[value.start] != b'{' || scan::members(body, value).is_some())
        }),
        _ => true,
    };
    end == LineEnd::Complete
        && values.iter().all(|value| match body[value.start] {
            b'[' => scan::elements(body, value).is_some_and(|items| items.iter().all(is_readable)),
            _ => is_readable(value),
        })
}

impl ToolFilter {
    /// Returns a filter for a stream whose responses may answer requests sent elsewhere.
    #[must_use]
    pub fn for_any_list() -> Self {
        Self { is_listing: true, ..Self::default() }
    }

    /// Handles a complete message of the client, which may contain line ends.
    pub fn on_client_message(&mut self, message: &[u8], out: &mut FilterOutput) {
        self.client_line = message.to_vec();
        self.end_client_line(out);
    }

    /// Filters a complete message of the server, which may contain line ends.
    pub fn filtered_server_message<'m>(&mut self, message: &'m [u8]) -> Cow<'m, [u8]> {
        self.filtered_server_line(message)
    }

    /// Handles bytes of the client.
    ///
    /// # Errors
    /// A line is too long; the connection must be closed.
    pub fn on_client_bytes(&mut self, bytes: &[u8], out: &mut FilterOutput) -> Result<(), FilterError> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.client_line.len() + piece.len() > LINE_LIMIT_BYTES {
                return Err(FilterError::ClientLine);
            }
            self.client_line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.end_client_line(out);
            }
        }
        Ok(())
    }

    /// Handles the end of the client's stream. The last line may have no line end.
    pub fn on_client_end(&mut self, out: &mut FilterOutput) {
        self.end_client_line(out);
    }

    /// Handles bytes of the server.
    ///
    /// # Errors
    /// A line is too long; the connection must be closed.
    pub fn on_server_bytes(&mut self, bytes: &[u8], out: &mut FilterOutput) -> Result<(), FilterError> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let mode = *self.server_mode.get_or_insert(match self.is_listing {
                true => ServerLineMode::Collected,
                false => ServerLineMode::Passed,
            });
            match mode {
                ServerLineMode::Passed => out.to_client.extend_from_slice(piece),
                ServerLineMode::Collected if self.server_line.len() + piece.len() <= LINE_LIMIT_BYTES => {
                    self.server_line.extend_from_slice(piece);
                }
                ServerLineMode::Collected if self.due_lists > 0 => return Err(FilterError::ServerLine),
                ServerLineMode::Collected => {
                    // All lists have arrived, so this is a large tool result.
                    self.server_mode = Some(ServerLineMode::Passed);
                    out.to_client.extend_from_slice(&std::mem::take(&mut self.server_line));
                    out.to_client.extend_from_slice(piece);
                }
            }
            if piece.ends_with(b"\n") {
                self.end_server_line(out);
            }
        }
        Ok(())
    }

    /// Handles the end of the server's stream. The last line may have no line end.
    pub fn on_server_end(&mut self, out: &mut FilterOutput) {
        self.end_server_line(out);
    }

    fn end_server_line(&mut self, out: &mut FilterOutput) {
        let line = std::mem::take(&mut self.server_line);
        out.to_client.extend_from_slice(&self.filtered_server_line(&line));
        self.server_mode = None;
        out.to_client.extend_from_slice(&std::mem::take(&mut self.held_answers));
    }

    fn end_client_line(&mut self, out: &mut FilterOutput) {
        let line = std::mem::take(&mut self.client_line);
        let Some(text) = plain_text(&line) else {
            // A reader that expects another charset would see a message that this filter does not.
            let message = "each line must be UTF-8 without null bytes";
            return self.answer(b"null", &RpcError::new(code::PARSE_ERROR, message), out);
        };
        if let Some(refusal) = self.check_shorter_lines(text) {
            return self.refuse(&refusal, out);
        }
        let (values, end) = scan::values(&line);
        if end == LineEnd::Unbalanced {
            // A stream reader would continue in the next line, and see another message than this filter.
            let message = "each line must be one complete JSON message";
            return self.answer(b"null", &RpcError::new(code::PARSE_ERROR, message), out);
        }
        let mut removed = Vec::new();
        let mut is_passed = values.is_empty() || end == LineEnd::Invalid;
        for value in &values {
            is_passed |= self.check_client_value(&line, value, &mut removed, out);
        }
        if is_passed {
            out.to_server.extend_from_slice(&without(&line, &removed));
        }
    }

    /// Checks the messages found by readers that know other line ends. If one of them is refused, the whole
    /// line is.
    fn check_shorter_lines(&mut self, line: &str) -> Option<Refusal> {
        let line = line.strip_suffix('\n').unwrap_or(line);
        let line = line.strip_suffix('\r').unwrap_or(line);
        for ends in OTHER_LINE_ENDS.iter().filter(|ends| line.contains(**ends)) {
            for piece in line.split(*ends).map(str::as_bytes) {
                for value in scan::values(piece).0 {
                    let messages = match piece[value.start] {
                        b'[' => scan::elements(piece, &value).unwrap_or_default(),
                        _ => vec![value],
                    };
                    let mut messages = messages.iter().filter(|message| piece[message.start] == b'{');
                    let refusal = messages.find_map(|message| self.check_client_message(piece, message));
                    if refusal.is_some() {
                        return refusal;
                    }
                }
            }
        }
        None
    }

    /// Checks a message, or each message of a batch, and adds the refused ones to `removed`. Returns whether
    /// anything is left to pass on.
    fn check_client_value(
        &mut self,
        line: &[u8],
        value: &Span,
        removed: &mut Vec<Span>,
        out: &mut FilterOutput,
    ) -> bool {
        let items = match line[value.start] {
            b'{' => {
                let Some(refusal) = self.check_client_message(line, value) else { return true };
                removed.push(value.clone());
                self.refuse(&refusal, out);
                return false;
            }
            b'[' => scan::elements(line, value).unwrap_or_default(),
            _ => return true,
        };
        let mut refused = vec![false; items.len()];
        for (item, is_refused) in items.iter().zip(&mut refused) {
            if line[item.start] == b'{'
                && let Some(refusal) = self.check_client_message(line, item)
            {
                *is_refused = true;
                self.refuse(&refusal, out);
            }
        }
        if !items.is_empty() && refused.iter().all(|refused| *refused) {
            removed.push(value.clone());
            return false;
        }
        removed.extend(removed_items(&items, &refused));
        true
    }

    /// Returns why a message is not passed to the server; `None` if it is passed.
    fn check_client_message(&mut self, line: &[u8], message: &Span) -> Option<Refusal> {
        let message = FilteredMessage::read(line, message)?;
        let has_method = |name: &str| message.methods.iter().any(|method| method == name);
        let id = message.ids.last().map(|id| line[id.clone()].to_vec());
        if has_method("tools/call") {
            for params in &message.params {
                for name in member_values(line, params, "name") {
                    // A reader that converts everything to text would accept a list that contains the tool's
                    // name.
                    let Some(name) = scan::string(&line[name]) else {
                        let error = RpcError::new(code::INVALID_PARAMS, "the tool's name must be a string");
                        return Some(Refusal { id, error });
                    };
                    if is_test_tool(&name) {
                        let name: String = name.chars().take(SHOWN_NAME_CHARS).collect();
                        let error = RpcError::new(code::INVALID_PARAMS, format!("Unknown tool: {name}"));
                        return Some(Refusal { id, error });
                    }
                }
            }
        }
        if has_method("tools/list") {
            self.is_listing = true;
            self.due_lists += 1;
        }
        None
    }

    fn refuse(&mut self, refusal: &Refusal, out: &mut FilterOutput) {
        // Notifications get no response.
        if let Some(id) = &refusal.id {
            self.answer(id, &refusal.error, out);
        }
    }

    /// Responds in place of the server, between two of its lines.
    fn answer(&mut self, id: &[u8], error: &RpcError, out: &mut FilterOutput) {
        let id = serde_json::from_slice(id).unwrap_or(crate::rpc::RequestId::Null);
        let target = match self.server_mode {
            None => &mut out.to_client,
            Some(_) => &mut self.held_answers,
        };
        target.extend_from_slice(&super::encode_error(&id, error));
    }

    fn filtered_server_line<'l>(&mut self, line: &'l [u8]) -> Cow<'l, [u8]> {
        let (values, end) = scan::values(line);
        let content = line.strip_suffix(b"\r\n").unwrap_or(line);
        match end {
            // A stream reader would see a message that this filter does not.
            LineEnd::Unbalanced => Cow::Borrowed(b""),
            // Text before a CR, such as a progress bar, hides a message from readers that split only at LF.
            LineEnd::Invalid if memchr::memchr(b'\r', content).is_some() => {
                let pieces = line.split_inclusive(|byte| *byte == b'\r');
                let filtered = pieces.flat_map(|piece| {
                    let (values, _) = scan::values(piece);
                    self.without_tests(piece, &values).into_owned()
                });
                Cow::Owned(filtered.collect())
            }
            LineEnd::Complete | LineEnd::Invalid => self.without_tests(line, &values),
        }
    }

    /// Returns a line without the test tools in these values.
    fn without_tests<'l>(&mut self, line: &'l [u8], values: &[Span]) -> Cow<'l, [u8]> {
        let mut removed = Vec::new();
        for value in values {
            match line[value.start] {
                b'{' => self.check_server_message(line, value, &mut removed),
                b'[' => {
                    let items = scan::elements(line, value).unwrap_or_default();
                    let messages = items.iter().filter(|item| line[item.start] == b'{');
                    messages.for_each(|item| self.check_server_message(line, item, &mut removed));
                }
                _ => {}
            }
        }
        without(line, &removed)
    }

    /// Adds the test tools of a response to `removed`.
    fn check_server_message(&mut self, line: &[u8], message: &Span, removed: &mut Vec<Span>) {
        let Some(message) = FilteredMessage::read(line, message).filter(|_| self.is_listing) else { return };
        let tools = message.results.iter().flat_map(|result| member_values(line, result, "tools"));
        let lists: Vec<_> = tools.filter(|tools| line[tools.start] == b'[').collect();
        if !lists.is_empty() {
            self.due_lists = self.due_lists.saturating_sub(1);
        }
        for tools in lists {
            let items = scan::elements(line, &tools).unwrap_or_default();
            let is_test = |item: &Span| {
                let mut names = member_values(line, item, "name").into_iter();
                names.any(|name| scan::string(&line[name]).is_some_and(|name| is_test_tool(&name)))
            };
            let refused: Vec<_> = items.iter().map(is_test).collect();
            removed.extend(removed_items(&items, &refused));
        }
    }
}

/// A refused message.
struct Refusal {
    /// Id exactly as the client wrote it.
    id: Option<Vec<u8>>,
    error: RpcError,
}

/// Relevant members of a message; each may be repeated.
#[derive(Default)]
struct FilteredMessage {
    methods: Vec<String>,
    ids: Vec<Span>,
    params: Vec<Span>,
    results: Vec<Span>,
}

impl FilteredMessage {
    fn read(line: &[u8], object: &Span) -> Option<Self> {
        let mut message = Self::default();
        for (key, value) in scan::members(line, object)? {
            let key = &line[key];
            if scan::is_key(key, "method") {
                message.methods.extend(scan::string(&line[value]));
            } else if scan::is_key(key, "id") {
                message.ids.push(value);
            } else if scan::is_key(key, "params") {
                message.params.push(value);
            } else if scan::is_key(key, "result") {
                message.results.push(value);
            }
        }
        Some(message)
    }
}

/// Returns all values of an object's member, which may be repeated.
fn member_values(line: &[u8], object: &Span, name: &str) -> Vec<Span> {
    if line[object.start] != b'{' {
        return Vec::new();
    }
    let members = scan::members(line, object).unwrap_or_default();
    members
        .into_iter()
        .filter(|(key, _)| scan::is_key(&line[key.clone()], name))
        .map(|(_, value)| value)
        .collect()
}

/// Returns the ranges to remove from an array, including the right commas.
fn removed_items(items: &[Span], refused: &[bool]) -> Vec<Span> {
    let mut removed = Vec::new();
    let is_kept = |place: usize| refused.get(place) == Some(&false);
    let mut kept_before = None;
    for place in 0..items.len() {
        if is_kept(place) {
            kept_before = Some(place);
            continue;
        }
        removed.push(match (kept_before, items.get(place + 1)) {
            // Remove the preceding separator, too.
            (Some(_), _) => items[place - 1].end..items[place].end,
            // Remove the following separator, too.
            (None, Some(next)) => items[place].start..next.start,
            (None, None) => items[place].clone(),
        });
    }
    removed
}

/// Returns a line without these ranges, which are sorted and disjoint.
fn without<'l>(line: &'l [u8], removed: &[Span]) -> Cow<'l, [u8]> {
    if removed.is_empty() {
        return Cow::Borrowed(line);
    }
    let mut kept = Vec::with_capacity(line.len());
    let mut at = 0;
    for span in removed {
        kept.extend_from_slice(&line[at..span.start]);
        at = span.end;
    }
    kept.extend_from_slice(&line[at..]);
    Cow::Owned(kept)
}

#[cfg(test)]
mod tests;
