//! The adapter of pytest.

use std::path::Path;

use heeler_core::{batching::ProcessTraits, test_path::NameNesting};
use heeler_protocol::control::{ListedTest, OsText, ReportName, TestProgram};

use super::{listing, names, traceback, transcript::PytestParser, warm::WarmInterpreter};
use crate::{
    Adapter, AdapterInvocation, AdapterListing, AdapterTraits, BatchSelection, ClaimConfidence,
    CommandLineError, DiscoveryTarget, InvocationChannel, ListingError, ListingOutput, RuntimeStack,
    TranscriptParser, WarmStart, json_reports::message, shell,
};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Pytest;

pub(super) const NAME: &str = "pytest";

static TRAITS: AdapterTraits = AdapterTraits {
    nesting: NameNesting::NodeIds,
    has_parts: true,
    // Processes are reused, because starting an interpreter, its imports and its session fixtures is
    // expensive.
    process: ProcessTraits { takes_more_tests: true, ..ProcessTraits::NONE },
    ..AdapterTraits::new(NAME, "pytest")
};

/// Plugin module that pytest loads.
const PLUGIN_NAME: &str = "heeler_pytest_plugin";
const PLUGIN: &str = include_str!("heeler_pytest_plugin.py");
/// Module that the plugin loads in a process that will be forked.
const FORKS_NAME: &str = "heeler_pytest_forks";
const FORKS: &str = include_str!("heeler_pytest_forks.py");
/// Variable that marks a process that will be forked, also for the runtime of mutants.
const WARM: &str = "HEELER_WARM";

/// Returns the pytest command with Heeler's plugin.
fn invocation(program: &TestProgram, listing_request: Vec<u8>, scratch: &Path) -> AdapterInvocation {
    let own = program.env.iter().rev().find(|(name, _)| name.as_bytes() == b"PYTHONPATH");
    let of_tool = program.tool_env.iter().find(|(name, _)| name.as_bytes() == b"PYTHONPATH");
    let known = match own {
        Some((_, value)) => value.as_ref(),
        None => of_tool.map(|(_, value)| value),
    };
    // The plugin removes this directory from the search path again.
    let mut search_path = OsText::from(scratch).as_bytes().to_vec();
    if let Some(known) = known.filter(|known| !known.as_bytes().is_empty()) {
        search_path.push(b':');
        search_path.extend(known.as_bytes());
    }
    AdapterInvocation {
        // Output captured by pytest is lost if the process dies, so capturing is off (`-s`).
        args: ["-s", "-p", PLUGIN_NAME].map(OsText::from).into(),
        env: vec![("PYTHONPATH".into(), Some(OsText::from(search_path)))],
        files: vec![(scratch.join(format!("{PLUGIN_NAME}.py")), PLUGIN.into())],
        channel: InvocationChannel::Descriptor,
        listing_request,
        ..AdapterInvocation::default()
    }
}

impl Adapter for Pytest {
    fn traits(&self) -> &'static AdapterTraits {
        &TRAITS
    }

    fn claims(&self, _target: &DiscoveryTarget<'_>) -> ClaimConfidence {
        // An interpreter runs any program; only the source or the user knows the framework.
        ClaimConfidence::Unclaimed
    }

    /// Same names as `--junitxml`.
    fn report_name(&self, _program: &TestProgram, test: &ListedTest) -> Option<ReportName> {
        Some(names::report_name(&test.name))
    }

    /// Lists again without the files whose import ended the process.
    fn next_listing(
        &self,
        program: &TestProgram,
        outputs: &[ListingOutput],
        scratch: &Path,
    ) -> Option<AdapterInvocation> {
        let fatal_files = listing::next_fatal_files(outputs)?;
        let request = [message::list_without(&fatal_files), message::stop()].concat();
        let mut invocation = invocation(program, request, scratch);
        if !outputs.is_empty() {
            // The first listing has written the plugin already.
            invocation.files.clear();
        }
        Some(invocation)
    }

    fn read_listing(
        &self,
        _program: &TestProgram,
        outputs: &[ListingOutput],
    ) -> Result<AdapterListing, ListingError> {
        listing::read(outputs)
    }

    fn run_command(
        &self,
        program: &TestProgram,
        _selection: &BatchSelection<'_>,
        scratch: &Path,
    ) -> Result<AdapterInvocation, CommandLineError> {
        Ok(invocation(program, Vec::new(), scratch))
    }

    fn warm_start(&self, program: &TestProgram, scratch: &Path) -> Option<WarmStart> {
        let mut invocation = invocation(program, Vec::new(), scratch);
        invocation.env.push((WARM.into(), Some("1".into())));
        invocation.files.push((scratch.join(format!("{FORKS_NAME}.py")), FORKS.into()));
        Some(WarmStart { invocation, dialogue: Box::new(WarmInterpreter::default()) })
    }

    fn transcript_parser(&self, tests: &[&ListedTest]) -> Box<dyn TranscriptParser + Send> {
        Box::new(PytestParser::new(tests))
    }

    fn divide_stderr(&self, stderr: &str, captured: &str, _test: &ListedTest) -> Option<RuntimeStack> {
        traceback::divide(stderr, captured)
    }

    fn reproduce_command(&self, program: &TestProgram, test: &ListedTest) -> String {
        let mut program = program.clone();
        // Remove the paths of all tests, which the source puts after `-m pytest`.
        let paths = program.args.iter().skip(2).take_while(|word| !word.as_bytes().starts_with(b"-")).count();
        if program.args.len() > 2 {
            program.args.drain(2..2 + paths);
        }
        let selected = listing::command_line_id(test, program.cwd.as_path());
        shell::command_line(&program, &shell::quote(selected.as_bytes()))
    }
}
