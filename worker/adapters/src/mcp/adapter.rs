//! The adapter of Model Context Protocol servers.

use std::path::Path;

use heeler_core::{batching::ProcessTraits, test_path::NameNesting};
use heeler_protocol::{
    control::{ListedTest, TestProgram},
    mcp::http::BRIDGE_COMMAND,
};

use super::{listing::McpListing, transcript::McpParser};
use crate::{
    Adapter, AdapterInvocation, AdapterListing, AdapterTraits, BatchSelection, ClaimConfidence,
    CommandLineError, DiscoveryTarget, InvocationChannel, ListingDialogue, ListingError, ListingOutput,
    TranscriptParser, shell,
};

pub(super) const NAME: &str = "mcp";

static TRAITS: AdapterTraits = AdapterTraits {
    nesting: NameNesting::FullStops,
    process: ProcessTraits { is_one_batch: true, ..ProcessTraits::NONE },
    is_server: true,
    begins_with_request: true,
    has_parts: true,
    ..AdapterTraits::new(NAME, "MCP server")
};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Mcp;

impl Mcp {
    fn invocation() -> AdapterInvocation {
        AdapterInvocation { channel: InvocationChannel::StandardStreams, ..AdapterInvocation::default() }
    }
}

impl Adapter for Mcp {
    fn traits(&self) -> &'static AdapterTraits {
        &TRAITS
    }

    fn claims(&self, _target: &DiscoveryTarget<'_>) -> ClaimConfidence {
        // A program's contents do not show that it is an MCP server; the user configures the framework.
        ClaimConfidence::Unclaimed
    }

    fn next_listing(
        &self,
        _program: &TestProgram,
        outputs: &[ListingOutput],
        _scratch: &Path,
    ) -> Option<AdapterInvocation> {
        outputs.is_empty().then(Self::invocation)
    }

    fn listing_dialogue(&self, program: &TestProgram) -> Option<Box<dyn ListingDialogue>> {
        Some(Box::new(McpListing::new(program)))
    }

    /// Parses the output of a dialogue with every request answered.
    fn read_listing(
        &self,
        program: &TestProgram,
        outputs: &[ListingOutput],
    ) -> Result<AdapterListing, ListingError> {
        let mut dialogue = McpListing::new(program);
        let nothing = ListingOutput::default();
        let output = outputs.first().unwrap_or(&nothing);
        dialogue.opening_request();
        dialogue.on_reply(&output.stdout);
        dialogue.finish(output)
    }

    fn run_command(
        &self,
        _program: &TestProgram,
        _selection: &BatchSelection<'_>,
        _scratch: &Path,
    ) -> Result<AdapterInvocation, CommandLineError> {
        Ok(Self::invocation())
    }

    fn transcript_parser(&self, tests: &[&ListedTest]) -> Box<dyn TranscriptParser + Send> {
        Box::new(McpParser::new(tests))
    }

    fn reproduce_command(&self, program: &TestProgram, test: &ListedTest) -> String {
        // The server needs a client, so the command runs Heeler.
        let server: Vec<_> = match program.args.as_slice() {
            // The user configured a URL.
            [command, url] if command.as_bytes() == BRIDGE_COMMAND.as_bytes() => {
                vec![url.to_text().into_owned()]
            }
            args => {
                let words = [&program.path].into_iter().chain(args);
                words.map(|word| shell::quote(word.as_bytes())).collect()
            }
        };
        let mut words = shell::environment_words(program);
        words.extend(["heeler", "run"].map(str::to_owned));
        let mut filter = format!("test(={})", test.name);
        if program.test_arguments.is_empty() {
            words.extend(["--mcp".to_owned(), shell::quote(server.join(" ").as_bytes())]);
        } else {
            // Only the configured suite has the arguments.
            filter.push_str(&format!(" & suite(={})", program.suite));
        }
        words.extend(["-E".to_owned(), shell::quote(filter.as_bytes())]);
        format!("(cd {} && {})", shell::quote(program.cwd.as_bytes()), words.join(" "))
    }
}
