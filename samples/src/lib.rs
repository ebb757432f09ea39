//! Sheep, dogs and their feed: a small library with tests of every outcome.
//!
//! Some of its functions contain deliberate bugs. The only test framework needed is Rust's own.

pub mod herd;
pub mod pedigree;
pub mod ration;
pub mod tag;
pub mod whistle;
