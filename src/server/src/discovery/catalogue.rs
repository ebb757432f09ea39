//! Catalogue of programs and their tests, indexed by uid. A listing stays valid while the program's file is
//! unchanged.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    time::Duration,
};

use heeler_core::{
    batching::ProcessTraits,
    test_path::{NameNesting, PARAMETER_SEPARATOR, TestPath},
};
use heeler_protocol::{
    control::{ListedTest, OsText, SelectionLimit, TestProgram},
    mtp::NodeDescription,
};

use super::{
    entries::join_entries,
    file_identity::{ProgramIdentity, program_identity},
    group_locations::{GroupLocation, GroupLocations},
    test_entry::{SUITE_SEPARATOR, TestEntry, assign_uids},
};

/// A program to list and run, as specified by the configuration or the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramSource {
    /// How the program is started.
    pub program: TestProgram,
    /// Name of the `[[suite]]` table that the program comes from, which selects that suite's settings.
    pub config_suite: Option<String>,
}

/// The state of a program's test listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListingState {
    /// The program has not been listed yet.
    Unknown,
    /// The program was listed.
    Listed {
        /// Name of the framework.
        framework: String,
        /// How test names are split into groups.
        nesting: NameNesting,
        /// Limit on the size of the test names in one batch.
        selection_limit: Option<SelectionLimit>,
        /// Tests in the framework's order, shared with other catalogues of the program.
        tests: Arc<[TestEntry]>,
        /// Time from process start to the first test, as measured by the listing.
        start: Duration,
        /// How the listing process failed after it had listed all tests.
        failure: Option<Arc<str>>,
        /// Problems of the program that do not prevent its tests from running.
        warnings: Arc<[String]>,
        process: ProcessTraits,
    },
    /// The listing failed.
    Broken {
        /// The reason, as one sentence.
        error: String,
    },
}

/// A program's listing, as reported by a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramListing {
    /// Name of the framework.
    pub framework: String,
    /// How test names are split into groups.
    pub nesting: NameNesting,
    /// Limit on the size of the test names in one batch; `None` if names are not passed on the command line.
    pub selection_limit: Option<SelectionLimit>,
    /// Tests in the framework's order.
    pub tests: Vec<ListedTest>,
    /// Time from process start to the first test, as measured by the listing.
    pub start: Duration,
    /// How the listing process failed after it had listed all tests, as one sentence.
    pub failure: Option<String>,
    /// Problems of the program that do not prevent its tests from running.
    pub warnings: Vec<String>,
    /// Files and directories besides the program whose change may change its tests.
    pub depends_on: Vec<OsText>,
    pub process: ProcessTraits,
}

/// A program and the state of its listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramEntry {
    /// The program as specified by the configuration or the command line.
    pub source: ProgramSource,
    pub listing: ListingState,
    identity: ProgramIdentity,
    /// Files and directories that the listing depends on besides the program, as reported by the listing.
    depends_on: Arc<[OsText]>,
}

impl ProgramEntry {
    /// Returns whether the listing, or its failure, belongs to the program's current file.
    #[must_use]
    pub(crate) fn is_current(&self) -> bool {
        !matches!(self.listing, ListingState::Unknown)
            && self.identity == program_identity(&self.source.program, &self.depends_on)
    }

    /// Returns whether both entries start the same program in the same way. Only their suites may differ.
    #[must_use]
    pub(crate) fn is_same_program(&self, other: &Self) -> bool {
        let (one, other) = (&self.source.program, &other.source.program);
        one.path == other.path
            && one.args == other.args
            && one.tool_env == other.tool_env
            && one.env == other.env
            && one.cwd == other.cwd
            && one.framework == other.framework
            && one.test_arguments == other.test_arguments
            && one.unbuilt == other.unbuilt
            && one.entries == other.entries
    }
}

/// Index of a test in the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TestRef {
    /// Index of the program.
    pub program: usize,
    /// Index in the listing; `None` for a program whose listing failed.
    pub test: Option<usize>,
}

/// All programs of a session and their tests.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    programs: Vec<ProgramEntry>,
    /// Sorted by hashes of the uids. The uids themselves are stored with the programs, not duplicated here.
    by_uid: Vec<(u64, TestRef)>,
    group_locations: GroupLocations,
    hasher: RandomState,
}

impl Catalogue {
    /// Returns a catalogue of unlisted programs. Repeated suite names get a number appended.
    #[must_use]
    pub fn new(sources: Vec<ProgramSource>) -> Self {
        let mut seen: HashMap<String, u32> = HashMap::new();
        let programs = sources
            .into_iter()
            .map(|mut source| {
                let times = seen.entry(source.program.suite.clone()).or_default();
                *times += 1;
                if *times > 1 {
                    source.program.suite = format!("{}#{times}", source.program.suite);
                }
                ProgramEntry {
                    source,
                    listing: ListingState::Unknown,
                    identity: ProgramIdentity::default(),
                    depends_on: Arc::default(),
                }
            })
            .collect();
        Self { programs, ..Self::default() }
    }

    #[must_use]
    pub fn programs(&self) -> &[ProgramEntry] {
        &self.programs
    }

    /// Returns the programs whose listing is missing, failed or outdated.
    #[must_use]
    pub fn unlisted(&self) -> Vec<usize> {
        let is_unlisted = |entry: &ProgramEntry| {
            !matches!(entry.listing, ListingState::Listed { .. }) || !entry.is_current()
        };
        (0..self.programs.len()).filter(|place| is_unlisted(&self.programs[*place])).collect()
    }

    /// Records a program's listing, or why it failed.
    pub(crate) fn record_listing(&mut self, program: usize, answer: Result<ProgramListing, String>) {
        let entry = &mut self.programs[program];
        if let Ok(listing) = &answer {
            entry.depends_on = listing.depends_on.as_slice().into();
        }
        entry.identity = program_identity(&entry.source.program, &entry.depends_on);
        entry.listing = match answer {
            Ok(listing) => ListingState::Listed {
                framework: listing.framework,
                nesting: listing.nesting,
                selection_limit: listing.selection_limit,
                tests: assign_uids(
                    &entry.source.program.suite,
                    join_entries(&entry.source.program.entries, listing.tests),
                )
                .into(),
                start: listing.start,
                failure: listing.failure.map(Arc::from),
                warnings: listing.warnings.into(),
                process: listing.process,
            },
            Err(error) => ListingState::Broken { error },
        };
    }

    /// Adopts the same program's listing from another catalogue. Uids use this catalogue's suite name.
    pub(crate) fn adopt_listing(&mut self, program: usize, other: &ProgramEntry) {
        let entry = &mut self.programs[program];
        entry.identity.clone_from(&other.identity);
        entry.depends_on = Arc::clone(&other.depends_on);
        entry.listing = other.listing.clone();
        let suite = &entry.source.program.suite;
        if let ListingState::Listed { tests, .. } = &mut entry.listing
            && *suite != other.source.program.suite
        {
            *tests = assign_uids(suite, tests.iter().map(TestEntry::listed).collect()).into();
        }
    }

    /// Returns a catalogue of other programs, keeping the listings of programs that are in both.
    #[must_use]
    pub(crate) fn with_sources(&self, sources: Vec<ProgramSource>) -> Self {
        let mut catalogue = Self::new(sources);
        for place in 0..catalogue.programs.len() {
            let own = &catalogue.programs[place];
            if let Some(known) = self.programs.iter().find(|known| known.is_same_program(own)) {
                catalogue.adopt_listing(place, known);
            }
        }
        catalogue.rebuild_index();
        catalogue
    }

    /// Rebuilds the uid index and the group locations. Must be called after listings have changed.
    pub(crate) fn rebuild_index(&mut self) {
        let hashed = |place| (self.hasher.hash_one(self.uid(place)), place);
        let mut by_uid: Vec<_> = self.all().map(hashed).collect();
        by_uid.sort_unstable();
        let mut group_locations = GroupLocations::default();
        for place in self.all() {
            if let Some(test) = self.test(place) {
                let groups = self.groups(place);
                group_locations.add(groups.into_iter().map(|(uid, _)| uid), test.shared_file(), test.line());
            }
        }
        (self.by_uid, self.group_locations) = (by_uid, group_locations);
    }

    /// Returns every test, and every program whose listing failed, in order.
    pub fn all(&self) -> impl Iterator<Item = TestRef> + '_ {
        self.programs.iter().enumerate().flat_map(|(program, entry)| {
            let (count, is_broken) = match &entry.listing {
                ListingState::Listed { tests, .. } => (tests.len(), false),
                ListingState::Broken { .. } => (0, true),
                ListingState::Unknown => (0, false),
            };
            (0..count).map(Some).chain(is_broken.then_some(None)).map(move |test| TestRef { program, test })
        })
    }

    #[must_use]
    pub fn find(&self, uid: &str) -> Option<TestRef> {
        let hash = self.hasher.hash_one(uid);
        let first = self.by_uid.partition_point(|(known, _)| *known < hash);
        let alike = self.by_uid[first..].iter().take_while(|(known, _)| *known == hash);
        // A program rebuilt in the meantime may have fewer tests.
        alike.map(|(_, place)| *place).find(|place| self.contains(*place) && self.uid(*place) == uid)
    }

    /// Returns whether the index still refers to a test, or to a program whose listing failed.
    #[must_use]
    pub fn contains(&self, place: TestRef) -> bool {
        match (&self.programs[place.program].listing, place.test) {
            (ListingState::Listed { tests, .. }, Some(test)) => test < tests.len(),
            (ListingState::Broken { .. }, None) => true,
            (ListingState::Listed { .. } | ListingState::Unknown, None)
            | (ListingState::Broken { .. } | ListingState::Unknown, Some(_)) => false,
        }
    }

    /// Returns the test; `None` for a program whose listing failed.
    #[must_use]
    pub fn test(&self, place: TestRef) -> Option<&TestEntry> {
        match &self.programs[place.program].listing {
            ListingState::Listed { tests, .. } => tests.get(place.test?),
            ListingState::Unknown | ListingState::Broken { .. } => None,
        }
    }

    /// Returns the uid of a test. For a program whose listing failed, returns the suite name.
    #[must_use]
    pub fn uid(&self, place: TestRef) -> &str {
        self.test(place).map_or(self.suite(place), TestEntry::uid)
    }

    /// Returns the suite name of a test.
    #[must_use]
    pub fn suite(&self, place: TestRef) -> &str {
        &self.programs[place.program].source.program.suite
    }

    /// Returns the name of the configured suite that a test's program comes from.
    #[must_use]
    pub fn config_suite(&self, place: TestRef) -> Option<&str> {
        self.programs[place.program].source.config_suite.as_deref()
    }

    /// Returns a test's path in the test tree. A program whose listing failed is a suite without cases.
    #[must_use]
    pub fn path(&self, place: TestRef) -> TestPath<'_> {
        let entry = &self.programs[place.program];
        let suite = &entry.source.program.suite;
        match (self.test(place), &entry.listing) {
            (Some(test), ListingState::Listed { nesting, .. }) => TestPath::new(*nesting, suite, test.name()),
            _ => TestPath { suite, groups: Vec::new(), case: "" },
        }
    }

    /// Returns uid and name of each group that contains this test, outermost first. A group's uid is the
    /// common prefix of its tests' uids. A program whose listing failed is at the top of the tree and has no
    /// groups.
    #[must_use]
    pub fn groups(&self, place: TestRef) -> Vec<(&str, &str)> {
        let (Some(test), ListingState::Listed { nesting, .. }) =
            (self.test(place), &self.programs[place.program].listing)
        else {
            return Vec::new();
        };
        let path = self.path(place);
        let mut end = path.suite.len() + SUITE_SEPARATOR.len();
        let mut groups = vec![(&test.uid()[..end], path.suite)];
        for name in path.groups {
            end += name.len() + nesting.separator().len();
            groups.push((&test.uid()[..end], name));
        }
        if let Some(name) = nesting.parameterised_name(path.case) {
            end += name.len() + PARAMETER_SEPARATOR.len();
            groups.push((&test.uid()[..end], name));
        }
        groups
    }

    /// Returns the source file and first line of a group if all of its tests, selected or not, are in one
    /// file.
    #[must_use]
    pub(crate) fn group_location(&self, uid: &str) -> Option<GroupLocation<'_>> {
        self.group_locations.get(uid)
    }

    /// Returns the tests with the requested uids in catalogue order without duplicates, and the unknown uids.
    /// A group uid selects all tests of the group.
    #[must_use]
    pub fn select(&self, uids: &[String]) -> (Vec<TestRef>, Vec<String>) {
        let mut selected = Vec::with_capacity(uids.len());
        let mut unknown: HashMap<&str, bool> = HashMap::new();
        for uid in uids {
            match self.find(uid) {
                Some(place) => selected.push(place),
                None => drop(unknown.insert(uid, false)),
            }
        }
        if !unknown.is_empty() {
            for place in self.all() {
                for (group, _) in self.groups(place) {
                    if let Some(is_found) = unknown.get_mut(group) {
                        *is_found = true;
                        selected.push(place);
                    }
                }
            }
        }
        selected.sort_unstable();
        selected.dedup();
        let missing = unknown.into_iter().filter(|(_, is_found)| !is_found);
        let mut missing: Vec<_> = missing.map(|(uid, _)| uid.to_owned()).collect();
        missing.sort_unstable();
        (selected, missing)
    }

    /// Calls `render` with the description of a test, or of a program whose listing failed.
    pub fn with_description<T>(&self, place: TestRef, render: impl FnOnce(&NodeDescription<'_>) -> T) -> T {
        let program = &self.programs[place.program].source.program;
        let path = program.path.to_text();
        let listed = self.test(place).map(TestEntry::listed).unwrap_or_default();
        let uid = self.uid(place);
        let name = if listed.name.is_empty() { uid } else { &listed.name };
        let groups = self.groups(place);
        render(&NodeDescription {
            uid,
            display_name: listed.display.as_deref().unwrap_or(name),
            report_name: listed.report_name.as_ref(),
            parent: groups.last().map(|(group, _)| *group),
            suite: &program.suite,
            program: &path,
            framework: self.framework(place),
            file: listed.file.as_deref(),
            line: listed.line,
            traits: &listed.traits,
            client_members: None,
        })
    }

    /// Returns the framework that listed the program; empty if there is none.
    fn framework(&self, place: TestRef) -> &str {
        match &self.programs[place.program].listing {
            ListingState::Listed { framework, .. } => framework,
            ListingState::Broken { .. } | ListingState::Unknown => "",
        }
    }

    /// Returns why the listing of a program failed; `None` for a test.
    #[must_use]
    pub fn listing_error(&self, place: TestRef) -> Option<&str> {
        match (&self.programs[place.program].listing, place.test) {
            (ListingState::Broken { error }, None) => Some(error),
            (ListingState::Broken { .. } | ListingState::Listed { .. } | ListingState::Unknown, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use heeler_protocol::control::OsText;

    use super::*;

    fn source(suite: &str, path: &str) -> ProgramSource {
        let program = TestProgram {
            suite: suite.to_owned(),
            path: OsText::from(path),
            args: Vec::new(),
            tool_env: Vec::new(),
            env: Vec::new(),
            cwd: OsText::from("/"),
            framework: None,
            test_arguments: std::collections::BTreeMap::new(),
            entries: Vec::new(),
            unbuilt: None,
            reproduction: Default::default(),
            resources: Default::default(),
        };
        ProgramSource { program, config_suite: None }
    }

    fn program_listing(tests: Vec<ListedTest>) -> ProgramListing {
        ProgramListing {
            framework: "gtest".to_owned(),
            nesting: NameNesting::FullStop,
            selection_limit: None,
            tests,
            start: Duration::ZERO,
            failure: None,
            warnings: Vec::new(),
            depends_on: Vec::new(),
            process: ProcessTraits::default(),
        }
    }

    fn listed(name: &str) -> ListedTest {
        ListedTest { name: name.to_owned(), ..ListedTest::default() }
    }

    #[test]
    fn uids_are_unique_and_resolvable() {
        let mut catalogue =
            Catalogue::new(vec![source("a", "/bin/true"), source("a", "/bin/false"), source("b", "/x")]);
        let tests = || vec![listed("t"), listed("u"), listed("t")];
        catalogue.record_listing(0, Ok(program_listing(tests())));
        catalogue.record_listing(1, Ok(program_listing(tests())));
        catalogue.record_listing(2, Err("missing".into()));
        catalogue.rebuild_index();
        let uids: Vec<_> = catalogue.all().map(|place| catalogue.uid(place)).collect();
        assert_eq!(uids, ["a::t", "a::u", "a::t#2", "a#2::t", "a#2::u", "a#2::t#2", "b"]);
        for (uid, place) in uids.iter().zip(catalogue.all()) {
            assert_eq!(catalogue.find(uid), Some(place));
        }
        let second = catalogue.test(catalogue.find("a::t#2").unwrap()).unwrap();
        assert!(second.unrunnable().unwrap().contains("rename this test (number 2)"));
    }

    #[test]
    fn listing_is_out_of_date_when_what_it_depends_on_has_changed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("test_a.py");
        std::fs::write(&file, "one").unwrap();
        let mut catalogue = Catalogue::new(vec![source("a", "/bin/true")]);
        let list = |catalogue: &mut Catalogue| {
            let depends_on = vec![OsText::from(file.as_path()), OsText::from(dir.path())];
            catalogue
                .record_listing(0, Ok(ProgramListing { depends_on, ..program_listing(vec![listed("t")]) }));
            assert!(catalogue.unlisted().is_empty());
        };
        list(&mut catalogue);
        std::fs::write(&file, "longer").unwrap();
        assert_eq!(catalogue.unlisted(), [0], "a file has changed");
        list(&mut catalogue);
        std::fs::create_dir(dir.path().join("new")).unwrap();
        assert_eq!(catalogue.unlisted(), [0], "a directory has changed");
        list(&mut catalogue);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(catalogue.unlisted(), [0], "a file is gone");
    }

    #[test]
    fn test_path_has_suite_and_class() {
        let mut catalogue = Catalogue::new(vec![source("a", "/bin/true"), source("b", "/x")]);
        catalogue.record_listing(0, Ok(program_listing(vec![listed("P/C/0.t/1"), listed("P/C/0.t/1")])));
        catalogue.record_listing(1, Err("missing".into()));
        let paths: Vec<Vec<_>> =
            catalogue.all().map(|place| catalogue.path(place).segments().collect()).collect();
        assert_eq!(paths, [vec!["a", "P/C/0", "t/1"], vec!["a", "P/C/0", "t/1"], vec!["b", ""]]);
    }

    #[test]
    fn group_uid_is_prefix_and_selects_its_tests() {
        let mut catalogue = Catalogue::new(vec![source("a", "/bin/true"), source("b", "/x")]);
        let colons = |tests| ProgramListing { nesting: NameNesting::Colons, ..program_listing(tests) };
        let names = ["m::n::t", "m::n::t", "m::u", "mm::t", "v"].map(listed);
        catalogue.record_listing(0, Ok(colons(names.to_vec())));
        catalogue.record_listing(1, Err("missing".into()));
        catalogue.rebuild_index();
        let all: Vec<_> = catalogue.all().collect();
        assert_eq!(catalogue.groups(all[1]), [("a::", "a"), ("a::m::", "m"), ("a::m::n::", "n")]);
        assert_eq!(catalogue.groups(all[4]), [("a::", "a")]);
        assert!(catalogue.groups(all[5]).is_empty());
        let select = |uids: &[&str]| {
            let uids: Vec<_> = uids.iter().map(|uid| (*uid).to_owned()).collect();
            let (selected, missing) = catalogue.select(&uids);
            let uids: Vec<_> = selected.into_iter().map(|place| catalogue.uid(place)).collect();
            (uids.join(" "), missing.join(" "))
        };
        assert_eq!(select(&["a::m::"]).0, "a::m::n::t a::m::n::t#2 a::m::u");
        assert_eq!(select(&["a::v", "a::m::n::", "a::m::n::t", "b"]).0, "a::m::n::t a::m::n::t#2 a::v b");
        assert_eq!(select(&["a::m", "x", "x", "a::"]).1, "a::m x");
        let parent = |place| {
            catalogue.with_description(place, |test| test.parent.map(str::to_owned)).unwrap_or_default()
        };
        assert_eq!(
            (parent(all[0]), parent(all[4]), parent(all[5])),
            ("a::m::n::".into(), "a::".into(), String::new())
        );
    }

    #[test]
    fn parameterised_test_is_a_group_of_its_instances() {
        let mut catalogue = Catalogue::new(vec![source("a", "/bin/true")]);
        let names = ["I/C.t/0", "I/C.t/1", "I/C.u/x", "C/0.v", "C.w"].map(listed);
        catalogue.record_listing(0, Ok(program_listing(names.to_vec())));
        catalogue.rebuild_index();
        let groups = |uid: &str| {
            let groups = catalogue.groups(catalogue.find(uid).unwrap());
            groups.into_iter().map(|(uid, name)| format!("{uid} {name}")).collect::<Vec<_>>()
        };
        assert_eq!(groups("a::I/C.t/1"), ["a:: a", "a::I/C. I/C", "a::I/C.t/ t"]);
        assert_eq!(groups("a::I/C.u/x"), ["a:: a", "a::I/C. I/C", "a::I/C.u/ u"]);
        assert_eq!(groups("a::C/0.v"), ["a:: a", "a::C/0. C/0"]);
        assert_eq!(groups("a::C.w"), ["a:: a", "a::C. C"]);
        let (selected, missing) = catalogue.select(&["a::I/C.t/".to_owned()]);
        assert_eq!((selected.len(), missing.len()), (2, 0));
    }

    #[test]
    fn listing_is_valid_until_file_changes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut catalogue = Catalogue::new(vec![source("a", file.path().to_str().unwrap())]);
        assert_eq!(catalogue.unlisted(), [0]);
        catalogue.record_listing(0, Ok(program_listing(vec![listed("t")])));
        assert!(catalogue.unlisted().is_empty());
        std::fs::write(file.path(), "changed").unwrap();
        assert_eq!(catalogue.unlisted(), [0]);
    }
}
