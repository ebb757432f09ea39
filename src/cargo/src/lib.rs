//! Build tools: the test programs of a cargo package or workspace and its documentation tests, and commands
//! of other builds, which run in the same way.
//!
//! Everything here blocks until the build ends. The build is killed when the thread that started it ends;
//! with [`BuildScope::Tree`] also all that it has started.
//!
//! - `build`: builds as `cargo test` does; `messages`: what cargo says meanwhile; `environment`: the
//!   variables of a test program; `program`: one of them.
//! - [`doctests`]: rustdoc as cargo starts it.
//! - `tools`: build commands, and tools whose output is read.
//! - `tool_process`: a tool as a child; `tool_guard`: the same with everything that it starts.
//! - `program_search`: finds programs by their names.

mod build;
pub mod doctests;
mod environment;
mod error;
mod messages;
mod program;
mod program_search;
mod tool_guard;
mod tool_process;
mod tools;

pub use build::{CargoBuild, CargoBuildResult, DiagnosticsTarget};
pub use error::CargoError;
pub use program::CargoProgram;
pub use program_search::{find_program, search_path};
pub use tool_process::{BuildScope, BuildSupervision, OutputTail};
pub use tools::{
    BuildOutput, ignored_files, read_cargo_metadata, read_program_output, read_rustc_configuration,
    read_rustc_version, read_tool_output, run_build_command, run_rustc, run_shell, try_build_command,
};
