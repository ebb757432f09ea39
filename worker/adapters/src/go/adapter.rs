//! The adapters of Go.

use std::path::Path;

use heeler_core::test_path::NameNesting;
use heeler_protocol::control::{ListedTest, TestProgram};

use super::{command, death, goroutines, listing, program::GoTestProgram, race, transcript::GoParser};
use crate::{
    Adapter, AdapterInvocation, AdapterListing, AdapterTraits, BatchSelection, ClaimConfidence,
    CommandLineError, DiscoveryTarget, ListingError, ListingOutput, RuntimeStack, TranscriptParser, shell,
};

/// The Go adapters, by report format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Go {
    /// Each report begins with a marker byte, since Go 1.20.
    Framed,
    /// Reports are plain lines in the output of the tests, before Go 1.20.
    Plain,
}

const fn traits(name: &'static str) -> AdapterTraits {
    AdapterTraits {
        nesting: NameNesting::Flat,
        selection_limit: Some(command::SELECTION_LIMIT),
        details_from_stderr: Some(race::add_data_races),
        // The Go runtime constantly interrupts its threads with signals, and a tracer would stop at each of
        // them. Go's own stack traces are also better.
        reports_own_crashes: true,
        has_parts: true,
        ..AdapterTraits::new(name, "Go test")
    }
}

static FRAMED: AdapterTraits = traits("go");
static PLAIN: AdapterTraits = traits("go-plain");

impl Go {
    fn of_program(program: &GoTestProgram) -> Self {
        if program.is_framed() { Self::Framed } else { Self::Plain }
    }
}

impl Adapter for Go {
    fn traits(&self) -> &'static AdapterTraits {
        match self {
            Self::Framed => &FRAMED,
            Self::Plain => &PLAIN,
        }
    }

    fn claims(&self, target: &DiscoveryTarget<'_>) -> ClaimConfidence {
        let found = match target {
            DiscoveryTarget::File { path } => GoTestProgram::read(path),
            DiscoveryTarget::Executable { .. }
            | DiscoveryTarget::Directory { .. }
            | DiscoveryTarget::Command { .. } => None,
        };
        if found.is_some_and(|program| Self::of_program(&program) == *self) {
            ClaimConfidence::Likely
        } else {
            ClaimConfidence::Unclaimed
        }
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
        program: &TestProgram,
        outputs: &[ListingOutput],
    ) -> Result<AdapterListing, ListingError> {
        let file = GoTestProgram::read(program.path.as_path());
        // A user who configures the framework need not know the Go version.
        let framework = file.as_ref().map_or(*self, Self::of_program).traits().name;
        let nothing = ListingOutput::default();
        let (tests, failure) = listing::read(framework, outputs.first().unwrap_or(&nothing), file.as_ref())?;
        Ok(AdapterListing { framework, tests, failure, warnings: Vec::new(), depends_on: Vec::new() })
    }

    fn run_command(
        &self,
        _program: &TestProgram,
        selection: &BatchSelection<'_>,
        _scratch: &Path,
    ) -> Result<AdapterInvocation, CommandLineError> {
        Ok(command::run_command(*self, selection))
    }

    fn transcript_parser(&self, tests: &[&ListedTest]) -> Box<dyn TranscriptParser + Send> {
        Box::new(GoParser::new(*self, tests))
    }

    fn read_crash_report(&self, report: &[u8], test: Option<&ListedTest>) -> Option<String> {
        goroutines::stack_text(&String::from_utf8_lossy(report), test.map_or("", |test| test.name.as_str()))
    }

    fn divide_stderr(&self, stderr: &str, captured: &str, test: &ListedTest) -> Option<RuntimeStack> {
        death::divide(stderr, captured, &test.name)
    }

    fn reproduce_command(&self, program: &TestProgram, test: &ListedTest) -> String {
        let pattern = shell::quote(command::pattern(&[test]).as_bytes());
        shell::command_line(program, &format!("-test.v -test.paniconexit0 -test.run {pattern}"))
    }
}
