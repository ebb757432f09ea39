//! Parses the final output of `connectconformance`: the cases that did not simply pass, each with its reason,
//! and the totals. Pure.

use std::collections::BTreeMap;

/// Verdicts and totals printed by `connectconformance`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JudgeReport {
    /// Cases that did not simply pass, by name.
    pub findings: BTreeMap<String, JudgeFinding>,
    /// Number of passed cases.
    pub passed: usize,
    /// Number of cases that could not be run. No finding mentions them.
    pub not_run: usize,
}

/// Verdict on a case that did not simply pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JudgeFinding {
    /// The case failed for this reason.
    Failed(String),
    /// The case was listed as a known failure, and passed.
    UnexpectedPass,
    /// The case was listed as a known failure, and failed for this reason.
    FailedAsExpected(String),
}

/// The output is not a report of the suite, or is incomplete.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JudgeReportError {
    #[error("the output ends without \"Total cases: …\"")]
    NoTotals,
    #[error("line {line}: expected {expected}, found {found:?}")]
    Unexpected { line: usize, expected: &'static str, found: String },
    #[error("line {line}: {case:?} has a second verdict")]
    Repeated { line: usize, case: String },
    #[error("the totals state {stated} cases that {what}, but there are {found}")]
    Miscounted { what: &'static str, stated: usize, found: usize },
}

const EXPECTED_BLOCK: &str = "a failed case or the totals";
const EXPECTED_COUNTS: &str = "\"N passed, N failed\"";
const EXPECTED_END: &str = "the end of the output";

/// Parses the standard output of the suite.
///
/// # Errors
/// The text is not a report, is cut off, or has totals that contradict its cases.
pub fn parse_judge_report(text: &str) -> Result<JudgeReport, JudgeReportError> {
    let mut lines = ReportLines::new(text);
    let findings = read_findings(&mut lines)?;
    let totals = read_totals(&mut lines)?;
    let count = |is_counted: fn(&JudgeFinding) -> bool| {
        findings.values().filter(|finding| is_counted(finding)).count()
    };
    let expected = count(|finding| matches!(finding, JudgeFinding::FailedAsExpected(_)));
    let failed = findings.len() - expected;
    // The total may include cases that could not be run, if the suite knew them in advance.
    let judged = totals.passed + totals.failed + totals.expected;
    let checks = [
        ("failed", totals.failed, failed),
        ("failed as expected", totals.expected, expected),
        ("have a verdict", totals.total.min(judged + totals.not_run).max(judged), totals.total),
    ];
    match checks.into_iter().find(|(_, stated, found)| stated != found) {
        Some((what, stated, found)) => Err(JudgeReportError::Miscounted { what, stated, found }),
        None => Ok(JudgeReport { findings, passed: totals.passed, not_run: totals.not_run }),
    }
}

/// Lines of a report, with line numbers.
struct ReportLines<'a> {
    rest: &'a str,
    /// Number of the line last read.
    line: usize,
}

impl<'a> ReportLines<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text, line: 0 }
    }

    /// Returns the next complete line.
    fn next(&mut self) -> Option<&'a str> {
        let (line, rest) = self.rest.split_once('\n')?;
        self.rest = rest;
        self.line += 1;
        Some(line)
    }

    /// Returns the next line without its tab if it continues a block.
    fn next_indented(&mut self) -> Option<&'a str> {
        self.rest.starts_with('\t').then(|| self.next()).flatten().map(|line| &line[1..])
    }

    fn unexpected(&self, expected: &'static str, found: &str) -> JudgeReportError {
        JudgeReportError::Unexpected { line: self.line, expected, found: found.to_owned() }
    }
}

/// Reads the blocks of cases, up to the line with the total, which is not consumed.
fn read_findings(lines: &mut ReportLines<'_>) -> Result<BTreeMap<String, JudgeFinding>, JudgeReportError> {
    let mut findings = BTreeMap::new();
    while !lines.rest.starts_with("Total cases: ") {
        let line = lines.next().ok_or(JudgeReportError::NoTotals)?;
        if line.is_empty() {
            continue;
        }
        let (case, kind) = block_head(line).ok_or_else(|| lines.unexpected(EXPECTED_BLOCK, line))?;
        let number = lines.line;
        let finding = match kind {
            BlockKind::Failed => JudgeFinding::Failed(read_reason(lines)),
            BlockKind::FailedAsExpected => JudgeFinding::FailedAsExpected(read_reason(lines)),
            BlockKind::UnexpectedPass => JudgeFinding::UnexpectedPass,
        };
        if findings.insert(case.to_owned(), finding).is_some() {
            return Err(JudgeReportError::Repeated { line: number, case: case.to_owned() });
        }
    }
    Ok(findings)
}

fn read_reason(lines: &mut ReportLines<'_>) -> String {
    let mut reason = Vec::new();
    while let Some(line) = lines.next_indented() {
        reason.push(line);
    }
    reason.join("\n").trim_end().to_owned()
}

enum BlockKind {
    Failed,
    UnexpectedPass,
    FailedAsExpected,
}

/// Returns the case and kind of a block, given its first line. Names may contain spaces and colons.
fn block_head(line: &str) -> Option<(&str, BlockKind)> {
    if let Some(rest) = line.strip_prefix("FAILED: ") {
        let unexpected = rest.strip_suffix(" was expected to fail but did not");
        return match (rest.strip_suffix(':'), unexpected) {
            (Some(case), _) => Some((case, BlockKind::Failed)),
            (None, Some(case)) => Some((case, BlockKind::UnexpectedPass)),
            (None, None) => None,
        };
    }
    let case = line.strip_prefix("INFO: ")?.strip_suffix(" failed (as expected):")?;
    Some((case, BlockKind::FailedAsExpected))
}

#[derive(Default)]
struct JudgeTotals {
    total: usize,
    passed: usize,
    failed: usize,
    not_run: usize,
    expected: usize,
}

fn read_totals(lines: &mut ReportLines<'_>) -> Result<JudgeTotals, JudgeReportError> {
    let mut totals = JudgeTotals::default();
    let total = lines.next().ok_or(JudgeReportError::NoTotals)?;
    totals.total = number_within(total, "Total cases: ", "")
        .ok_or_else(|| lines.unexpected("\"Total cases: N\"", total))?;
    let counts = lines.next().ok_or(JudgeReportError::NoTotals)?;
    let numbers = counts.split_once(", ").and_then(|(passed, failed)| {
        Some((number_within(passed, "", " passed")?, number_within(failed, "", " failed")?))
    });
    (totals.passed, totals.failed) = numbers.ok_or_else(|| lines.unexpected(EXPECTED_COUNTS, counts))?;
    while let Some(line) = lines.next() {
        if let Some(count) = number_within(line, "Another ", NOT_RUN_END) {
            totals.not_run = count;
        } else if let Some(count) = number_within(line, "(Another ", EXPECTED_FAILURES_END) {
            totals.expected = count;
        } else {
            return Err(lines.unexpected(EXPECTED_END, line));
        }
    }
    if lines.rest.is_empty() { Ok(totals) } else { Err(lines.unexpected(EXPECTED_END, lines.rest)) }
}

const NOT_RUN_END: &str = " could not be run due to client timing out or exiting prematurely.";
const EXPECTED_FAILURES_END: &str = " failed as expected due to being known failures/flakes.)";

fn number_within(line: &str, before: &str, after: &str) -> Option<usize> {
    let digits = line.strip_prefix(before)?.strip_suffix(after)?;
    // `parse` would accept a sign. `u32` leaves room for the sum of a few numbers.
    let number: Option<u32> =
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten();
    usize::try_from(number?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report as printed by the suite, with each kind of verdict.
    const REPORT: &str = "\
FAILED: A/HTTPVersion:1/unary/one:
	actual error {code: 2}
		does not match
	
	--- stack ---
FAILED: B b/two was expected to fail but did not
INFO: C/three failed (as expected):
	no such code

Total cases: 7
3 passed, 2 failed
Another 2 could not be run due to client timing out or exiting prematurely.
(Another 1 failed as expected due to being known failures/flakes.)
";

    fn findings() -> BTreeMap<String, JudgeFinding> {
        let reason = "actual error {code: 2}\n\tdoes not match\n\n--- stack ---".to_owned();
        BTreeMap::from([
            ("A/HTTPVersion:1/unary/one".to_owned(), JudgeFinding::Failed(reason)),
            ("B b/two".to_owned(), JudgeFinding::UnexpectedPass),
            ("C/three".to_owned(), JudgeFinding::FailedAsExpected("no such code".to_owned())),
        ])
    }

    fn error(text: &str) -> String {
        parse_judge_report(text).unwrap_err().to_string()
    }

    #[test]
    fn each_kind_of_verdict_is_read() {
        let report = JudgeReport { findings: findings(), passed: 3, not_run: 2 };
        assert_eq!(parse_judge_report(REPORT), Ok(report));
        let clean = parse_judge_report("Total cases: 314\n314 passed, 0 failed\n").unwrap();
        assert_eq!(clean, JudgeReport { passed: 314, ..JudgeReport::default() });
        let none = "Total cases: 0\n0 passed, 0 failed\nAnother 5 could not be run due to client timing out or \
                    exiting prematurely.\n";
        assert_eq!(parse_judge_report(none).unwrap().not_run, 5);
    }

    #[test]
    fn report_that_is_cut_anywhere_is_refused_or_has_no_other_verdicts() {
        for cut in (0..REPORT.len()).filter(|cut| REPORT.is_char_boundary(*cut)) {
            match parse_judge_report(&REPORT[..cut]) {
                Err(_) => {}
                Ok(report) => panic!("cut at {cut}: {report:?}"),
            }
        }
    }

    #[test]
    fn other_text_is_refused_with_its_line() {
        assert_eq!(error(""), "the output ends without \"Total cases: …\"");
        assert_eq!(error("FAILED: x\n"), "line 1: expected a failed case or the totals, found \"FAILED: x\"");
        assert_eq!(
            error("FAILED: x:\n\twhy\nunknown flag: --x\n"),
            "line 3: expected a failed case or the totals, found \"unknown flag: --x\""
        );
        assert_eq!(
            error("Total cases: 1\n+1 passed, 0 failed\n"),
            "line 2: expected \"N passed, N failed\", found \"+1 passed, 0 failed\""
        );
        assert_eq!(
            error("Total cases: 1\n1 passed, 0 failed\nBye\n"),
            "line 3: expected the end of the output, found \"Bye\""
        );
        let huge = format!("Total cases: {}0\n1 passed, 0 failed\n", usize::MAX);
        assert!(error(&huge).starts_with("line 1: expected \"Total cases: N\""));
    }

    #[test]
    fn totals_that_contradict_the_cases_are_refused() {
        assert_eq!(
            error("FAILED: x:\n\twhy\nFAILED: x:\n\twhy\n\nTotal cases: 2\n0 passed, 2 failed\n"),
            "line 3: \"x\" has a second verdict"
        );
        assert_eq!(
            error("FAILED: x:\n\twhy\n\nTotal cases: 2\n2 passed, 0 failed\n"),
            "the totals state 0 cases that failed, but there are 1"
        );
        assert_eq!(
            error("INFO: x failed (as expected):\n\twhy\n\nTotal cases: 2\n1 passed, 0 failed\n"),
            "the totals state 0 cases that failed as expected, but there are 1"
        );
        assert_eq!(
            error("Total cases: 3\n2 passed, 0 failed\n"),
            "the totals state 2 cases that have a verdict, but there are 3"
        );
    }
}
