//! Output of `heeler mutate --list`: mutants as lines for people.

use std::collections::BTreeSet;

use clap::ValueEnum;
use heeler_mutant_model::{Mutant, MutantResult, MutantStatus};
use heeler_report::sanitise;

use super::{
    format::{count_of, cut_name},
    style::{ColourMode, Style, StyledLine, text_columns},
};

/// `--format` of `heeler mutate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum MutantFormat {
    /// One mutant per line.
    #[default]
    Human,
    /// One JSON object (mutation testing report schema, version 2).
    Json,
}

/// Maximum columns of a piece of code.
const CODE_COLUMNS: usize = 60;

/// Returns a line for each mutant, with its reason if it is ignored, and a total.
#[must_use]
pub(crate) fn render_mutants(results: &[MutantResult], colour: ColourMode) -> String {
    let places: Vec<String> = results.iter().map(|result| place(&result.mutant)).collect();
    let width = places.iter().map(|place| text_columns(place)).max().unwrap_or(0);
    let mut out = String::new();
    let mut print = |line: StyledLine| {
        line.render(colour, &mut out);
        out.push('\n');
    };
    for (result, place) in results.iter().zip(places) {
        let padding = " ".repeat(width - text_columns(&place));
        let mut line = StyledLine::new().with_plain(place).with_plain(padding);
        line = line.with(Style::Dim, format!("  {:<21}  ", result.mutant.mutator.name()));
        line = line.with_plain(change(&result.mutant));
        if let Some(reason) = &result.reason {
            line = line.with(Style::Warning, format!("  ({})", sanitise::one_line(reason)));
        }
        print(line);
    }
    let ignored = results.iter().filter(|result| result.status == MutantStatus::Ignored).count();
    let files = results.iter().map(|result| &**result.mutant.path()).collect::<BTreeSet<_>>().len();
    let mut total = format!("{} in {}", count_of(results.len(), "mutant"), count_of(files, "file"));
    if ignored > 0 {
        total.push_str(&format!(", {ignored} ignored"));
    }
    print(StyledLine::new().with(Style::Bold, total));
    out
}

fn place(mutant: &Mutant) -> String {
    let start = mutant.start();
    format!("{}:{}:{}", sanitise::one_line(mutant.path()), start.line, start.column)
}

/// Returns a mutant's change: its description, or the code before and after.
fn change(mutant: &Mutant) -> String {
    let original = || cut_name(&code(mutant.original()), CODE_COLUMNS);
    match (mutant.description(), &*mutant.replacement()) {
        (Some(description), _) => cut_name(&code(&description), 2 * CODE_COLUMNS),
        (None, "") => format!("{} → nothing", original()),
        (None, replacement) => format!("{} → {}", original(), cut_name(&code(replacement), CODE_COLUMNS)),
    }
}

fn code(text: &str) -> String {
    sanitise::one_line(&text.split_whitespace().collect::<Vec<_>>().join(" ")).into_owned()
}
