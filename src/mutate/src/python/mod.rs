//! Python projects: finding mutated sources, the runtime that interpreters load, and compile errors of
//! guarded sources.

mod compilation;
mod import_check;
mod project;
mod runtime;

pub use compilation::PythonCompilation;
pub use import_check::{ForeignModule, foreign_modules};
pub use project::{PythonLayout, find_python_sources, is_python_project, python_left_out};
pub use runtime::PythonRuntime;
