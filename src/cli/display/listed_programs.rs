//! Programs and their tests, built and listed but not run (`heeler run --no-run`).

use super::{
    format::{NAME_COLUMNS, count_of, cut_name, grouped_number},
    style::{Style, StyledLine},
    test_line::relative_path,
};
use heeler_report::sanitise;

/// A built program and the number of its selected tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProgramTestCount {
    pub(crate) suite: String,
    pub(crate) path: String,
    /// Number of selected tests.
    pub(crate) tests: usize,
}

/// Returns a line for each program, then a total. Paths below `root` are shown relative to it.
pub(super) fn listed_program_lines(
    programs: &[ProgramTestCount],
    filtered: usize,
    root: &str,
) -> Vec<StyledLine> {
    let program_line = |program: &ProgramTestCount| {
        let path = sanitise::one_line(relative_path(&program.path, root)).into_owned();
        StyledLine::with_label(Style::Dim, "program")
            .with(Style::Suite, cut_name(&program.suite, NAME_COLUMNS))
            .with_plain(format!("  {}", count_of(program.tests, "test")))
            .with(Style::Dim, format!("  {path}"))
    };
    let tests = programs.iter().map(|program| program.tests).sum();
    let mut words = format!(" in {}, built and listed but not run", count_of(programs.len(), "program"));
    if filtered > 0 {
        words.push_str(&format!(" ({} filtered out)", grouped_number(filtered)));
    }
    let total = StyledLine::with_label(Style::Success, "No run")
        .with(Style::Bold, count_of(tests, "test"))
        .with_plain(words);
    programs.iter().map(program_line).chain([total]).collect()
}
