//! Options of cargo.

use clap::Args;

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
