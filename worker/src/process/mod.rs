//! One process below a guard: its start, pipes, report channel and environment, its running time and memory,
//! its orders, and its handover to a debugger. `batch` and `discovery` interpret its output.

pub(crate) mod connections;
pub mod debuggee;
pub(crate) mod debugger_handover;
pub(crate) mod evidence_files;
pub(crate) mod guard_connection;
pub(crate) mod guard_spawner;
pub(crate) mod guarded_process;
pub(crate) mod job_order;
pub(crate) mod launch_offer;
pub(crate) mod memory_watch;
mod output_drain;
pub(crate) mod output_pipe;
pub(crate) mod process_clock;
pub(crate) mod process_handle;
pub(crate) mod process_outputs;
pub(crate) mod regular_file;
pub(crate) mod report_channel;
pub(crate) mod test_directory;
pub(crate) mod worker_context;
