//! C and C++ projects: finding the mutated sources, and compiling guarded sources with any build tool.
//!
//! - `project`: finds the sources.
//! - `compiler_shim`: the compiler shims; `compile_command`: parses their arguments.
//! - `preprocessor`: finds the guards that are compiled.

mod compile_command;
mod compiler_shim;
mod preprocessor;
mod project;

pub use compiler_shim::{CompilerShims, is_compiler_shim, run_compiler_shim};
pub use preprocessor::CompiledGuards;
pub use project::{add_built_files, find_build_inputs, find_c_sources};
