//! Clients of the MSTest Runner Protocol.

mod attachments;
mod callback;
mod client_quirks;
mod concurrency;
mod debug_attach;
mod debug_launch;
mod exit;
mod explicit_nulls;
mod live_output;
mod lsp4j;
mod messages;
mod names;
mod node_clients;
mod program_changes;
mod recorded_clients;
mod repeat;
mod retries;
mod run_options;
mod sessions;
mod shared_scheduler;
mod small_runs;
mod stress;
