//! The adapters of programs that report as JSON lines.

use std::path::Path;

use heeler_protocol::control::{ListedTest, TestProgram};

use super::{listing, transcript::JsonLinesParser};
use crate::{
    Adapter, AdapterInvocation, AdapterListing, AdapterTraits, BatchSelection, ClaimConfidence,
    CommandLineError, DiscoveryTarget, InvocationChannel, ListingError, ListingOutput, TranscriptParser,
    json_reports::message, shell,
};

/// The adapters of programs that report as JSON lines, by transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JsonLines {
    /// The report channel on descriptor 3, in both directions.
    Channel,
    /// Requests on standard input, and reports on standard output mixed with test output. Each report begins
    /// with the byte [`message::RECORD_START`].
    StandardStreams,
}

static CHANNEL: AdapterTraits =
    AdapterTraits { has_parts: true, ..AdapterTraits::new("json-lines", "JSON lines") };
static STANDARD_STREAMS: AdapterTraits =
    AdapterTraits { has_parts: true, ..AdapterTraits::new("json-lines-stdio", "JSON lines") };

/// Tells the program its transport: `3` for the report channel, or `stdio`. Not set for a program that is
/// started by hand.
const CHANNEL_VARIABLE: &str = "HEELER_CHANNEL";

impl JsonLines {
    pub(super) fn invocation(self, listing_request: Vec<u8>) -> AdapterInvocation {
        let (value, channel) = match self {
            Self::Channel => ("3", InvocationChannel::Descriptor),
            Self::StandardStreams => ("stdio", InvocationChannel::SocketStreams),
        };
        AdapterInvocation {
            env: vec![(CHANNEL_VARIABLE.into(), Some(value.into()))],
            channel,
            listing_request,
            ..AdapterInvocation::default()
        }
    }
}

impl Adapter for JsonLines {
    fn traits(&self) -> &'static AdapterTraits {
        match self {
            Self::Channel => &CHANNEL,
            Self::StandardStreams => &STANDARD_STREAMS,
        }
    }

    fn claims(&self, _target: &DiscoveryTarget<'_>) -> ClaimConfidence {
        // A program's contents do not show its framework; the user configures it.
        ClaimConfidence::Unclaimed
    }

    fn next_listing(
        &self,
        _program: &TestProgram,
        outputs: &[ListingOutput],
        _scratch: &Path,
    ) -> Option<AdapterInvocation> {
        outputs.is_empty().then(|| self.invocation([message::list(), message::stop()].concat()))
    }

    fn read_listing(
        &self,
        _program: &TestProgram,
        outputs: &[ListingOutput],
    ) -> Result<AdapterListing, ListingError> {
        let read = match self {
            Self::Channel => listing::read_channel,
            Self::StandardStreams => listing::read_standard_output,
        };
        AdapterListing::of_one_command(self.traits().name, outputs, read)
    }

    fn run_command(
        &self,
        _program: &TestProgram,
        _selection: &BatchSelection<'_>,
        _scratch: &Path,
    ) -> Result<AdapterInvocation, CommandLineError> {
        Ok(self.invocation(Vec::new()))
    }

    fn transcript_parser(&self, tests: &[&ListedTest]) -> Box<dyn TranscriptParser + Send> {
        Box::new(JsonLinesParser::new(*self, tests.iter().map(|test| test.name.clone()).collect()))
    }

    fn reproduce_command(&self, program: &TestProgram, test: &ListedTest) -> String {
        // The program needs the other side of the dialogue, so the command runs Heeler.
        shell::heeler_command_line(program, self.traits().name, &test.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_that_runs_a_test_again_has_the_arguments_of_the_program() {
        let test = ListedTest { name: "adds".to_owned(), ..ListedTest::default() };
        let again = |args: &[&str]| {
            let args = args.iter().map(|word| (*word).into()).collect();
            let program =
                TestProgram { path: "/w/a.py".into(), cwd: "/w".into(), args, ..TestProgram::default() };
            JsonLines::Channel.reproduce_command(&program, &test)
        };
        assert_eq!(again(&[]), "(cd /w && heeler run ./a.py --framework json-lines -E 'test(=adds)')");
        let expected =
            "(cd /w && heeler run ./a.py --framework json-lines -E 'test(=adds)' -- tests.py 'a b')";
        assert_eq!(again(&["tests.py", "a b"]), expected);
    }
}
