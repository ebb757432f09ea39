//! Tests as stored in the catalogue. A session may contain hundreds of thousands of them, so entries are
//! small: the name is a range of the uid, and text shared by many tests (such as the file) is stored once.

use std::{
    collections::{HashMap, HashSet},
    num::{NonZeroU16, NonZeroU32},
    sync::Arc,
};

use heeler_protocol::{
    control::{ListedTest, ReportName, TestVariant, TraitPair},
    mtp::key,
};

/// Separates a suite's name from the names of its tests.
pub(super) const SUITE_SEPARATOR: &str = "::";

/// A test of a listing, in compact form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestEntry {
    uid: Box<str>,
    /// Start of the name within the uid.
    name_start: u32,
    /// Length of the suffix after the name in the uid, if an earlier test has the same name.
    suffix_bytes: u8,
    other_names: Option<Box<OtherNames>>,
    file: Option<Arc<str>>,
    /// Length of the trailing part of `file` that the framework reports, if it does not report the whole
    /// path.
    reported_bytes: Option<NonZeroU16>,
    /// Line number, from 1.
    line: Option<NonZeroU32>,
    skip: Option<Arc<str>>,
    /// Many tests share trait names, but values are mostly unique.
    traits: Box<[(Arc<str>, Box<str>)]>,
    selector: Option<Box<str>>,
    timeout_ms: Option<NonZeroU32>,
    unrunnable: Option<Box<str>>,
    variant: Option<Arc<TestVariant>>,
}

/// Names of a test other than its framework name. Tests of some frameworks have none.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OtherNames {
    display: Option<Box<str>>,
    /// Class and name in JUnit reports. Tests of a listing share classes.
    report: Option<(Arc<str>, Box<str>)>,
}

impl OtherNames {
    fn has_any(&self) -> bool {
        self.display.is_some() || self.report.is_some()
    }
}

impl TestEntry {
    /// Returns the client-visible identifier: `<suite>::<name>`, with `#2` appended for the second test of
    /// the same name, and so on.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// Returns the name in the framework.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.uid[self.name_start as usize..self.uid.len() - usize::from(self.suffix_bytes)]
    }

    /// Returns the traits: names and values assigned by the framework.
    pub fn traits(&self) -> impl Iterator<Item = (&str, &str)> {
        self.traits.iter().map(|(name, value)| (&**name, &**value))
    }

    fn display(&self) -> Option<&str> {
        self.other_names.as_ref()?.display.as_deref()
    }

    fn report_name(&self) -> Option<ReportName> {
        let (class, name) = self.other_names.as_ref()?.report.as_ref()?;
        Some(ReportName { class: (**class).to_owned(), name: (**name).to_owned() })
    }

    /// Returns the source file, which tests of a listing share.
    pub(super) fn shared_file(&self) -> Option<&Arc<str>> {
        self.file.as_ref()
    }

    /// Returns the line in the source file.
    pub(super) fn line(&self) -> Option<u32> {
        self.line.map(NonZeroU32::get)
    }

    fn reported_file(&self) -> Option<&str> {
        let (file, bytes) = (self.file.as_deref()?, usize::from(self.reported_bytes?.get()));
        file.get(file.len().checked_sub(bytes)?..)
    }

    /// Returns why the test can't be run, or `None` if it can.
    #[must_use]
    pub fn unrunnable(&self) -> Option<&str> {
        self.unrunnable.as_deref()
    }

    /// Returns whether an earlier test has the same name.
    fn is_repeated(&self) -> bool {
        self.suffix_bytes > 0
    }

    /// Returns whether the framework would skip the test.
    pub(crate) fn is_skipped(&self) -> bool {
        self.skip.is_some()
    }

    /// Returns the test in the form listed by its framework.
    #[must_use]
    pub fn listed(&self) -> ListedTest {
        ListedTest {
            name: self.name().to_owned(),
            display: self.display().map(str::to_owned),
            report_name: self.report_name(),
            file: self.file.as_deref().map(str::to_owned),
            reported_file: self.reported_file().map(str::to_owned),
            line: self.line(),
            skip: self.skip.as_deref().map(str::to_owned),
            traits: self
                .traits()
                .map(|(name, value)| TraitPair { name: name.to_owned(), value: value.to_owned() })
                .collect(),
            selector: self.selector.as_deref().map(str::to_owned),
            timeout_ms: self.timeout_ms.map(|limit| u64::from(limit.get())),
            // For a repeated test, `unrunnable` may describe the ambiguity instead of a reason from the
            // listing.
            broken: self.unrunnable().filter(|_| !self.is_repeated()).map(str::to_owned),
            variant: self.variant.clone(),
        }
    }
}

/// Assigns each test a uid. Without selectors, a framework can't run the second of two tests with the same
/// name. The first is then run, and the second gets a reason why it is not run.
pub(super) fn assign_uids(suite: &str, tests: Vec<ListedTest>) -> Vec<TestEntry> {
    let times = name_occurrences(&tests);
    let mut shared = StringInterner::default();
    let catalogued = |(listed, times): (ListedTest, u32)| {
        let mut uid = format!("{suite}{SUITE_SEPARATOR}{}", listed.name);
        let place =
            |byte: usize| u32::try_from(byte).expect("a packet, and so a name in it, is far below 4 GiB");
        let name_end = uid.len();
        let name_start = place(name_end - listed.name.len());
        if times > 1 {
            uid.push_str(&format!("#{times}"));
        }
        let suffix_bytes = u8::try_from(uid.len() - name_end).expect("a number has few digits");
        // Without a selector, a repeated test can't be run.
        let is_ambiguous = times > 1 && listed.selector.is_none();
        let repeated = is_ambiguous.then(|| {
            format!(
                "not run: another test has the same name, and only the first can be selected; rename this test \
                 (number {times})"
            )
        });
        let unrunnable = listed.broken.or(repeated);
        let ends_file = |reported: &String| listed.file.as_ref().is_some_and(|file| file.ends_with(reported));
        let reported = listed.reported_file.as_ref().filter(|reported| ends_file(reported));
        let reported_bytes = reported.and_then(|text| NonZeroU16::new(u16::try_from(text.len()).ok()?));
        let mut traits = listed.traits;
        // Use the same trait for all frameworks, so filters and `--run-ignored` find these tests.
        if listed.skip.is_some() && !traits.iter().any(|one| one.name == key::IGNORED_TRAIT) {
            traits.push(TraitPair { name: key::IGNORED_TRAIT.to_owned(), value: String::new() });
        }
        let other_names = OtherNames {
            display: listed.display.map(Into::into),
            report: listed.report_name.map(|one| (shared.intern(one.class), one.name.into())),
        };
        TestEntry {
            uid: uid.into(),
            name_start,
            suffix_bytes,
            other_names: other_names.has_any().then(|| Box::new(other_names)),
            file: listed.file.map(|file| shared.intern(file)),
            reported_bytes,
            line: listed.line.and_then(NonZeroU32::new),
            skip: listed.skip.map(|reason| shared.intern(reason)),
            traits: traits.into_iter().map(|one| (shared.intern(one.name), one.value.into())).collect(),
            selector: listed.selector.map(Into::into),
            timeout_ms: listed.timeout_ms.and_then(|limit| NonZeroU32::new(u32::try_from(limit).ok()?)),
            unrunnable: unrunnable.map(Into::into),
            variant: listed.variant,
        }
    };
    tests.into_iter().zip(times).map(catalogued).collect()
}

/// Returns, for each test, how often its name has occurred so far, including the test itself.
fn name_occurrences(tests: &[ListedTest]) -> Vec<u32> {
    let mut seen: HashMap<&str, u32> = HashMap::with_capacity(tests.len());
    let count = |test| {
        let times = seen.entry(test).or_default();
        *times += 1;
        *times
    };
    tests.iter().map(|test| test.name.as_str()).map(count).collect()
}

/// Stores equal strings once.
#[derive(Default)]
struct StringInterner(HashSet<Arc<str>>);

impl StringInterner {
    fn intern(&mut self, text: String) -> Arc<str> {
        if let Some(known) = self.0.get(text.as_str()) {
            return Arc::clone(known);
        }
        let text: Arc<str> = text.into();
        self.0.insert(Arc::clone(&text));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_test_round_trips_with_interned_file() {
        let full = ListedTest {
            name: "P.t/0".into(),
            display: Some("P.t/0 (1)".into()),
            report_name: Some(ReportName { class: "P".into(), name: "t/0".into() }),
            file: Some("/w/p.cc".into()),
            reported_file: Some("p.cc".into()),
            line: Some(3),
            skip: Some("disabled".into()),
            traits: [("n", "v"), ("ignored", "")]
                .map(|(name, value)| TraitPair { name: name.into(), value: value.into() })
                .to_vec(),
            selector: None,
            timeout_ms: Some(250),
            broken: None,
            variant: None,
        };
        let bare = ListedTest { name: "t".into(), ..ListedTest::default() };
        let listed = vec![full.clone(), bare, full];
        let tests = assign_uids("ü", listed.clone());
        let back: Vec<_> = tests.iter().map(TestEntry::listed).collect();
        assert_eq!(back, listed);
        let uids: Vec<_> = tests.iter().map(TestEntry::uid).collect();
        assert_eq!(uids, ["ü::P.t/0", "ü::t", "ü::P.t/0#2"]);
        assert_eq!((tests[2].name(), tests[0].unrunnable()), ("P.t/0", None));
        assert!(tests[2].unrunnable().unwrap().contains("rename this test (number 2)"));
        assert!(Arc::ptr_eq(tests[0].file.as_ref().unwrap(), tests[2].file.as_ref().unwrap()));
    }

    #[test]
    fn skipped_test_has_the_trait_of_ignored_ones_once() {
        let skipped = |traits: &[&str]| ListedTest {
            skip: Some("disabled".into()),
            traits: traits.iter().map(|name| TraitPair { name: (*name).into(), value: "v".into() }).collect(),
            ..ListedTest::default()
        };
        let entries = assign_uids("s", vec![skipped(&["n"]), skipped(&["ignored"])]);
        let traits: Vec<Vec<_>> = entries.iter().map(|entry| entry.traits().collect()).collect();
        assert_eq!(traits, [vec![("n", "v"), ("ignored", "")], vec![("ignored", "v")]]);
    }

    #[test]
    fn tests_of_one_name_are_runnable_by_their_selectors() {
        let listed = |selector: &str| ListedTest {
            name: "twice".into(),
            selector: Some(selector.into()),
            ..ListedTest::default()
        };
        let tests = assign_uids("s", vec![listed("1"), listed("2")]);
        assert_eq!((tests[0].uid(), tests[1].uid()), ("s::twice", "s::twice#2"));
        assert_eq!((tests[1].unrunnable(), tests[1].listed()), (None, listed("2")));
    }

    #[test]
    fn test_entry_size_is_bounded() {
        assert!(size_of::<TestEntry>() <= 136, "{}", size_of::<TestEntry>());
    }
}
