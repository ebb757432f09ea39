//! Real test programs of each supported framework.

mod attached_files;
mod boost;
mod boost_suites;
mod catch2;
mod command;
mod commands_again;
mod configured_fixtures;
#[cfg(feature = "connect")]
mod connect;
#[cfg(feature = "connect")]
mod connect_recorded;
#[cfg(feature = "connect")]
mod connect_run;
mod ctest;
mod doctest;
mod forged_output;
mod forked_copies;
mod go;
mod gtest;
mod gtest_programs;
mod json_lines;
mod json_lines_check;
mod json_lines_examples;
mod junit_names;
mod libtest;
mod listing_crashes;
mod mcp;
mod mtp;
mod mtp_real;
mod mtp_waiting;
mod own_main;
mod plain;
pub(crate) mod pytest;
mod pytest_conftests;
mod pytest_fixtures;
mod pytest_sessions;
mod recognition;
mod recorded_reports;
mod relative_sources;
mod resource_units;
mod scheduling;
mod stream_names;
mod subtests;
