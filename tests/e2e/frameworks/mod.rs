//! Real test programs of each framework.

mod connect;
mod connect_cases;
mod connect_native;
mod connect_run;
mod connect_verdicts;
mod doctest;
mod forged_output;
mod gtest;
mod gtest_programs;
mod json_lines;
mod libtest;
mod mcp;
