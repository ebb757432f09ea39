//! Traits of tests (pairs of name and value), and the names that affect scheduling.

use serde::{Deserialize, Serialize};

use crate::mtp::TestTrait;

/// Trait of a test that sets up a fixture; its value names the fixture.
pub const FIXTURE_SETUP_TRAIT: &str = "fixture-setup";
/// Trait of a test that requires a fixture.
pub const FIXTURE_REQUIRED_TRAIT: &str = "fixture-required";
/// Trait of a test that cleans up a fixture.
pub const FIXTURE_CLEANUP_TRAIT: &str = "fixture-cleanup";

/// Trait in control messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraitPair {
    pub name: String,
    pub value: String,
}

impl From<&TraitPair> for TestTrait {
    fn from(pair: &TraitPair) -> Self {
        Self { name: pair.name.clone(), value: pair.value.clone() }
    }
}
