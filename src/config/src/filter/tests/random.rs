//! Random filters: a printed filter parses to the same filter, and no input makes a parser panic.

use proptest::{collection::vec, option, prelude::*, sample::select};

use crate::filter::{
    BoolExpr, Filter, FilterPredicate, GraphQuery, HistoryState, NodeCondition, PatternPart,
    PropertyCondition, TextMatcher, WildcardPattern, expression::compile, graph::TrailingWildcard,
};

fn chars() -> impl Strategy<Value = char> {
    prop_oneof![
        6 => any::<char>(),
        10 => select("ab \t\n\\()[]{}=~/#*?&|!-+,%.:\"'u".chars().collect::<Vec<_>>()),
    ]
}

fn string() -> impl Strategy<Value = String> {
    vec(chars(), 1..8).prop_map(String::from_iter)
}

fn wildcard(has_one: bool) -> impl Strategy<Value = WildcardPattern> {
    let one = if has_one { PatternPart::One } else { PatternPart::Any };
    vec(
        prop_oneof![6 => chars().prop_map(PatternPart::Char), 1 => Just(one), 2 => Just(PatternPart::Any)],
        1..8,
    )
    .prop_map(WildcardPattern)
}

fn text() -> impl Strategy<Value = TextMatcher> {
    let regexes = ["x", "^a/b$", r"\d+\)", r"a\\/", "[/=]"];
    prop_oneof![
        string().prop_map(TextMatcher::Equals),
        string().prop_map(TextMatcher::Contains),
        wildcard(true).prop_map(TextMatcher::Glob),
        select(regexes.to_vec()).prop_map(|source| TextMatcher::Regex(compile(source).unwrap())),
    ]
}

fn predicate() -> impl Strategy<Value = FilterPredicate> {
    // "Never run" has two names, and the first one is printed.
    let pasts: Vec<_> = HistoryState::WORDS.iter().map(|(_, past)| *past).collect();
    prop_oneof![
        Just(FilterPredicate::All),
        Just(FilterPredicate::None),
        text().prop_map(FilterPredicate::Test),
        text().prop_map(FilterPredicate::Suite),
        text().prop_map(FilterPredicate::Program),
        (text(), option::of(prop_oneof![text(), Just(TextMatcher::Equals(String::new()))]))
            .prop_map(|(key, value)| FilterPredicate::Tag { key, value }),
        select(pasts).prop_map(FilterPredicate::State),
    ]
}

fn expr<L: std::fmt::Debug + Clone + 'static>(
    leaf: impl Strategy<Value = L> + 'static,
) -> impl Strategy<Value = BoolExpr<L>> {
    leaf.prop_map(BoolExpr::Leaf).prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(BoolExpr::negated),
            vec(inner.clone(), 2..4).prop_map(BoolExpr::And),
            vec(inner, 2..4).prop_map(BoolExpr::Or),
        ]
    })
}

fn properties() -> impl Strategy<Value = Option<BoolExpr<PropertyCondition>>> {
    let property =
        (wildcard(false), wildcard(false)).prop_map(|(key, value)| PropertyCondition { key, value });
    option::of(expr(property))
}

fn node() -> impl Strategy<Value = NodeCondition> {
    let is_no_rest = |name: &WildcardPattern| *name != WildcardPattern(vec![PatternPart::Any; 2]);
    (wildcard(false).prop_filter("two stars are the rest", is_no_rest), properties())
        .prop_map(|(name, properties)| NodeCondition { name, properties })
}

fn graph() -> impl Strategy<Value = GraphQuery> {
    let rest = option::of(properties().prop_map(|properties| TrailingWildcard { properties }));
    (vec(expr(node()), 0..4), rest).prop_map(|(segments, rest)| GraphQuery { segments, rest })
}

proptest! {
    #[test]
    fn printed_expression_parses_to_the_same(expr in expr(predicate())) {
        let text = expr.to_string();
        if expr.contains_condition(&|one| matches!(one, FilterPredicate::Test(TextMatcher::Regex(_)))) {
            // Compiling regular expressions is slow, so only short filters are tested with them.
            prop_assume!(text.len() < 200);
        }
        let read: Filter = text.parse().map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
        prop_assert_eq!(&read.expr, &expr, "{}", text);
        prop_assert_eq!(read.to_string(), text);
    }

    #[test]
    fn printed_query_parses_to_the_same(query in graph()) {
        let text = query.to_string();
        prop_assume!(text.len() < 16_000);
        let read: GraphQuery = text.parse().map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
        prop_assert_eq!(&read, &query, "{}", text);
    }

    #[test]
    fn parsers_never_panic(words in vec(prop_oneof![
        string(),
        select(vec!["test(", "tag(", "state(", ")", " & ", " | ", "not ", "/", "**", "[", "]", "=", "all()", "\\", "%e2"])
            .prop_map(str::to_owned),
    ], 0..12)) {
        let text = words.concat();
        if let Err(error) = text.parse::<Filter>() {
            prop_assert!(error.column() <= text.chars().count() + 1);
            prop_assert!(error.with_carets().lines().count() >= 3);
        }
        if let Err(error) = format!("/{text}").parse::<GraphQuery>() {
            prop_assert!(error.column() <= text.chars().count() + 2);
        }
    }
}
