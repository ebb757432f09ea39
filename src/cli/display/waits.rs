//! One short line about the things that tests wait for while the run goes on.

use super::{
    format::{cut_name, grouped_number},
    style::text_columns,
};

/// Maximum width of the name of an awaited thing.
const THING_COLUMNS: usize = 40;

/// Tests that wait for the same thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DisplayedWait {
    /// Number of waiting tests, at least one.
    pub(crate) tests: usize,
    /// The awaited thing, as in `3 wait for …`: a resource, `4 slots`, the name of a test.
    pub(crate) thing: String,
}

/// Returns a text such as `3 wait for db, 2 for 4 slots, +1` of at most `columns` columns.
pub(super) fn waits_text(waits: &[DisplayedWait], columns: usize) -> String {
    let more = |left: usize| if left == 0 { String::new() } else { format!(", +{left}") };
    let mut text = String::new();
    for (place, wait) in waits.iter().enumerate() {
        let left = waits.len() - place - 1;
        let separator = if place == 0 { "" } else { ", " };
        let room = columns.saturating_sub(text_columns(&text) + separator.len() + more(left).len());
        let is_first = place == 0;
        let verb = match wait.tests {
            _ if !is_first => "",
            1 => "waits ",
            _ => "wait ",
        };
        let count = format!("{} {verb}for ", grouped_number(wait.tests));
        let name = cut_name(&wait.thing, THING_COLUMNS);
        // The first name is cut if need be; the others are counted instead.
        let name = if is_first { cut_name(&name, room.saturating_sub(count.len())) } else { name };
        if !is_first && count.len() + text_columns(&name) > room {
            text.push_str(&more(left + 1));
            break;
        }
        text.push_str(separator);
        text.push_str(&count);
        text.push_str(&name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(of: &[(usize, &str)]) -> Vec<DisplayedWait> {
        of.iter().map(|(tests, thing)| DisplayedWait { tests: *tests, thing: (*thing).to_owned() }).collect()
    }

    #[test]
    fn things_without_room_are_counted() {
        let some = waits(&[(1200, "db"), (2, "4 slots"), (1, "setup_server")]);
        assert_eq!(waits_text(&some, 80), "1,200 wait for db, 2 for 4 slots, 1 for setup_server");
        assert_eq!(waits_text(&some, 40), "1,200 wait for db, 2 for 4 slots, +1");
        assert_eq!(waits_text(&some, 27), "1,200 wait for db, +2");
        assert_eq!(waits_text(&[], 27), "");
    }

    #[test]
    fn text_never_exceeds_its_columns() {
        let long = "a name that no terminal has room for, not even a wide one".repeat(3);
        let some = waits(&[(3, &long), (1, "x"), (1, "y\nz")]);
        for columns in 30..200 {
            let text = waits_text(&some, columns);
            assert!(text_columns(&text) <= columns && text.contains("wait for a"), "{columns}: {text}");
        }
    }
}
