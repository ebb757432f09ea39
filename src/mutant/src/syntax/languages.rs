//! All languages. To add one, create a file with its table and add a line here.

use std::sync::OnceLock;

use super::{c, cpp, python, rust, table::Syntax};
use heeler_mutant_model::Language;

/// Returns a language's table, which is built on first use.
pub(crate) fn table_of(language: Language) -> &'static Syntax {
    static RUST: OnceLock<Syntax> = OnceLock::new();
    static C: OnceLock<Syntax> = OnceLock::new();
    static CPP: OnceLock<Syntax> = OnceLock::new();
    static PYTHON: OnceLock<Syntax> = OnceLock::new();
    match language {
        Language::Rust => RUST.get_or_init(rust::table),
        Language::C => C.get_or_init(c::table),
        Language::Cpp => CPP.get_or_init(cpp::table),
        Language::Python => PYTHON.get_or_init(python::table),
        Language::JavaScript | Language::TypeScript => {
            unreachable!("sources of these languages are not searched here")
        }
    }
}
