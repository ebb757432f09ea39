//! Parsers of Catch2 3 listings: JSON, or XML for versions before 3.5. Other output may surround both.

use heeler_protocol::control::ListedTest;
use serde_json::Value;

use super::{
    adapter::NAME,
    command,
    selector::{MAX_SELECTED, SelectableCase, ShardSupport, listed_tests},
    text_listing,
};
use crate::{AdapterInvocation, ListingError, ListingOutput, scan};

const JSON_START: &[u8] = b"{\n  \"version\": ";
const XML_START: &[u8] = b"<MatchingTests>\n";
const XML_END: &[u8] = b"</MatchingTests>";

/// Returns the next listing command: JSON, then XML if the program has no JSON reporter, then the text of
/// version 2. `*` includes hidden tests. A program killed by a signal is not listed again. A large program is
/// listed twice, because its `main` may change the test order and its tests are selected by position.
pub(super) fn next_listing(outputs: &[ListingOutput]) -> Option<AdapterInvocation> {
    let listing = |form: &str| command::listing_invocation(&["*", "--list-tests"], form);
    match outputs {
        [] => Some(listing("json")),
        // A second listing shows whether the order is stable.
        [json] if is_json(json) => is_large(json).then(|| listing("json")),
        [json] => json.signal.is_none().then(|| listing("xml")),
        [json, ..] if is_json(json) => None,
        [_, xml, text @ ..] if xml.signal.is_none() && !is_xml(xml) => text_listing::next_listing(text),
        _ => None,
    }
}

/// Returns whether the program is large enough to select tests by position.
fn is_large(json: &ListingOutput) -> bool {
    json.code == Some(0)
        && memchr::memmem::find_iter(&json.stdout, "\"source-location\": ").nth(MAX_SELECTED).is_some()
}

fn is_same_order(cases: &[SelectableCase], again: Option<&ListingOutput>) -> bool {
    again.and_then(|again| read_json(&again.stdout)).is_some_and(|again| again == cases)
}

fn is_json(output: &ListingOutput) -> bool {
    memchr::memmem::find(&output.stdout, JSON_START).is_some()
}

fn is_xml(output: &ListingOutput) -> bool {
    memchr::memmem::find(&output.stdout, XML_START).is_some()
}

/// Returns the outputs of the version 2 listing commands, if the program uses version 2.
pub(super) fn outputs_of_version_2(outputs: &[ListingOutput]) -> Option<&[ListingOutput]> {
    outputs.get(2..).filter(|outputs| outputs.first().is_some_and(text_listing::is_listing))
}

/// Returns the output that is a listing, complete or not.
pub(super) fn listing_output(outputs: &[ListingOutput]) -> Option<&ListingOutput> {
    outputs.iter().find(|output| is_json(output) || is_xml(output))
}

/// Parses the listing in either form. A complete listing is valid, however the program ended afterwards.
pub(super) fn read(outputs: &[ListingOutput]) -> Result<Vec<ListedTest>, ListingError> {
    let Some(output) = listing_output(outputs) else {
        let Some(last) = outputs.first().filter(|output| output.code == Some(0)) else {
            let none = ListingOutput::default();
            let first = outputs.first().unwrap_or(&none);
            return Err(ListingError::of_exit(first).with_hint(text_listing::option_hint(&first.stderr)));
        };
        let line = scan::decode_lossy(&last.stdout);
        let line = scan::truncated(line.lines().next().unwrap_or_default(), 200);
        let reason = format!("expected a list of tests, found {line:?}");
        return Err(ListingError::NotThisFramework { framework: NAME, reason });
    };
    let cases = if is_json(output) { read_json(&output.stdout) } else { read_xml(&output.stdout) };
    let damaged = || match output.code {
        Some(0) => ListingError::Damaged { framework: NAME, reason: "it could not be parsed".to_owned() },
        Some(_) | None => ListingError::of_recognized_exit(output),
    };
    let cases = cases.ok_or_else(damaged)?;
    // Programs with a JSON listing support shards.
    let has_shards = is_json(output) && is_same_order(&cases, outputs.get(1));
    Ok(listed_tests(cases, if has_shards { ShardSupport::Has } else { ShardSupport::None }))
}

/// Parses the JSON form. Catch2 writes the raw bytes of names, including invalid UTF-8 and control
/// characters. Each byte is mapped to the character with its value for parsing, and back afterwards.
fn read_json(stdout: &[u8]) -> Option<Vec<SelectableCase>> {
    let start = memchr::memmem::find(stdout, JSON_START)?;
    let mut text = String::with_capacity(stdout.len());
    for byte in &stdout[start..] {
        match byte {
            b'\n' => text.push('\n'),
            0..b' ' => text.push_str(&format!("\\u{byte:04x}")),
            _ => text.push(char::from(*byte)),
        }
    }
    let document: Value = serde_json::Deserializer::from_str(&text).into_iter().next()?.ok()?;
    let tests = document.get("listings")?.get("tests")?.as_array()?;
    let case = |test: &Value| {
        let place = test.get("source-location");
        let tags = test.get("tags").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let line = place.and_then(|place| place.get("line")).and_then(Value::as_u64);
        Some(SelectableCase {
            name: bytes_of(test.get("name")?)?,
            file: place.and_then(|place| bytes_of(place.get("filename")?)).unwrap_or_default(),
            line: line.and_then(|line| u32::try_from(line).ok()).unwrap_or(0),
            tags: tags.iter().filter_map(bytes_of).collect(),
            class: test.get("class-name").and_then(bytes_of).unwrap_or_default(),
        })
    };
    tests.iter().map(case).collect()
}

fn bytes_of(text: &Value) -> Option<Vec<u8>> {
    text.as_str()?.chars().map(|character| u8::try_from(u32::from(character)).ok()).collect()
}

/// Parses the XML form, which writes invalid UTF-8 and control characters as `\xFF`.
fn read_xml(stdout: &[u8]) -> Option<Vec<SelectableCase>> {
    let start = memchr::memmem::find(stdout, XML_START)? + XML_START.len();
    let end = start + memchr::memmem::rfind(&stdout[start..], XML_END)?;
    let text = std::str::from_utf8(&stdout[start..end]).ok()?;
    let mut cases = Vec::new();
    for entry in text.split("  <TestCase>\n").skip(1) {
        let text_of = |name: &str| {
            let (_, rest) = entry.split_once(&format!("<{name}>"))?;
            let (text, _) = rest.split_once(&format!("</{name}>"))?;
            quick_xml::escape::unescape(text).ok().map(std::borrow::Cow::into_owned)
        };
        let tags = text_of("Tags").unwrap_or_default();
        cases.push(SelectableCase {
            name: decode_escapes(&text_of("Name").unwrap_or_default()),
            file: decode_escapes(&text_of("File").unwrap_or_default()),
            line: text_of("Line").and_then(|line| line.trim().parse().ok()).unwrap_or(0),
            tags: split_tags(tags.as_bytes()),
            class: decode_escapes(&text_of("ClassName").unwrap_or_default()),
        });
    }
    Some(cases)
}

/// Returns the bytes of a text with `\xFF` for each byte that XML cannot express.
fn decode_escapes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.strip_prefix(b"x").and_then(|after| after.get(..2));
        let byte = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match byte {
            Some(byte) if *first == b'\\' && !(b' '..0x7f).contains(&byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            Some(_) | None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

/// Returns the tags in a text such as `[one][two]`.
pub(super) fn split_tags(text: &[u8]) -> Vec<Vec<u8>> {
    let text = text.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]")).unwrap_or_default();
    let mut tags = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = memchr::memmem::find(rest, b"][");
        tags.push(rest[..end.unwrap_or(rest.len())].to_vec());
        rest = end.map_or(&[], |end| &rest[end + 2..]);
    }
    tags
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(stdout: &[u8]) -> ListingOutput {
        ListingOutput { stdout: stdout.to_vec(), code: Some(0), ..ListingOutput::default() }
    }

    const JSON: &[u8] = b"noise\n{\n  \"version\": 1,\n  \"listings\": {\n    \"tests\": [\n      {\n        \"name\": \"a \\\"b\\\" \xff\x07\",\n        \"tags\": [\n          \".\",\n          \"slow\"\n        ],\n        \"source-location\": {\n          \"filename\": \"t.cc\",\n          \"line\": 7\n        }\n      }\n    ]\n  }\n}after";
    const XML: &[u8] = b"<?xml version=\"1.0\"?>\n<MatchingTests>\n  <TestCase>\n    <Name>a \"b\" \\xFF\\x07</Name>\n    <ClassName/>\n    <Tags>[.][slow]</Tags>\n    <SourceInfo>\n      <File>t.cc</File>\n      <Line>7</Line>\n    </SourceInfo>\n  </TestCase>\n</MatchingTests>";

    #[test]
    fn both_forms_list_the_same() {
        let json = read(&[printed(JSON)]).unwrap();
        assert_eq!(json, read(&[printed(b"no reporter json"), printed(XML)]).unwrap());
        let [test] = json.as_slice() else { panic!("{json:?}") };
        assert_eq!((test.name.as_str(), test.file.as_deref()), ("a \"b\" \\xFF\u{7}", Some("t.cc")));
        assert_eq!((test.line, test.skip.as_deref()), (Some(7), Some("hidden by its tag")));
        assert_eq!(test.traits.iter().map(|one| one.value.as_str()).collect::<Vec<_>>(), ["slow"]);
    }

    #[test]
    fn other_form_is_tried_unless_the_program_died() {
        let words = |outputs: &[ListingOutput]| {
            let command = next_listing(outputs)?;
            Some(command.args.iter().map(|arg| arg.to_text().into_owned()).collect::<Vec<_>>().join(" "))
        };
        let other = printed(b"what?");
        let killed = ListingOutput { signal: Some(11), code: None, ..printed(b"") };
        assert_eq!(
            words(&[]).as_deref(),
            Some("* --list-tests --order decl --durations yes --reporter json")
        );
        assert_eq!(words(&[printed(JSON)]), None);
        assert_eq!(words(std::slice::from_ref(&killed)), None);
        assert_eq!(
            words(std::slice::from_ref(&other)).as_deref(),
            Some("* --list-tests --order decl --durations yes --reporter xml")
        );
        assert_eq!(words(&[other.clone(), printed(XML)]), None);
        assert!(words(&[other.clone(), other]).is_some_and(|words| words.contains("--list-test-names-only")));
        assert!(matches!(read(&[killed]), Err(ListingError::Died { signal: Some(11), .. })));
    }

    #[test]
    fn cut_listing_is_damaged() {
        for cut in [JSON.len() - 20, 60] {
            assert!(matches!(read(&[printed(&JSON[..cut])]), Err(ListingError::Damaged { .. })), "{cut}");
        }
        let xml = printed(&XML[..XML.len() - 10]);
        assert!(matches!(read(&[printed(b""), xml]), Err(ListingError::Damaged { .. })));
    }
}
