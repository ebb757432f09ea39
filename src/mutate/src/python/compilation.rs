//! What Python says about guarded sources, as `compile_sources.py` writes it.

use std::path::PathBuf;

use heeler_mutant::compiler::{CompilerError, ErrorPlace, ErrorSpan};

/// The answer of an interpreter that has compiled guarded sources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PythonCompilation {
    /// Its name, version and directory.
    pub version: String,
    /// Where it looks for modules.
    pub search_path: Vec<PathBuf>,
    /// Errors of guarded sources whose originals it compiles.
    pub errors: Vec<CompilerError>,
    /// Sources that it can't compile without a mutant either, by path, with its words.
    pub broken: Vec<(String, String)>,
}

impl PythonCompilation {
    /// Reads the answer; `None` if it is not whole.
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
                // What a module of the user writes when the interpreter starts.
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
