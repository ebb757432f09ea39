//! The arguments that name tests of Go packages.

use clap::Args;

/// Arguments that name tests of Go packages.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Programs")]
pub(crate) struct GoArguments {
    /// Build and run the tests of Go packages, named as for go test, such as ./...; may be repeated.
    #[arg(id = "go", long = "go", value_name = "PACKAGES", num_args = 0..=1, default_missing_value = "./...")]
    pub packages: Vec<String>,
    /// Build argument for go test, such as --go-arg=-race or --go-arg=-tags=net; implies --go; may be
    /// repeated.
    #[arg(id = "go_args", long = "go-arg", value_name = "ARG", allow_hyphen_values = true)]
    pub arguments: Vec<String>,
}
