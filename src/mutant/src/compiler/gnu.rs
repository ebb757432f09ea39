//! Parses text diagnostics of g++, in the long-standing GNU format. JSON diagnostics do not say which
//! template instantiation they concern.
//!
//! ```text
//! list.hpp: In instantiation of ‘T sum(T, T) [with T = A]’:
//! main.cpp:12:8:   required from here
//! list.hpp:3:14: error: no match for ‘operator+’ (operand types are ‘A’ and ‘A’)
//! ```

use super::error::{CompilerError, ErrorPlace, ErrorSpan};

/// Returns the errors in standard error. Ignores output of the build itself.
pub fn errors(text: &str) -> Vec<CompilerError> {
    let mut errors: Vec<CompilerError> = Vec::new();
    // Places that required the template instantiation of the next error, innermost first.
    let mut required = Vec::new();
    // Number of macro places of the last error.
    let mut macros = 0;
    for line in text.lines() {
        let Some((span, message)) = located(line) else {
            if line.contains(": In ") || line.starts_with("In file included from ") {
                required.clear();
            }
            continue;
        };
        let message = message.trim_start();
        let error = message.strip_prefix("error: ").or_else(|| message.strip_prefix("fatal error: "));
        if let Some(words) = error {
            let spans = std::iter::once(span).chain(required.iter().cloned()).collect();
            macros = 0;
            errors.push(CompilerError { code: None, message: words.to_owned(), spans, defined: None });
        } else if message.starts_with("note: in expansion of macro ") {
            // Uses of the macro that contains the error, innermost first.
            if let Some(error) = errors.last_mut() {
                let required = error.spans.iter().filter(|span| !span.is_primary).count() - macros;
                error.spans.insert(error.spans.len() - required, ErrorSpan { is_primary: false, ..span });
                macros += 1;
            }
        } else if message.starts_with("required ")
            || message.starts_with("in ") && message.contains(" expansion of ")
        {
            required.push(ErrorSpan { is_primary: false, ..span });
        }
    }
    errors
}

/// Splits `FILE:LINE:COLUMN: MESSAGE`.
fn located(line: &str) -> Option<(ErrorSpan, &str)> {
    // The path may contain colons too, and so may the message.
    for (at, _) in line.match_indices(':') {
        let rest = &line[at + 1..];
        let mut parts = rest.splitn(3, ':');
        let numbers = [parts.next(), parts.next()].map(|part| part.and_then(|part| part.parse().ok()));
        if let ([Some(line_number), Some(column)], Some(message)) = (numbers, parts.next()) {
            let place = ErrorPlace::Line { line: line_number, column };
            return Some((ErrorSpan { file: line[..at].to_owned(), place, is_primary: true }, message));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_places_that_required_them() {
        let text = "In file included from main.cpp:1:\n\
            list.hpp: In instantiation of ‘T sum(T, T) [with T = A]’:\n\
            sum.hpp:7:9:   required from ‘T all(T) [with T = A]’\n\
            main.cpp:12:8:   required from here\n\
            list.hpp:3:14: error: no match for ‘operator+’: a::b\n\
            list.hpp:3:14: note: candidate: x\n\
            list.hpp:3:7: note: in expansion of macro ‘A’\n\
            list.hpp:2:6: note: in expansion of macro ‘B’\n\
            make: *** [Makefile:3: main.o] Error 1\n\
            main.cpp: In function ‘int main()’:\n\
            a b:c/main.cpp:4:5: error: expected ‘;’\n\
            main.cpp:9:10: fatal error: x.h: No such file or directory\n";
        let found = errors(text);
        let places: Vec<Vec<String>> = found
            .iter()
            .map(|error| {
                let place = |span: &ErrorSpan| match span.place {
                    ErrorPlace::Line { line, column } => format!("{}:{line}:{column}", span.file),
                    ErrorPlace::Bytes { .. } => "bytes".to_owned(),
                };
                error.spans.iter().map(place).collect()
            })
            .collect();
        assert_eq!(
            places,
            [
                vec!["list.hpp:3:14", "list.hpp:3:7", "list.hpp:2:6", "sum.hpp:7:9", "main.cpp:12:8"],
                vec!["a b:c/main.cpp:4:5"],
                vec!["main.cpp:9:10"]
            ]
        );
        assert_eq!(found[0].summary(), "error: no match for ‘operator+’: a::b");
        assert!(found[0].spans[0].is_primary && !found[0].spans[1].is_primary);
        assert_eq!(errors("cc1plus: all warnings\n::1:2\n:1:\nx:1:2"), []);
    }
}
