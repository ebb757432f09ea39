//! The worker's jobs: the main loop that receives them, and the execution of one lease. It starts processes
//! with `process`, asks `batch` what their output and exits mean, and passes the results to `results`.

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
