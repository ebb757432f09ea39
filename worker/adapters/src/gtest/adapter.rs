//! The adapter of GoogleTest, which connects its parts.

use std::path::Path;

use heeler_core::test_path::NameNesting;
use heeler_protocol::control::{ListedTest, TestProgram};

use super::{command, grammar, listing};
use crate::{
    Adapter, AdapterInvocation, AdapterListing, CommandLineError, ListingError, ListingOutput,
    TranscriptParser, shell,
};

/// The GoogleTest adapter.
pub(crate) struct GoogleTest;

pub(super) const NAME: &str = "gtest";

/// Byte strings of GoogleTest programs: the usage text is in the library, the symbols in programs that load
/// the library.
const HINTS: [&[u8]; 3] =
    [b"gtest_list_tests", b"_ZN7testing14InitGoogleTest", b"_ZN7testing8UnitTest3RunEv"];

impl Adapter for GoogleTest {
    fn name(&self) -> &'static str {
        NAME
    }

    fn looks_like(&self, image: &[u8]) -> bool {
        HINTS.iter().any(|hint| memchr::memmem::find(image, hint).is_some())
    }

    fn listing_commands(&self, _program: &TestProgram, scratch: &Path) -> Vec<AdapterInvocation> {
        vec![command::listing_command(scratch)]
    }

    fn read_listing(
        &self,
        _program: &TestProgram,
        outputs: &[ListingOutput],
    ) -> Result<AdapterListing, ListingError> {
        let tests = listing::read(outputs.first().unwrap_or(&ListingOutput::default()))?;
        Ok(AdapterListing { framework: NAME, tests })
    }

    fn run_command(
        &self,
        program: &TestProgram,
        tests: &[&ListedTest],
        scratch: &Path,
    ) -> Result<AdapterInvocation, CommandLineError> {
        Ok(command::run_command(&program.args, tests, scratch))
    }

    fn nesting(&self) -> NameNesting {
        NameNesting::FullStop
    }

    fn transcript_parser(&self, tests: &[&ListedTest]) -> Box<dyn TranscriptParser + Send> {
        Box::new(grammar::gtest_parser(tests))
    }

    fn expected_crash_markers(&self) -> &'static [&'static str] {
        &["--gtest_internal_run_death_test"]
    }

    fn reproduce_command(&self, program: &TestProgram, test: &ListedTest) -> String {
        let mut pattern = Vec::new();
        command::write_pattern(&mut pattern, &test.name);
        shell::command_line(program, &format!("--gtest_filter={}", shell::quote(&pattern)))
    }
}
