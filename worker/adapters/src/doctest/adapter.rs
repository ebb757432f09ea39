//! The adapter of doctest.

use std::path::Path;

use heeler_protocol::control::{ListedTest, ReportName, TestProgram};

use super::{
    command::{self, SkippedTests},
    grammar, listing,
};
use crate::{
    Adapter, AdapterInvocation, AdapterListing, AdapterTraits, BatchSelection, ClaimConfidence,
    CommandLineError, DiscoveryTarget, ListingError, ListingOutput, TranscriptParser, shell,
};

pub(crate) struct Doctest;

pub(super) const NAME: &str = "doctest";

static TRAITS: AdapterTraits = AdapterTraits {
    // doctest would break into a debugger, which `--dt-no-breaks` prevents.
    reads_tracer: true,
    is_recognized: true,
    reports_from_one_process: true,
    has_parts: true,
    ..AdapterTraits::new(NAME, "doctest")
};

/// Options in the usage text of the library, which most programs contain.
const HINTS: [&[u8]; 2] = [b"dt-no-exitcode", b"dt-list-test-cases"];
/// Symbol of programs that load a library with doctest.
const SYMBOL: &[u8] = b"_ZN7doctest6detail7regTestE";

impl Adapter for Doctest {
    fn traits(&self) -> &'static AdapterTraits {
        &TRAITS
    }

    fn claims(&self, target: &DiscoveryTarget<'_>) -> ClaimConfidence {
        if HINTS.iter().all(|hint| target.contains(hint)) || target.contains(SYMBOL) {
            ClaimConfidence::Likely
        } else {
            ClaimConfidence::Unclaimed
        }
    }

    /// As in `--reporters=junit`, where the class is the file.
    fn report_name(&self, _program: &TestProgram, test: &ListedTest) -> Option<ReportName> {
        Some(ReportName { class: test.framework_file()?.to_owned(), name: test.name.clone() })
    }

    fn next_listing(
        &self,
        _program: &TestProgram,
        outputs: &[ListingOutput],
        _scratch: &Path,
    ) -> Option<AdapterInvocation> {
        match outputs {
            [] => Some(command::listing_command()),
            // This doctest version does not list which tests are skipped.
            [all] if listing::lacks_skips(all) => Some(command::listing_command_without_skipped()),
            _ => None,
        }
    }

    fn read_listing(
        &self,
        _program: &TestProgram,
        outputs: &[ListingOutput],
    ) -> Result<AdapterListing, ListingError> {
        let (all, not_skipped) = outputs.split_at(outputs.len().min(1));
        AdapterListing::of_one_command(NAME, all, |all| listing::read(all, not_skipped.first()))
    }

    fn selectable_together(&self, tests: &[&ListedTest]) -> usize {
        command::selectable_together(tests)
    }

    fn run_command(
        &self,
        _program: &TestProgram,
        selection: &BatchSelection<'_>,
        _scratch: &Path,
    ) -> Result<AdapterInvocation, CommandLineError> {
        command::run_command(selection)
    }

    fn transcript_parser(&self, tests: &[&ListedTest]) -> Box<dyn TranscriptParser + Send> {
        Box::new(grammar::doctest_parser(tests))
    }

    fn reproduce_command(&self, program: &TestProgram, test: &ListedTest) -> String {
        let words: Vec<_> = command::words(&[test], SkippedTests::LeftOut)
            .iter()
            .map(|word| shell::quote(word.as_bytes()))
            .collect();
        shell::command_line(program, &words.join(" "))
    }
}
