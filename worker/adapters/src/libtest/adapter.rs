//! The adapters of libtest, which connect its parts.

use std::path::Path;

use heeler_core::test_path::NameNesting;
use heeler_protocol::{
    control::{ListedTest, TestProgram},
    mtp::ExecutionState,
};

use super::{command, events, listing, panic, plain};
use crate::{
    Adapter, AdapterInvocation, AdapterListing, CommandLineError, FrameworkVerdict, ListingError,
    ListingOutput, TranscriptParser, shell,
};

/// The libtest adapters, by output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LibtestFormat {
    /// JSON events. Needs `RUSTC_BOOTSTRAP=1`, which the test's own children then inherit too.
    Events,
    /// Human-readable lines, from one thread.
    Plain,
}

/// Byte strings in the usage text of libtest itself and of crates that imitate it, also in stripped release
/// programs.
const HINTS: [&[u8]; 2] = [b"include-ignored", b"test-threads"];

impl Adapter for LibtestFormat {
    fn name(&self) -> &'static str {
        match self {
            Self::Events => "libtest",
            Self::Plain => "libtest-plain",
        }
    }

    fn looks_like(&self, image: &[u8]) -> bool {
        HINTS.iter().all(|hint| memchr::memmem::find(image, hint).is_some())
    }

    fn listing_commands(&self, _program: &TestProgram, _scratch: &Path) -> Vec<AdapterInvocation> {
        match self {
            Self::Events => command::listing_commands(),
            Self::Plain => command::listing_commands().split_off(1),
        }
    }

    fn needs_next_listing(&self, outputs: &[ListingOutput]) -> bool {
        match self {
            Self::Events => listing::needs_next_listing(outputs),
            Self::Plain => outputs.last().is_none_or(|output| output.code == Some(0)),
        }
    }

    fn read_listing(
        &self,
        program: &TestProgram,
        outputs: &[ListingOutput],
    ) -> Result<AdapterListing, ListingError> {
        let is_told = program.framework.is_some();
        let (form, tests) = match self {
            Self::Events => listing::read(outputs, is_told)?,
            Self::Plain => (Self::Plain, listing::read_terse(outputs, is_told)?),
        };
        Ok(AdapterListing { framework: form.name(), tests })
    }

    fn selection_cost(&self, test: &ListedTest) -> usize {
        command::selection_cost(&test.name)
    }

    fn selection_budget(&self) -> usize {
        command::MAX_SELECTION_BYTES
    }

    fn run_command(
        &self,
        _program: &TestProgram,
        tests: &[&ListedTest],
        _scratch: &Path,
    ) -> Result<AdapterInvocation, CommandLineError> {
        command::run_command(*self, tests)
    }

    fn nesting(&self) -> NameNesting {
        NameNesting::Colons
    }

    fn transcript_parser(&self, tests: &[&ListedTest]) -> Box<dyn TranscriptParser + Send> {
        match self {
            Self::Events => Box::new(events::event_parser(tests)),
            Self::Plain => Box::new(plain::plain_parser(tests)),
        }
    }

    fn complete_verdict(&self, verdict: &mut FrameworkVerdict, stderr: &str) {
        if *self == Self::Plain && verdict.state == ExecutionState::Failed && verdict.message.is_none() {
            panic::complete(verdict, stderr, None);
        }
    }

    fn reproduce_command(&self, program: &TestProgram, test: &ListedTest) -> String {
        let name = shell::quote(test.name.as_bytes());
        shell::command_line(program, &format!("--exact {name} --nocapture"))
    }
}
