//! Projects in Python: which of their sources have mutants, what their tests load at the start of an
//! interpreter, and what Python says about guarded sources.

mod compilation;
mod import_check;
mod project;
mod runtime;

pub use compilation::PythonCompilation;
pub use import_check::{ForeignModule, foreign_modules};
pub use project::{PythonLayout, find_python_sources, is_python_project, python_left_out};
pub use runtime::PythonRuntime;
