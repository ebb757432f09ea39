//! The adapters of Catch2.

use std::{collections::HashSet, path::Path};

use heeler_core::batching::ProcessTraits;
use heeler_protocol::control::{ListedTest, TestProgram};

use super::{command, console_grammar, listing, selector, text_listing, xml_grammar};
use crate::{
    Adapter, AdapterInvocation, AdapterListing, AdapterTraits, BatchSelection, ClaimConfidence,
    CommandLineError, DiscoveryTarget, ListingError, ListingOutput, TranscriptParser, shell,
};

/// The Catch2 adapters, by the major version of the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Catch2 {
    Version3,
    Version2,
}

pub(super) const NAME: &str = "catch2";
pub(super) const NAME_OF_VERSION_2: &str = "catch2-v2";

const fn traits(name: &'static str, label: &'static str) -> AdapterTraits {
    AdapterTraits {
        // On other systems, Catch2 looks for a debugger to write its output there too.
        reads_tracer: true,
        captures_output: true,
        is_recognized: true,
        reports_from_one_process: true,
        has_parts: true,
        ..AdapterTraits::new(name, label)
    }
}

static VERSION_3: AdapterTraits = traits(NAME, "Catch2");
static VERSION_2: AdapterTraits = traits(NAME_OF_VERSION_2, "Catch2 2");

/// Byte strings in programs with version 3: the first is in the library, the second is in programs that load
/// the library dynamically.
const HINTS_OF_VERSION_3: [&[u8]; 2] = [b"Catch2TestRun", b"_ZN5Catch7AutoRegC1ENS_6Detail10unique_ptr"];
/// Byte strings in programs with version 2. The first is an option that version 3 does not have.
const HINTS_OF_VERSION_2: [&[u8]; 2] = [b"list-test-names-only", b"_ZN5Catch7AutoRegC1EPNS_12ITestInvoker"];

/// Prefixes the classes of `--reporter junit` with the program name.
fn name_program_in_reports(program: &TestProgram, tests: &mut [ListedTest]) {
    let program = program.path.as_path().file_name().unwrap_or_default().to_string_lossy();
    for reported in tests.iter_mut().filter_map(|test| test.report_name.as_mut()) {
        reported.class = format!("{program}.{}", reported.class).replace("::", ".");
    }
}

impl Adapter for Catch2 {
    fn traits(&self) -> &'static AdapterTraits {
        match self {
            Self::Version3 => &VERSION_3,
            Self::Version2 => &VERSION_2,
        }
    }

    fn claims(&self, target: &DiscoveryTarget<'_>) -> ClaimConfidence {
        let is_likely = match self {
            Self::Version3 => HINTS_OF_VERSION_3.iter().any(|hint| target.contains(hint)),
            Self::Version2 => HINTS_OF_VERSION_2.iter().any(|hint| target.contains(hint)),
        };
        if is_likely { ClaimConfidence::Likely } else { ClaimConfidence::Unclaimed }
    }

    fn next_listing(
        &self,
        _program: &TestProgram,
        outputs: &[ListingOutput],
        _scratch: &Path,
    ) -> Option<AdapterInvocation> {
        match self {
            Self::Version3 => listing::next_listing(outputs),
            Self::Version2 => text_listing::next_listing(outputs),
        }
    }

    fn read_listing(
        &self,
        program: &TestProgram,
        outputs: &[ListingOutput],
    ) -> Result<AdapterListing, ListingError> {
        let outputs_of_version_2 = match self {
            Self::Version3 => listing::outputs_of_version_2(outputs),
            Self::Version2 => Some(outputs),
        };
        let (framework, mut tests, failure) = match outputs_of_version_2 {
            Some(outputs) => {
                let tests = text_listing::read(outputs)?;
                let failure = text_listing::failure(outputs, tests.len());
                (NAME_OF_VERSION_2, tests, failure)
            }
            None => {
                let tests = listing::read(outputs)?;
                let failed = listing::listing_output(outputs).filter(|output| output.code != Some(0));
                (NAME, tests, failed.map(ListingError::of_recognized_exit))
            }
        };
        // A hidden test is run if `program.entries` names it, as Catch2 runs a hidden test selected by name.
        let named: HashSet<&str> = program.entries.iter().map(|entry| entry.name.as_str()).collect();
        tests.iter_mut().filter(|test| named.contains(test.name.as_str())).for_each(|test| test.skip = None);
        name_program_in_reports(program, &mut tests);
        Ok(AdapterListing { framework, tests, failure, warnings: Vec::new(), depends_on: Vec::new() })
    }

    fn process_traits(&self, _program: &TestProgram, tests: &[ListedTest]) -> ProcessTraits {
        ProcessTraits { is_one_batch: tests.len() > selector::MAX_SELECTED, ..ProcessTraits::NONE }
    }

    fn selectable_together(&self, tests: &[&ListedTest]) -> usize {
        command::selectable_together(tests)
    }

    fn run_command(
        &self,
        program: &TestProgram,
        selection: &BatchSelection<'_>,
        scratch: &Path,
    ) -> Result<AdapterInvocation, CommandLineError> {
        command::run_command(&program.args, selection, scratch)
    }

    fn transcript_parser(&self, tests: &[&ListedTest]) -> Box<dyn TranscriptParser + Send> {
        match command::only_test(tests) {
            Some(test) => Box::new(console_grammar::console_parser(test)),
            None => Box::new(xml_grammar::catch2_parser(tests)),
        }
    }

    fn reproduce_command(&self, program: &TestProgram, test: &ListedTest) -> String {
        if !command::is_selected_alone(test) && command::tags(test).is_empty() {
            return shell::heeler_command_line(program, self.traits().name, &test.name);
        }
        let mut pattern = command::pattern(test);
        if !command::is_selected_alone(test) {
            pattern.extend(command::tags(test).into_bytes());
        }
        shell::command_line(program, &shell::quote(&pattern))
    }
}
