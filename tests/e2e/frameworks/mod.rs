//! Real test programs of each framework.

mod doctest;
mod gtest;
mod json_lines;
mod libtest;
