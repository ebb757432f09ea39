//! The adapter of Connect clients under test.

use std::path::Path;

use heeler_core::test_path::NameNesting;
use heeler_protocol::control::{ListedTest, TestProgram};

use super::transcript::{ClientParser, request_of};
use crate::{
    Adapter, AdapterInvocation, AdapterListing, AdapterTraits, BatchSelection, ClaimConfidence,
    CommandLineError, DiscoveryTarget, InvocationChannel, ListingError, ListingOutput, TranscriptParser,
    shell,
};

/// The adapter of Connect clients under test. The selector of a test is its request in base64.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectClient;

static TRAITS: AdapterTraits = AdapterTraits {
    nesting: NameNesting::Slashes,
    has_proven_answers: true,
    begins_with_request: true,
    process: heeler_protocol::connect::CLIENT_PROCESS,
    ..AdapterTraits::new("connect", "Connect conformance client")
};

impl Adapter for ConnectClient {
    fn traits(&self) -> &'static AdapterTraits {
        &TRAITS
    }

    fn claims(&self, _target: &DiscoveryTarget<'_>) -> ClaimConfidence {
        // A program's contents do not show whether it is such a client, and the suite defines the test cases.
        ClaimConfidence::Unclaimed
    }

    fn next_listing(
        &self,
        _program: &TestProgram,
        _outputs: &[ListingOutput],
        _scratch: &Path,
    ) -> Option<AdapterInvocation> {
        None
    }

    fn read_listing(
        &self,
        _program: &TestProgram,
        _outputs: &[ListingOutput],
    ) -> Result<AdapterListing, ListingError> {
        Err(ListingError::NotThisFramework {
            framework: TRAITS.name,
            reason:
                "the conformance suite defines the test cases of a client; run it with heeler connect run"
                    .to_owned(),
        })
    }

    fn run_command(
        &self,
        _program: &TestProgram,
        selection: &BatchSelection<'_>,
        _scratch: &Path,
    ) -> Result<AdapterInvocation, CommandLineError> {
        let unselectable = |test: &&ListedTest| request_of(test).is_none();
        if let Some(place) = selection.tests.iter().position(unselectable) {
            let reason = "it has no request from the conformance suite".to_owned();
            return Err(CommandLineError::Unselectable { place, reason });
        }
        Ok(AdapterInvocation { channel: InvocationChannel::StandardStreams, ..AdapterInvocation::default() })
    }

    fn transcript_parser(&self, tests: &[&ListedTest]) -> Box<dyn TranscriptParser + Send> {
        Box::new(ClientParser::new(tests))
    }

    fn reproduce_command(&self, program: &TestProgram, test: &ListedTest) -> String {
        // The request contains the port of a server that no longer exists, so the suite must create a new
        // request.
        format!(
            "(cd {} && connectconformance --mode client --run {} -- {})",
            shell::quote(program.cwd.as_bytes()),
            shell::quote(test.name.as_bytes()),
            shell::program_words(program)
        )
    }
}
