//! Heeler's coordinator: sessions of clients, the worker pool, discovery and runs.

pub mod discovery;
pub mod front;
pub mod pool;
pub mod run;
