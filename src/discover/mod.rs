//! What there is to run: the session's programs, their tests, and where listing failed.
//!
//! - `catalogue`: programs and tests by uid; pure.
//! - `listed`: tests, kept small.
//! - `job`: has workers list what is not known.

mod catalogue;
mod job;
mod listed;

pub use catalogue::{Answer, Catalogue, Listing, ProgramEntry, ProgramSource, TestRef};
pub use job::Lister;
pub use listed::CataloguedTest;
