//! A tip for filters that look like an expression but are taken for a name.

use heeler_config::filter::Filter;

/// Returns the expression that a filter of words and operators may mean: `a and not b` is a name, because
/// names contain spaces, but may mean `test(a) and not test(b)`.
pub(super) fn meant_expression(filter: &str) -> Option<String> {
    let is_operator = |word: &str| matches!(word, "and" | "or" | "not" | "&" | "|" | "!");
    let words: Vec<&str> = filter.split_whitespace().collect();
    if words.iter().any(|word| word.contains(['(', ')'])) || !words.iter().any(|word| is_operator(word)) {
        return None;
    }
    let terms = words.iter().map(|word| match word.strip_prefix('!').filter(|name| !name.is_empty()) {
        _ if is_operator(word) => (*word).to_owned(),
        Some(name) => format!("not test({name})"),
        None => format!("test({word})"),
    });
    let expression = terms.collect::<Vec<_>>().join(" ");
    // The parser rejects two words without an operator between them.
    expression.parse::<Filter>().is_ok().then_some(expression)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_operators_become_an_expression() {
        for (filter, expected) in [
            ("a and not b", Some("test(a) and not test(b)")),
            ("a | b", Some("test(a) | test(b)")),
            ("a and !b", Some("test(a) and not test(b)")),
            ("a", None),
            ("a b", None),
            ("reads and writes files", None),
            ("a and", None),
            ("test(a) and b", None),
        ] {
            assert_eq!(meant_expression(filter).as_deref(), expected, "{filter}");
        }
    }
}
