//! Test discovery: programs, their tests, and programs whose listing failed.
//!
//! - `catalogue`: programs and tests by uid; pure.
//! - `lister`: lists programs through workers.
//! - `selection`: selects tests by uid and by filter; pure.
//! - `test_entry`: compact test entries.

mod catalogue;
mod lister;
mod selection;
mod test_entry;

pub use catalogue::{Catalogue, ListingState, ProgramEntry, ProgramListing, ProgramSource, TestRef};
pub use lister::ProgramLister;
pub use selection::{TestSelection, select_tests};
pub use test_entry::TestEntry;
