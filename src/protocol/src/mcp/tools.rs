//! Heeler's own tools: descriptions, arguments and results. A result is a JSON text of limited size; the rest
//! is on further pages.

use std::{
    num::{NonZeroU32, NonZeroU64},
    sync::LazyLock,
};

use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::ListToolsResult;

/// Maximum size of a result as text. The same result is also sent as an object, which is shorter.
pub const ANSWER_LIMIT_BYTES: usize = 8 << 10;
/// Space reserved in a result for everything except items or text: names, numbers, cursors.
const ANSWER_FRAME_BYTES: usize = 1 << 10;
/// Maximum size of one text of an item, as written.
const ITEM_TEXT_BYTES: usize = 1 << 10;

static DESCRIPTIONS: LazyLock<Box<RawValue>> = LazyLock::new(|| {
    RawValue::from_string(compact(include_str!("tools.json"))).expect("a JSON text of ours")
});

/// Returns a JSON text without white space between tokens.
fn compact(text: &str) -> String {
    let (mut is_text, mut is_escaped) = (false, false);
    let is_kept = |char: &char| {
        let is_border = *char == '"' && !is_escaped;
        is_escaped = is_text && *char == '\\' && !is_escaped;
        is_text ^= is_border;
        is_text || !char.is_whitespace()
    };
    text.chars().filter(is_kept).collect()
}

/// Heeler's tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tool {
    ListTests,
    RunTests,
    GetFailures,
    GetOutput,
    CancelRun,
    TestCapabilities,
    TestProtocol,
}

impl Tool {
    /// All tools, in list order.
    pub const ALL: [Self; 7] = [
        Self::ListTests,
        Self::RunTests,
        Self::GetFailures,
        Self::GetOutput,
        Self::CancelRun,
        Self::TestCapabilities,
        Self::TestProtocol,
    ];

    /// Returns the name of the tool.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ListTests => "list_tests",
            Self::RunTests => "run_tests",
            Self::GetFailures => "get_failures",
            Self::GetOutput => "get_output",
            Self::CancelRun => "cancel_run",
            Self::TestCapabilities => "mcp.test.capabilities",
            Self::TestProtocol => "mcp.test.protocol",
        }
    }

    /// Returns the tool with this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Parses the arguments of the tool.
    ///
    /// # Errors
    /// A message for the caller: what was expected.
    pub fn parse_arguments<A: DeserializeOwned>(self, arguments: Option<&RawValue>) -> Result<A, String> {
        let text = arguments.map_or("{}", RawValue::get);
        let text = if text == "null" { "{}" } else { text };
        if !text.starts_with('{') {
            return Err(format!("the arguments of {} must be an object", self.name()));
        }
        serde_json::from_str(text).map_err(|error| format!("invalid arguments of {}: {error}", self.name()))
    }
}

/// Returns the list of all tools.
#[must_use]
pub fn list_of_tools() -> ListToolsResult {
    ListToolsResult { tools: DESCRIPTIONS.clone(), next_cursor: None }
}

/// Arguments of a tool without arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NoArguments {}

/// Arguments of `list_tests`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListTestsArguments {
    pub filter: Option<String>,
    pub cursor: Option<Cursor>,
}

/// Arguments of `run_tests`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunTestsArguments {
    pub filter: Option<String>,
    pub rerun: Option<String>,
    pub repeat: Option<NonZeroU32>,
    pub timeout_ms: Option<NonZeroU64>,
}

/// Arguments of `get_failures`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetFailuresArguments {
    pub run: String,
    #[serde(default)]
    pub cursor: Option<Cursor>,
}

/// Arguments of `get_output`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetOutputArguments {
    pub run: String,
    pub test: String,
    #[serde(default)]
    pub from: Option<usize>,
}

/// Arguments of `cancel_run`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelRunArguments {
    pub run: String,
}

/// Start of a page: the number of items before it. Some agents send it as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor(pub usize);

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(usize),
            Text(String),
        }
        let place = match Written::deserialize(deserializer) {
            Ok(Written::Number(place)) => Some(place),
            Ok(Written::Text(text)) => text.parse().ok(),
            Err(_) => None,
        };
        place.map(Self).ok_or_else(|| {
            serde::de::Error::custom("invalid cursor: use the nextCursor of the previous page")
        })
    }
}

impl Serialize for Cursor {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// A test in a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ListedTestItem {
    pub test: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Why a program cannot be listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A failure of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FailureItem {
    pub test: String,
    pub outcome: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Result of `list_tests`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TestsAnswer {
    /// Number of tests on all pages.
    pub total: usize,
    pub tests: Vec<ListedTestItem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<Cursor>,
}

/// Result of `run_tests` and `get_failures`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunAnswer {
    pub run: String,
    /// `running`, `completed`, `cancelled`, `stopped` at a limit, or `interrupted`.
    pub state: &'static str,
    pub duration_ms: u64,
    /// Number of tests by outcome.
    pub counts: RunCounts,
    /// Number of failures on all pages.
    pub total_failures: usize,
    pub failures: Vec<FailureItem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<Cursor>,
    /// Parts of the request that the run could not fulfil.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Number of tests of a run. Outcomes with no tests are omitted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunCounts {
    pub selected: usize,
    /// Outcomes and their numbers of tests.
    pub by_outcome: Vec<(&'static str, usize)>,
}

impl Serialize for RunCounts {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let selected = [("selected", self.selected)];
        serializer.collect_map(selected.into_iter().chain(self.by_outcome.iter().copied()))
    }
}

/// Result of `get_output`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OutputAnswer {
    pub run: String,
    pub test: String,
    pub outcome: String,
    /// Offset of the piece's first byte.
    pub from: usize,
    /// Total number of bytes.
    pub total: usize,
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<usize>,
}

/// Result of `cancel_run`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CancelAnswer {
    pub run: String,
    /// Always `cancelling`. For a run that has ended, the call fails instead.
    pub state: &'static str,
}

impl ListedTestItem {
    /// Returns the item with its texts shortened to fit a result.
    #[must_use]
    pub fn bounded(self) -> Self {
        let error = self.error.as_deref().map(shortened);
        Self { test: shortened(&self.test), file: self.file.as_deref().map(shortened), error, ..self }
    }
}

impl FailureItem {
    /// Returns the item with its texts shortened to fit a result.
    #[must_use]
    pub fn bounded(self) -> Self {
        let message = self.message.as_deref().map(shortened);
        Self { test: shortened(&self.test), file: self.file.as_deref().map(shortened), message, ..self }
    }
}

/// A page of items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Cursor of the next page; `None` on the last page.
    pub next: Option<Cursor>,
}

/// Returns the start of a page of `total` items.
///
/// # Errors
/// No page begins there. The message is for the caller.
pub fn known_cursor(cursor: Option<Cursor>, total: usize) -> Result<Cursor, String> {
    match cursor {
        Some(Cursor(place)) if place > 0 && place >= total => Err(format!(
            "unknown cursor {place}: there are {total} items; use the nextCursor of the previous page"
        )),
        cursor => Ok(cursor.unwrap_or_default()),
    }
}

/// Returns the page that begins at the cursor, with as many of the `total` items as fit. `items` yields
/// shortened items from the cursor on. Other texts of the result take `head_bytes`.
///
/// # Panics
/// Never: items are plain structs.
#[must_use]
pub fn page<T: Serialize>(
    items: impl Iterator<Item = T>,
    Cursor(begin): Cursor,
    total: usize,
    head_bytes: usize,
) -> Page<T> {
    let room = ANSWER_LIMIT_BYTES.saturating_sub(ANSWER_FRAME_BYTES + head_bytes);
    let mut page = Page { items: Vec::new(), next: None };
    let mut used = 0;
    for item in items {
        let text = serde_json::to_string(&item).expect("a plain struct with text keys");
        // Size as text in JSON, after a comma.
        used += 1 + text.chars().map(escaped_bytes).sum::<usize>();
        // A page without items would never advance.
        if used > room && !page.items.is_empty() {
            break;
        }
        page.items.push(item);
    }
    let next = begin.saturating_add(page.items.len());
    page.next = (next < total && !page.items.is_empty()).then_some(Cursor(next));
    page
}

/// Returns the part of a text that begins at this byte and fits a result, and the start of the part, which is
/// a character boundary.
#[must_use]
pub fn piece(text: &str, from: usize, head_bytes: usize) -> (usize, &str) {
    let from = text.floor_char_boundary(from.min(text.len()));
    let room = ANSWER_LIMIT_BYTES.saturating_sub(ANSWER_FRAME_BYTES + head_bytes);
    (from, prefix(&text[from..], room))
}

/// Returns a text shortened for a result. The omitted bytes are counted in the text.
#[must_use]
pub fn shortened(text: &str) -> String {
    let kept = prefix(text, ITEM_TEXT_BYTES);
    match text.len() - kept.len() {
        0 => text.to_owned(),
        rest => format!("{kept}… ({rest} more bytes)"),
    }
}

/// Returns the size of a text in a result. There, the text is a string in JSON that is itself encoded as a
/// string.
#[must_use]
pub fn answer_bytes(text: &str) -> usize {
    text.chars().map(twice_escaped_bytes).sum()
}

/// Returns the longest prefix that takes at most `room` bytes in a result, but at least one character.
fn prefix(text: &str, room: usize) -> &str {
    let mut used = 0;
    let end = text.char_indices().find(|(at, char)| {
        used += twice_escaped_bytes(*char);
        used > room && *at > 0
    });
    &text[..end.map_or(text.len(), |(at, _)| at)]
}

/// Returns the size of a character in a JSON string.
fn escaped_bytes(char: char) -> usize {
    match char {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        other => other.len_utf8(),
    }
}

/// Returns the size of a character in a JSON string inside a JSON string: each backslash and quote of the
/// inner string takes two bytes.
fn twice_escaped_bytes(char: char) -> usize {
    match char {
        '"' | '\\' => 4,
        '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 3,
        '\0'..='\u{1f}' => 7,
        other => other.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mcp::{CallToolResult, Era, EraResult, ResultCaching};

    fn bytes_of(result: &impl Serialize) -> usize {
        serde_json::to_string(result).unwrap().len()
    }

    /// Returns a result in its limited form, without the object, which is shorter.
    fn text_of(result: CallToolResult) -> EraResult<CallToolResult> {
        let object = serde_json::to_string(&result.structured_content).unwrap();
        assert!(object.len() <= ANSWER_LIMIT_BYTES);
        let text = CallToolResult { structured_content: None, ..result };
        EraResult::new(text, Era::Modern, ResultCaching::Volatile)
    }

    #[test]
    fn list_of_tools_is_bounded_and_names_each_tool() {
        for era in [Era::Legacy, Era::Modern] {
            let list = EraResult::new(list_of_tools(), era, ResultCaching::Stable);
            assert!(bytes_of(&list) <= 6 << 10, "{}", bytes_of(&list));
        }
        let tools: Vec<serde_json::Value> = serde_json::from_str(list_of_tools().tools.get()).unwrap();
        let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, Tool::ALL.map(Tool::name));
        for (tool, name) in tools.iter().zip(names) {
            assert_eq!(tool["inputSchema"]["type"], "object", "{name}");
            assert_eq!(Tool::find(name).map(Tool::name), Some(name));
            let is_test = crate::mcp::is_test_tool(name);
            assert_eq!(tool["outputSchema"]["type"], "object", "{name}");
            assert_eq!(tool["testMetadata"], tool["_meta"]["testMetadata"], "{name}");
            assert_eq!(tool["testMetadata"].is_object(), is_test, "{name}");
        }
    }

    /// Parses arguments with every property of a tool's schema.
    fn parse_all<A: DeserializeOwned>(tool: Tool) -> Result<A, String> {
        let tools: Vec<serde_json::Value> = serde_json::from_str(list_of_tools().tools.get()).unwrap();
        let found = tools.iter().find(|one| one["name"] == tool.name()).unwrap();
        let value = |schema: &serde_json::Value| match schema["type"].as_str().unwrap() {
            "integer" => serde_json::json!(1),
            "string" => serde_json::json!("1"),
            other => panic!("{other}"),
        };
        let properties = found["inputSchema"]["properties"].as_object().unwrap();
        let arguments: serde_json::Map<_, _> =
            properties.iter().map(|(name, schema)| (name.clone(), value(schema))).collect();
        let raw = serde_json::value::to_raw_value(&arguments).unwrap();
        tool.parse_arguments(Some(&raw))
    }

    #[test]
    fn schemas_and_arguments_have_the_same_members() {
        let expected = ListTestsArguments { filter: Some("1".into()), cursor: Some(Cursor(1)) };
        assert_eq!(parse_all(Tool::ListTests), Ok(expected));
        let (repeat, timeout_ms) = (NonZeroU32::new(1), NonZeroU64::new(1));
        let expected =
            RunTestsArguments { filter: Some("1".into()), rerun: Some("1".into()), repeat, timeout_ms };
        assert_eq!(parse_all(Tool::RunTests), Ok(expected));
        let expected = GetFailuresArguments { run: "1".into(), cursor: Some(Cursor(1)) };
        assert_eq!(parse_all(Tool::GetFailures), Ok(expected));
        let expected = GetOutputArguments { run: "1".into(), test: "1".into(), from: Some(1) };
        assert_eq!(parse_all(Tool::GetOutput), Ok(expected));
        assert_eq!(parse_all(Tool::CancelRun), Ok(CancelRunArguments { run: "1".into() }));
        for tool in [Tool::TestCapabilities, Tool::TestProtocol] {
            assert_eq!(parse_all(tool), Ok(NoArguments {}));
        }
    }

    #[test]
    fn wrong_arguments_are_named() {
        let parse = |text: &str| {
            let raw = RawValue::from_string(text.to_owned()).unwrap();
            Tool::ListTests.parse_arguments::<ListTestsArguments>(Some(&raw)).unwrap_err()
        };
        assert_eq!(
            parse(r#"{"filtre":"a"}"#),
            "invalid arguments of list_tests: unknown field `filtre`, expected `filter` or `cursor` at line 1 \
             column 9"
        );
        assert!(
            parse(r#"{"cursor":"x"}"#).contains("invalid cursor: use the nextCursor of the previous page")
        );
        assert!(parse(r#"{"cursor":-1}"#).contains("invalid cursor"));
        assert!(parse(r#"{"filter":7}"#).contains("invalid type: integer `7`, expected a string"));
        assert_eq!(parse("[]"), "the arguments of list_tests must be an object");
        let none = Tool::ListTests.parse_arguments::<ListTestsArguments>(None);
        assert_eq!(none, Ok(ListTestsArguments::default()));
        let null = RawValue::from_string("null".to_owned()).unwrap();
        assert!(Tool::TestProtocol.parse_arguments::<NoArguments>(Some(&null)).is_ok());
    }

    #[test]
    fn pages_have_every_item_once() {
        let items: Vec<_> = (0..1000)
            .map(|number| ListedTestItem {
                test: format!("unit::Test.Number{number}"),
                ..ListedTestItem::default()
            })
            .collect();
        let mut seen = Vec::new();
        let mut cursor = Some(Cursor(0));
        while let Some(Cursor(begin)) = cursor {
            let page = page(items[begin..].iter().cloned(), Cursor(begin), items.len(), 0);
            let result = CallToolResult::object(&TestsAnswer {
                total: items.len(),
                tests: page.items.clone(),
                next_cursor: page.next,
            });
            assert!(bytes_of(&text_of(result)) <= ANSWER_LIMIT_BYTES);
            assert!(page.items.len() > 50 || page.next.is_none());
            seen.extend(page.items);
            cursor = page.next;
        }
        assert_eq!(seen, items);
        let beyond = page(std::iter::empty::<ListedTestItem>(), Cursor(usize::MAX), 3, 0);
        assert_eq!(beyond, Page { items: vec![], next: None });
    }

    proptest! {
        #[test]
        fn answers_are_bounded_whatever_the_texts_are(
            texts in prop::collection::vec("(\\PC|[\\x00-\\x1f\"\\\\]){0,3000}", 1..6),
            run in "[a-z0-9]{1,36}",
        ) {
            let item = |text: &String| FailureItem {
                test: text.clone(),
                outcome: "exited early".into(),
                file: Some(text.clone()),
                line: Some(u32::MAX),
                message: Some(text.clone()),
            };
            let page = page(texts.iter().map(|text| item(text).bounded()), Cursor(0), texts.len(), 0);
            let result = RunAnswer {
                run, state: "interrupted", duration_ms: u64::MAX, failures: page.items, next_cursor: page.next,
                ..RunAnswer::default()
            };
            prop_assert!(bytes_of(&text_of(CallToolResult::object(&result))) <= ANSWER_LIMIT_BYTES);
        }

        #[test]
        fn pieces_are_bounded_and_join_to_the_text(text in "(\\PC|[\\x00-\\x1f\"\\\\]){0,9000}") {
            let mut joined = String::new();
            while joined.len() < text.len() {
                let (from, piece) = piece(&text, joined.len(), 0);
                prop_assert_eq!(from, joined.len());
                let output = OutputAnswer {
                    from, text: piece.to_owned(), total: text.len(), next: Some(usize::MAX), ..OutputAnswer::default()
                };
                prop_assert!(bytes_of(&text_of(CallToolResult::object(&output))) <= ANSWER_LIMIT_BYTES);
                prop_assert_eq!(answer_bytes(piece), {
                    let once = serde_json::to_string(piece).unwrap();
                    serde_json::to_string(&once).unwrap().len() - 6
                });
                joined.push_str(piece);
            }
            prop_assert_eq!(joined, text);
        }
    }

    #[test]
    fn piece_never_begins_inside_a_character() {
        for from in 0..8 {
            let (begin, rest) = piece("aü😀", from, 0);
            assert_eq!(&"aü😀"[begin..], rest, "{from}");
        }
        assert_eq!(piece("aü😀", usize::MAX, 0), (7, ""));
        assert_eq!(piece("", 0, ANSWER_LIMIT_BYTES * 2), (0, ""));
        assert_eq!(piece("ab", 0, ANSWER_LIMIT_BYTES * 2), (0, "a"));
    }
}
