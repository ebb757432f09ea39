//! Test discovery: the session's programs, their tests, and programs whose listing failed.
//!
//! - `catalogue`: programs and tests by uid; pure.
//! - `listed`: compact test entries.
//! - `job`: lists programs through workers.

mod catalogue;
mod job;
mod listed;

pub use catalogue::{Answer, Catalogue, Listing, ProgramEntry, ProgramSource, TestRef};
pub use job::Lister;
pub use listed::CataloguedTest;
