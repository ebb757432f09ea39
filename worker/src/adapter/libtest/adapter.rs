//! The adapters of libtest, which connect its parts.

use std::path::Path;

use model::path::Nesting;
use wire::{
    control::{ListedTest, Program},
    mtp::ExecutionState,
};

use super::{command, events, listing, panic, plain};
use crate::adapter::{
    Adapter, CommandError, Invocation, Listing, ListingError, ListingOutput, Transcript, Verdict, shell,
};

/// The libtest adapters, by output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::adapter) enum Libtest {
    /// JSON events. Needs `RUSTC_BOOTSTRAP=1`, which the test's own children then inherit too.
    Events,
    /// Human-readable lines, from one thread.
    Plain,
}

/// Byte strings in the usage text of libtest itself and of crates that imitate it, also in stripped release
/// programs.
const HINTS: [&[u8]; 2] = [b"include-ignored", b"test-threads"];

impl Adapter for Libtest {
    fn name(&self) -> &'static str {
        match self {
            Self::Events => "libtest",
            Self::Plain => "libtest-plain",
        }
    }

    fn hint(&self, image: &[u8]) -> bool {
        HINTS.iter().all(|hint| memchr::memmem::find(image, hint).is_some())
    }

    fn listing(&self, _program: &Program, _scratch: &Path) -> Vec<Invocation> {
        match self {
            Self::Events => command::listings(),
            Self::Plain => command::listings().split_off(1),
        }
    }

    fn needs_more(&self, outputs: &[ListingOutput]) -> bool {
        match self {
            Self::Events => listing::needs_more(outputs),
            Self::Plain => outputs.last().is_none_or(|output| output.code == Some(0)),
        }
    }

    fn read_listing(&self, program: &Program, outputs: &[ListingOutput]) -> Result<Listing, ListingError> {
        let is_told = program.framework.is_some();
        let (form, tests) = match self {
            Self::Events => listing::read(outputs, is_told)?,
            Self::Plain => (Self::Plain, listing::read_terse(outputs, is_told)?),
        };
        Ok(Listing { framework: form.name(), tests })
    }

    fn selection_cost(&self, test: &ListedTest) -> usize {
        command::selection_cost(&test.name)
    }

    fn selection_budget(&self) -> usize {
        command::SELECTION_BYTES
    }

    fn command(
        &self,
        _program: &Program,
        tests: &[&ListedTest],
        _scratch: &Path,
    ) -> Result<Invocation, CommandError> {
        command::run(*self, tests)
    }

    fn nesting(&self) -> Nesting {
        Nesting::Colons
    }

    fn transcript(&self, tests: &[&ListedTest]) -> Box<dyn Transcript + Send> {
        match self {
            Self::Events => Box::new(events::follow(tests)),
            Self::Plain => Box::new(plain::follow(tests)),
        }
    }

    fn complete_verdict(&self, verdict: &mut Verdict, stderr: &str) {
        if *self == Self::Plain && verdict.state == ExecutionState::Failed && verdict.message.is_none() {
            panic::complete(verdict, stderr, None);
        }
    }

    fn reproduce(&self, program: &Program, test: &ListedTest) -> String {
        let name = shell::quote(test.name.as_bytes());
        shell::line(program, &format!("--exact {name} --nocapture"))
    }
}
