//! The command line as a user runs it.

mod cargo_projects;
mod ci_templates;
mod commands;
mod completion;
mod filters;
mod first_contact;
mod foreign_options;
mod large_outputs;
mod mixed_repository;
#[cfg(feature = "mutation")]
mod mutants;
#[cfg(feature = "mutation")]
mod mutation_cases;
#[cfg(feature = "mutation")]
mod mutation_doctests;
#[cfg(feature = "mutation")]
mod mutation_in_c;
#[cfg(feature = "mutation")]
mod mutation_in_cpp;
#[cfg(feature = "mutation")]
mod mutation_in_javascript;
#[cfg(feature = "mutation")]
mod mutation_in_python;
#[cfg(feature = "mutation")]
mod mutation_in_python_forks;
#[cfg(feature = "mutation")]
mod mutation_peers;
#[cfg(feature = "mutation")]
mod mutation_runs;
#[cfg(feature = "mutation")]
mod mutation_servers;
mod pages;
mod partitions;
mod recorded_runs;
mod reports;
mod result_messages;
mod run_buttons;
mod run_events;
mod shown_results;
mod signals;
mod state;
