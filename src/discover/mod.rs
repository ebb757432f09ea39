//! What there is to run: the session's programs, their tests, and where listing failed.
//!
//! - `catalogue`: programs and tests by uid; pure.
//! - `job`: has workers list what is not known.

mod catalogue;
mod job;

pub use catalogue::{Answer, Catalogue, CataloguedTest, Listing, ProgramEntry, ProgramSource, TestRef};
pub use job::Lister;
