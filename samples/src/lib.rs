//! Sheep, dogs and what they eat: a small library whose tests end in every way that tests can.
//!
//! Some of its functions have mistakes, left there on purpose. No test framework but Rust's own is needed.

pub mod herd;
pub mod pedigree;
pub mod ration;
pub mod tag;
pub mod whistle;
