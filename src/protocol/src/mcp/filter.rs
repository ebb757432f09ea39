//! The production filter between a client and a server: `mcp.test.*` tools are neither listed nor called,
//! and every other byte passes as it is. Pure: bytes in, bytes out.
//!
//! Only two kinds of messages matter: requests to call a tool or to list tools, and the responses to those
//! that list. Whatever a lenient reader could take for one of them is treated as one.

use std::{
    borrow::Cow,
    collections::{HashSet, VecDeque},
};

use bytes::BytesMut;

use super::{
    is_test_tool,
    scan::{self, LineEnd, Span},
};
use crate::rpc::{RpcError, code};

/// Maximum length of a line that has to be read as a whole: each line of the client, and those of the server
/// while a list of tools is due.
pub const LINE_LIMIT_BYTES: usize = 16 << 20;
/// Maximum number of lists of tools that are due.
const MAX_PENDING_LISTS: usize = 1024;
/// Number of cancelled lists whose late response is still filtered. The client drops it anyway.
const MAX_CANCELLED_LISTS: usize = 64;
/// Maximum length of a tool's name in an error.
const SHOWN_NAME_CHARS: usize = 200;

/// A line that is too long to be read as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    #[error("read a line of the client: expected at most {LINE_LIMIT_BYTES} bytes")]
    ClientLine,
    #[error("read the server's list of tools: expected a line of at most {LINE_LIMIT_BYTES} bytes")]
    ServerLine,
}

/// What is to be written.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FilterOutput {
    pub to_server: BytesMut,
    pub to_client: BytesMut,
}

/// A request's id, compared as an implementation may read and write it: 1, 1.0 and 1e0 are one number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum ListId {
    Number(u64),
    Text(String),
    /// Neither, or absent: a response to it has such an id as well.
    Other,
}

/// The state of the filter of one connection.
#[derive(Debug, Default)]
pub struct ToolFilter {
    /// The client's line so far.
    client_line: Vec<u8>,
    /// The server's line so far, if it has to be read as a whole.
    server_line: Vec<u8>,
    /// What happens to the rest of the server's line; `None` between two lines.
    server_mode: Option<ServerLineMode>,
    /// Responses of the filter that wait for the end of the server's line.
    held_answers: BytesMut,
    pending: HashSet<ListId>,
    cancelled: VecDeque<ListId>,
    /// Whether each response with tools counts as a list, whatever was requested.
    is_for_any_list: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerLineMode {
    /// No list was due when it began.
    Passed,
    Collected,
}

impl ToolFilter {
    /// Returns a filter of a stream whose responses may belong to requests that were sent elsewhere.
    #[must_use]
    pub fn for_any_list() -> Self {
        Self { is_for_any_list: true, ..Self::default() }
    }

    /// Handles a whole message of the client, which may have line ends in it.
    pub fn on_client_message(&mut self, message: &[u8], out: &mut FilterOutput) {
        self.client_line = message.to_vec();
        self.end_client_line(out);
    }

    /// Returns what is passed on of a whole message of the server, which may have line ends in it.
    pub fn filtered_server_message<'m>(&mut self, message: &'m [u8]) -> Cow<'m, [u8]> {
        self.filtered_server_line(message)
    }

    /// Returns whether a list of tools may come, so that messages of the server have to be read.
    #[must_use]
    pub fn may_get_list(&self) -> bool {
        self.is_for_any_list || self.has_due_lists()
    }

    /// Handles bytes of the client.
    ///
    /// # Errors
    /// A line is too long; the connection has to end.
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

    /// Handles the end of the client's stream: a last line may lack its end.
    pub fn on_client_end(&mut self, out: &mut FilterOutput) {
        self.end_client_line(out);
    }

    /// Handles bytes of the server.
    ///
    /// # Errors
    /// A line is too long; the connection has to end.
    pub fn on_server_bytes(&mut self, bytes: &[u8], out: &mut FilterOutput) -> Result<(), FilterError> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let mode = *self.server_mode.get_or_insert(match self.has_due_lists() {
                true => ServerLineMode::Collected,
                false => ServerLineMode::Passed,
            });
            match mode {
                ServerLineMode::Passed => out.to_client.extend_from_slice(piece),
                ServerLineMode::Collected if self.server_line.len() + piece.len() > LINE_LIMIT_BYTES => {
                    return Err(FilterError::ServerLine);
                }
                ServerLineMode::Collected => self.server_line.extend_from_slice(piece),
            }
            if piece.ends_with(b"\n") {
                self.end_server_line(out);
            }
        }
        Ok(())
    }

    /// Handles the end of the server's stream: a last line may lack its end.
    pub fn on_server_end(&mut self, out: &mut FilterOutput) {
        self.end_server_line(out);
    }

    fn has_due_lists(&self) -> bool {
        !self.pending.is_empty() || !self.cancelled.is_empty()
    }

    fn end_server_line(&mut self, out: &mut FilterOutput) {
        let line = std::mem::take(&mut self.server_line);
        out.to_client.extend_from_slice(&self.filtered_server_line(&line));
        self.server_mode = None;
        out.to_client.extend_from_slice(&std::mem::take(&mut self.held_answers));
    }

    fn end_client_line(&mut self, out: &mut FilterOutput) {
        let line = std::mem::take(&mut self.client_line);
        let (values, end) = scan::values(&line);
        if end == LineEnd::Unbalanced {
            // A reader of streams would go on in the next line, and see another message than this filter.
            let message = "expected a whole JSON message on each line";
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

    /// Checks a message, or each one of a batch; adds the refused ones to `removed`. Returns whether anything
    /// of it is passed on.
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

    /// Returns why a message is not passed to the server.
    fn check_client_message(&mut self, line: &[u8], message: &Span) -> Option<Refusal> {
        let message = Message::read(line, message)?;
        let has_method = |name: &str| message.methods.iter().any(|method| method == name);
        let id = message.ids.last().map(|id| line[id.clone()].to_vec());
        if has_method("tools/call") {
            let names = message.params.iter().flat_map(|params| member_values(line, params, "name"));
            let mut names = names.filter_map(|name| scan::string(&line[name]));
            if let Some(name) = names.find(|name| is_test_tool(name)) {
                let name: String = name.chars().take(SHOWN_NAME_CHARS).collect();
                let error = RpcError::new(code::INVALID_PARAMS, format!("Unknown tool: {name}"));
                return Some(Refusal { id, error });
            }
        }
        if has_method("tools/list") {
            if self.pending.len() >= MAX_PENDING_LISTS {
                let message = format!("{MAX_PENDING_LISTS} lists of tools are due already");
                return Some(Refusal { id, error: RpcError::new(code::INTERNAL_ERROR, message) });
            }
            self.pending.extend(message.ids.iter().map(|id| list_id(&line[id.clone()])));
            if message.ids.is_empty() {
                self.pending.insert(ListId::Other);
            }
        }
        if has_method("notifications/cancelled") {
            let ids = message.params.iter().flat_map(|params| member_values(line, params, "requestId"));
            ids.for_each(|id| self.cancel(&list_id(&line[id])));
        }
        None
    }

    fn cancel(&mut self, id: &ListId) {
        if let Some(id) = self.pending.take(id) {
            self.cancelled.push_back(id);
            if self.cancelled.len() > MAX_CANCELLED_LISTS {
                self.cancelled.pop_front();
            }
        }
    }

    fn refuse(&mut self, refusal: &Refusal, out: &mut FilterOutput) {
        // A notification gets no response.
        if let Some(id) = &refusal.id {
            self.answer(id, &refusal.error, out);
        }
    }

    /// Answers in place of the server, between two of its lines.
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
        if end == LineEnd::Unbalanced {
            // It is no message, and a reader of streams would see one that this filter does not.
            return Cow::Borrowed(b"");
        }
        let mut removed = Vec::new();
        for value in values {
            match line[value.start] {
                b'{' => self.check_server_message(line, &value, &mut removed),
                b'[' => {
                    let items = scan::elements(line, &value).unwrap_or_default();
                    let messages = items.iter().filter(|item| line[item.start] == b'{');
                    messages.for_each(|item| self.check_server_message(line, item, &mut removed));
                }
                _ => {}
            }
        }
        without(line, &removed)
    }

    /// Adds the test tools of a response that is due to `removed`.
    fn check_server_message(&mut self, line: &[u8], message: &Span, removed: &mut Vec<Span>) {
        let Some(message) = Message::read(line, message) else { return };
        if message.results.is_empty() && !message.has_error {
            return;
        }
        let mut is_due = false;
        let ids = message.ids.iter().map(|id| list_id(&line[id.clone()]));
        for id in ids.chain(message.ids.is_empty().then_some(ListId::Other)) {
            is_due |= self.pending.remove(&id);
            if let Some(place) = self.cancelled.iter().position(|cancelled| *cancelled == id) {
                self.cancelled.remove(place);
                is_due = true;
            }
        }
        if !is_due && !self.is_for_any_list {
            return;
        }
        for tools in message.results.iter().flat_map(|result| member_values(line, result, "tools")) {
            let items = Some(&tools).filter(|tools| line[tools.start] == b'[');
            let items = items.and_then(|tools| scan::elements(line, tools)).unwrap_or_default();
            let is_test = |item: &Span| {
                let mut names = member_values(line, item, "name").into_iter();
                names.any(|name| scan::string(&line[name]).is_some_and(|name| is_test_tool(&name)))
            };
            let refused: Vec<_> = items.iter().map(is_test).collect();
            removed.extend(removed_items(&items, &refused));
        }
    }
}

/// A message that is not passed on.
struct Refusal {
    /// The id as the client wrote it.
    id: Option<Vec<u8>>,
    error: RpcError,
}

/// The members of a message that matter here; each may be repeated.
#[derive(Default)]
struct Message {
    methods: Vec<String>,
    ids: Vec<Span>,
    params: Vec<Span>,
    results: Vec<Span>,
    has_error: bool,
}

impl Message {
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
            } else if scan::is_key(key, "error") {
                message.has_error = true;
            }
        }
        Some(message)
    }
}

/// Returns the values of a member of an object, which may be repeated.
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

fn list_id(value: &[u8]) -> ListId {
    if let Some(text) = scan::string(value) {
        return ListId::Text(text);
    }
    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse::<f64>().ok());
    match number.filter(|number| number.is_finite()) {
        // Zero has two signs, and is one number.
        Some(number) => ListId::Number((number + 0.0).to_bits()),
        None => ListId::Other,
    }
}

/// Returns what is to be removed of an array, so that commas stay between the other items only.
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
            // With the separator before it.
            (Some(_), _) => items[place - 1].end..items[place].end,
            // With the one behind it.
            (None, Some(next)) => items[place].start..next.start,
            (None, None) => items[place].clone(),
        });
    }
    removed
}

/// Returns a line without these parts of it, which are in order and apart.
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
