//! Build tools: builds the test programs and documentation tests of a cargo package or workspace, and runs
//! the build commands of other projects.
//!
//! Every call blocks until the build ends. The build is killed when the thread that started it ends; with
//! [`BuildScope::Tree`], together with everything it has started.
//!
//! - `build`: builds as `cargo test` does; `messages`: cargo's build messages; `environment`: variables of a
//!   test program; `program`: a test program.
//! - [`doctests`]: rustdoc as cargo starts it.
//! - `tools`: build commands, and tools whose output is read.
//! - `tool_process`: a tool as a child process; `tool_guard`: ends a tool with everything it has started.

mod build;
pub mod doctests;
mod environment;
mod error;
mod messages;
mod program;
mod tool_guard;
mod tool_process;
mod tools;

pub use build::{CargoBuild, CargoBuildResult, DiagnosticsTarget};
pub use error::CargoError;
pub use program::{CargoProgram, LibrarySearch};
pub use tool_process::{BuildScope, BuildSupervision, OutputTail};
pub use tools::{
    BuildOutput, ignored_files, read_cargo_metadata, read_program_output, read_quiet_output,
    read_rustc_configuration, read_rustc_version, read_tool_output, run_build_command, run_rustc, run_shell,
    try_build_command,
};
