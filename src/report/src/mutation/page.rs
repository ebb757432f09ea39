//! An HTML page: sources with their mutants in place, survivors first. A single file without references,
//! which works from disk, with the keyboard alone, and without scripts.

use std::{borrow::Cow, collections::BTreeMap, io::Write, sync::Arc};

use heeler_mutant_model::{MutantResult, MutantStatus, MutationCounts};

use super::{
    MutationReport,
    content::{change_text, survival_text},
};
use crate::ReportError;

/// HTML up to the title. Its content security policy keeps the page from loading anything.
const HEAD: &str = include_str!("page_head.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// Maximum number of tests named for a mutant; a longer list would not be read.
const MAX_TESTS: usize = 20;

/// Statuses in display order, with their display names.
const SHOWN: [(MutantStatus, &str); 8] = [
    (MutantStatus::Survived, "survived"),
    (MutantStatus::NoCoverage, "not covered"),
    (MutantStatus::Killed, "killed"),
    (MutantStatus::Timeout, "timed out"),
    (MutantStatus::RuntimeError, "runtime error"),
    (MutantStatus::CompileError, "does not compile"),
    (MutantStatus::Ignored, "ignored"),
    (MutantStatus::Pending, "not tested"),
];

struct FileResults<'a> {
    path: &'a str,
    results: Vec<&'a MutantResult>,
    counts: MutationCounts,
    /// Element id for links to the file.
    anchor: String,
}

/// Writes the page.
///
/// # Errors
/// The writer fails.
pub fn write_page(report: &MutationReport<'_>, writer: &mut dyn Write) -> Result<(), ReportError> {
    let mut files: Vec<_> = report
        .by_file()
        .into_iter()
        .map(|(path, results)| {
            let counts = results.iter().map(|result| result.status).collect();
            FileResults { path, results, counts, anchor: String::new() }
        })
        .collect();
    files.sort_by_key(|file| {
        let of = |status| std::cmp::Reverse(file.counts.of(status));
        (of(MutantStatus::Survived), of(MutantStatus::NoCoverage), file.path)
    });
    for (number, file) in files.iter_mut().enumerate() {
        file.anchor = format!("file-{number}");
    }
    write_head(report, writer)?;
    write_controls(&report.counts(), writer)?;
    write_survivors(report, writer)?;
    write_file_table(&files, writer)?;
    writeln!(writer, "<h2>Sources</h2>")?;
    for file in &files {
        write_file(file, report.source(file.path), writer)?;
    }
    writeln!(writer, "</main>\n<footer>Heeler {}</footer>", env!("CARGO_PKG_VERSION"))?;
    writeln!(writer, "<script>\n{SCRIPT}</script>\n</body>\n</html>")?;
    Ok(())
}

fn write_head(report: &MutationReport<'_>, writer: &mut dyn Write) -> Result<(), ReportError> {
    let counts = report.counts();
    let name = report.directory.file_name().map_or_else(|| "/".into(), |name| name.to_string_lossy());
    let name = escape(&name).into_owned();
    writeln!(writer, "{HEAD}<title>Mutants of {name}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>")?;
    writeln!(writer, "<header>\n<a class=\"skip\" href=\"#survivors\">Skip to the survivors</a>")?;
    writeln!(writer, "<h1>Mutants of {name}</h1>")?;
    let bounds = report.bounds;
    match counts.score() {
        None => writeln!(writer, "<p class=\"score\">no score: no mutant was tested</p>")?,
        Some(score) => {
            let class = match score {
                score if score >= f64::from(bounds.high) => "good",
                score if score < f64::from(bounds.low) => "bad",
                _ => "fair",
            };
            // Round down, so that an incomplete score never looks like 100 %.
            let shown = (score * 10.0).floor() / 10.0;
            writeln!(writer, "<p class=\"score {class}\">{shown:.1} %</p>")?;
            if counts.is_partial() {
                writeln!(writer, "<p>of the mutants that were tested</p>")?;
            }
        }
    }
    let words: Vec<_> = SHOWN
        .iter()
        .filter(|(status, _)| counts.of(*status) > 0)
        .map(|(status, word)| format!("{} {word}", counts.of(*status)))
        .collect();
    let noun = if counts.total() == 1 { "mutant" } else { "mutants" };
    let colon = if words.is_empty() { "" } else { ": " };
    writeln!(writer, "<p>{} {noun}{colon}{}</p>\n</header>\n<main>", counts.total(), words.join(", "))?;
    Ok(())
}

fn write_controls(counts: &MutationCounts, writer: &mut dyn Write) -> Result<(), ReportError> {
    writeln!(writer, "<fieldset class=\"controls\"><legend>Show in the sources</legend>")?;
    for (status, word) in SHOWN {
        let count = counts.of(status);
        if count == 0 {
            continue;
        }
        let checked = if status.is_undetected() { " checked" } else { "" };
        writeln!(
            writer,
            "<label><input type=\"checkbox\" value=\"{}\"{checked}> {word} <span class=\"dim\">{count}</span></label>",
            status.name()
        )?;
    }
    writeln!(
        writer,
        "<span class=\"dim\">keys: n for the next mutant, p for the previous one</span></fieldset>"
    )?;
    Ok(())
}

fn write_survivors(report: &MutationReport<'_>, writer: &mut dyn Write) -> Result<(), ReportError> {
    let survivors = report.survivors();
    writeln!(writer, "<h2 id=\"survivors\">Survivors</h2>")?;
    if survivors.is_empty() {
        writeln!(writer, "<p>No mutant survived.</p>")?;
        return Ok(());
    }
    writeln!(writer, "<ol class=\"survivors\">")?;
    for survivor in survivors {
        let mutant = &survivor.mutant;
        let start = mutant.start();
        writeln!(
            writer,
            "<li>{} <a href=\"#m-{}\">{}:{}:{}</a> <code>{}</code> <span class=\"dim\">{}, {}</span></li>",
            label(survivor.status),
            mutant.id,
            escape(mutant.path()),
            start.line,
            start.column,
            escape(&change_text(mutant)),
            escape(mutant.mutator.name()),
            escape(&survival_text(survivor))
        )?;
    }
    writeln!(writer, "</ol>")?;
    Ok(())
}

fn write_file_table(files: &[FileResults<'_>], writer: &mut dyn Write) -> Result<(), ReportError> {
    writeln!(
        writer,
        "<h2>Files</h2>\n<table class=\"files\">\n<thead><tr><th>file</th><th>score</th><th>survived</th>\
         <th>not covered</th><th>killed</th><th>timed out</th><th>mutants</th></tr></thead>\n<tbody>"
    )?;
    for file in files {
        let score = file.counts.score().map_or_else(|| "–".to_owned(), |score| format!("{score:.1} %"));
        write!(
            writer,
            "<tr><td><a href=\"#{}\">{}</a></td><td>{score}</td>",
            file.anchor,
            escape(file.path)
        )?;
        for (status, _) in SHOWN.iter().take(4) {
            write!(writer, "<td>{}</td>", file.counts.of(*status))?;
        }
        writeln!(writer, "<td>{}</td></tr>", file.counts.total())?;
    }
    writeln!(writer, "</tbody>\n</table>")?;
    Ok(())
}

fn write_file(file: &FileResults<'_>, source: &str, writer: &mut dyn Write) -> Result<(), ReportError> {
    let is_open = file.results.iter().any(|result| result.status.is_undetected());
    let open = if is_open { " open" } else { "" };
    let FileResults { path, results, anchor, .. } = file;
    writeln!(writer, "<details class=\"file\" id=\"{anchor}\"{open}><summary>{}</summary>", escape(path))?;
    writeln!(writer, "<div class=\"source\">")?;
    let mut by_line: BTreeMap<usize, Vec<&MutantResult>> = BTreeMap::new();
    for result in results {
        by_line.entry(result.mutant.start().line as usize).or_default().push(result);
    }
    let mut last = 0;
    for (index, text) in source.lines().enumerate() {
        last = index + 1;
        let here = by_line.get(&last).map_or(&[][..], Vec::as_slice);
        writeln!(
            writer,
            "<div class=\"row{}\"><span class=\"number\">{last}</span><span>{}</span></div>",
            row_class(here),
            escape(text)
        )?;
        here.iter().try_for_each(|result| write_mutant(result, writer))?;
    }
    // Keep mutants beyond the end of a source that has changed or can't be read.
    for result in by_line.range(last + 1..).flat_map(|(_, results)| results) {
        write_mutant(result, writer)?;
    }
    writeln!(writer, "</div></details>")?;
    Ok(())
}

/// Returns the CSS class of a line, by the mutants that begin on it.
fn row_class(results: &[&MutantResult]) -> &'static str {
    let has = |status| results.iter().any(|result| result.status == status);
    if has(MutantStatus::Survived) {
        " survived"
    } else if has(MutantStatus::NoCoverage) {
        " missed"
    } else if results.iter().any(|result| result.status.is_detected()) {
        " found"
    } else {
        ""
    }
}

fn label(status: MutantStatus) -> String {
    let word = SHOWN.iter().find(|(shown, _)| *shown == status).map_or(status.name(), |(_, word)| *word);
    format!("<span class=\"label {}\">{word}</span>", status.name())
}

fn write_mutant(result: &MutantResult, writer: &mut dyn Write) -> Result<(), ReportError> {
    let mutant = &result.mutant;
    writeln!(
        writer,
        "<details class=\"mutant {}\" id=\"m-{}\"><summary>{} {} <code>{}</code></summary><div>",
        result.status.name(),
        mutant.id,
        label(result.status),
        escape(mutant.mutator.name()),
        escape(&change_text(mutant))
    )?;
    writeln!(writer, "<pre class=\"old\">- {}</pre>", escape(mutant.original()))?;
    let replacement = mutant.replacement();
    if !replacement.is_empty() {
        writeln!(writer, "<pre class=\"new\">+ {}</pre>", escape(&replacement))?;
    }
    if !mutant.item.is_empty() {
        writeln!(writer, "<p>in <code>{}</code></p>", escape(&mutant.item))?;
    }
    if result.status.is_undetected() {
        writeln!(writer, "<p>{}</p>", escape(&survival_text(result)))?;
    }
    if let Some(reason) = &result.reason {
        writeln!(writer, "<pre>{}</pre>", escape(reason))?;
    }
    write_tests("killed by", result.killed_by.iter(), writer)?;
    write_tests("covered by", result.covered_by.iter(), writer)?;
    writeln!(writer, "<p class=\"dim\">{}</p></div></details>", mutant.id)?;
    Ok(())
}

fn write_tests<'a>(
    word: &str,
    tests: impl Iterator<Item = &'a Arc<str>>,
    writer: &mut dyn Write,
) -> Result<(), ReportError> {
    let mut tests = tests.peekable();
    if tests.peek().is_none() {
        return Ok(());
    }
    let named: Vec<_> =
        tests.by_ref().take(MAX_TESTS).map(|uid| format!("<code>{}</code>", escape(uid))).collect();
    let others = match tests.count() {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    writeln!(writer, "<p>{word} {}{others}</p>", named.join(", "))?;
    Ok(())
}

/// Escapes a text for an element's content or a quoted attribute. Control characters and bidirectional marks
/// become visible, because a source could hide code with them.
fn escape(text: &str) -> Cow<'_, str> {
    let is_special = |char: char| {
        matches!(char, '&' | '<' | '>' | '"' | '\'' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            || (char.is_control() && !matches!(char, '\n' | '\t'))
    };
    if !text.contains(is_special) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            char if is_special(char) => escaped.extend(char.escape_default()),
            char => escaped.push(char),
        }
    }
    Cow::Owned(escaped)
}
