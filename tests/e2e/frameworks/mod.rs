//! Real test programs of each framework.

mod boost;
mod catch2;
mod command;
mod connect;
mod connect_all_cases;
mod connect_cases;
mod connect_native;
mod connect_recorded;
mod connect_run;
mod connect_verdicts;
mod ctest;
mod doctest;
mod forged_output;
mod go;
mod gtest;
mod gtest_programs;
mod json_lines;
mod json_lines_check;
mod json_lines_examples;
mod libtest;
mod mcp;
mod mtp;
mod mtp_real;
mod pytest;
mod pytest_sessions;
mod recognition;
