//! The directory of a library's kept documentation tests, and how kept programs map to test names.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    keeper::{KEEPER, LISTING, ORDER, PROGRAM, TEST_NUMBER},
    report::{PrintedResult, RustdocReport, place_in_name},
};
use crate::tree_copy::{link_to, remove};

/// File with rustdoc's output.
const OUTPUT: &str = "output";
/// Subdirectory for programs that rustdoc compiles one after the other.
const IN_ORDER: &str = "in-order";
/// Subdirectory for rustdoc's temporary files. Being on the same file system lets programs be moved instead
/// of copied.
const WORK: &str = "work";

/// rustdoc options about running tests, which Heeler replaces, with the number of arguments each takes.
const REPLACED_OPTIONS: [(&str, usize); 5] = [
    ("--test-runtool", 1),
    ("--test-runtool-arg", 1),
    ("--test-args", 1),
    ("--no-capture", 0),
    ("--nocapture", 0),
];

/// Directory of a library's kept documentation tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoctestDirectory {
    dir: PathBuf,
    is_in_order: bool,
}

/// A kept documentation test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptDoctest {
    /// Name as printed by Cargo.
    pub name: String,
    pub program: PathBuf,
    /// Variable that selects the test in a multi-test program.
    pub variable: Option<(&'static str, String)>,
    /// The test must panic.
    pub should_panic: bool,
}

/// A documentation test that does not compile, with the compiler's first error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UncompiledDoctest {
    pub name: String,
    pub error: String,
}

/// All documentation tests of a library after rustdoc has run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptDoctests {
    pub tests: Vec<KeptDoctest>,
    pub uncompiled: Vec<UncompiledDoctest>,
    /// `should_panic` tests that could not be matched to their programs. Compiling the tests one after the
    /// other resolves them.
    pub unassigned: Vec<String>,
}

impl DoctestDirectory {
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, is_in_order: false }
    }

    /// Returns the subdirectory for tests that rustdoc compiles one after the other.
    #[must_use]
    pub fn in_order(&self) -> Self {
        Self { dir: self.dir.join(IN_ORDER), is_in_order: true }
    }

    /// Empties the directory and prepares it for rustdoc.
    ///
    /// # Errors
    /// A file can't be written.
    pub fn create(&self, own_program: &Path) -> io::Result<()> {
        remove(&self.dir)?;
        fs::create_dir_all(self.work())?;
        link_to(&self.dir.join(KEEPER), own_program).map(|_made| ())
    }

    /// Returns rustdoc's temporary directory.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.dir.join(WORK)
    }

    /// Turns recorded rustdoc arguments into arguments that keep the tests instead of running them. `words`
    /// filters tests by name; an empty list keeps all tests. `search` is the directory of indirect
    /// dependencies, which the recorded arguments do not name.
    #[must_use]
    pub fn rustdoc_arguments(&self, recorded: &[OsString], search: &Path, words: &[String]) -> Vec<OsString> {
        let mut args = Vec::with_capacity(recorded.len() + 8);
        let mut recorded = recorded.iter();
        while let Some(word) = recorded.next() {
            let text = word.to_string_lossy();
            let name = text.split('=').next().unwrap_or_default();
            match REPLACED_OPTIONS.iter().find(|(option, _)| *option == name) {
                Some((option, behind)) if *option == text => drop(recorded.by_ref().take(*behind).count()),
                Some(_) => {}
                None => args.push(word.clone()),
            }
        }
        let mut dependency = OsString::from("dependency=");
        dependency.push(search);
        args.extend(["-L".into(), dependency, "--test-runtool".into(), self.dir.join(KEEPER).into()]);
        args.extend(["--test-runtool-arg".into(), self.dir.clone().into()]);
        let threads = if self.is_in_order { "--test-threads=1" } else { "" };
        let harness = [threads].into_iter().chain(words.iter().map(String::as_str));
        let harness: Vec<&str> = harness.filter(|word| !word.is_empty()).collect();
        if !harness.is_empty() {
            args.extend(["--test-args".into(), harness.join(" ").into()]);
        }
        args
    }

    /// Stores rustdoc's output and removes its temporary files.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write_output(&self, output: &[u8]) -> io::Result<()> {
        remove(&self.work())?;
        fs::write(self.dir.join(OUTPUT), output)
    }

    /// Reads the kept tests; `None` if rustdoc failed before running tests.
    ///
    /// # Errors
    /// A file can't be read.
    pub fn read(&self) -> io::Result<Option<KeptDoctests>> {
        let output = fs::read(self.dir.join(OUTPUT))?;
        let report = RustdocReport::parse(&String::from_utf8_lossy(&output));
        let order = match fs::read_to_string(self.dir.join(ORDER)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        // rustdoc itself prints nothing if all tests are in multi-test programs.
        if !report.has_run && order.is_empty() {
            return Ok(None);
        }
        let mut kept = KeptDoctests::default();
        let mut singles: Vec<&str> = Vec::new();
        for name in order.lines() {
            match fs::read(self.dir.join(name).join(LISTING)) {
                Ok(listing) => kept.add_several(&self.program(name), &String::from_utf8_lossy(&listing)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => singles.push(name),
                Err(error) => return Err(error),
            }
        }
        self.add_singles(&report, &singles, &mut kept);
        if !self.is_in_order && !kept.unassigned.is_empty() {
            self.add_in_order(&mut kept)?;
        }
        let uncompiled = report.uncompiled.into_iter();
        kept.uncompiled.extend(uncompiled.map(|(name, error)| UncompiledDoctest { name, error }));
        kept.tests.sort_by(|a, b| order_of(&a.name).cmp(&order_of(&b.name)));
        Ok(Some(kept))
    }

    /// Adds the tests that have their own program.
    fn add_singles(&self, report: &RustdocReport, order: &[&str], kept: &mut KeptDoctests) {
        let mut marked = BTreeSet::new();
        for (name, programs) in &report.kept {
            for program in programs {
                marked.insert(program.as_str());
                kept.tests.push(self.single(name, program, false));
            }
        }
        // `should_panic` tests: the keeper's failure counts as their pass, so rustdoc hides their output.
        let passed = report.tests.iter().filter(|test| {
            test.result == PrintedResult::Passed
                && !test.is_never_run
                && !report.kept.contains_key(&test.name)
        });
        let passed: Vec<&str> = passed.map(|test| test.name.as_str()).collect();
        let left: Vec<&str> = order.iter().copied().filter(|name| !marked.contains(name)).collect();
        if passed.len() == left.len() && (self.is_in_order || passed.len() == 1) {
            let tests = passed.iter().zip(left);
            kept.tests.extend(tests.map(|(name, program)| self.single(name, program, true)));
        } else {
            kept.unassigned = passed.into_iter().map(str::to_owned).collect();
        }
    }

    /// Adds the tests that were recompiled one after the other.
    fn add_in_order(&self, kept: &mut KeptDoctests) -> io::Result<()> {
        let in_order = match self.in_order().read() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            read => read?,
        };
        for test in in_order.into_iter().flat_map(|kept| kept.tests) {
            if let Some(place) = kept.unassigned.iter().position(|name| *name == test.name) {
                kept.unassigned.remove(place);
                kept.tests.push(test);
            }
        }
        Ok(())
    }

    fn program(&self, name: &str) -> PathBuf {
        self.dir.join(name).join(PROGRAM)
    }

    fn single(&self, name: &str, program: &str, should_panic: bool) -> KeptDoctest {
        KeptDoctest { name: name.to_owned(), program: self.program(program), variable: None, should_panic }
    }
}

impl KeptDoctests {
    /// Adds the tests of a multi-test program. The position in its listing is the test's number.
    fn add_several(&mut self, program: &Path, listing: &str) {
        let report = RustdocReport::parse(listing);
        let mut numbers: BTreeMap<&str, _> =
            report.numbers.iter().map(|(name, numbers)| (name.as_str(), numbers.iter())).collect();
        for (place, test) in report.tests.iter().enumerate() {
            if test.is_never_run || test.result == PrintedResult::Ignored {
                continue;
            }
            let said = numbers.get_mut(test.name.as_str()).and_then(Iterator::next).copied();
            let number = match (said, test.is_said_to_panic) {
                (Some(number), _) => number,
                // The keeper's failure made this `should_panic` test pass, so its output is hidden.
                (None, true) => place,
                (None, false) => continue,
            };
            self.tests.push(KeptDoctest {
                name: test.name.clone(),
                program: program.to_owned(),
                variable: Some((TEST_NUMBER, number.to_string())),
                should_panic: test.is_said_to_panic,
            });
        }
    }

    /// Returns filters that make rustdoc run at least the unassigned tests.
    #[must_use]
    pub fn words_of_unassigned(&self) -> Vec<String> {
        // rustdoc splits filters at white space, so only one word of `src/lib.rs - item (line 12)` can be
        // used. The last one differs most.
        let words = self.unassigned.iter().filter_map(|name| name.split_whitespace().next_back());
        words.map(str::to_owned).collect::<BTreeSet<String>>().into_iter().collect()
    }
}

impl KeptDoctest {
    /// Returns the test's file, as Cargo names it, and its line.
    #[must_use]
    pub fn place(&self) -> Option<(&str, u32)> {
        place_in_name(&self.name)
    }
}

fn order_of(name: &str) -> (&str, u32, &str) {
    let (file, line) = place_in_name(name).unwrap_or((name, 0));
    (file, line, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(dir: &DoctestDirectory, names: &[&str], output: &str) {
        dir.create(Path::new("/bin/true")).unwrap();
        for name in names {
            fs::create_dir_all(dir.dir.join(name)).unwrap();
        }
        fs::write(dir.dir.join(ORDER), names.join("\n")).unwrap();
        dir.write_output(output.as_bytes()).unwrap();
    }

    fn shown(kept: &KeptDoctests) -> Vec<(&str, String, bool)> {
        let program = |test: &KeptDoctest| {
            let place = test.program.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
            test.variable.as_ref().map_or(place.clone(), |(_, number)| format!("{place} {number}"))
        };
        kept.tests.iter().map(|test| (test.name.as_str(), program(test), test.should_panic)).collect()
    }

    const MARKED: &str = "---- src/lib.rs - a (line 10) stdout ----\nheeler-doctest kept 1-0\n";

    #[test]
    fn test_is_the_program_that_has_failed_in_its_place() {
        let root = tempfile::tempdir().unwrap();
        let dir = DoctestDirectory::new(root.path().join("d"));
        let tests = "running 3 tests\ntest src/lib.rs - a (line 10) ... FAILED\n\
                     test src/lib.rs - a (line 9) ... ok\ntest src/lib.rs - b (line 11) - compile ... ok\n";
        keep(&dir, &["2-0", "1-0"], &format!("{tests}\n{MARKED}"));
        let kept = dir.read().unwrap().unwrap();
        let expected = [
            ("src/lib.rs - a (line 9)", "2-0".into(), true),
            ("src/lib.rs - a (line 10)", "1-0".into(), false),
        ];
        assert_eq!(shown(&kept), expected);
        assert_eq!((kept.tests[0].place(), kept.unassigned.len()), (Some(("src/lib.rs", 9)), 0));
        keep(&dir, &[], "error: Unrecognized option: 'test-runtool'\n");
        assert_eq!(dir.read().unwrap(), None);
    }

    #[test]
    fn tests_that_should_panic_are_known_by_the_order_in_which_they_are_compiled() {
        let root = tempfile::tempdir().unwrap();
        let dir = DoctestDirectory::new(root.path().join("d"));
        let tests = "running 3 tests\ntest src/lib.rs - a (line 10) ... FAILED\n\
                     test src/lib.rs - a (line 9) ... ok\ntest src/lib.rs - a (line 20) ... ok\n";
        keep(&dir, &["3-0", "1-0", "2-0"], &format!("{tests}\n{MARKED}"));
        let kept = dir.read().unwrap().unwrap();
        assert_eq!(kept.unassigned, ["src/lib.rs - a (line 9)", "src/lib.rs - a (line 20)"]);
        assert_eq!((kept.tests.len(), kept.words_of_unassigned()), (1, vec!["20)".into(), "9)".into()]));
        let again = "running 2 tests\ntest src/lib.rs - a (line 20) ... ok\n\
                     test src/lib.rs - a (line 9) ... ok\n";
        keep(&dir.in_order(), &["8-0", "7-0"], again);
        let kept = dir.read().unwrap().unwrap();
        let expected = [
            ("src/lib.rs - a (line 9)", "7-0".to_owned(), true),
            ("src/lib.rs - a (line 10)", "1-0".to_owned(), false),
            ("src/lib.rs - a (line 20)", "8-0".to_owned(), true),
        ];
        assert_eq!((shown(&kept), kept.unassigned.len()), (expected.to_vec(), 0));
        assert!(kept.tests[2].program.starts_with(dir.in_order().dir));
    }

    #[test]
    fn tests_in_one_program_have_numbers() {
        let root = tempfile::tempdir().unwrap();
        let dir = DoctestDirectory::new(root.path().join("d"));
        keep(&dir, &["5-0"], "\nall doctests ran in 0.84s; merged doctests compilation took 0.60s\n");
        let listing = "running 4 tests\ntest src/lib.rs - a (line 1) ... FAILED\n\
                       test src/lib.rs - a (line 5) - compile ... ok\n\
                       test src/lib.rs - a (line 8) - should panic ... ok\n\
                       test src/lib.rs - b (line 9) ... FAILED\n\n\
                       ---- src/lib.rs - a (line 1) stdout ----\nheeler-doctest number 0\n\
                       ---- src/lib.rs - b (line 9) stdout ----\nheeler-doctest number 3\n";
        fs::write(dir.dir.join("5-0").join(LISTING), listing).unwrap();
        let kept = dir.read().unwrap().unwrap();
        let expected = [
            ("src/lib.rs - a (line 1)", "5-0 0".to_owned(), false),
            ("src/lib.rs - a (line 8)", "5-0 2".to_owned(), true),
            ("src/lib.rs - b (line 9)", "5-0 3".to_owned(), false),
        ];
        assert_eq!(shown(&kept), expected);
        assert_eq!(kept.tests[1].variable.as_ref().unwrap().0, "RUSTDOC_DOCTEST_RUN_NB_TEST");
    }

    #[test]
    fn options_that_run_tests_are_replaced() {
        let dir = DoctestDirectory::new("/k".into());
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let recorded = words("--test src/lib.rs --test-runtool q --test-runtool-arg=-x --nocapture --cfg a");
        let args = dir.rustdoc_arguments(&recorded, Path::new("/r"), &[]);
        let kept = "--test src/lib.rs --cfg a -L dependency=/r --test-runtool /k/heeler-doctest --test-runtool-arg /k";
        assert_eq!(args, words(kept));
        let args =
            dir.in_order().rustdoc_arguments(&words("--test"), Path::new("/r"), &["9)".into(), "12)".into()]);
        assert_eq!(args.last().unwrap(), "--test-threads=1 9) 12)");
    }
}
