//! Parser of the listings of Catch2 2, which are text: one of names with their places, and one for people,
//! which has the tags.

use heeler_protocol::control::ListedTest;

use super::{
    adapter::NAME_OF_VERSION_2,
    command,
    listing::split_tags,
    selector::{ListedCase, ShardSupport, listed_tests},
};
use crate::{AdapterInvocation, ListingError, ListingOutput, scan};

/// Ends a name, and begins its place.
const PLACE_START: &[u8] = b"\t@";
/// The line before the tags of a test: descriptions are of the time before tags.
const DESCRIPTION: &[u8] = b"\n    (NO DESCRIPTION)\n";
/// Indentation of a line of tags.
const TAG_INDENTATION: &[u8] = b"      ";

/// Returns the next listing command: the names, then the tags. `*` lists hidden tests too.
pub(super) fn next_listing(outputs: &[ListingOutput]) -> Option<AdapterInvocation> {
    let form = match outputs {
        [] => "--list-test-names-only",
        [names] if is_listing(names) => "--list-tests",
        _ => return None,
    };
    Some(command::invocation(&["*", form, "--verbosity", "high"]))
}

/// Returns whether a program has listed tests.
pub(super) fn is_listing(names: &ListingOutput) -> bool {
    read_names(&names.stdout).is_some_and(|cases| !cases.is_empty())
}

/// Returns whether a program has exited as one does that has listed this number of tests: with it as its exit
/// code, of which the system keeps the last eight bits.
fn is_good_exit(output: &ListingOutput, count: usize) -> bool {
    output.code == Some(i32::from(count.to_le_bytes()[0]))
}

/// Returns whether a listing for people has its last line, with this number of tests.
fn is_whole(tags: &ListingOutput, count: usize) -> bool {
    let last = tags.stdout.trim_ascii_end().rsplit(|byte| *byte == b'\n').next();
    let plural = if count == 1 { "" } else { "s" };
    last.is_some_and(|line| line == format!("{count} matching test case{plural}").as_bytes())
}

/// Returns the failure of a program after it had listed its tests.
pub(super) fn failure(outputs: &[ListingOutput], count: usize) -> Option<ListingError> {
    let is_failed = |output: &&ListingOutput| output.signal.is_some();
    let names = outputs.first().filter(|names| !is_good_exit(names, count));
    outputs.iter().find(is_failed).or(names).map(ListingError::of_recognized_exit)
}

/// Parses both listings. A listing of names has no end by itself: the exit code of the program shows that it
/// is whole, or else the number of tests at the end of the other listing.
pub(super) fn read(outputs: &[ListingOutput]) -> Result<Vec<ListedTest>, ListingError> {
    let Some(names) = outputs.first() else { return Err(ListingError::of_exit(&ListingOutput::default())) };
    let Some(mut cases) = read_names(&names.stdout) else {
        if names.signal.is_some() {
            return Err(ListingError::of_exit(names));
        }
        let line = scan::decode_lossy(&names.stdout);
        let line = scan::truncated(line.lines().next().unwrap_or_default(), 200);
        let reason = format!("instead of a listing it wrote {line:?}");
        return Err(ListingError::NotThisFramework { framework: NAME_OF_VERSION_2, reason });
    };
    let is_shown_whole = outputs.get(1).is_some_and(|tags| !cases.is_empty() && is_whole(tags, cases.len()));
    if !is_good_exit(names, cases.len()) && !is_shown_whole {
        return Err(ListingError::of_exit(names));
    }
    if let Some(tags) = outputs.get(1).and_then(|tags| read_tags(&tags.stdout, cases.len())) {
        for (case, tags) in cases.iter_mut().zip(tags) {
            case.tags = tags;
        }
    }
    Ok(listed_tests(cases, ShardSupport::None))
}

/// Parses the listing of names: each one, a tab, `@`, its file, a colon and its line. `None` if something
/// else follows the last place. A name may have several lines.
fn read_names(stdout: &[u8]) -> Option<Vec<ListedCase>> {
    let mut cases = Vec::new();
    let mut rest = stdout;
    while !rest.is_empty() {
        let NextEntry { name, file, line, after } = next_entry(rest)?;
        // Quoted, because the line would be a comment in a file of names.
        let is_quoted = name.starts_with(b"\"#") && name.ends_with(b"\"") && name.len() > 2;
        let name = if is_quoted { &name[1..name.len() - 1] } else { name };
        cases.push(ListedCase { name: name.to_vec(), file: file.to_vec(), line, tags: Vec::new() });
        rest = after;
    }
    Some(cases)
}

/// An entry, and what follows it.
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

/// Parses the tags of the listing for people, of which there must be as many tests as of names. Catch2 wraps
/// long lines, mostly behind a tag.
fn read_tags(stdout: &[u8], count: usize) -> Option<Vec<Vec<Vec<u8>>>> {
    let starts: Vec<_> = memchr::memmem::find_iter(stdout, DESCRIPTION).collect();
    if starts.len() != count {
        return None;
    }
    let tags = |start: &usize| {
        let mut text = Vec::new();
        for line in stdout[start + DESCRIPTION.len()..].split(|byte| *byte == b'\n') {
            match line.strip_prefix(TAG_INDENTATION) {
                Some(tags) if !text.is_empty() || tags.starts_with(b"[") => text.extend_from_slice(tags),
                Some(_) | None => break,
            }
        }
        split_tags(&text)
    };
    Some(starts.iter().map(tags).collect())
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
        // Without as many descriptions as names nothing shows whose tags they are.
        let tests =
            read(&[printed(NAMES, 3), printed("  plain\n    (NO DESCRIPTION)\n      [x]\n", 1)]).unwrap();
        assert!(tests.iter().all(|test| test.traits.is_empty()));
    }
}
