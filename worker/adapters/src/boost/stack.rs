//! Where in a run of Boost.Test a stack trace was taken.

use crate::StackPosition;

/// Method of a test's class that contains its body.
const BODY: &str = "::test_method";
/// Parts of the names of library functions that set up and tear down suites.
const FIXTURES: [&str; 2] = ["setup", "teardown"];

/// Returns where in a run a stack trace was taken, by its innermost decisive frame. The body of a test is a
/// method of a class named after the test, in namespaces named after its suites. Tests that are plain
/// functions are not recognized.
pub(super) fn stack_position(stack: &str, test: Option<&str>) -> StackPosition {
    let is_decisive = |line: &&str| line.contains(BODY) || is_fixture(line);
    match stack.lines().find(is_decisive) {
        Some(frame) if is_fixture(frame) => StackPosition::SuiteFixture,
        Some(frame) => test.map_or(StackPosition::OtherTest, |test| position_of_body(frame, test)),
        None => StackPosition::Unknown,
    }
}

fn is_fixture(frame: &str) -> bool {
    let library = frame.split_once(" boost::unit_test::");
    library.is_some_and(|(_, function)| FIXTURES.iter().any(|name| function.contains(name)))
}

fn position_of_body(frame: &str, test: &str) -> StackPosition {
    let class = frame.split(BODY).next().unwrap_or(frame).replace("(anonymous namespace)::", "");
    let is_row =
        |name: &str| name.strip_prefix('_').is_some_and(|row| row.bytes().all(|byte| byte.is_ascii_digit()));
    // All rows of a data-driven test share one body.
    let path = test.rsplit_once('/').filter(|(_, name)| is_row(name)).map_or(test, |(path, _)| path);
    let is_class = |name: &str| {
        let before = class.strip_suffix(name);
        before.is_some_and(|before| !before.ends_with(|one: char| one.is_alphanumeric() || one == '_'))
    };
    let name = path.rsplit('/').next().unwrap_or(path);
    match (is_class(&path.replace('/', "::")), is_class(name)) {
        (true, _) => StackPosition::RunningTest,
        // The suites may have no namespace.
        (false, true) => StackPosition::Unknown,
        (false, false) => StackPosition::OtherTest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_belongs_to_a_test_or_a_suite() {
        let position = |stack: &str, test: &str| stack_position(stack, Some(test));
        let body = "0 raise\n1 outer::(anonymous namespace)::bad::test_method() t.cc:3\n2 main";
        assert_eq!(position(body, "outer/bad"), StackPosition::RunningTest);
        assert_eq!(position(body, "fine/bad"), StackPosition::Unknown);
        assert_eq!(position(body, "outer/ad"), StackPosition::OtherTest);
        assert_eq!(stack_position(body, None), StackPosition::OtherTest);
        let row = "0 raise\n1 s::rows::test_method<int>(int const&) t.cc:3";
        assert_eq!(position(row, "s/rows/_12"), StackPosition::RunningTest);
        let fixture = "0 raise\n1 boost::unit_test::function_based_fixture::teardown()\n2 main";
        assert_eq!(position(fixture, "outer/bad"), StackPosition::SuiteFixture);
        let of_module = "2 void boost::unit_test::impl_fixture::teardown_conditional<G>(G&)";
        assert_eq!(position(of_module, "outer/bad"), StackPosition::SuiteFixture);
        assert_eq!(position("0 abort\n1 main", "outer/bad"), StackPosition::Unknown);
    }
}
