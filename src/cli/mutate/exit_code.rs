//! Exit codes for errors of mutation testing.

use heeler_mutate::CargoProjectError;
use heeler_mutation::MutateError;

use crate::cli::exit::CliExitCode;

pub(in crate::cli) fn exit_code(error: &MutateError) -> CliExitCode {
    match error {
        MutateError::Selection(_)
        | MutateError::Project(CargoProjectError::UnknownPackage { .. })
        | MutateError::NoTests
        | MutateError::HistoryFilter { .. }
        | MutateError::NoTestSelected { .. }
        | MutateError::Tests { .. }
        | MutateError::TestsOutside { .. }
        | MutateError::Unmatched { .. }
        | MutateError::Diff { .. } => CliExitCode::CommandLine,
        MutateError::RedTests { .. } | MutateError::MutationServer { is_red: true, .. } => {
            CliExitCode::TestsFailed
        }
        MutateError::SchedulerGone => CliExitCode::Internal,
        MutateError::Directory(_)
        | MutateError::Cargo(_)
        | MutateError::Project(CargoProjectError::Metadata(_))
        | MutateError::Source(_)
        | MutateError::Json(_)
        | MutateError::OutsideDependency(_)
        | MutateError::Pipe(_)
        | MutateError::NoBuild { .. }
        | MutateError::MakeDirectory { .. }
        | MutateError::Busy { .. }
        | MutateError::Copy(_)
        | MutateError::Runtime { .. }
        | MutateError::CompileRuntime(_)
        | MutateError::NotCompiled { .. }
        | MutateError::Build { .. }
        | MutateError::BuildCommand { .. }
        | MutateError::OtherCompiler { .. }
        | MutateError::Sources(_)
        | MutateError::MissingServer { .. }
        | MutateError::MutationServer { is_red: false, .. }
        | MutateError::Listing(_)
        | MutateError::RunDirectory(_)
        | MutateError::ForeignImport { .. }
        | MutateError::PythonAnswer { .. }
        | MutateError::Doctests { .. }
        | MutateError::Coverage { .. }
        | MutateError::WriteFile { .. }
        | MutateError::WriteReport { .. } => CliExitCode::Setup,
    }
}
