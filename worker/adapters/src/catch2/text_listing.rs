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

/// Parses both listings.
pub(super) fn read(outputs: &[ListingOutput]) -> Result<Vec<ListedTest>, ListingError> {
    let Some(names) = outputs.first() else { return Err(ListingError::of_exit(&ListingOutput::default())) };
    if names.signal.is_some() {
        return Err(ListingError::of_exit(names));
    }
    let Some(mut cases) = read_names(&names.stdout) else {
        let line = scan::decode_lossy(&names.stdout);
        let line = scan::truncated(line.lines().next().unwrap_or_default(), 200);
        let reason = format!("instead of a listing it wrote {line:?}");
        return Err(ListingError::NotThisFramework { framework: NAME_OF_VERSION_2, reason });
    };
    // The exit code is the number of tests, of which the system keeps the last eight bits.
    if names.code != Some(i32::from(cases.len().to_le_bytes()[0])) {
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
