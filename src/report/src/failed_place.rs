//! Place of a test's failure: the line of the failed check or crashed code, as opposed to the line of the
//! test's definition.

/// Place in a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePlace {
    pub file: String,
    /// From 1.
    pub line: Option<u32>,
}

/// Path prefixes of runtime sources. The C library's paths are relative to its build directories.
const RUNTIME_FILES: [&str; 5] = ["<rust>/", "/rustc/", "/usr/", "./", "../"];
/// Path parts of runtimes and third-party libraries.
const LIBRARY_PARTS: [&str; 3] = ["/lib/rustlib/src/rust/", "/.cargo/registry/", "/googletest/src/"];

/// Returns the place of the first failure with a file. `test_file` is the file that defines the test.
pub(crate) fn of_failures<'a>(
    mut places: impl Iterator<Item = (Option<&'a str>, Option<u32>)>,
    test_file: Option<&str>,
) -> Option<SourcePlace> {
    places.find_map(|(file, line)| Some(place(file?, line, test_file)))
}

/// Creates a place. Prefers the test's absolute path if the failure names the same file by a relative path,
/// as passed to the compiler.
fn place(file: &str, line: Option<u32>, test_file: Option<&str>) -> SourcePlace {
    let is_same = |test_file: &&str| test_file.strip_suffix(file).is_some_and(|rest| rest.ends_with('/'));
    SourcePlace { file: test_file.filter(is_same).unwrap_or(file).to_owned(), line }
}

/// Returns the first place of a stack trace in the user's own code. A line of the trace is a frame that ends
/// in ` at FILE:LINE`, or just `FILE:LINE`. `test_file` is the file that defines the test.
pub(crate) fn of_stack(stack: &str, test_file: Option<&str>) -> Option<SourcePlace> {
    let places = stack.lines().filter_map(place_of_line);
    let mut places = places.map(|found| place(&found.file, found.line, test_file));
    places.find(|place| is_own(&place.file, test_file))
}

/// Returns the place in a sanitizer's summary at the start of the message, if it is in the user's own code:
/// `AddressSanitizer: heap-use-after-free FILE:LINE in FUNCTION`.
pub(crate) fn of_sanitizer(message: &str, test_file: Option<&str>) -> Option<SourcePlace> {
    let line = message.lines().next()?;
    let (_, finding) = line.split_once(": ").filter(|(name, _)| name.ends_with("Sanitizer"))?;
    let found = finding.split_whitespace().find_map(|word| {
        let mut parts = word.split(':');
        let (file, line) = (parts.next()?, parts.next()?.parse().ok()?);
        let is_file = file.contains(['.', '/']) && parts.all(|column| column.parse::<u32>().is_ok());
        (is_file && line > 0).then(|| place(file, Some(line), test_file))
    });
    found.filter(|place| is_own(&place.file, test_file))
}

fn place_of_line(line: &str) -> Option<SourcePlace> {
    let line = line.trim();
    let place = match line.strip_prefix('#') {
        Some(frame) => frame.rsplit_once(" at ")?.1,
        None if line.contains(char::is_whitespace) => return None,
        None => line,
    };
    let (file, number) = place.rsplit_once(':')?;
    let line = number.parse().ok().filter(|line| *line > 0)?;
    Some(SourcePlace { file: file.to_owned(), line: Some(line) })
}

fn is_own(file: &str, test_file: Option<&str>) -> bool {
    let is_runtime = RUNTIME_FILES.iter().any(|start| file.starts_with(start))
        || LIBRARY_PARTS.iter().any(|part| file.contains(part));
    test_file == Some(file) || !is_runtime
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_own_frame_is_the_place() {
        let place = |stack, test_file| {
            of_stack(stack, test_file).map(|place| format!("{}:{}", place.file, place.line.unwrap_or(0)))
        };
        let abort = "  #0   raise at ./nptl/pthread_kill.c:44\n  #1   abort at ./stdlib/abort.c:79\n  \
                     #2   sink (inlined) at lib/d.cc:9\n  #3   A_B_Test::TestBody() at t.cc:10\n";
        assert_eq!(place(abort, Some("t.cc")).as_deref(), Some("lib/d.cc:9"));
        assert_eq!(place("  #0   f at ./t.cc:3\n", Some("./t.cc")).as_deref(), Some("./t.cc:3"));
        assert_eq!(place("  #0   f at src/t.cc:3\n", Some("/w/src/t.cc")).as_deref(), Some("/w/src/t.cc:3"));
        assert_eq!(place("  #0   f at t.cc:3\n", Some("/w/src/at.cc")).as_deref(), Some("t.cc:3"));
        assert_eq!(place("  #0   abort in libc.so.6+0x12\n", None), None);
        let rust = "  #0   panic at <rust>/core/src/panicking.rs:75\n  #1   a::b at /w/src/lib.rs:12\n";
        assert_eq!(place(rust, None).as_deref(), Some("/w/src/lib.rs:12"));
        assert_eq!(place("a.cc:7\na.cc:9", None).as_deref(), Some("a.cc:7"));
        assert_eq!(place("no place: 7", None), None);
    }

    #[test]
    fn place_of_a_sanitizer_is_that_of_its_summary() {
        let place = |message: &str| {
            let place = of_sanitizer(message, Some("/w/src/t.cc"))?;
            Some(format!("{}:{}", place.file, place.line.unwrap_or(0)))
        };
        let asan = "AddressSanitizer: heap-use-after-free /w/lib/a.cc:2 in a::use(int*)\nexited with code 1";
        assert_eq!(place(asan).as_deref(), Some("/w/lib/a.cc:2"));
        let ubsan = "UndefinedBehaviorSanitizer: overflow: 1 + 2 of type 'int' at src/t.cc:4:35";
        assert_eq!(place(ubsan).as_deref(), Some("/w/src/t.cc:4"));
        assert_eq!(place("AddressSanitizer: overflow ../../src/libsanitizer/a.cpp:8 in memcpy"), None);
        assert_eq!(place("AddressSanitizer: SEGV (/w/a_test+0x4d) in f"), None);
        assert_eq!(place("a message about a.cc:2"), None);
    }
}
