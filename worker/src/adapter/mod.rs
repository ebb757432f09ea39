//! What each test framework is asked and how its answers are read. The frameworks are in a room of their own.

mod contract;

pub use contract::{
    Adapter, CommandError, Event, Invocation, Listing, ListingError, ListingOutput, Transcript, Verdict,
};

/// Returns the adapter of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static dyn Adapter> {
    all().iter().copied().find(|adapter| adapter.name() == name)
}

/// Returns the adapters that may be asked about a program of unknown kind.
#[must_use]
pub fn all() -> &'static [&'static dyn Adapter] {
    &[]
}
