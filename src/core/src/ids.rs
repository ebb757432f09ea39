//! Numeric ids. Each is a newtype, so ids of different kinds cannot be confused.

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// Returns the id as an index into a list.
            #[must_use]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// A selected test: its index in the list of tests of the run's plan.
    TestId
);
id!(
    /// A test program: its index in the plan's list of programs. If its tests need different resources, the
    /// list has the program once for each set of needs.
    ProgramId
);
id!(
    /// A resource that tests take while they run: its index in the plan's list of capacities.
    ResourceId
);
id!(
    /// A worker of the session; the id of a dead worker is never reused.
    WorkerId
);
id!(
    /// A lease of the run.
    LeaseId
);
