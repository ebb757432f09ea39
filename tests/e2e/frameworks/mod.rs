//! Real test programs of each framework.

mod gtest;
mod libtest;
