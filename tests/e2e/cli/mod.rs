//! The command line as a user runs it.

mod cargo_projects;
mod ci_templates;
mod commands;
mod filters;
mod first_contact;
mod large_outputs;
mod mutants;
mod mutation_cases;
mod mutation_doctests;
mod mutation_in_c;
mod mutation_in_cpp;
mod mutation_in_javascript;
mod mutation_in_python;
mod mutation_in_python_forks;
mod mutation_peers;
mod mutation_runs;
mod mutation_servers;
mod pages;
mod partitions;
mod recorded_runs;
mod reports;
mod result_messages;
mod run_events;
mod shown_results;
mod signals;
mod state;
