//! Options of cargo.

use clap::Args;

use super::ProgramArguments;

/// Cargo's own options for selecting what to build, with cargo's meanings. Each of them implies `--cargo`.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Cargo")]
pub(crate) struct CargoTargetArguments {
    /// Test this package; may be repeated.
    #[arg(short = 'p', long = "package", value_name = "SPEC")]
    pub packages: Vec<String>,
    /// Test all packages of the workspace.
    #[arg(long = "workspace")]
    pub is_workspace: bool,
    /// Do not test this package of the workspace; may be repeated.
    #[arg(long = "exclude", value_name = "SPEC")]
    pub excluded: Vec<String>,
    /// Build in release mode, with optimisations.
    #[arg(short = 'r', long = "release")]
    pub is_release: bool,
    /// Build with this cargo profile.
    #[arg(long, value_name = "NAME")]
    pub cargo_profile: Option<String>,
    /// Features to activate; may be repeated.
    #[arg(short = 'F', long, value_name = "FEATURES")]
    pub features: Vec<String>,
    /// Activate all features.
    #[arg(long = "all-features")]
    pub has_all_features: bool,
    /// Do not activate the default features.
    #[arg(long = "no-default-features")]
    pub has_no_default_features: bool,
    /// Test only the library.
    #[arg(long = "lib")]
    pub is_lib: bool,
    /// Test all binaries.
    #[arg(long = "bins")]
    pub has_bins: bool,
    /// Test only this binary; may be repeated.
    #[arg(long = "bin", value_name = "NAME")]
    pub bins: Vec<String>,
    /// Test only this integration test; may be repeated.
    #[arg(long = "test", value_name = "NAME")]
    pub tests: Vec<String>,
    /// Test all examples.
    #[arg(long = "examples")]
    pub has_examples: bool,
    /// Test only this example; may be repeated.
    #[arg(long = "example", value_name = "NAME")]
    pub examples: Vec<String>,
    /// Test all benchmarks.
    #[arg(long = "benches")]
    pub has_benches: bool,
    /// Test only this benchmark; may be repeated.
    #[arg(long = "bench", value_name = "NAME")]
    pub benches: Vec<String>,
    /// Test all targets: library, binaries, examples, integration tests and benchmarks.
    #[arg(long = "all-targets")]
    pub has_all_targets: bool,
    /// Test all targets that are tested by default.
    #[arg(long = "tests")]
    pub has_tests: bool,
    /// Run only the documentation tests of libraries.
    #[arg(long = "doc", conflicts_with = "has_no_doctests")]
    pub is_doc: bool,
    /// Do not run documentation tests.
    #[arg(long = "no-doc")]
    pub has_no_doctests: bool,
}

impl ProgramArguments {
    /// Returns the arguments for cargo.
    #[must_use]
    pub(crate) fn cargo_options(&self) -> Vec<String> {
        let of = &self.cargo_targets;
        let named = |option: &'static str, values: &[String]| -> Vec<String> {
            values.iter().flat_map(|value| [option.to_owned(), value.clone()]).collect()
        };
        let flag = |option: &str, is_set: bool| is_set.then(|| option.to_owned());
        let mut options = named("--package", &of.packages);
        options.extend(flag("--workspace", of.is_workspace));
        options.extend(named("--exclude", &of.excluded));
        options.extend(flag("--release", of.is_release));
        options.extend(named("--features", &of.features));
        options.extend(flag("--all-features", of.has_all_features));
        options.extend(flag("--no-default-features", of.has_no_default_features));
        options.extend(flag("--lib", of.is_lib));
        options.extend(flag("--bins", of.has_bins));
        options.extend(named("--bin", &of.bins));
        options.extend(named("--test", &of.tests));
        options.extend(flag("--tests", of.has_tests));
        options.extend(flag("--examples", of.has_examples));
        options.extend(named("--example", &of.examples));
        options.extend(flag("--benches", of.has_benches));
        options.extend(named("--bench", &of.benches));
        options.extend(flag("--all-targets", of.has_all_targets));
        options.extend(flag("--doc", of.is_doc));
        options.extend(flag("--no-doc", of.has_no_doctests));
        options.extend(named("--profile", of.cargo_profile.as_slice()));
        options.extend(self.cargo_args.iter().cloned());
        options
    }
}
