//! The adapter of Boost.Test.

use std::path::Path;

use heeler_core::test_path::NameNesting;
use heeler_protocol::control::{ListedTest, ReportName, TestProgram};

use super::{command, grammar, listing, stack};
use crate::{
    Adapter, AdapterInvocation, AdapterListing, AdapterTraits, BatchSelection, ClaimConfidence,
    CommandLineError, DiscoveryTarget, ListingError, ListingOutput, StackPosition, TranscriptParser, shell,
};

pub(crate) struct BoostTest;

pub(super) const NAME: &str = "boost";

static TRAITS: AdapterTraits = AdapterTraits {
    nesting: NameNesting::Slashes,
    // Boost.Test looks for a debugger, but attaches one only if its own options request it.
    reads_tracer: true,
    is_recognized: true,
    reports_from_one_process: true,
    is_exit_placed_by_stack: true,
    ..AdapterTraits::new(NAME, "Boost.Test")
};

/// The name of an environment variable that the library reads, found in statically linked programs, and a
/// symbol of programs that load the library dynamically.
const HINTS: [&[u8]; 2] = [b"BOOST_TEST_CATCH_SYSTEM_ERRORS", b"_ZN5boost9unit_test14unit_test_main"];

impl Adapter for BoostTest {
    fn traits(&self) -> &'static AdapterTraits {
        &TRAITS
    }

    fn claims(&self, target: &DiscoveryTarget<'_>) -> ClaimConfidence {
        if HINTS.iter().any(|hint| target.contains(hint)) {
            ClaimConfidence::Likely
        } else {
            ClaimConfidence::Unclaimed
        }
    }

    /// Same names as `--log_format=JUNIT`, which replaces the same characters.
    fn report_name(&self, _program: &TestProgram, test: &ListedTest) -> Option<ReportName> {
        let (suites, name) = test.name.rsplit_once('/').unwrap_or(("", &test.name));
        let normalized = |text: &str| text.replace('/', ".").replace(' ', "_");
        Some(ReportName { class: normalized(suites), name: normalized(name) })
    }

    fn next_listing(
        &self,
        _program: &TestProgram,
        outputs: &[ListingOutput],
        _scratch: &Path,
    ) -> Option<AdapterInvocation> {
        outputs.is_empty().then(command::listing_command)
    }

    fn read_listing(
        &self,
        _program: &TestProgram,
        outputs: &[ListingOutput],
    ) -> Result<AdapterListing, ListingError> {
        AdapterListing::of_one_command(NAME, outputs, listing::read)
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
        Box::new(grammar::boost_parser(tests))
    }

    fn stack_position(&self, stack: &str, test: Option<&ListedTest>) -> StackPosition {
        stack::stack_position(stack, test.map(|test| test.name.as_str()))
    }

    fn reproduce_command(&self, program: &TestProgram, test: &ListedTest) -> String {
        let filter = format!("--run_test={}", test.name);
        // As in a run, a signal kills the process.
        let words = format!("--catch_system_errors=no {}", shell::quote(filter.as_bytes()));
        shell::command_line(program, &words)
    }
}
