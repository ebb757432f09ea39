//! The command line: arguments, commands and display. Runs use a scheduler in this process.
//!
//! - `arguments`: arguments and their help; `sources`: finds the programs of arguments and suites; `select`:
//!   filters and partitions tests; `suites`: chooses suites of `heeler.toml`.
//! - `run`, `list`, `serve`: the commands.
//! - `runs`, `report`, `rerun`: list, report and rerun earlier runs.
//! - `check_adapter`: checks a JSON lines adapter against its specification.
//! - `completion`: completes values in shells.
//! - `configuration`: finds `heeler.toml`.
//! - `connect`: tests clients with Connect's conformance suite.
//! - `mcp_bridge`: makes an HTTP server available as a test process.
//! - `mcp_http_filter`: a proxy in front of an HTTP server that hides its tests.
//! - `mcp_filter`: runs a Model Context Protocol server and hides its tests.
//! - `mutate`: finds, lists and tests the mutants of sources.
//! - `history`: exports and imports files of durations and outcomes.
//! - `filter_tip`: the expression that a filter without a match may mean.
//! - `dump`: prints minidumps; `doctor`: checks the machine; `machine`: facts about the machine.
//! - `local_client`: a client of the scheduler in this process; `run_output`: the user's side of a run;
//!   `run_view`: shows the events of a run; `command_user`: signals and display ticks of long commands;
//!   `signals`: signals from terminal and system.
//! - `display`: output of a run for people; `run_events`: output for programs; `exit`, `exit_code`: errors
//!   and exit codes.

pub(crate) mod arguments;
mod check_adapter;
mod command_user;
mod completion;
mod configuration;
#[cfg(feature = "connect")]
mod connect;
mod debugger;
pub(crate) mod display;
mod doctor;
#[cfg(feature = "minidump")]
mod dump;
mod exit;
mod exit_code;
mod filter_tip;
mod history;
mod init;
mod list;
mod local_client;
mod machine;
mod mcp_bridge;
mod mcp_filter;
mod mcp_http_filter;
#[cfg(feature = "mutation")]
mod mutate;
mod report;
mod report_job;
mod rerun;
mod run;
pub(crate) mod run_events;
mod run_output;
mod run_view;
mod runs;
mod select;
mod serve;
mod signals;
mod sources;
mod start;
mod suites;

pub use completion::{COMPLETION_ROLE, complete};
pub use doctor::CRASH_ROLE;
pub use start::main;
