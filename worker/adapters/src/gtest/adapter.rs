//! The adapter of GoogleTest, which connects its parts.

use std::path::Path;

use heeler_core::test_path::NameNesting;
use heeler_protocol::control::{ListedTest, TestProgram};

use super::{command, failure, grammar, listing, report};
use crate::{
    Adapter, AdapterInvocation, AdapterListing, AdapterTraits, ClaimConfidence, CommandLineError,
    DiscoveryTarget, ListingError, ListingOutput, RunReport, StackPosition, TranscriptParser, shell,
};

/// The GoogleTest adapter.
pub(crate) struct GoogleTest;

pub(super) const NAME: &str = "gtest";

static TRAITS: AdapterTraits = AdapterTraits {
    nesting: NameNesting::FullStop,
    expected_crash_markers: &["--gtest_internal_run_death_test"],
    ..AdapterTraits::new(NAME, "GoogleTest")
};

/// Byte strings of GoogleTest programs: the usage text is in the library, the symbols in programs that load
/// the library.
const HINTS: [&[u8]; 3] =
    [b"gtest_list_tests", b"_ZN7testing14InitGoogleTest", b"_ZN7testing8UnitTest3RunEv"];

impl Adapter for GoogleTest {
    fn traits(&self) -> &'static AdapterTraits {
        &TRAITS
    }

    fn claims(&self, target: &DiscoveryTarget<'_>) -> ClaimConfidence {
        match target {
            DiscoveryTarget::Directory { .. } => ClaimConfidence::Unclaimed,
            _ if HINTS.iter().any(|hint| target.contains(hint)) => ClaimConfidence::Likely,
            DiscoveryTarget::Executable { .. } | DiscoveryTarget::Command { .. } => ClaimConfidence::Possible,
        }
    }

    fn next_listing(
        &self,
        _program: &TestProgram,
        outputs: &[ListingOutput],
        scratch: &Path,
    ) -> Option<AdapterInvocation> {
        outputs.is_empty().then(|| command::listing_command(scratch))
    }

    fn read_listing(
        &self,
        _program: &TestProgram,
        outputs: &[ListingOutput],
    ) -> Result<AdapterListing, ListingError> {
        AdapterListing::of_one_command(NAME, outputs, listing::read)
    }

    fn run_command(
        &self,
        program: &TestProgram,
        tests: &[&ListedTest],
        scratch: &Path,
    ) -> Result<AdapterInvocation, CommandLineError> {
        Ok(command::run_command(&program.args, tests, scratch))
    }

    fn transcript_parser(&self, tests: &[&ListedTest]) -> Box<dyn TranscriptParser + Send> {
        Box::new(grammar::gtest_parser(tests))
    }

    fn read_run_report(&self, tests: &[&ListedTest], report: &[u8]) -> Option<RunReport> {
        report::read(tests, report)
    }

    fn stack_position(&self, stack: &str, test: Option<&ListedTest>) -> StackPosition {
        failure::stack_position(stack, test.map(|test| test.name.as_str()))
    }

    fn reproduce_command(&self, program: &TestProgram, test: &ListedTest) -> String {
        let mut pattern = Vec::new();
        command::write_pattern(&mut pattern, &test.name);
        shell::command_line(program, &format!("--gtest_filter={}", shell::quote(&pattern)))
    }
}
