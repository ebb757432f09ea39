//! Proofs over real sockets.
