//! The MSTest Runner Protocol: one file for each request that the scheduler executes.

pub(super) mod discover;
pub(super) mod initialize;
pub(super) mod params;
pub(super) mod run;
mod selection;
