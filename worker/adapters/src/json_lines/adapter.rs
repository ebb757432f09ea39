//! The adapter of programs that report as JSON lines.

use std::path::Path;

use heeler_protocol::control::{ListedTest, TestProgram};

use super::{listing, message, transcript::JsonLinesParser};
use crate::{
    Adapter, AdapterInvocation, AdapterListing, AdapterTraits, ClaimConfidence, CommandLineError,
    DiscoveryTarget, InvocationChannel, ListingError, ListingOutput, TranscriptParser, shell,
};

/// The adapter of programs that report as JSON lines.
pub(crate) struct JsonLines;

pub(super) const NAME: &str = "json-lines";

static TRAITS: AdapterTraits = AdapterTraits::new(NAME, "JSON lines");

/// Tells the program which descriptor is its channel; a program that is started by hand has none.
const CHANNEL_VARIABLE: &str = "HEELER_CHANNEL";

fn invocation(listing_request: Vec<u8>) -> AdapterInvocation {
    AdapterInvocation {
        env: vec![(CHANNEL_VARIABLE.into(), Some("3".into()))],
        channel: InvocationChannel::Descriptor,
        listing_request,
        ..AdapterInvocation::default()
    }
}

impl Adapter for JsonLines {
    fn traits(&self) -> &'static AdapterTraits {
        &TRAITS
    }

    fn claims(&self, _target: &DiscoveryTarget<'_>) -> ClaimConfidence {
        // Nothing in a program shows it; the user names the framework.
        ClaimConfidence::Unclaimed
    }

    fn next_listing(
        &self,
        _program: &TestProgram,
        outputs: &[ListingOutput],
        _scratch: &Path,
    ) -> Option<AdapterInvocation> {
        outputs.is_empty().then(|| invocation([message::list(), message::stop()].concat()))
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
        _program: &TestProgram,
        _tests: &[&ListedTest],
        _scratch: &Path,
    ) -> Result<AdapterInvocation, CommandLineError> {
        Ok(invocation(Vec::new()))
    }

    fn transcript_parser(&self, tests: &[&ListedTest]) -> Box<dyn TranscriptParser + Send> {
        Box::new(JsonLinesParser::new(tests.iter().map(|test| test.name.clone()).collect()))
    }

    fn reproduce_command(&self, program: &TestProgram, test: &ListedTest) -> String {
        // The program needs the other end of its channel.
        format!(
            "(cd {} && heeler run {} --framework {NAME} -E {})",
            shell::quote(program.cwd.as_bytes()),
            shell::quote(program.path.as_bytes()),
            shell::quote(test.name.as_bytes())
        )
    }
}
