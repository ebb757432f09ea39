//! Path of a test in the tree that clients see: `/<suite>/<group…>/<case>`. Updates and graph queries use the
//! same segments.

use serde::{Deserialize, Serialize};

/// How the names of a framework's tests nest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NameNesting {
    /// No nesting: each name is a case of its suite.
    #[default]
    Flat,
    /// One group before the first full stop, even if the name has more separators: `Prefix/Class/0.Name/1` is
    /// `Name/1` in `Prefix/Class/0`.
    FullStop,
    /// One group before each slash: `a/b/name` is `name` in `b` in `a`.
    Slashes,
    /// One group before each full stop: `a.b.name` is `name` in `b` in `a`.
    FullStops,
    /// One group before each pair of colons: `a::b::name` is `name` in `b` in `a`.
    Colons,
    /// Like colons, but for pytest's node ids: no group begins inside the brackets of the parameters.
    /// `a/b.py::C::name[x::y]` is `name[x::y]` in `C` in `a/b.py`.
    NodeIds,
}

impl NameNesting {
    /// Returns the separator between a group and its members.
    #[must_use]
    pub fn separator(self) -> &'static str {
        match self {
            Self::Flat => "",
            Self::FullStop | Self::FullStops => ".",
            Self::Slashes => "/",
            Self::Colons | Self::NodeIds => "::",
        }
    }

    /// Returns the name shared by the instances of a parameterised test, given one of them: `Name` for
    /// `Name/1`. This name is a group for display only; in graph queries, `Name/1` is one segment.
    #[must_use]
    pub fn parameterised_name(self, case: &str) -> Option<&str> {
        let (name, parameter) = case.rsplit_once('/')?;
        let is_instance = self == Self::FullStop && ![name, parameter].contains(&"") && !case.contains('.');
        is_instance.then_some(name)
    }
}

/// Separates the name of a parameterised test from the name of its instance.
pub const PARAMETER_SEPARATOR: &str = "/";

/// A test's name, split into its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestPath<'a> {
    /// The suite: the root of the tree.
    pub suite: &'a str,
    /// Groups, outermost first; empty for a case directly in the suite.
    pub groups: Vec<&'a str>,
    /// The test itself.
    pub case: &'a str,
}

impl<'a> TestPath<'a> {
    /// Splits the name of a test as reported by its framework. Only an empty name has an empty part: a
    /// separator at either end of the name, or after another separator, stays in its part.
    #[must_use]
    pub fn new(nesting: NameNesting, suite: &'a str, name: &'a str) -> Self {
        let (groups, case) = match nesting {
            NameNesting::Flat => (Vec::new(), name),
            NameNesting::FullStop => split_name(name, nesting.separator(), 1),
            NameNesting::FullStops | NameNesting::Slashes | NameNesting::Colons => {
                split_name(name, nesting.separator(), usize::MAX)
            }
            NameNesting::NodeIds => {
                // Names of files may contain brackets, too.
                let path = name.find("::").unwrap_or(0);
                let parameters = name[path..].find('[').map_or(name.len(), |found| path + found);
                let separators = name[..parameters].matches("::").count();
                split_name(name, nesting.separator(), separators)
            }
        };
        Self { suite, groups, case }
    }

    /// Returns all parts: the suite, the groups, the case.
    pub fn segments(&self) -> impl Iterator<Item = &'a str> + '_ {
        std::iter::once(self.suite).chain(self.groups.iter().copied()).chain(std::iter::once(self.case))
    }
}

fn split_name<'a>(name: &'a str, separator: &str, most: usize) -> (Vec<&'a str>, &'a str) {
    let mut groups = Vec::new();
    let mut rest = name;
    let mut from = 0;
    while groups.len() < most
        && let Some(found) = rest[from..].find(separator)
    {
        let end = from + found;
        let behind = end + separator.len();
        if end == 0 || behind == rest.len() {
            from = behind;
            continue;
        }
        groups.push(&rest[..end]);
        rest = &rest[behind..];
        from = 0;
    }
    (groups, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(nesting: NameNesting, name: &str) -> Vec<&str> {
        TestPath::new(nesting, "unit", name).segments().skip(1).collect()
    }

    #[test]
    fn full_stop_nesting_splits_at_first_full_stop() {
        assert_eq!(parts(NameNesting::FullStop, "Suite.Name"), ["Suite", "Name"]);
        assert_eq!(parts(NameNesting::FullStop, "Prefix/Suite/0.Name/1"), ["Prefix/Suite/0", "Name/1"]);
        assert_eq!(parts(NameNesting::FullStop, "Suite.Name/1.5"), ["Suite", "Name/1.5"]);
        assert_eq!(parts(NameNesting::FullStop, "Suite"), ["Suite"]);
    }

    #[test]
    fn colon_nesting_has_a_group_per_separator() {
        assert_eq!(parts(NameNesting::Colons, "a::b::name"), ["a", "b", "name"]);
        assert_eq!(parts(NameNesting::Colons, "name"), ["name"]);
        assert_eq!(parts(NameNesting::Slashes, "a/b:c/name"), ["a", "b:c", "name"]);
        assert_eq!(parts(NameNesting::Colons, "a:b::c.d"), ["a:b", "c.d"]);
        assert_eq!(parts(NameNesting::Flat, "a::b.c"), ["a::b.c"]);
    }

    #[test]
    fn node_ids_have_no_group_in_their_parameters() {
        let id = "a/b[1].py::C::name[x::y[z]::]";
        assert_eq!(parts(NameNesting::NodeIds, id), ["a/b[1].py", "C", "name[x::y[z]::]"]);
        assert_eq!(parts(NameNesting::NodeIds, "a/b.py"), ["a/b.py"]);
        assert_eq!(parts(NameNesting::NodeIds, "::[::"), ["::[::"]);
    }

    #[test]
    fn full_stops_nesting_has_a_group_per_full_stop() {
        assert_eq!(parts(NameNesting::FullStops, "mcp.test.a.b"), ["mcp", "test", "a", "b"]);
        assert_eq!(parts(NameNesting::FullStops, "name"), ["name"]);
    }

    #[test]
    fn path_has_no_empty_segment() {
        for (name, expected) in [
            ("", &[""][..]),
            ("::", &["::"]),
            ("::a", &["::a"]),
            ("a::", &["a::"]),
            ("a::::b", &["a", "::b"]),
            ("::a::b", &["::a", "b"]),
            ("é::ü", &["é", "ü"]),
        ] {
            assert_eq!(parts(NameNesting::Colons, name), expected, "{name}");
        }
        assert_eq!(parts(NameNesting::FullStop, ".a.b"), [".a", "b"]);
        assert_eq!(parts(NameNesting::FullStop, "a."), ["a."]);
    }

    #[test]
    fn suite_is_the_first_segment() {
        let path = TestPath::new(NameNesting::Colons, "unit", "a::b");
        assert_eq!((path.suite, path.groups.as_slice(), path.case), ("unit", &["a"][..], "b"));
        assert_eq!(path.segments().collect::<Vec<_>>(), ["unit", "a", "b"]);
    }
}
