//! Filter expressions: every operator, function, comparison sign and error.

use std::borrow::Cow;

use crate::filter::{Filter, FilterError, FilterSubject};
use heeler_core::Outcome;

fn subject(uid: &str) -> FilterSubject<'_> {
    FilterSubject {
        uid,
        suite: "kennel::night_watch",
        config_suite: Some("herd"),
        program: Cow::Borrowed("/src/build/parser_test"),
        tags: vec![("speed", "fast"), ("owner", "a=b"), ("net", "")],
        last: Some(Outcome::Failed),
    }
}

#[track_caller]
fn filter(text: &str) -> Filter {
    text.parse().unwrap_or_else(|error: FilterError| panic!("{}", error.with_carets()))
}

#[track_caller]
fn is_match(text: &str, uid: &str) -> bool {
    filter(text).is_match(&subject(uid))
}

#[track_caller]
fn fault(text: &str) -> String {
    text.parse::<Filter>().expect_err("it is wrong").to_string()
}

#[test]
fn plain_word_matches_a_substring() {
    assert!(is_match("herd", "kennel::herd::counts"));
    assert!(is_match("param[1]", "suite::test_x[param[1]]"));
    assert!(!is_match("Herd", "kennel::herd::counts"));
    assert!(is_match("back\\slash", "a::back\\slash"));
}

#[test]
fn glob_matches_uid_or_its_tail() {
    for (pattern, uid, expected) in [
        ("*", "a", true),
        ("kennel::*", "kennel::herd::counts", true),
        ("Big.*", "suite::Big.Case", true),
        ("Big.*", "suite::NotBig.Case", false),
        ("*counts", "kennel::herd::counts", true),
        ("*count", "kennel::herd::counts", false),
        ("herd::count?", "kennel::herd::counts", true),
        ("?", "a::é", true),
        ("a*b*c", "aXbYbZc", true),
        ("a*b*c", "aXbYbZ", false),
        ("Inst/P.Works/?", "s::Inst/P.Works/0", true),
        ("x[*]", "s::x[1]", true),
    ] {
        assert_eq!(is_match(pattern, uid), expected, "{pattern} on {uid}");
        assert_eq!(is_match(&format!("test({pattern})"), uid), expected, "test({pattern}) on {uid}");
    }
}

#[test]
fn unlisted_tests_may_match_with_their_program() {
    let program = FilterSubject { uid: "kennel::night_watch", tags: Vec::new(), last: None, ..subject("") };
    for (text, may) in [
        ("herd", true),
        ("test(=kennel::night_watch::barks)", true),
        ("not test(barks)", true),
        ("state(failed) & suite(kennel*)", true),
        ("tag(speed) & suite(stable)", false),
        ("program(other_test)", false),
        ("not suite(*)", false),
        ("none()", false),
    ] {
        assert_eq!(filter(text).may_match(&program), may, "{text}");
    }
}

#[test]
fn suite_is_named_by_the_uid_or_the_configuration() {
    for (text, expected) in [
        ("suite(herd)", true),
        ("suite(h*d) & suite(night_watch)", true),
        ("suite(=kennel::night_watch)", true),
        ("suite(~er)", true),
        ("suite(kennel)", false),
        ("not suite(herd)", false),
    ] {
        assert_eq!(filter(text).is_match(&subject("a")), expected, "{text}");
        assert_eq!(filter(text).may_match(&subject("a")), expected, "{text}");
    }
}

#[test]
fn filter_may_match_configured_suites_by_their_names() {
    let all = ["unit", "net", "net::go"];
    for (text, expected) in [
        ("suite(unit)", &["unit"][..]),
        ("suite(go)", &["net::go"]),
        ("suite(n*)", &["net", "net::go"]),
        ("not suite(=unit) & test(a)", &["net", "net::go"]),
        ("suite(unit) & suite(net)", &[]),
        ("none()", &[]),
        ("suite(/^unit$/)", &all),
        ("suite(parser_test)", &all),
        ("suite(unit) | state(failed)", &all),
        ("not suite(unit) | program(a) & tag(b)", &all),
        ("all()", &all),
        ("unit", &all),
    ] {
        let filter = filter(text);
        let found: Vec<_> = all.into_iter().filter(|name| filter.may_match_suite(name, &all)).collect();
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn pathological_glob_is_fast() {
    let uid = "a".repeat(4_000);
    assert!(!is_match(&format!("{}b", "a*".repeat(40)), &uid));
}

#[test]
fn expression_like_names_are_still_names() {
    for name in ["a - b", "a | b", "src/lib.rs - add (line 3)", "not_ready", "contest", "or", "x & y", "(x)"]
    {
        let uid = format!("s::{name}");
        assert!(is_match(name, &uid), "{name}");
    }
    assert!(is_match("fixture::test(3)", "s::fixture::test(3)"));
}

#[test]
fn each_sign_compares_in_its_own_way() {
    for (text, uid, expected) in [
        ("test(=a::b)", "a::b", true),
        ("test(=b)", "a::b", true),
        ("test(=b)", "a::ab", false),
        ("test(=a)", "a::b", false),
        ("test(~::)", "a::b", true),
        ("test(~c)", "a::b", false),
        ("test(~*)", "a::b", false),
        ("test(/^a::[bc]$/)", "a::c", true),
        ("test(/^b/)", "a::b", false),
        (r"test(/a\/b/)", "s::a/b", true),
        (r"test(/\d\)/)", "s::f(3)", true),
        ("test(#b?)", "a::bc", true),
        ("test(#b)", "a::bc", false),
        (r"test(#b\?)", "a::bc", false),
        (r"test(#b\?)", "a::b?", true),
        (r"test(f(3\))", "s::f(3)", true),
        (r"test(=\u{20}x)", "s:: x", true),
        ("test( = x )", "s::x", true),
        (r"test(a\tb)", "s::a\tb", true),
    ] {
        assert_eq!(is_match(text, uid), expected, "{text} on {uid}");
    }
}

#[test]
fn suite_and_program_globs_match_name_or_tail() {
    for (text, expected) in [
        ("suite(kennel::night_watch)", true),
        ("suite(night_watch)", true),
        ("suite(night)", false),
        ("suite(~night)", true),
        ("suite(kennel*)", true),
        ("program(parser_test)", true),
        ("program(build/*_test)", true),
        ("program(/src/build/parser_test)", false),
        ("program(=/src/build/parser_test)", true),
        ("program(test)", false),
        ("program(~src)", true),
    ] {
        // A leading slash starts a regular expression. A path like this needs a sign, and the error must
        // point that out.
        if text == "program(/src/build/parser_test)" {
            assert!(fault(text).contains("\")\" to close program(…)"), "{}", fault(text));
            continue;
        }
        assert_eq!(is_match(text, "a::b"), expected, "{text}");
    }
}

#[test]
fn tags_are_compared_by_name_and_by_value() {
    for (text, expected) in [
        ("tag(speed)", true),
        ("tag(spe)", false),
        ("tag(spe*)", true),
        ("tag(~pee)", true),
        ("tag(speed=fast)", true),
        ("tag(speed=slow)", false),
        ("tag(speed=f*)", true),
        ("tag(speed = /^f/)", true),
        ("tag(=speed==fast)", true),
        ("tag(speed=~as)", true),
        (r"tag(owner=a\=b)", true),
        ("tag(owner=a=b)", true),
        ("tag(net=)", true),
        ("tag(speed=)", false),
        ("tag(color)", false),
    ] {
        assert_eq!(is_match(text, "a::b"), expected, "{text}");
    }
}

#[test]
fn states_are_those_of_the_last_run() {
    let with = |last| FilterSubject { last, ..subject("a::b") };
    for (word, last) in [
        ("failed", Some(Outcome::Failed)),
        ("crashed", Some(Outcome::Crashed)),
        ("timed-out", Some(Outcome::TimedOut)),
        ("passed", Some(Outcome::Passed)),
        ("skipped", Some(Outcome::Skipped)),
        ("new", None),
        ("never-run", None),
    ] {
        let of_word = filter(&format!("state({word})"));
        assert!(of_word.depends_on_history());
        assert!(of_word.is_match(&with(last)), "{word}");
        assert!(!filter(&format!("not state({word})")).is_match(&with(last)), "{word}");
    }
    assert!(!filter("state(failed)").is_match(&with(None)));
    assert!(!filter("test(state)").depends_on_history());
}

#[test]
fn not_binds_before_and_and_and_before_or() {
    for (text, expected) in [
        ("all()", true),
        ("none()", false),
        ("!none()", true),
        ("not none()", true),
        ("not(none())", true),
        ("!!all()", true),
        ("all() & none()", false),
        ("all() and none()", false),
        ("all()&all()", true),
        ("none() | all()", true),
        ("none() + all()", true),
        ("none() or all()", true),
        ("all() - all()", false),
        ("all() - none()", true),
        ("all() | all() & none()", true),
        ("(all() | all()) & none()", false),
        ("none() & none() | all()", true),
        ("not none() & none()", false),
        ("not (none() & none())", true),
        ("none() - all() | all()", true),
        ("all() - all() - all()", false),
        ("all() - (all() - all())", true),
        ("  all()  ", true),
        ("all()and(all())", true),
    ] {
        assert_eq!(is_match(text, "a::b"), expected, "{text}");
    }
}

#[test]
fn expression_errors_have_their_column() {
    let functions = "test, suite, program, tag, state, all, none";
    let calls = "test(…), suite(…), program(…), tag(…), state(…), all(…), none(…)";
    let operators = "an operator (&, |, -, and, or)";
    for (text, expected) in [
        ("tset(x)", "column 1: unknown function \"tset\"; did you mean \"test\"?".to_owned()),
        ("all() & tga(x)", "column 9: unknown function \"tga\"; did you mean \"tag\"?".to_owned()),
        ("xyzzy(x)", format!("column 1: unknown function \"xyzzy\" (available: {functions})")),
        ("package(x)", "column 1: unknown function \"package\"; use suite(x) | suite(x::*)".to_owned()),
        ("Parser & tag(x)", format!("column 1: expected a function ({calls}), found \"Parser\"; did you mean test(Parser)?")),
        ("all() all()", format!("column 7: expected {operators} or the end of the filter, found \"a\"")),
        ("all() &", format!("column 8: expected a function ({calls}), \"not\" or \"(\", found the end of the text")),
        ("all() && all()", format!("column 8: expected a function ({calls}), \"not\" or \"(\", found \"&\"")),
        ("(all()", "column 1: unclosed \"(\"".to_owned()),
        ("(all() all())", format!("column 8: expected {operators} or \")\", found \"a\"")),
        ("all())", "column 6: unmatched \")\"; for a literal parenthesis in a name, write \\)".to_owned()),
        ("test(f(3))", "column 10: unmatched \")\"; for a literal parenthesis in a name, write \\)".to_owned()),
        ("test()", "column 6: expected text, found \")\"".to_owned()),
        ("test(~)", "column 7: expected text, found \")\"".to_owned()),
        ("test(x", "column 7: expected \")\" to close test(…), found the end of the text".to_owned()),
        ("all(x)", "column 5: expected \")\" to close all(…), found \"x\"".to_owned()),
        ("test(/x)", "column 9: expected a closing \"/\" after the regular expression, found the end of the text".to_owned()),
        ("test(//)", "column 7: empty regular expression".to_owned()),
        ("test(/(x/)", "column 7: invalid regular expression: unclosed group".to_owned()),
        ("state(faild)", "column 7: expected one of failed, crashed, timed-out, passed, skipped, new, never-run, found \"faild\"; did you mean \"failed\"?".to_owned()),
        ("state()", "column 7: expected one of failed, crashed, timed-out, passed, skipped, new, never-run, found \")\"".to_owned()),
        ("tag(=)", "column 6: expected text, found \")\"".to_owned()),
        ("tag(a=#)", "column 8: expected text, found \")\"".to_owned()),
        ("test(ü) & tset(x)", "column 11: unknown function \"tset\"; did you mean \"test\"?".to_owned()),
        (r"test(a\x)", "column 8: expected a valid escape sequence".to_owned()),
        (r"test(\u{d800})", "column 7: invalid Unicode escape; write it as \\u{20}".to_owned()),
        ("", "column 1: empty filter; to select all tests, omit it or write all()".to_owned()),
        ("  ", "column 1: empty filter; to select all tests, omit it or write all()".to_owned()),
    ] {
        let found = fault(text);
        assert!(found.starts_with(&expected), "{text}\n found: {found}\nwanted: {expected}");
    }
}

#[test]
fn error_is_marked_with_carets() {
    let pointed = |text: &str| text.parse::<Filter>().expect_err("it is wrong").with_carets();
    assert_eq!(
        pointed("all() & tset(x)"),
        "unknown function \"tset\"; did you mean \"test\"?\n  all() & tset(x)\n          ^^^^"
    );
    assert_eq!(
        pointed("test(名) & tset(x)"),
        "unknown function \"tset\"; did you mean \"test\"?\n  test(名) & tset(x)\n             ^^^^"
    );
    let long = pointed(&format!("test({}) & tset(x) & test({0})", "x".repeat(200)));
    let lines: Vec<_> = long.lines().collect();
    assert!(lines[1].starts_with("  …xxx") && lines[1].ends_with("x…"), "{long}");
    let at = lines[2].chars().take_while(|one| *one == ' ').count();
    assert_eq!(lines[1].chars().skip(at).take(4).collect::<String>(), "tset");
}

#[test]
fn hostile_expressions_are_refused() {
    for (text, expected) in [
        (format!("{}all(){}", "(".repeat(7000), ")".repeat(7000)), "nested deeper than 64 levels"),
        (format!("{}all()", "!".repeat(16_000)), "nested deeper than 64 levels"),
        (format!("{}all()", "not ".repeat(4_000)), "nested deeper than 64 levels"),
        ("x".repeat(20_000) + " | all()", "longer than 16384 bytes"),
        ("test(/\\w{1000}{1000}/)".to_owned(), "exceeds 256 KiB"),
        (format!("test(/{}/)", "(".repeat(1000) + &")".repeat(1000)), "invalid regular expression"),
        (vec!["test(/x/)"; 40].join("|"), "more than 32 regular expressions"),
    ] {
        let found = fault(&text);
        assert!(found.contains(expected), "{found}");
    }
    assert!(is_match(&vec!["all()"; 1_000].join("|"), "a"));
    assert!(fault(&vec!["all()"; 1_001].join("|")).contains("more than 1000 conditions"));
}
