//! `heeler check-adapter`: checks a JSON lines adapter against every rule of the specification, and prints
//! the result of each rule.

use std::io::Write as _;

use heeler_adapters::check::{AdapterCheck, RuleFinding, RuleResult};
use heeler_report::sanitise::one_line;
use heeler_worker::CheckedProgram;
use serde_json::{Value, json};

use super::{
    arguments::{CheckAdapterArguments, CheckFormat},
    exit::{CliExitCode, CommandError},
};
use heeler_sys::program_search::find_program;

/// The page with the rules.
const SPECIFICATION: &str = "docs/frameworks/json-lines.md";

pub(super) fn check_adapter(arguments: &CheckAdapterArguments) -> Result<CliExitCode, CommandError> {
    let here = std::env::current_dir().map_err(|source| {
        CommandError::CheckAdapter(heeler_worker::AdapterCheckError::Talk { path: ".".into(), source })
    })?;
    let path = find_program(&arguments.program, &here)
        .ok_or_else(|| CommandError::NoAdapter { name: arguments.program.clone() })?;
    let program = CheckedProgram { path, args: arguments.args.clone(), limit: arguments.timeout };
    let mut check =
        AdapterCheck::new(&arguments.framework).expect("the parser accepts only frameworks of JSON lines");
    heeler_worker::check_adapter(&program, &mut check).map_err(CommandError::CheckAdapter)?;
    let results = check.results();
    let text = match arguments.format {
        CheckFormat::Human => human(&results, check.notes()),
        CheckFormat::Json => json_lines(&results),
    };
    // A closed pipe is not an error.
    let _closed = std::io::stdout().write_all(text.as_bytes());
    let is_broken = results.iter().any(|one| matches!(one.finding, RuleFinding::Broken { .. }));
    Ok(if is_broken { CliExitCode::TestsFailed } else { CliExitCode::Success })
}

fn human(results: &[RuleResult], notes: &[String]) -> String {
    let mut text = String::new();
    let mut counts = [0; 3];
    for RuleResult { rule, finding } in results {
        let (place, label, addition) = match finding {
            RuleFinding::Kept => (0, "ok", String::new()),
            RuleFinding::Broken { .. } => (1, "FAILED", String::new()),
            RuleFinding::NotTried { reason } => (2, "not tried", format!(": {}", one_line(reason))),
        };
        counts[place] += 1;
        text.push_str(&format!("{label:<9}  {:<18}  {}{addition}\n", rule.id(), rule.text()));
        if let RuleFinding::Broken { first, times } = finding {
            let parts = [("sent", &first.sent), ("received", &first.came), ("expected", &first.expected)];
            for (name, part) in parts {
                text.push_str(&format!("           {name:<8}  {}\n", one_line(part)));
            }
            let times = if *times > 1 { format!("; failed {times} times") } else { String::new() };
            text.push_str(&format!("           see       {SPECIFICATION}#{}{times}\n", rule.section()));
        }
    }
    for note in notes {
        text.push_str(&format!("note       {}\n", one_line(note)));
    }
    let [kept, broken, untried] = counts;
    text.push_str(&format!("\n{} rules: {kept} ok, {broken} failed, {untried} not tried\n", results.len()));
    text
}

fn json_lines(results: &[RuleResult]) -> String {
    let object = |one: &RuleResult| {
        let mut object = json!({
            "rule": one.rule.id(),
            "text": one.rule.text(),
            "section": format!("{SPECIFICATION}#{}", one.rule.section()),
        });
        let mut put = |name: &str, value: Value| object[name] = value;
        match &one.finding {
            RuleFinding::Kept => put("result", "ok".into()),
            RuleFinding::NotTried { reason } => {
                put("result", "not-tried".into());
                put("reason", reason.as_str().into());
            }
            RuleFinding::Broken { first, times } => {
                put("result", "failed".into());
                put("sent", first.sent.as_str().into());
                put("came", first.came.as_str().into());
                put("expected", first.expected.as_str().into());
                put("times", (*times).into());
            }
        }
        object.to_string()
    };
    format!("[\n{}\n]\n", results.iter().map(object).collect::<Vec<_>>().join(",\n"))
}
