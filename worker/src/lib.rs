//! Heeler's worker: drives test programs and streams their results to the client.

pub mod adapter;
