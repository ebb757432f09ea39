//! Parses the output of `compile_sources.py`: Python's errors in guarded sources.

use std::path::PathBuf;

use heeler_mutant::compiler::{CompilerError, ErrorPlace, ErrorSpan};

/// The output of an interpreter that compiled the guarded sources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PythonCompilation {
    /// The interpreter's name, version and directory.
    pub version: String,
    /// The interpreter's module search path.
    pub search_path: Vec<PathBuf>,
    /// Errors in guarded sources whose originals compile.
    pub errors: Vec<CompilerError>,
    /// Sources whose originals do not compile either, by path, with Python's message.
    pub broken: Vec<(String, String)>,
}

impl PythonCompilation {
    /// Parses the output; `None` if it is incomplete.
    #[must_use]
    pub fn read(output: &str) -> Option<Self> {
        let mut compilation = Self::default();
        let mut is_whole = false;
        for line in output.lines() {
            match line.split('\t').collect::<Vec<_>>().as_slice() {
                ["version", words @ ..] => compilation.version = words.join(" "),
                ["path", path] => compilation.search_path.push(PathBuf::from(path)),
                ["original", path, words] => {
                    compilation.broken.push(((*path).to_owned(), (*words).to_owned()));
                }
                ["error", path, line, column, words] => {
                    let place = ErrorPlace::Line { line: line.parse().ok()?, column: column.parse().ok()? };
                    let span = ErrorSpan { file: (*path).to_owned(), place, is_primary: true };
                    let message = (*words).to_owned();
                    compilation.errors.push(CompilerError {
                        code: None,
                        message,
                        spans: vec![span],
                        defined: None,
                    });
                }
                ["end"] => is_whole = true,
                // Output of a user module that runs when the interpreter starts.
                _ => {}
            }
        }
        is_whole.then_some(compilation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_read_if_it_is_whole() {
        let text = "hello\nversion\tcpython\t3.11.2\t/usr\npath\t/w/src\nerror\ta.py\t3\t7\tSyntaxError: invalid\n\
                    original\tb.py\tSyntaxError: print\n";
        assert_eq!(PythonCompilation::read(text), None, "the process has died");
        let read = PythonCompilation::read(&format!("{text}end\n")).unwrap();
        assert_eq!((read.version.as_str(), read.search_path.len()), ("cpython 3.11.2 /usr", 1));
        assert_eq!(read.broken, [("b.py".to_owned(), "SyntaxError: print".to_owned())]);
        assert_eq!(read.errors[0].summary(), "error: SyntaxError: invalid");
        assert_eq!(read.errors[0].spans[0].place, ErrorPlace::Line { line: 3, column: 7 });
        assert_eq!(PythonCompilation::read("error\ta.py\tx\t7\tSyntaxError\nend\n"), None);
    }
}
