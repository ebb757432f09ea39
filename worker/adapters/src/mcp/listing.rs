//! The dialogue that detects a server's protocol era and lists its tools.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use heeler_protocol::control::TestProgram;
use serde_json::{Value, json};

use super::{
    adapter::NAME,
    message::{
        LINE_LIMIT_BYTES, Line, LineReader, METHOD_NOT_FOUND, MODERN_ERRORS, MODERN_VERSION, RequestError,
        ServerEra, ServerMessage, response_to, shown_line, texts,
    },
    tool::{TEST_PREFIX, TestTool, test_tool},
};
use crate::{AdapterListing, ListingDialogue, ListingError, ListingOutput};

/// How long to wait for the answer to `server/discover`. A server that does not know it may never answer.
const DISCOVER_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of pages of tools.
const MAX_PAGES: usize = 100;
/// Tests that every server should have, by this name or as a group with this prefix.
const REQUIRED_TESTS: [&str; 2] = ["mcp.test.capabilities", "mcp.test.protocol"];

const DISCOVER_ID: u64 = 1;
const INITIALIZE_ID: u64 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// `server/discover` has not been answered.
    Discovering,
    /// `initialize` has not been answered; `server/discover` may still be answered.
    Initializing,
    /// The page request with this id is open.
    Listing(u64),
    /// No further request is sent.
    Over,
}

pub(super) struct McpListing {
    lines: LineReader,
    stage: Stage,
    era: ServerEra,
    next_id: u64,
    pages: usize,
    cursors: HashSet<String>,
    tools: Vec<TestTool>,
    names: HashSet<String>,
    /// Arguments by tool name, each a JSON object.
    arguments: BTreeMap<String, String>,
    /// The first line that was not a message.
    other_line: Option<String>,
    warnings: Vec<String>,
    error: Option<String>,
}

impl McpListing {
    pub(super) fn new(program: &TestProgram) -> Self {
        Self {
            lines: LineReader::default(),
            stage: Stage::Discovering,
            era: ServerEra::Modern,
            next_id: INITIALIZE_ID + 1,
            pages: 0,
            cursors: HashSet::new(),
            tools: Vec::new(),
            names: HashSet::new(),
            arguments: program.test_arguments.clone(),
            other_line: None,
            warnings: Vec::new(),
            error: None,
        }
    }

    fn on_line(&mut self, line: Line) -> Vec<u8> {
        match line {
            Line::ServerMessage(ServerMessage::Response { id, answer }) => self.on_response(&id, answer),
            Line::ServerMessage(ServerMessage::Request { id, method }) => response_to(&id, &method),
            Line::ServerMessage(ServerMessage::Notification { .. }) => Vec::new(),
            Line::Other(line) => {
                self.other_line.get_or_insert_with(|| shown_line(&line));
                Vec::new()
            }
            Line::TooLong => self.fail(format!("a line exceeds {LINE_LIMIT_BYTES} bytes")),
        }
    }

    fn on_response(&mut self, id: &Value, answer: Result<Value, RequestError>) -> Vec<u8> {
        match (self.stage, id.as_u64(), answer) {
            (Stage::Discovering | Stage::Initializing, Some(DISCOVER_ID), Ok(result)) => {
                self.on_discovered(&result)
            }
            (Stage::Discovering, Some(DISCOVER_ID), Err(error)) => self.on_not_discovered(&error),
            (Stage::Initializing, Some(INITIALIZE_ID), Ok(_)) => {
                let opened = self.era.opened();
                [opened, self.request_page(None)].concat()
            }
            (Stage::Initializing, Some(INITIALIZE_ID), Err(error)) => {
                self.fail(format!("initialize failed: {}", error.describe()))
            }
            (Stage::Listing(page), Some(answered), answer) if page == answered => self.on_page(answer),
            // Not an answer to an open request.
            _ => Vec::new(),
        }
    }

    fn on_discovered(&mut self, result: &Value) -> Vec<u8> {
        let versions = texts(&result["supportedVersions"]);
        if versions.iter().any(|version| version == MODERN_VERSION) {
            self.era = ServerEra::Modern;
            return self.request_page(None);
        }
        if !is_before_modern(&versions) {
            return self.fail_by_version(&versions);
        }
        // The server answers requests that it does not know.
        if self.stage == Stage::Discovering { self.initialize() } else { Vec::new() }
    }

    fn on_not_discovered(&mut self, error: &RequestError) -> Vec<u8> {
        let is_modern = error.code.is_some_and(|code| MODERN_ERRORS.contains(&code));
        let versions = &error.supported;
        if is_modern && (versions.is_empty() || versions.iter().any(|version| version == MODERN_VERSION)) {
            return self.request_page(None);
        }
        if is_modern && !is_before_modern(versions) {
            return self.fail_by_version(versions);
        }
        self.initialize()
    }

    fn fail_by_version(&mut self, versions: &[String]) -> Vec<u8> {
        self.fail(format!("the server supports the versions {versions:?}, not {MODERN_VERSION}"))
    }

    fn initialize(&mut self) -> Vec<u8> {
        self.stage = Stage::Initializing;
        self.era = ServerEra::Legacy;
        self.era.opening(INITIALIZE_ID)
    }

    fn request_page(&mut self, cursor: Option<&str>) -> Vec<u8> {
        let id = self.next_id;
        self.next_id += 1;
        self.stage = Stage::Listing(id);
        let params = cursor.map_or_else(|| json!({}), |cursor| json!({"cursor": cursor}));
        self.era.request(id, "tools/list", params)
    }

    fn on_page(&mut self, answer: Result<Value, RequestError>) -> Vec<u8> {
        let page = match answer {
            Ok(page) => page,
            // The server has no tools at all.
            Err(error) if error.code == Some(METHOD_NOT_FOUND) && self.pages == 0 => return self.complete(),
            Err(error) => return self.fail(format!("tools/list failed: {}", error.describe())),
        };
        self.pages += 1;
        let Some(tools) = page["tools"].as_array() else {
            return self.fail("the tools/list response has no list of tools".to_owned());
        };
        for tool in tools {
            let Some(name) = tool["name"].as_str() else {
                return self.fail("the tools/list response has a tool without a name".to_owned());
            };
            if !name.starts_with(TEST_PREFIX) {
                continue;
            }
            if !self.names.insert(name.to_owned()) {
                return self.fail(format!("duplicate tool name {name:?}"));
            }
            self.tools.push(test_tool(tool, name, self.era, &self.arguments, &mut self.warnings));
        }
        match page["nextCursor"].as_str() {
            None => self.complete(),
            Some(_) if self.pages == MAX_PAGES => {
                self.fail(format!("tools/list returned more than {MAX_PAGES} pages"))
            }
            Some(cursor) if !self.cursors.insert(cursor.to_owned()) => self.fail(format!(
                "tools/list returned the cursor {cursor:?} twice, so its pages would never end"
            )),
            Some(cursor) => self.request_page(Some(cursor)),
        }
    }

    fn complete(&mut self) -> Vec<u8> {
        self.stage = Stage::Over;
        Vec::new()
    }

    fn fail(&mut self, error: String) -> Vec<u8> {
        self.error.get_or_insert(error);
        self.complete()
    }

    fn damaged(&self, reason: String) -> ListingError {
        let line = self.other_line.as_ref();
        let line = line.map(|line| format!("; it wrote non-MCP output to standard output: {line}"));
        ListingError::Damaged { framework: NAME, reason: format!("{reason}{}", line.unwrap_or_default()) }
    }

    /// Adds the warnings that concern the whole listing.
    fn warn_of_whole(&mut self) {
        for required in REQUIRED_TESTS {
            let group = format!("{required}.");
            if !self.names.iter().any(|name| name == required || name.starts_with(&group)) {
                self.warnings.push(format!("does not list the required test {required}"));
            }
        }
        if let Some(line) = &self.other_line {
            self.warnings.push(format!("writes non-MCP output to standard output: {line}"));
        }
        let unknown = self.arguments.keys().filter(|name| !self.names.contains(*name));
        self.warnings.extend(
            unknown.map(|name| format!("has no tool {name:?}, although arguments are configured for it")),
        );
    }
}

/// Returns whether all versions open with a handshake. Versions are dates, so they compare as text.
fn is_before_modern(versions: &[String]) -> bool {
    versions.iter().all(|version| version.as_str() < MODERN_VERSION)
}

impl ListingDialogue for McpListing {
    fn opening_request(&mut self) -> Vec<u8> {
        ServerEra::Modern.opening(DISCOVER_ID)
    }

    fn on_reply(&mut self, chunk: &[u8]) -> Vec<u8> {
        let mut requests = Vec::new();
        for line in self.lines.read(chunk) {
            if self.stage != Stage::Over {
                requests.extend(self.on_line(line));
            }
        }
        requests
    }

    fn reply_timeout(&self) -> Option<Duration> {
        (self.stage == Stage::Discovering).then_some(DISCOVER_TIMEOUT)
    }

    fn on_reply_timeout(&mut self) -> Vec<u8> {
        if self.stage == Stage::Discovering { self.initialize() } else { Vec::new() }
    }

    fn awaited_reply(&self) -> Option<&'static str> {
        match self.stage {
            Stage::Discovering => Some("server/discover"),
            Stage::Initializing => Some("initialize"),
            Stage::Listing(_) => Some("tools/list"),
            Stage::Over => None,
        }
    }

    fn finish(&mut self, output: &ListingOutput) -> Result<AdapterListing, ListingError> {
        let is_well = output.code == Some(0) && output.signal.is_none();
        if let Some(error) = self.error.take() {
            return Err(self.damaged(error));
        }
        if let Some(awaited) = self.awaited_reply() {
            if is_well {
                return Err(self.damaged(format!("it exited with code 0 before answering {awaited}")));
            }
            return Err(ListingError::of_recognized_exit(output));
        }
        self.warn_of_whole();
        let mut tools = std::mem::take(&mut self.tools);
        tools.sort_by(|one, other| {
            one.priority.total_cmp(&other.priority).then_with(|| one.test.name.cmp(&other.test.name))
        });
        Ok(AdapterListing {
            framework: NAME,
            tests: tools.into_iter().map(|tool| tool.test).collect(),
            failure: (!is_well).then(|| ListingError::of_recognized_exit(output)),
            warnings: std::mem::take(&mut self.warnings),
            depends_on: Vec::new(),
        })
    }
}
