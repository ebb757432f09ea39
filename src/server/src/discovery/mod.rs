//! Test discovery: lists programs and their tests.
//!
//! - `catalogue`: programs and tests by uid; pure.
//! - `entries`: merges a listing with the tests that another tool has registered.
//! - `file_identity`: file metadata that changes when a program is rebuilt.
//! - `fixtures`: adds the set-ups and clean-ups of required fixtures to a selection; pure.
//! - `group_locations`: source locations of groups; pure.
//! - `lister`: lists programs through workers.
//! - `program_finder`: rebuilds or finds the programs of an open session.
//! - `program_watch`: detects changes of programs.
//! - `selection`: selects tests by uid and by filter; pure.
//! - `test_entry`: compact test entries.

mod catalogue;
mod entries;
mod file_identity;
mod fixtures;
mod group_locations;
mod lister;
mod program_finder;
mod program_watch;
mod selection;
mod test_entry;

pub use catalogue::{Catalogue, ListingState, ProgramEntry, ProgramListing, ProgramSource, TestRef};
pub use fixtures::add_fixture_tests;
pub use group_locations::GroupLocation;
pub use lister::ListingSettings;
pub(crate) use lister::{FinishedListing, ProgramLister};
pub use program_finder::{CurrentProgram, CurrentPrograms, ProgramFinder};
pub(crate) use program_watch::watch_programs;
pub use selection::TestSelection;
pub(crate) use selection::select_tests;
pub use test_entry::TestEntry;
