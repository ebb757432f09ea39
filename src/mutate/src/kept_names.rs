//! Stable names of tests for later runs. Line numbers in documentation test names change with any code
//! before them, so each test is named by its index within its item instead.

use std::collections::BTreeMap;

/// Separates item and line in the name of a documentation test.
const LINE: &str = " (line ";

/// Returns the stable names of a program's tests.
#[must_use]
pub fn names_for_later_runs(names: &[String]) -> Vec<String> {
    let mut lines: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for (item, line) in names.iter().filter_map(|name| split(name)) {
        lines.entry(item).or_default().push(line);
    }
    lines.values_mut().for_each(|lines| lines.sort_unstable());
    let later = |name: &String| match split(name) {
        Some((item, line)) => {
            let place = lines[item].iter().take_while(|one| **one < line).count();
            format!("{item} (example {})", place + 1)
        }
        None => name.clone(),
    };
    names.iter().map(later).collect()
}

fn split(name: &str) -> Option<(&str, u32)> {
    let (item, line) = name.rsplit_once(LINE)?;
    Some((item, line.strip_suffix(')')?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_do_not_matter_and_the_order_in_an_item_does() {
        let names = |names: &[&str]| -> Vec<String> {
            names_for_later_runs(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        let first = names(&[
            "a::b",
            "src/lib.rs - f (line 12)",
            "src/lib.rs - f (line 9)",
            "src/lib.rs - g (line 9)",
        ]);
        assert_eq!(
            first,
            [
                "a::b",
                "src/lib.rs - f (example 2)",
                "src/lib.rs - f (example 1)",
                "src/lib.rs - g (example 1)"
            ]
        );
        let later =
            ["a::b", "src/lib.rs - f (line 112)", "src/lib.rs - f (line 98)", "src/lib.rs - g (line 9)"];
        assert_eq!(names(&later), first);
        assert_eq!(names(&["x (line y)", "x (line 3)#2"]), ["x (line y)", "x (line 3)#2"]);
    }
}
