//! Test discovery: the session's programs, their tests, and programs whose listing failed.
//!
//! - `catalogue`: programs and tests by uid; pure.
//! - `test_entry`: compact test entries.
//! - `lister`: lists programs through workers.

mod catalogue;
mod lister;
mod test_entry;

pub use catalogue::{Catalogue, ListingState, ProgramEntry, ProgramListing, ProgramSource, TestRef};
pub use lister::ProgramLister;
pub use test_entry::TestEntry;
