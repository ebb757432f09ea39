//! Projects in C: which of their sources have mutants, and how any build compiles the guarded ones.

mod compiler_shim;
mod project;

pub use compiler_shim::{CompilerShims, is_compiler_shim, run_compiler_shim};
pub use project::{add_built_files, find_c_sources};
