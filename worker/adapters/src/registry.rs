//! The registry of the frameworks that Heeler supports, by name. Order matters: a program of unknown kind is
//! tried from the front.

use super::{Adapter, gtest::GoogleTest, libtest::LibtestFormat};

static ADAPTERS: [&dyn Adapter; 3] = [&GoogleTest, &LibtestFormat::Events, &LibtestFormat::Plain];

/// Returns the adapter of that name: `gtest`, `libtest` or `libtest-plain`.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static dyn Adapter> {
    ADAPTERS.iter().copied().find(|adapter| adapter.name() == name)
}

/// Returns the adapters to try on a program of unknown kind. `libtest-plain` is not among them: the listing
/// of `libtest` detects when a program needs it.
#[must_use]
pub fn detectable_adapters() -> &'static [&'static dyn Adapter] {
    &ADAPTERS[..2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapter_is_found_by_its_name() {
        for name in ["gtest", "libtest", "libtest-plain"] {
            assert_eq!(by_name(name).unwrap().name(), name);
        }
        assert!(by_name("pytest").is_none());
    }
}
