//! The user's options for Cargo builds.

use std::ffi::OsString;

use heeler_mutate::FeatureSelection;

/// Which packages Cargo builds and tests, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CargoOptions {
    /// Workspace packages to use instead of the directory's.
    pub packages: Vec<String>,
    pub features: FeatureSelection,
    pub doctests: DoctestUse,
}

/// Whether documentation tests run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DoctestUse {
    #[default]
    Run,
    LeftOut,
}

impl CargoOptions {
    /// Returns Cargo's feature selection arguments.
    pub(super) fn feature_arguments(&self) -> Vec<OsString> {
        let FeatureSelection { named, has_all, has_no_default } = &self.features;
        let named = named.iter().flat_map(|name| ["--features".to_owned(), name.clone()]);
        let flags = [(*has_all, "--all-features"), (*has_no_default, "--no-default-features")];
        let flags = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag.to_owned());
        named.chain(flags).map(OsString::from).collect()
    }
}
