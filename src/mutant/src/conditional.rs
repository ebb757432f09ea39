//! Finds the parts of C and C++ sources between `#if` and `#endif`, which the preprocessor may remove. Works
//! on lines, because the parser handles code split by directives badly.

use std::ops::Range;

/// Returns the outermost parts of a text that are compiled conditionally. Include guards do not count.
pub(crate) fn conditional_parts(text: &str) -> Vec<Range<usize>> {
    let lines = directives(text);
    let guarded = include_guard(&lines, text);
    let mut parts = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if guarded.is_some_and(|(first, last)| index == first || index == last) {
            continue;
        }
        match line.name {
            "if" | "ifdef" | "ifndef" => open.push(line.bytes.start),
            "endif" => {
                let start = open.pop().filter(|_| open.is_empty());
                parts.extend(start.map(|start| start..line.bytes.end));
            }
            _ => {}
        }
    }
    // An unterminated part extends to the end.
    parts.extend(open.first().map(|&start| start..text.len()));
    parts
}

/// A line such as `#ifdef NAME`.
struct Directive<'text> {
    name: &'text str,
    argument: &'text str,
    bytes: Range<usize>,
}

fn directives(text: &str) -> Vec<Directive<'_>> {
    let mut found = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let bytes = start..start + line.len();
        start = bytes.end;
        let Some(rest) = line.trim_start().strip_prefix('#') else { continue };
        let rest = rest.trim();
        let end = rest.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(rest.len());
        found.push(Directive { name: &rest[..end], argument: rest[end..].trim(), bytes });
    }
    found
}

/// Returns the indices of the first and last directive if they form an include guard: `#ifndef NAME`,
/// `#define NAME`, and nothing after the matching `#endif`.
fn include_guard(lines: &[Directive<'_>], text: &str) -> Option<(usize, usize)> {
    let is_pragma = |line: &Directive<'_>| line.name == "pragma";
    let first = lines.iter().position(|line| !is_pragma(line))?;
    let (begin, next) = (&lines[first], lines.get(first + 1)?);
    let name = match begin.name {
        "ifndef" => begin.argument.split_whitespace().next()?,
        "if" => {
            let rest = begin.argument.strip_prefix('!')?.trim_start().strip_prefix("defined")?;
            rest.trim_matches([' ', '(', ')'])
        }
        _ => return None,
    };
    let is_defined = next.name == "define" && next.argument.split([' ', '\t', '(']).next() == Some(name);
    let mut depth = 0_usize;
    for (index, line) in lines.iter().enumerate().skip(first) {
        match line.name {
            "if" | "ifdef" | "ifndef" => depth += 1,
            "endif" => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            let rest = text[line.bytes.end..].trim();
            let is_last = rest.is_empty() || rest.starts_with("//") || rest.starts_with("/*");
            return (is_defined && is_last && index + 1 == lines.len()).then_some((first, index));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Vec<&str> {
        conditional_parts(text).into_iter().map(|part| &text[part]).collect()
    }

    #[test]
    fn parts_are_the_outermost_conditions_and_no_include_guard() {
        let part = "# if A\n#ifdef B\nx\n#endif\n#else\ny\n#endif\n";
        assert_eq!(parts(&format!("a\n{part}b\n")), [part]);
        assert_eq!(parts(&format!("// c\n#ifndef H\n#define H\n{part}#endif // H\n")), [part]);
        let own = "#ifndef H\nx\n#endif\n";
        assert_eq!(parts(own), [own]);
        assert_eq!(parts("#if !defined(H)\n#define H 1\nx\n#endif\n"), [""; 0]);
        assert_eq!(parts("#ifndef H\n#define H\n#endif\nx\n").len(), 1);
        assert_eq!(parts("a\n#if A\nx\n"), ["#if A\nx\n"]);
        assert_eq!(parts("#endif\n#"), [""; 0]);
    }
}
