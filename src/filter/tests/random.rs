//! Random filters: a printed filter parses to the same filter, and no text makes a parser panic.

use proptest::{collection::vec, option, prelude::*, sample::select};

use crate::filter::{
    Expr, Filter, GraphQuery, NodeTest, Part, Past, Predicate, Property, Text, Wildcard, expression::compile,
    graph::Rest,
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

fn wildcard(has_one: bool) -> impl Strategy<Value = Wildcard> {
    let one = if has_one { Part::One } else { Part::Any };
    vec(prop_oneof![6 => chars().prop_map(Part::Char), 1 => Just(one), 2 => Just(Part::Any)], 1..8)
        .prop_map(Wildcard)
}

fn text() -> impl Strategy<Value = Text> {
    let regexes = ["x", "^a/b$", r"\d+\)", r"a\\/", "[/=]"];
    prop_oneof![
        string().prop_map(Text::Equals),
        string().prop_map(Text::Contains),
        wildcard(true).prop_map(Text::Glob),
        select(regexes.to_vec()).prop_map(|source| Text::Regex(compile(source).unwrap())),
    ]
}

fn predicate() -> impl Strategy<Value = Predicate> {
    // Of the two names of "never run" the first one is printed.
    let pasts: Vec<_> = Past::WORDS.iter().map(|(_, past)| *past).collect();
    prop_oneof![
        Just(Predicate::All),
        Just(Predicate::None),
        text().prop_map(Predicate::Test),
        text().prop_map(Predicate::Suite),
        text().prop_map(Predicate::Program),
        (text(), option::of(prop_oneof![text(), Just(Text::Equals(String::new()))]))
            .prop_map(|(key, value)| Predicate::Tag { key, value }),
        select(pasts).prop_map(Predicate::State),
    ]
}

fn expr<L: std::fmt::Debug + Clone + 'static>(
    leaf: impl Strategy<Value = L> + 'static,
) -> impl Strategy<Value = Expr<L>> {
    leaf.prop_map(Expr::Leaf).prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(Expr::negated),
            vec(inner.clone(), 2..4).prop_map(Expr::And),
            vec(inner, 2..4).prop_map(Expr::Or),
        ]
    })
}

fn properties() -> impl Strategy<Value = Option<Expr<Property>>> {
    let property = (wildcard(false), wildcard(false)).prop_map(|(key, value)| Property { key, value });
    option::of(expr(property))
}

fn node() -> impl Strategy<Value = NodeTest> {
    let is_no_rest = |name: &Wildcard| *name != Wildcard(vec![Part::Any; 2]);
    (wildcard(false).prop_filter("two stars are the rest", is_no_rest), properties())
        .prop_map(|(name, properties)| NodeTest { name, properties })
}

fn graph() -> impl Strategy<Value = GraphQuery> {
    let rest = option::of(properties().prop_map(|properties| Rest { properties }));
    (vec(expr(node()), 0..4), rest)
        .prop_filter("a query has a part", |(segments, rest)| !segments.is_empty() || rest.is_some())
        .prop_map(|(segments, rest)| GraphQuery { segments, rest })
}

proptest! {
    #[test]
    fn an_expression_that_is_written_out_is_read_back_the_same(expr in expr(predicate())) {
        let text = expr.to_string();
        if expr.mentions(&|one| matches!(one, Predicate::Test(Text::Regex(_)))) {
            // Compiling regular expressions is slow; few of them suffice.
            prop_assume!(text.len() < 200);
        }
        let read: Filter = text.parse().map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
        prop_assert_eq!(&read.expr, &expr, "{}", text);
        prop_assert_eq!(read.to_string(), text);
    }

    #[test]
    fn a_query_that_is_written_out_is_read_back_the_same(query in graph()) {
        let text = query.to_string();
        prop_assume!(text.len() < 16_000);
        let read: GraphQuery = text.parse().map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
        prop_assert_eq!(&read, &query, "{}", text);
    }

    #[test]
    fn no_text_makes_a_parser_panic(words in vec(prop_oneof![
        string(),
        select(vec!["test(", "tag(", "state(", ")", " & ", " | ", "not ", "/", "**", "[", "]", "=", "all()", "\\", "%e2"])
            .prop_map(str::to_owned),
    ], 0..12)) {
        let text = words.concat();
        if let Err(error) = text.parse::<Filter>() {
            prop_assert!(error.column() <= text.chars().count() + 1);
            prop_assert!(error.pointed().lines().count() >= 3);
        }
        if let Err(error) = format!("/{text}").parse::<GraphQuery>() {
            prop_assert!(error.column() <= text.chars().count() + 2);
        }
    }
}
