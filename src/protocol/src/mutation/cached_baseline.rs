//! What tests took and reached without a mutant, which a later run may take over, as a file.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
};

use serde::{Deserialize, Serialize};

use super::HexHash;

/// The version of the file. Another one is not read.
pub const BASELINE_VERSION: u32 = 1;

/// The tests of an earlier run without a mutant. `P` are its programs: they may be made while they are
/// written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CachedBaseline<P = BTreeMap<String, CachedProgram>> {
    pub version: u32,
    /// A hash of everything but the code of functions with mutants: of tests, types and dependencies.
    pub fingerprint: HexHash,
    pub functions: Vec<CachedFunction>,
    /// The mutants that were in the programs, and calls of functions at whose beginnings none stands.
    pub mutants: Vec<CachedMutant>,
    /// By suite.
    pub programs: P,
}

/// A function with mutants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CachedFunction {
    /// Relative to the workspace.
    pub path: String,
    /// Its place among the functions of its source.
    pub place: usize,
    /// A hash of its code.
    pub code: HexHash,
    /// Whether every call of it is seen. Otherwise a test may run it, and reach none of its mutants.
    pub is_entry_seen: bool,
}

/// A mutant that was in the programs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CachedMutant {
    pub id: Box<str>,
    /// Place of its function in [`CachedBaseline::functions`].
    pub function: usize,
}

/// A program, and its tests in the same way.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CachedProgram<T = BTreeMap<String, CachedTest>> {
    /// Microseconds that a process takes beside its tests.
    #[serde(default)]
    pub start_us: u64,
    /// Its tests fail in a fork of a process that has loaded it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unforkable: bool,
    /// Places of the mutants that it reaches outside of its tests.
    pub outside: Vec<u32>,
    /// By uid.
    pub tests: T,
}

/// A test that passed alone and with the others of its program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CachedTest {
    pub duration_us: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_flaky: bool,
    /// How often it reached places, whichever they are.
    pub steps: u32,
    /// Places of mutants in [`CachedBaseline::mutants`], and how often it reached them.
    pub reached: Vec<(u32, u32)>,
}

impl CachedBaseline {
    /// Reads a file; `None` if it is damaged, or of another version. Places in it may be wrong.
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
