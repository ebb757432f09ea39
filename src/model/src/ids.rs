//! The numbers of things. Each is a newtype, so that none is taken for another.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// Returns the number as an index into a list.
            #[must_use]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id!(
    /// A selected test: its place in the plan's list of tests.
    TestId
);
id!(
    /// A test program: its place in the plan's list of programs.
    ProgramId
);
id!(
    /// A worker of the session; a dead worker's number is never used again.
    WorkerId
);
id!(
    /// A lease of the run.
    LeaseId
);
