//! The worker.
pub mod adapter;
mod attribution;
mod batch;
mod clock;
mod conclusion;
mod death;
mod node;
mod output;
mod outside;
mod parcel;
#[cfg(test)]
mod samples;
