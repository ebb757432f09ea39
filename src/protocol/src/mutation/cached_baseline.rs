//! File with durations and coverage of tests without a mutant, which a later run may reuse.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
};

use serde::{Deserialize, Serialize};

use super::HexHash;

/// Version of the file; other versions are not read.
pub const BASELINE_VERSION: u32 = 1;

/// Tests of an earlier run without a mutant. `P` contains the programs, which may be generated while they are
/// written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CachedBaseline<P = BTreeMap<String, CachedProgram>> {
    pub version: u32,
    /// Hash of everything except the code of functions with mutants: tests, types and dependencies.
    pub fingerprint: HexHash,
    pub functions: Vec<CachedFunction>,
    /// Mutants in the programs, and calls of functions that do not begin with a mutant.
    pub mutants: Vec<CachedMutant>,
    /// Programs by suite.
    pub programs: P,
}

/// A function with mutants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CachedFunction {
    /// Path relative to the workspace.
    pub path: String,
    /// Index of the function among the functions of its source.
    pub place: usize,
    /// Hash of the function's code.
    pub code: HexHash,
    /// Whether every call of the function is observed. Otherwise a test may call it without reaching any of
    /// its mutants.
    pub is_entry_seen: bool,
}

/// A mutant that was in the programs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CachedMutant {
    pub id: Box<str>,
    /// Index of the mutant's function in [`CachedBaseline::functions`].
    pub function: usize,
}

/// A program. `T` contains its tests, which may be generated while they are written.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CachedProgram<T = BTreeMap<String, CachedTest>> {
    /// Time of a process in microseconds, without its tests.
    #[serde(default)]
    pub start_us: u64,
    /// Whether the tests fail in a fork of a process that has loaded the program.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unforkable: bool,
    /// Indexes of the mutants that the program reaches outside its tests.
    pub outside: Vec<u32>,
    /// Tests by uid.
    pub tests: T,
}

/// A test that passed both alone and with the other tests of its program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CachedTest {
    pub duration_us: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_flaky: bool,
    /// Number of times that the test reached any mutant or observed call.
    pub steps: u32,
    /// Indexes into [`CachedBaseline::mutants`], and how often the test reached each.
    pub reached: Vec<(u32, u32)>,
}

impl CachedBaseline {
    /// Reads a file; `None` if it is damaged or has another version. Indexes in it may be invalid.
    #[must_use]
    pub fn read(file: impl Read) -> Option<Self> {
        serde_json::from_reader(file).ok().filter(|read: &Self| read.version == BASELINE_VERSION)
    }
}

impl<P: Serialize> CachedBaseline<P> {
    /// Writes the file.
    ///
    /// # Errors
    /// The writer fails.
    pub fn write(&self, file: impl Write) -> io::Result<()> {
        Ok(serde_json::to_writer(file, self)?)
    }
}
