//! The adapter of GoogleTest.

use std::path::Path;

use heeler_core::test_path::NameNesting;
use heeler_protocol::control::{ListedTest, TestProgram};

use super::{
    command::{self, FlagSource},
    failure, grammar, listing, report,
    same_names::TestsOfProcess,
};
use crate::{
    Adapter, AdapterInvocation, AdapterListing, AdapterTraits, BatchSelection, ClaimConfidence,
    CommandLineError, DiscoveryTarget, ListingError, ListingOutput, RunReport, StackPosition,
    TranscriptParser, shell,
};

/// The GoogleTest adapters, by the library that parses the program's flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GoogleTest {
    /// GoogleTest parses its flags itself.
    OwnFlags,
    /// Abseil parses the flags. It silently ignores `--gtest_flagfile`, and would run all tests.
    AbseilFlags,
}

pub(super) const NAME: &str = "gtest";

const fn traits(name: &'static str) -> AdapterTraits {
    AdapterTraits {
        nesting: NameNesting::FullStop,
        expected_crash_markers: &["--gtest_internal_run_death_test"],
        is_own_line: grammar::is_own_line,
        is_recognized: true,
        reports_from_one_process: true,
        ..AdapterTraits::new(name, "GoogleTest")
    }
}

static OWN_FLAGS: AdapterTraits = traits(NAME);
static ABSEIL_FLAGS: AdapterTraits = traits("gtest-abseil");

/// Byte strings in GoogleTest programs: the usage text is in the library, the symbols are in programs that
/// load the library dynamically.
const HINTS: [&[u8]; 4] = [
    b"gtest_list_tests",
    b"_ZN7testing14InitGoogleTest",
    b"_ZN7testing8UnitTest3RunEv",
    // Needed where the library also contains the main function.
    b"_ZN7testing8internal23MakeAndRegisterTestInfo",
];

impl Adapter for GoogleTest {
    fn traits(&self) -> &'static AdapterTraits {
        match self {
            Self::OwnFlags => &OWN_FLAGS,
            Self::AbseilFlags => &ABSEIL_FLAGS,
        }
    }

    fn claims(&self, target: &DiscoveryTarget<'_>) -> ClaimConfidence {
        match target {
            // The listing with GoogleTest's own flags detects Abseil programs.
            _ if *self == Self::AbseilFlags => ClaimConfidence::Unclaimed,
            DiscoveryTarget::File { .. } | DiscoveryTarget::Directory { .. } => ClaimConfidence::Unclaimed,
            _ if HINTS.iter().any(|hint| target.contains(hint)) => ClaimConfidence::Likely,
            // Not claimed, even if a build tool built the program as a test: a foreign program would ignore
            // the listing flag and run all its tests.
            DiscoveryTarget::Executable { .. } | DiscoveryTarget::Command { .. } => {
                ClaimConfidence::Unclaimed
            }
        }
    }

    fn next_listing(
        &self,
        _program: &TestProgram,
        outputs: &[ListingOutput],
        scratch: &Path,
    ) -> Option<AdapterInvocation> {
        match (self, outputs) {
            (Self::OwnFlags, []) => Some(command::listing_command(scratch, FlagSource::File)),
            // The program listed its tests but did not read its flag file.
            (Self::OwnFlags, [first]) if first.file.is_none() && listing::is_text_listing(first) => {
                Some(command::listing_command(scratch, FlagSource::CommandLine))
            }
            (Self::AbseilFlags, []) => Some(command::listing_command(scratch, FlagSource::CommandLine)),
            _ => None,
        }
    }

    fn read_listing(
        &self,
        _program: &TestProgram,
        outputs: &[ListingOutput],
    ) -> Result<AdapterListing, ListingError> {
        let form = match (self, outputs) {
            // Versions before 1.10 never write a listing file.
            (Self::OwnFlags, [_, second]) if second.file.is_some() => Self::AbseilFlags,
            _ => *self,
        };
        listing::read(form.traits().name, outputs.last().unwrap_or(&ListingOutput::default()))
    }

    fn run_command(
        &self,
        program: &TestProgram,
        selection: &BatchSelection<'_>,
        scratch: &Path,
    ) -> Result<AdapterInvocation, CommandLineError> {
        let flag_file_name = match self {
            Self::OwnFlags => "--gtest_flagfile=",
            Self::AbseilFlags => "--flagfile=",
        };
        Ok(command::run_command(&program.args, selection, scratch, flag_file_name))
    }

    fn transcript_parser(&self, tests: &[&ListedTest]) -> Box<dyn TranscriptParser + Send> {
        match TestsOfProcess::new(tests) {
            Some(all) => all.parser_of_batch(Box::new(grammar::gtest_parser(&all.tests))),
            None => Box::new(grammar::gtest_parser(tests)),
        }
    }

    fn read_run_report(&self, tests: &[&ListedTest], report: &[u8]) -> Option<RunReport> {
        match TestsOfProcess::new(tests) {
            Some(all) => Some(all.report_of_batch(report::read(&all.tests, report)?)),
            None => report::read(tests, report),
        }
    }

    fn stack_position(&self, stack: &str, test: Option<&ListedTest>) -> StackPosition {
        failure::stack_position(stack, test.map(|test| test.name.as_str()))
    }

    fn reproduce_command(&self, program: &TestProgram, test: &ListedTest) -> String {
        if command::selects_other_names(&[test]) {
            return shell::heeler_command_line(program, self.traits().name, &test.name);
        }
        let mut pattern = Vec::new();
        command::write_pattern(&mut pattern, &test.name);
        let disabled = if test.is_ignored() { "--gtest_also_run_disabled_tests " } else { "" };
        shell::command_line(program, &format!("{disabled}--gtest_filter={}", shell::quote(&pattern)))
    }
}
