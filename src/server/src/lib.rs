//! Heeler's coordinator: one scheduler and one worker pool for the clients of all protocols.

#[cfg(feature = "connect")]
pub mod connect;
pub mod discovery;
pub mod listen;
pub mod mcp;
pub mod mtp;
#[cfg(feature = "mutation")]
pub mod mutation;
pub mod pool;
pub mod rsp;
pub mod run;
pub mod scheduler;
pub mod variants;
