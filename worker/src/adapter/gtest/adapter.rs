//! The adapter of GoogleTest, which connects its parts.

use std::path::Path;

use model::path::Nesting;
use wire::control::{ListedTest, Program};

use super::{command, grammar, listing};
use crate::adapter::{
    Adapter, CommandError, Invocation, Listing, ListingError, ListingOutput, Transcript, shell,
};

/// The GoogleTest adapter.
pub(in crate::adapter) struct GoogleTest;

pub(super) const NAME: &str = "gtest";

/// Byte strings of GoogleTest programs: the usage text is in the library, the symbols in programs that load
/// the library.
const HINTS: [&[u8]; 3] =
    [b"gtest_list_tests", b"_ZN7testing14InitGoogleTest", b"_ZN7testing8UnitTest3RunEv"];

impl Adapter for GoogleTest {
    fn name(&self) -> &'static str {
        NAME
    }

    fn hint(&self, image: &[u8]) -> bool {
        HINTS.iter().any(|hint| memchr::memmem::find(image, hint).is_some())
    }

    fn listing(&self, _program: &Program, scratch: &Path) -> Vec<Invocation> {
        vec![command::listing(scratch)]
    }

    fn read_listing(&self, _program: &Program, outputs: &[ListingOutput]) -> Result<Listing, ListingError> {
        let tests = listing::read(outputs.first().unwrap_or(&ListingOutput::default()))?;
        Ok(Listing { framework: NAME, tests })
    }

    fn command(
        &self,
        program: &Program,
        tests: &[&ListedTest],
        scratch: &Path,
    ) -> Result<Invocation, CommandError> {
        Ok(command::run(&program.args, tests, scratch))
    }

    fn nesting(&self) -> Nesting {
        Nesting::FullStop
    }

    fn transcript(&self, tests: &[&ListedTest]) -> Box<dyn Transcript + Send> {
        Box::new(grammar::follow(tests))
    }

    fn doomed_words(&self) -> &'static [&'static str] {
        &["--gtest_internal_run_death_test"]
    }

    fn reproduce(&self, program: &Program, test: &ListedTest) -> String {
        let mut pattern = Vec::new();
        command::write_pattern(&mut pattern, &test.name);
        shell::line(program, &format!("--gtest_filter={}", shell::quote(&pattern)))
    }
}
