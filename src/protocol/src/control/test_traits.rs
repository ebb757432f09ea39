//! Traits of tests (pairs of name and value), and the names that affect scheduling.

use serde::{Deserialize, Serialize};

use crate::mtp::TestTrait;

/// Trait of a test that sets up a fixture; its value names the fixture.
pub const FIXTURE_SETUP_TRAIT: &str = "fixture-setup";
/// Trait of a test that requires a fixture.
pub const FIXTURE_REQUIRED_TRAIT: &str = "fixture-required";
/// Trait of a test that cleans up a fixture.
pub const FIXTURE_CLEANUP_TRAIT: &str = "fixture-cleanup";
/// Trait of a test of a program that CTest also runs; its value is the name in CTest.
pub const CTEST_NAME_TRAIT: &str = "ctest";
/// Trait of a test that no other test with the same trait and value runs beside; its value names the lock.
pub const RESOURCE_LOCK_TRAIT: &str = "resource-lock";
/// Trait of a test that gets units of CTest's resources. There is one for each group of the test; its value
/// lists the amounts of the group as `TYPE:AMOUNT`, separated by commas.
pub const RESOURCE_GROUP_TRAIT: &str = "resource-group";
/// Trait of a test that takes several slots; its value is their number.
pub const PROCESSORS_TRAIT: &str = "processors";
/// Trait of a test that runs while no other test runs.
pub const RUN_SERIAL_TRAIT: &str = "run-serial";
/// Trait of a test that starts after another one has ended; its value names that test as CTest does.
pub const DEPENDS_TRAIT: &str = "depends-on";
/// Trait with the expected duration of a test in seconds, used until a run has measured it.
pub const COST_TRAIT: &str = "cost";

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
