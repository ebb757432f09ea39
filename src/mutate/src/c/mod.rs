//! Projects in C and C++: which of their sources have mutants, and how any build compiles the guarded ones.
//!
//! - `project`: the sources.
//! - `compiler_shim`: the stand-ins for compilers; `compile_command`: what they understand of arguments.
//! - `preprocessor`: which guards are compiled.

mod compile_command;
mod compiler_shim;
mod preprocessor;
mod project;

pub use compiler_shim::{CompilerShims, is_compiler_shim, run_compiler_shim};
pub use preprocessor::CompiledGuards;
pub use project::{add_built_files, find_build_inputs, find_c_sources};
