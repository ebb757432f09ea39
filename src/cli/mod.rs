//! The command line: arguments, commands, display. A client of a scheduler in its own process.
//!
//! - `arguments`: arguments and their help; `sources`: finds the programs of arguments and suites; `select`:
//!   filters and partitions tests.
//! - `run`, `render_list`, `serve`: the commands.
//! - `runs`, `report`, `rerun`: list, report and rerun earlier runs.
//! - `check_adapter`: tries a program of JSON lines against the rules of its specification.
//! - `configuration`: finds `heeler.toml`.
//! - `connect`: clients under test of Connect's conformance suite.
//! - `mcp_bridge`: a server that is reached over HTTP, as a test process.
//! - `mcp_http_filter`: serves in front of such a server, without its tests.
//! - `mcp_filter`: runs a server of the Model Context Protocol without its tests.
//! - `mutate`: finds, lists and tests the mutants of sources.
//! - `history`: writes and takes over files of durations and outcomes.
//! - `dump`: prints minidumps; `check_machine`: checks the machine; `machine`: facts about it.
//! - `local_client`: a client of a scheduler in this process; `run_output`: the user's side of a run;
//!   `run_view`: what happens in a run, for the user; `command_user`: signals and display ticks of long
//!   commands; `signals`: signals from terminal and system.
//! - `display`: output of a run for people; `run_events`: for programs; `exit_code_for`: exit codes and
//!   errors.

pub(crate) mod arguments;
mod check_adapter;
mod command_user;
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
mod history;
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

pub use doctor::CRASH_ROLE;
pub use start::main;
