//! The worker's jobs: the main loop that receives them, and the execution of one lease. `process` starts
//! processes, `batch` interprets their output and exits, and `results` receives the results.

mod death_files;
mod diagnostics;
mod extension;
mod kept_files;
pub(crate) mod lease;
mod lease_process;
pub(crate) mod main_loop;
mod marker_writers;
mod named_files;
mod output_writers;
mod prepared_lease;
mod process_span;
mod repetition;
mod result_sink;
mod run_report;
mod test_process;
mod transcript_reader;
mod variant;
mod warm_process;
