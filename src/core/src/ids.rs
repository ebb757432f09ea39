//! Numeric ids. Each is a newtype, so that none can be confused with another.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// Returns the id as an index into a list.
            #[must_use]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id!(
    /// A selected test: its index in the plan's list of tests.
    TestId
);
id!(
    /// A test program: its index in the plan's list of programs.
    ProgramId
);
id!(
    /// A worker of the session; the id of a dead worker is never reused.
    WorkerId
);
id!(
    /// A lease of the run.
    LeaseId
);
