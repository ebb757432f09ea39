//! Live connections over Heeler's wire formats: bounded outbox, cancel-safe receive, drain with proof.
