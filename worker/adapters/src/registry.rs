//! The registry of supported frameworks, one line each. Messages, help and references are generated from it.

use super::Adapter;

/// All adapters. If several claim a program with the same confidence, they are tried in this order.
#[rustfmt::skip]
static ADAPTERS: &[&dyn Adapter] = &[
    &super::gtest::GoogleTest::OwnFlags,
    &super::gtest::GoogleTest::AbseilFlags,
    &super::libtest::LibtestFormat::Events,
    &super::libtest::LibtestFormat::Plain,
    &super::doctest::Doctest,
    &super::catch2::Catch2::Version3,
    &super::catch2::Catch2::Version2,
    &super::boost::BoostTest,
    &super::go::Go::Framed,
    &super::go::Go::Plain,
    &super::rustdoc::Rustdoc,
    &super::json_lines::JsonLines::Channel,
    &super::json_lines::JsonLines::StandardStreams,
    #[cfg(feature = "connect")]
    &super::connect::ConnectClient,
    &super::mcp::Mcp,
    &super::mtp::Mtp,
    &super::command::CommandFramework::ExitCode,
    &super::command::CommandFramework::Tap,
    &super::pytest::Pytest,
];

/// Returns all adapters, in the order of trying them on an unknown program.
#[must_use]
pub fn all_adapters() -> &'static [&'static dyn Adapter] {
    ADAPTERS
}

/// Returns the adapter with this name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static dyn Adapter> {
    ADAPTERS.iter().copied().find(|adapter| adapter.traits().name == name)
}

/// Returns the names of all frameworks, comma-separated, for messages and references.
#[must_use]
pub fn framework_names() -> String {
    ADAPTERS.iter().map(|adapter| adapter.traits().name).collect::<Vec<_>>().join(", ")
}

/// Returns the frameworks whose programs are recognized by their contents, for a message:
/// `GoogleTest, Rust test, doctest`.
#[must_use]
pub fn recognized_frameworks() -> String {
    let labels = ADAPTERS.iter().filter(|adapter| adapter.traits().is_recognized);
    let mut labels: Vec<_> = labels.map(|adapter| adapter.traits().label).collect();
    labels.dedup();
    labels.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapter_is_found_by_its_name() {
        for name in framework_names().split(", ") {
            assert_eq!(by_name(name).unwrap().traits().name, name);
        }
        assert!(by_name("libtest-plain").is_some());
        assert!(by_name("unittest").is_none());
    }

    #[test]
    fn messages_derive_from_the_registry() {
        assert!(framework_names().starts_with("gtest, gtest-abseil, libtest, libtest-plain"));
        assert!(
            recognized_frameworks()
                .starts_with("GoogleTest, Rust test, doctest, Catch2, Catch2 2, Boost.Test")
        );
    }
}
