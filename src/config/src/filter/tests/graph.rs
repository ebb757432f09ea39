//! Graph queries: paths, wildcards, operators, properties, escapes and all errors.

use heeler_core::test_path::{NameNesting, TestPath};

use crate::filter::{FilterError, GraphQuery};

const TAGS: [(&str, &str); 4] = [("OS", "Linux"), ("P2", "AB"), ("a/b", "c/d"), ("Set", "False")];

#[track_caller]
fn query(text: &str) -> GraphQuery {
    text.parse().unwrap_or_else(|error: FilterError| panic!("{}", error.with_carets()))
}

#[track_caller]
fn is_match(text: &str, nesting: NameNesting, name: &str) -> bool {
    query(text).is_match(&TestPath::new(nesting, "unit", name), &TAGS)
}

#[track_caller]
fn fault(text: &str) -> String {
    text.parse::<GraphQuery>().expect_err("it is wrong").to_string()
}

#[test]
fn path_matches_level_by_level() {
    for (text, expected) in [
        ("/unit/Suite/Name", true),
        ("/unit/Suite", false),
        ("/unit/Suite/Name/More", false),
        ("/unit", false),
        ("/unit/*/Name", true),
        ("/unit/Su*/N*e", true),
        ("/*/*/*", true),
        ("/*/*", false),
        ("/unit/*uit*/*", true),
        ("/Unit/SUITE/name", true),
        ("/unit/sU*/N*E", true),
        ("/unit/Suit/Name", false),
        ("/", false),
    ] {
        assert_eq!(is_match(text, NameNesting::FullStop, "Suite.Name"), expected, "{text}");
    }
}

#[test]
fn trailing_double_star_matches_all_lower_levels() {
    for (text, expected) in [
        ("/**", true),
        ("/unit/**", true),
        ("/unit/a/**", true),
        ("/unit/a/b/**", true),
        ("/unit/a/b/name/**", false),
        ("/other/**", false),
        ("/unit/b/**", false),
    ] {
        assert_eq!(is_match(text, NameNesting::Colons, "a::b::name"), expected, "{text}");
    }
}

#[test]
fn conditions_of_a_level_are_joined() {
    for (text, expected) in [
        ("/unit/A|Suite/*", true),
        ("/unit/A|B/*", false),
        ("/unit/(A|B)|Suite/*", true),
        ("/unit/(S*)&(*e)/*", true),
        ("/unit/(S*)&(!*e)/*", false),
        ("/unit/(!*Slow*)/*", true),
        ("/unit/!A/*", true),
        ("/unit/X|S*&*e/*", true),
        ("/unit/(X|S*)&*x/*", false),
        ("/unit/X&Y|Suite/*", true),
    ] {
        assert_eq!(is_match(text, NameNesting::FullStop, "Suite.Name"), expected, "{text}");
    }
}

#[test]
fn properties_are_traits() {
    for (text, expected) in [
        ("/**[OS=Linux]", true),
        ("/**[OS=Lin*]", true),
        ("/**[OS=*]", true),
        ("/**[os=linux]", true),
        ("/**[OS=linu]", false),
        ("/**[set=false]", true),
        ("/**[SET=FALSE]", true),
        ("/**[set!=false]", false),
        ("/**[set=true]", false),
        ("/**[OS!=Linux]", false),
        ("/**[OS!=Mac]", true),
        ("/**[Missing!=x]", true),
        ("/**[Missing=*]", false),
        ("/**[(OS=Mac)|(P2=A*)]", true),
        ("/**[(OS=Linux)&(P2=*C)]", false),
        ("/**[OS=Linux&P2=AB]", true),
        ("/**[!(OS=Mac)]", true),
        ("/unit/Suite/Name[OS=Linux]", true),
        ("/unit[OS=Linux]/Suite/Name", true),
        ("/unit/Suite[OS=Mac]|Su*/Name", true),
        ("/**[a/b=c/d]", true),
        (r"/**[a\/b=c/d]", true),
        ("/**[a%2Fb=*]", false),
    ] {
        assert_eq!(is_match(text, NameNesting::FullStop, "Suite.Name"), expected, "{text}");
    }
}

#[test]
fn escapes_make_a_character_literal() {
    for (text, name, expected) in [
        (r"/unit/P\/S\/0/N\/1", "P/S/0.N/1", true),
        ("/unit/P%2FS%2F0/N%2f1", "P/S/0.N/1", true),
        ("/unit/P*/N*", "P/S/0.N/1", true),
        ("/unit/P/S/0/N/1", "P/S/0.N/1", false),
        (r"/unit/S/a\*b", "S.a*b", true),
        (r"/unit/S/a\*b", "S.axb", false),
        ("/unit/S/a%2Ab", "S.axb", false),
        (r"/unit/S/\(a\)\[1\]\&\|\!\=\\", r"S.(a)[1]&|!=\", true),
        ("/unit/S/a%20b", "S.a b", true),
        ("/unit/S/a b", "S.a b", true),
        ("/unit/S/%C3%BC", "S.ü", true),
        ("/unit/S/100%", "S.100%", true),
        ("/unit/S/a%zz", "S.a%zz", true),
        ("/unit/S/a%2541", "S.a%41", true),
        ("/unit/S/a=b", "S.a=b", true),
        ("/unit/S/a!b", "S.a!b", true),
    ] {
        assert_eq!(is_match(text, NameNesting::FullStop, name), expected, "{text} on {name}");
    }
}

#[test]
fn unlisted_suite_may_match() {
    for (text, expected) in [
        ("/**", true),
        ("/unit/**", true),
        ("/unit/Suite/Name", true),
        ("/other/**", false),
        ("/(!unit)/**", false),
        ("/unit[a=b]/**", true),
        ("/(!unit[a=b])/**", true),
        ("/other[a=b]/**", false),
        ("/UNIT/**", true),
        ("/", false),
    ] {
        assert_eq!(query(text).may_match("unit"), expected, "{text}");
    }
}

#[test]
fn query_errors_have_their_column() {
    for (text, expected) in [
        ("", "column 1: expected \"/\" at the start of the query, found the end of the text"),
        ("unit/A", "column 1: expected \"/\" at the start of the query, found \"u\""),
        ("/unit/", "column 7: expected a name or a pattern such as \"Parser*\", found the end of the text"),
        ("/unit//A", "column 7: expected a name or a pattern such as \"Parser*\", found \"/\""),
        ("/**/A", "column 2: \"**\" is allowed only at the end of the path"),
        ("/**[a=b]/A", "column 2: \"**\" is allowed only at the end of the path"),
        ("/unit/(**)", "column 8: \"**\" is allowed only as a whole segment at the end of the path"),
        ("/unit/**|A", "column 7: \"**\" is allowed only as a whole segment at the end of the path"),
        ("/A(|B)", "column 3: expected \"/\", \"&\", \"|\" or the end of the query, found \"(\""),
        ("/A(&B)", "column 3: expected \"/\", \"&\", \"|\" or the end of the query, found \"(\""),
        ("/A)", "column 3: expected \"/\", \"&\", \"|\" or the end of the query, found \")\""),
        ("/A|", "column 4: expected a name or a pattern such as \"Parser*\", found the end of the text"),
        ("/(A", "column 2: unclosed \"(\""),
        ("/(A/B)", "column 4: parentheses can't contain more than one path segment"),
        ("/[Tag=Fast]", "column 2: expected a name or a pattern such as \"Parser*\", found \"[\""),
        ("/A[]", "column 4: expected a trait name, as in [speed=fast], found \"]\""),
        ("/A[x]", "column 5: expected \"=\" or \"!=\" after the trait name, found \"]\""),
        ("/A[x=1", "column 3: unclosed \"[\""),
        ("/A[x=1][y=2]", "column 8: only one pair of brackets is allowed"),
        ("/A[x=[y=1]]", "column 6: expected \"&\", \"|\" or \"]\", found \"[\""),
        ("/A\\", "column 4: expected a valid escape sequence"),
        ("/A%FF", "column 3: the percent-encoded bytes are not valid UTF-8"),
    ] {
        let found = fault(text);
        assert!(found.starts_with(expected), "{text}\n found: {found}\nwanted: {expected}");
    }
}

#[test]
fn hostile_queries_are_refused() {
    assert!(fault(&format!("/{}", "(".repeat(10_000))).contains("nested deeper than 64 levels"));
    assert!(fault(&format!("/{}a", "!".repeat(10_000))).contains("nested deeper than 64 levels"));
    assert!(fault(&format!("/a[{}", "(".repeat(10_000))).contains("nested deeper than 64 levels"));
    assert!(fault(&format!("/{}", "a".repeat(20_000))).contains("longer than 16384 bytes"));
    let wide = |count: usize| format!("/{}", vec!["a"; count].join("|"));
    assert!(!query(&wide(1_000)).is_match(&TestPath::new(NameNesting::Flat, "b", "c"), &[]));
    assert!(fault(&wide(1_001)).contains("more than 1000 conditions"));
}
