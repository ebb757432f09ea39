//! Test names in pytest's JUnit reports.

use heeler_protocol::control::ReportName;

/// Returns class and name of a node id as in `--junitxml`. The class is the path with full stops and without
/// extension, then the classes. Parameters start at the first bracket.
pub(super) fn report_name(id: &str) -> ReportName {
    let bracket = id.find('[').unwrap_or(id.len());
    let (address, parameters) = id.split_at(bracket);
    let mut names = address.split("::");
    let path = names.next().unwrap_or_default().replace('/', ".");
    let path = path.strip_suffix(".py").unwrap_or(&path).to_owned();
    let mut names: Vec<String> = std::iter::once(path).chain(names.map(str::to_owned)).collect();
    let name = names.pop().unwrap_or_default() + parameters;
    ReportName { class: names.join("."), name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_pytest() {
        for (id, class, name) in [
            ("test_a.py::test_x", "test_a", "test_x"),
            (
                "net/v1.2/test_tcp.py::TestDial::test_dials[a::b/c]",
                "net.v1.2.test_tcp.TestDial",
                "test_dials[a::b/c]",
            ),
            ("docs/a.rst::a.rst", "docs.a.rst", "a.rst"),
            ("pkg/mod.py::pkg.mod.f", "pkg.mod", "pkg.mod.f"),
            ("a/b[1].py::test_x", "", "a.b[1].py::test_x"),
            ("test_a.py", "", "test_a"),
        ] {
            let found = report_name(id);
            assert_eq!((found.class.as_str(), found.name.as_str()), (class, name), "{id}");
        }
    }
}
