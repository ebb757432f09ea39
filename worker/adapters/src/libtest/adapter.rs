//! The adapters of libtest.

use std::path::Path;

use heeler_core::test_path::NameNesting;
use heeler_protocol::control::{ListedTest, SelectionLimit, TestProgram};

use super::{command, events, listing, panic, plain};
use crate::{
    Adapter, AdapterInvocation, AdapterListing, AdapterTraits, BatchSelection, ClaimConfidence,
    CommandLineError, DiscoveryTarget, FrameworkVerdict, ListingError, ListingOutput, TranscriptParser,
    shell,
};

/// The libtest adapters, by output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LibtestFormat {
    /// JSON events. Needs `RUSTC_BOOTSTRAP=1`, which the tests' child processes inherit.
    Events,
    /// Human-readable lines, with one test thread.
    Plain,
}

/// Byte strings in the usage text of libtest and of crates that imitate it, present even in stripped release
/// builds.
const HINTS: [&[u8]; 2] = [b"include-ignored", b"test-threads"];
/// Part of a symbol of programs that load libtest dynamically.
const SYMBOL: &[u8] = b"4test16test_main_static";

/// End of a line in the terse listing, in programs that print one with their own code.
const LISTED_LINE: &[u8] = b": test\n";

/// Each name costs its bytes, a terminator and a pointer.
const SELECTION_LIMIT: SelectionLimit =
    SelectionLimit { budget_bytes: command::MAX_SELECTION_BYTES, overhead_bytes: 1 + size_of::<usize>() };

static EVENTS: AdapterTraits = AdapterTraits {
    nesting: NameNesting::Colons,
    selection_limit: Some(SELECTION_LIMIT),
    // The panic message is on standard error, because the output of tests is not captured.
    details_from_stderr: Some(add_panic),
    captures_output: true,
    reports_from_one_process: true,
    is_recognized: true,
    is_own_line: |line| line.starts_with(br#"{ "type": ""#),
    ..AdapterTraits::new("libtest", "Rust test")
};

static PLAIN: AdapterTraits = AdapterTraits {
    nesting: NameNesting::Colons,
    selection_limit: Some(SELECTION_LIMIT),
    details_from_stderr: Some(add_panic),
    captures_output: true,
    reports_from_one_process: true,
    is_own_line: plain::is_own_line,
    ..AdapterTraits::new("libtest-plain", "Rust test")
};

fn add_panic(verdict: &mut FrameworkVerdict, name: &str, output: &str) {
    // The event may already contain libtest's own message, for example about a test that should have
    // panicked. Do not lose it when the panic is read from the output.
    let has_place = verdict.failures.iter().any(|failure| failure.file.is_some());
    if !has_place {
        let message = verdict.failures.pop().and_then(|failure| failure.message);
        verdict.push_failure(panic::read_failure(message, output, Some(name)));
    }
}

impl Adapter for LibtestFormat {
    fn traits(&self) -> &'static AdapterTraits {
        match self {
            Self::Events => &EVENTS,
            Self::Plain => &PLAIN,
        }
    }

    fn claims(&self, target: &DiscoveryTarget<'_>) -> ClaimConfidence {
        match (self, target) {
            // The listing of `Events` detects programs that need `Plain`.
            (Self::Plain, _) | (_, DiscoveryTarget::Directory { .. }) => ClaimConfidence::Unclaimed,
            (Self::Events, _) if HINTS.iter().all(|hint| target.contains(hint)) => ClaimConfidence::Likely,
            (Self::Events, _) if target.contains(SYMBOL) => ClaimConfidence::Likely,
            (Self::Events, _) if target.contains(LISTED_LINE) => ClaimConfidence::Possible,
            (Self::Events, _) => ClaimConfidence::Unclaimed,
        }
    }

    fn next_listing(
        &self,
        _program: &TestProgram,
        outputs: &[ListingOutput],
        _scratch: &Path,
    ) -> Option<AdapterInvocation> {
        match self {
            Self::Events => listing::next_listing(outputs),
            Self::Plain if outputs.last().is_none_or(|output| output.code == Some(0)) => {
                command::terse_listings().into_iter().nth(outputs.len())
            }
            Self::Plain => None,
        }
    }

    fn read_listing(
        &self,
        program: &TestProgram,
        outputs: &[ListingOutput],
    ) -> Result<AdapterListing, ListingError> {
        let is_framework_configured = program.framework.is_some();
        let (form, tests) = match self {
            Self::Events => listing::read(outputs, is_framework_configured)?,
            Self::Plain => (Self::Plain, listing::read_terse(outputs, is_framework_configured)?),
        };
        Ok(AdapterListing {
            framework: form.traits().name,
            tests,
            failure: None,
            warnings: Vec::new(),
            depends_on: Vec::new(),
        })
    }

    fn run_command(
        &self,
        _program: &TestProgram,
        selection: &BatchSelection<'_>,
        _scratch: &Path,
    ) -> Result<AdapterInvocation, CommandLineError> {
        command::run_command(*self, selection)
    }

    fn transcript_parser(&self, tests: &[&ListedTest]) -> Box<dyn TranscriptParser + Send> {
        match self {
            Self::Events => Box::new(events::event_parser(tests)),
            Self::Plain => Box::new(plain::plain_parser(tests)),
        }
    }

    fn reproduce_command(&self, program: &TestProgram, test: &ListedTest) -> String {
        let name = shell::quote(test.name.as_bytes());
        let ignored = if test.is_ignored() { "--include-ignored " } else { "" };
        shell::command_line(program, &format!("{ignored}--exact {name} --nocapture"))
    }
}
