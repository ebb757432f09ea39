//! Heeler's pure decisions: splitting, the state machine of a run, the ledger.
