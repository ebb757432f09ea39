//! Parser of the text listings of Catch2 2: one with names and locations, and a human-readable one with tags.
//! The parser joins them by name and location, because a `main` may set a random order.

use std::collections::{HashMap, HashSet};

use heeler_protocol::control::ListedTest;

use super::{
    adapter::NAME_OF_VERSION_2,
    command,
    listing::split_tags,
    selector::{SelectableCase, ShardSupport, is_hiding, listed_tests},
};
use crate::{AdapterInvocation, ListingError, ListingOutput, scan};

/// Separates a name from its location.
const PLACE_START: &[u8] = b"\t@";
/// End of the heading above a human-readable listing.
const HEADING_END: &[u8] = b" test cases:\n";
/// Line before the tags of a test: its description, a feature of Catch2 that is older than tags.
const DESCRIPTION: &[u8] = b"\n    (NO DESCRIPTION)\n";
/// Indentation of tag lines.
const TAG_INDENTATION: &[u8] = b"      ";

/// Returns the next listing command: names, then tags, then hidden tests if the tags do not show which tests
/// are hidden. `*` includes hidden tests.
pub(super) fn next_listing(outputs: &[ListingOutput]) -> Option<AdapterInvocation> {
    let (pattern, form) = match outputs {
        [] => ("*", NAMES_FORM),
        [names] if is_listing(names) => ("*", "--list-tests"),
        [names, tags] if !shows_all_tags(names, tags) => ("[.]", NAMES_FORM),
        _ => return None,
    };
    Some(command::listing_invocation(&[pattern, form, "--verbosity", "high"], "xml"))
}

const NAMES_FORM: &str = "--list-test-names-only";

/// Returns whether the program listed tests.
pub(super) fn is_listing(names: &ListingOutput) -> bool {
    read_names(&names.stdout).is_some_and(|cases| !cases.is_empty())
}

/// Returns whether each listed name has exactly one entry in the listing with tags.
fn shows_all_tags(names: &ListingOutput, tags: &ListingOutput) -> bool {
    let cases = read_names(&names.stdout).unwrap_or_default();
    let tags = ShownTags::read(&tags.stdout);
    cases.len() == tags.by_key.len() && !tags.is_ambiguous && cases.iter().all(|case| tags.of(case).is_some())
}

/// Maximum exit code that Catch2 uses for a count.
const MAX_EXIT_CODE: usize = 255;

/// Returns whether the exit code is the number of listed tests: Catch2 exits a listing with this number. With
/// `MAX_EXIT_CODE` or more tests, the exit code proves nothing.
fn is_counted_exit(output: &ListingOutput, count: usize) -> bool {
    count < MAX_EXIT_CODE && usize::try_from(output.code.unwrap_or(-1)) == Ok(count)
}

/// Returns whether a program that listed this number of tests may exit with this code. A `main` may change
/// the code, and before version 2.13 the system keeps only its lowest eight bits.
fn is_good_exit(output: &ListingOutput, count: usize) -> bool {
    let code = output.code.and_then(|code| usize::try_from(code).ok());
    code.is_some_and(|code| [0, 1, count.min(MAX_EXIT_CODE), count & MAX_EXIT_CODE].contains(&code))
}

/// Returns whether a human-readable listing has its last line, with this number of tests.
fn is_whole(tags: &ListingOutput, count: usize) -> bool {
    let plural = if count == 1 { "" } else { "s" };
    let last = ["matching test case", "test case"].map(|noun| format!("{count} {noun}{plural}"));
    tags.stdout.split(|byte| *byte == b'\n').any(|line| last.iter().any(|last| line == last.as_bytes()))
}

/// Returns the failure of a program after it listed its tests.
pub(super) fn failure(outputs: &[ListingOutput], count: usize) -> Option<ListingError> {
    let is_failed = |output: &&ListingOutput| output.signal.is_some();
    let names = outputs.first().filter(|names| !is_good_exit(names, count));
    outputs.iter().find(is_failed).or(names).map(ListingError::of_recognized_exit)
}

/// Parses the listings. The names listing has no end mark: it is complete if the exit code, or the count at
/// the end of the listing with tags, confirms the number of tests.
pub(super) fn read(outputs: &[ListingOutput]) -> Result<Vec<ListedTest>, ListingError> {
    let Some(names) = outputs.first() else { return Err(ListingError::of_exit(&ListingOutput::default())) };
    let Some(mut cases) = read_names(&names.stdout) else {
        if names.signal.is_some() {
            return Err(ListingError::of_exit(names));
        }
        let line = scan::decode_lossy(&names.stdout);
        let line = scan::truncated(line.lines().next().unwrap_or_default(), 200);
        let reason = format!("expected a list of tests, found {line:?}");
        return Err(ListingError::NotThisFramework { framework: NAME_OF_VERSION_2, reason });
    };
    let is_shown_whole = outputs.get(1).is_some_and(|tags| !cases.is_empty() && is_whole(tags, cases.len()));
    if !is_counted_exit(names, cases.len()) && !is_shown_whole {
        return Err(ListingError::of_exit(names).with_hint(option_hint(&names.stderr)));
    }
    if let Some(tags) = outputs.get(1) {
        let tags = ShownTags::read(&tags.stdout);
        cases.iter_mut().for_each(|case| case.tags = tags.of(case).unwrap_or_default().to_vec());
    }
    if let Some(hidden) = outputs.get(2) {
        hide(&mut cases, hidden)?;
    }
    Ok(listed_tests(cases, ShardSupport::None))
}

/// Returns a hint for an option that Catch2 rejects because it occurs twice.
pub(super) fn option_hint(stderr: &[u8]) -> Option<&'static str> {
    const REFUSED: &[u8] = b"Unrecognised token: -";
    memchr::memmem::find(stderr, REFUSED).map(|_| {
        "Catch2 accepts each option once, and Heeler passes --order, --durations, --reporter, --verbosity and \
         --input-file: remove them from the program's arguments"
    })
}

/// Hides exactly the tests that are listed as hidden.
fn hide(cases: &mut [SelectableCase], hidden: &ListingOutput) -> Result<(), ListingError> {
    let Some(hidden) = read_names(&hidden.stdout).filter(|_| hidden.signal.is_none()) else {
        let reason = "the program did not list its hidden tests".to_owned();
        return Err(ListingError::Damaged { framework: NAME_OF_VERSION_2, reason });
    };
    let place = |case: &SelectableCase| (case.name.clone(), case.file.clone(), case.line);
    let hidden: HashSet<_> = hidden.iter().map(place).collect();
    for case in cases {
        case.tags.retain(|tag| !is_hiding(tag));
        if hidden.contains(&place(case)) {
            case.tags.push(b".".to_vec());
        }
    }
    Ok(())
}

/// Parses the names listing: each entry is a name, a tab, `@`, its file, a colon and its line. A name may
/// span several lines. `None` if anything else follows the last location.
fn read_names(stdout: &[u8]) -> Option<Vec<SelectableCase>> {
    let mut cases = Vec::new();
    let mut rest = stdout;
    while !rest.is_empty() {
        let NextEntry { name, file, line, after } = next_entry(rest)?;
        // Catch2 quotes a name that would be a comment in a file of names.
        let is_quoted = name.starts_with(b"\"#") && name.ends_with(b"\"") && name.len() > 2;
        let name = if is_quoted { &name[1..name.len() - 1] } else { name };
        cases.push(SelectableCase {
            name: name.to_vec(),
            file: file.to_vec(),
            line,
            ..SelectableCase::default()
        });
        rest = after;
    }
    Some(cases)
}

/// An entry and the bytes after it.
struct NextEntry<'a> {
    name: &'a [u8],
    file: &'a [u8],
    line: u32,
    after: &'a [u8],
}

fn next_entry(bytes: &[u8]) -> Option<NextEntry<'_>> {
    memchr::memmem::find_iter(bytes, PLACE_START).find_map(|at| {
        let place = &bytes[at + PLACE_START.len()..];
        let end = memchr::memchr(b'\n', place)?;
        let colon = memchr::memrchr(b':', &place[..end])?;
        let line = std::str::from_utf8(&place[colon + 1..end]).ok()?.parse().ok()?;
        Some(NextEntry { name: &bytes[..at], file: &place[..colon], line, after: &place[end + 1..] })
    })
}

/// Tags from a human-readable listing, which wraps names and locations.
#[derive(Debug, Default)]
struct ShownTags {
    /// Tags of each test, by name and location.
    by_key: HashMap<Vec<u8>, Vec<Vec<u8>>>,
    /// Two tests show the same name and location.
    is_ambiguous: bool,
}

impl ShownTags {
    /// Parses a listing: name and location, a description, and the tags, which are usually wrapped after a
    /// tag.
    fn read(stdout: &[u8]) -> Self {
        let mut shown = Self::default();
        let heading = memchr::memmem::find(stdout, HEADING_END).map_or(0, |at| at + HEADING_END.len());
        let mut rest = &stdout[heading..];
        while let Some(at) = memchr::memmem::find(rest, DESCRIPTION) {
            let key = key_of(&rest[..at]);
            rest = &rest[at + DESCRIPTION.len()..];
            let mut text = Vec::new();
            while let Some(line) = rest.strip_prefix(TAG_INDENTATION)
                && (!text.is_empty() || line.starts_with(b"["))
            {
                let end = memchr::memchr(b'\n', line).unwrap_or(line.len());
                text.extend_from_slice(&line[..end]);
                rest = line.get(end + 1..).unwrap_or_default();
            }
            shown.is_ambiguous |= shown.by_key.insert(key, split_tags(&text)).is_some();
        }
        shown
    }

    fn of(&self, case: &SelectableCase) -> Option<&[Vec<u8>]> {
        let place = format!(":{}", case.line);
        let key = [key_of(&case.name), key_of(&case.file), place.into_bytes()].concat();
        self.by_key.get(&key).map(Vec::as_slice)
    }
}

/// Returns a text without the characters that wrapping adds or removes: spaces, and hyphens within words.
fn key_of(text: &[u8]) -> Vec<u8> {
    text.iter().filter(|byte| !byte.is_ascii_whitespace() && **byte != b'-').copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(stdout: &str, code: i32) -> ListingOutput {
        ListingOutput { stdout: stdout.into(), code: Some(code), ..ListingOutput::default() }
    }

    const NAMES: &str = "plain\t@t.cc:3\ntwo\nlines\t@t.cc:4\n\"#hash\"\t@dir/t.cc:5\n";
    const TAGS: &str = "Matching test cases:\n  plain\n    t.cc:3\n    (NO DESCRIPTION)\n      [!hide][.][a long one]\n      [two]\n  two\n    lines\n    t.cc:4\n    (NO DESCRIPTION)\n  #hash\n    dir/t.cc:5\n    (NO DESCRIPTION)\n      [last]\n3 matching test cases\n";

    #[test]
    fn names_have_places_and_tags() {
        let tests = read(&[printed(NAMES, 3), printed(TAGS, 3)]).unwrap();
        let seen: Vec<_> = tests
            .iter()
            .map(|test| {
                let tags: Vec<_> = test.traits.iter().map(|one| one.value.as_str()).collect();
                (test.name.as_str(), test.line, test.skip.is_some(), tags.join(" "))
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("plain", Some(3), true, "a long one two".to_owned()),
                ("two\nlines", Some(4), false, String::new()),
                ("#hash", Some(5), false, "last".to_owned()),
            ]
        );
    }

    #[test]
    fn only_a_whole_listing_of_a_program_that_crashed_is_valid() {
        let crashed = |stdout| ListingOutput { signal: Some(6), code: None, ..printed(stdout, 0) };
        let good = [printed(NAMES, 3), printed(TAGS, 3)];
        assert_eq!(failure(&good, 3), None);
        let outputs = [crashed(NAMES), crashed(TAGS)];
        assert_eq!(read(&outputs), read(&good));
        assert!(matches!(failure(&outputs, 3), Some(ListingError::Died { signal: Some(6), .. })));
        let two_names = &NAMES[..NAMES.rfind("\"#").unwrap()];
        for (names, tags) in [(two_names, TAGS), (NAMES, &TAGS[..TAGS.len() - 30]), ("", "")] {
            let error = read(&[crashed(names), crashed(tags)]).unwrap_err();
            assert!(matches!(error, ListingError::Died { signal: Some(6), .. }), "{names} {tags}");
        }
    }

    #[test]
    fn listing_with_another_count_or_other_text_is_refused() {
        assert!(matches!(read(&[printed(NAMES, 4)]), Err(ListingError::Died { code: Some(4), .. })));
        assert!(matches!(read(&[printed("usage\n", 0)]), Err(ListingError::NotThisFramework { .. })));
        assert!(matches!(
            read(&[printed(&format!("{NAMES}more"), 3)]),
            Err(ListingError::NotThisFramework { .. })
        ));
    }

    #[test]
    fn listings_are_joined_by_names_and_places_in_any_order() {
        let split = |text: &str| {
            let (heading, entries) = text.split_once('\n').unwrap();
            let (plain, others) = entries.split_at(entries.find("  two\n").unwrap());
            let (others, last) = others.split_at(others.find("3 matching").unwrap());
            format!("{heading}\n{others}{plain}{last}")
        };
        let moved = split(TAGS);
        assert_ne!(moved, TAGS);
        let both = [printed(NAMES, 3), printed(&moved, 3)];
        assert_eq!(read(&both), read(&[printed(NAMES, 3), printed(TAGS, 3)]));
        assert_eq!(next_listing(&both), None);
    }

    #[test]
    fn hidden_tests_are_asked_for_where_the_tags_do_not_show_them() {
        // A description replaces `(NO DESCRIPTION)`.
        let tags = printed(&TAGS.replacen("(NO DESCRIPTION)", "what it does", 1), 3);
        let names = printed(NAMES, 3);
        let command = next_listing(&[names.clone(), tags.clone()]).unwrap();
        assert_eq!(command.args[..2], ["[.]".into(), NAMES_FORM.into()]);
        let hidden = printed("\"#hash\"\t@dir/t.cc:5\n", 1);
        let outputs = [names.clone(), tags.clone(), hidden];
        assert_eq!(next_listing(&outputs), None);
        let tests = read(&outputs).unwrap();
        assert_eq!(tests.iter().map(|test| test.skip.is_some()).collect::<Vec<_>>(), [false, false, true]);
        let damaged = read(&[names, tags, printed("usage\n", 0)]);
        assert!(matches!(damaged, Err(ListingError::Damaged { .. })), "{damaged:?}");
    }

    #[test]
    fn exit_code_of_many_tests_is_no_failure() {
        let listed = |count: usize, code: i32| {
            let names: String = (0..count).map(|number| format!("t{number}\t@t.cc:{number}\n")).collect();
            let tags: String = (0..count)
                .map(|number| format!("  t{number}\n    t.cc:{number}{}", "\n    (NO DESCRIPTION)\n"))
                .collect();
            let last = format!("{count} matching test case{}\n\n", if count == 1 { "" } else { "s" });
            [printed(&names, code), printed(&format!("Matching test cases:\n{tags}{last}"), code)]
        };
        for (count, code, is_good) in [
            (254, 254, true),
            (255, 255, true),
            (256, 255, true),
            (600, 255, true),
            (600, 88, true),
            (7, 0, true),
            (7, 1, true),
            (7, 9, false),
        ] {
            let outputs = listed(count, code);
            assert_eq!(read(&outputs).unwrap().len(), count);
            assert_eq!(failure(&outputs, count).is_none(), is_good, "{count} {code}");
        }
        let [names, tags] = listed(600, 255);
        let cut = &tags.stdout[..tags.stdout.len() - 30];
        let tags = ListingOutput { stdout: cut.to_vec(), ..tags };
        assert!(matches!(read(&[names, tags]), Err(ListingError::Died { code: Some(255), .. })));
    }

    #[test]
    fn option_that_is_there_twice_is_an_error_of_the_options() {
        let stderr = b"\nError(s) in input:\n  Unrecognised token: --durations\n\nRun with -? for usage\n";
        let output = ListingOutput { stderr: stderr.to_vec(), ..printed("", 255) };
        let error = read(&[output]).unwrap_err().to_string();
        assert!(
            error.contains("Unrecognised token: --durations") && error.contains("remove them"),
            "{error}"
        );
    }
}
