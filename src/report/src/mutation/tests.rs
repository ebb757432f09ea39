//! Reports of the same results in every format, validated by the formats' own schemas.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use heeler_mutant_model::{
    ForeignMutant, ForeignSource, Language, Mutant, MutantId, MutantResult, MutantStatus, Position,
};
use serde_json::Value;

use super::{annotations::MAX_MUTANT_ANNOTATIONS, *};
use crate::ReportError;

const SOURCE: &str = "pub fn both(a: bool, b: bool) -> bool {\n    a && b // \u{202e}<script>&\n}\n\npub fn none() -> u32 {\n    7\n}\n";

fn mutant(id: u64, line: u32, columns: (u32, u32), replacement: &str) -> Arc<Mutant> {
    let source = ForeignSource { path: "src/a b.rs".into(), language: Language::Rust, text: SOURCE.into() };
    let found = ForeignMutant {
        start: Position { line, column: columns.0 },
        end: Position { line, column: columns.1 },
        mutator: "ConditionalExpression".to_owned(),
        replacement: replacement.to_owned(),
        description: None,
    };
    let mut mutant = source.mutants(vec![found]).unwrap().remove(0);
    (mutant.id, mutant.item) = (MutantId(id), "both".into());
    Arc::new(mutant)
}

fn results() -> Vec<MutantResult> {
    let survived = MutantResult {
        covered_by: ["unit::both", "unit::<other>"].map(Arc::from).into_iter().collect(),
        tests_completed: Some(2),
        is_static: Some(false),
        duration: Some(Duration::from_micros(12_345)),
        ..MutantResult::new(mutant(1, 2, (5, 11), "true"), MutantStatus::Survived, None)
    };
    let killed = MutantResult {
        covered_by: std::iter::once("unit::both".into()).collect(),
        killed_by: vec!["unit::both".into()],
        ..MutantResult::new(mutant(2, 2, (5, 11), "false"), MutantStatus::Killed, Some("left: <1>".into()))
    };
    let mut results = vec![killed, survived];
    let rest = MutantStatus::ALL
        .into_iter()
        .filter(|status| !matches!(status, MutantStatus::Survived | MutantStatus::Killed));
    for (number, status) in rest.enumerate() {
        let deletes = mutant(10 + number as u64, 6, (5, 6), "");
        results.push(MutantResult::new(deletes, status, Some("a reason".into())));
    }
    results
}

fn written(write: fn(&MutationReport<'_>, &mut dyn std::io::Write) -> Result<(), ReportError>) -> String {
    written_of(&results(), write)
}

fn written_of(
    results: &[MutantResult],
    write: fn(&MutationReport<'_>, &mut dyn std::io::Write) -> Result<(), ReportError>,
) -> String {
    let sources = BTreeMap::from([("src/a b.rs".into(), SOURCE.into())]);
    let place = TestPlace { file: "tests/unit.rs".to_owned(), line: Some(3) };
    let tests = BTreeMap::from([("unit::both".into(), place)]);
    let second = Duration::from_secs(1);
    let report = MutationReport {
        results,
        sources: &sources,
        directory: Path::new("/project/of mine"),
        bounds: ScoreBounds::default(),
        tests: &tests,
        phases: Some(MutationPhases { setup: second, initial_run: second, mutation: second }),
    };
    let mut out = Vec::new();
    write(&report, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Returns a file of the packages installed by `scripts/test`.
fn package_file(path: &str) -> String {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients/node_modules").join(path);
    std::fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("{}: {error}; scripts/test installs it", file.display()))
}

fn published_schema(file: &str) -> Value {
    let mut schema: Value = serde_json::from_str(&package_file(file)).unwrap();
    // A pattern in the published schema is valid only in JavaScript; its member is never written.
    for place in ["run", "toolComponent"] {
        if let Some(language) = schema.pointer_mut(&format!("/definitions/{place}/properties/language")) {
            language.as_object_mut().unwrap().remove("pattern");
        }
    }
    schema
}

#[track_caller]
fn check_schema(schema: &str, report: &str) -> Value {
    let schema = published_schema(schema);
    let validator = jsonschema::validator_for(&schema).unwrap();
    let report: Value = serde_json::from_str(report).unwrap();
    let errors: Vec<_> =
        validator.iter_errors(&report).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:?}\n{report:#}");
    report
}

const ELEMENTS_SCHEMA: &str = "mutation-testing-report-schema/dist/src/mutation-testing-report-schema.json";
const SARIF_SCHEMA: &str = "@microsoft/jest-sarif/lib/schemas/sarif-2.1.0-rtm.5.json";

#[test]
fn elements_follow_the_published_schema() {
    let report = check_schema(ELEMENTS_SCHEMA, &written(write_elements));
    let file = &report["files"]["src/a b.rs"];
    assert_eq!(file["mutants"].as_array().unwrap().len(), results().len());
    assert_eq!(file["source"], SOURCE);
    let survived =
        &file["mutants"].as_array().unwrap().iter().find(|one| one["status"] == "Survived").unwrap();
    assert_eq!(survived["duration"], 12.345);
    // Each test id in a mutant refers to a listed test.
    let both = report["testFiles"]["tests/unit.rs"]["tests"][0].clone();
    assert_eq!((&both["name"], &both["location"]["start"]["line"]), (&"unit::both".into(), &3.into()));
    assert!(survived["coveredBy"].as_array().unwrap().contains(&both["id"]));
    assert_eq!(report["testFiles"]["unit"]["tests"][0]["name"], "unit::<other>");
    check_schema(ELEMENTS_SCHEMA, &written_of(&[], write_elements));
}

#[test]
fn sarif_has_the_survivors_and_follows_the_published_schema() {
    let report = check_schema(SARIF_SCHEMA, &written(write_sarif));
    let results = report["runs"][0]["results"].as_array().unwrap();
    let levels: Vec<_> = results.iter().map(|one| one["level"].as_str().unwrap()).collect();
    assert_eq!(levels, ["warning", "note"]);
    assert_eq!(
        results[0]["message"]["text"],
        "a && b → true: in `both`: 2 tests cover it and none failed: unit::both, unit::<other>"
    );
    let place = &results[0]["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "src/a%20b.rs");
    assert_eq!(report["runs"][0]["originalUriBaseIds"]["SRCROOT"]["uri"], "file:///project/of%20mine/");
    assert_eq!((&place["region"]["startColumn"], &place["region"]["endColumn"]), (&5.into(), &11.into()));
    check_schema(SARIF_SCHEMA, &written_of(&[], write_sarif));
}

#[test]
fn schemas_refuse_what_is_wrong() {
    for (schema, write, member) in [
        (ELEMENTS_SCHEMA, write_elements as fn(&MutationReport<'_>, &mut dyn std::io::Write) -> _, "files"),
        (SARIF_SCHEMA, write_sarif, "runs"),
    ] {
        let schema = published_schema(schema);
        let mut report: Value = serde_json::from_str(&written(write)).unwrap();
        report[member] = Value::Null;
        assert!(!jsonschema::validator_for(&schema).unwrap().is_valid(&report));
    }
}

#[test]
fn annotations_are_of_survivors_and_bounded() {
    let (directory, root) = (Path::new("/repository/crate"), Path::new("/repository"));
    assert_eq!(
        mutant_annotations(&results(), directory, root),
        [
            "::warning file=crate/src/a b.rs,line=2,col=5,endColumn=11,title=Survived%3A ConditionalExpression::\
          a && b → true: in `both`: 2 tests cover it and none failed: unit::both, unit::<other>",
            "::warning file=crate/src/a b.rs,line=6,endLine=6,title=Not covered by tests::\
          no test reaches 1 mutant of both, in line 6"
        ]
    );
    let survivor =
        |number: usize| MutantResult::new(mutant(number as u64, 1, (1, 2), ""), MutantStatus::Survived, None);
    let uncovered = MutantResult::new(mutant(100, 6, (5, 6), ""), MutantStatus::NoCoverage, None);
    for (count, rest, last) in [
        (50, vec![], "p removed: in `both`: no test failed"),
        (51, vec![], "2 more mutants survived"),
        (49, vec![uncovered.clone()], "no test reaches 1 mutant of both, in line 6"),
        (50, vec![uncovered], "1 more mutant survived; 1 more function has uncovered mutants"),
    ] {
        let many: Vec<_> = (0..count).map(survivor).chain(rest).collect();
        let commands = mutant_annotations(&many, directory, root);
        assert_eq!(commands.len(), MAX_MUTANT_ANNOTATIONS);
        assert!(commands.last().unwrap().ends_with(last), "{commands:?}");
    }
}

#[test]
fn lines_that_no_test_reaches_are_named_by_function() {
    let at = |id, line| MutantResult::new(mutant(id, line, (1, 2), "x"), MutantStatus::NoCoverage, None);
    let results: Vec<_> = [(1, 5), (2, 1), (3, 2), (4, 2)].map(|(id, line)| at(id, line)).into();
    let functions = uncovered_functions(&results);
    let [function] = functions.as_slice() else { panic!("{functions:?}") };
    assert_eq!((function.mutants, function.lines_text().as_str()), (4, "1-2, 5"));
    assert_eq!(function.line_range(), (1, 5));
}

#[test]
fn long_code_shows_what_differs() {
    let long = format!("{}a && b{}", "x + ".repeat(30), " + y".repeat(30));
    let source = ForeignSource { path: "a.rs".into(), language: Language::Rust, text: long.as_str().into() };
    let end = u32::try_from(long.len()).unwrap() + 1;
    let found = ForeignMutant {
        start: Position { line: 1, column: 1 },
        end: Position { line: 1, column: end },
        mutator: "LogicalOperator".to_owned(),
        replacement: long.replace("&&", "||"),
        description: None,
    };
    let mutant = source.mutants(vec![found]).unwrap().remove(0);
    assert_eq!(
        change_text(&mutant),
        "…+ x + x + x + x + a && b + y + y + y + y +… → …+ x + x + x + x + a || b + y + y + y + y +…"
    );
}

#[test]
fn page_has_every_mutant_in_place_and_no_foreign_markup() {
    let page = written(write_page);
    for result in results() {
        assert_eq!(page.matches(&format!("id=\"m-{}\"", result.mutant.id)).count(), 1, "{result:?}");
    }
    assert_eq!(page.matches("<script>").count(), 1, "only our own");
    assert!(page.contains("a &amp;&amp; b // \\u{202e}&lt;script&gt;&amp;"));
    // Test names are part of the reason why a mutant survived, in the list of survivors and at the mutant.
    assert!(!page.contains("<other>") && page.matches("unit::&lt;other&gt;").count() > 1);
    assert!(
        !page.contains("http://") && !page.contains("https://") && !page.contains(" src="),
        "nothing is loaded"
    );
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}"));
    let survivor = at("id=\"m-0000000000000001\"");
    assert!(
        at("<span class=\"number\">2</span>") < survivor && survivor < at("<span class=\"number\">3</span>")
    );
    assert!(at("href=\"#m-0000000000000001\"") < at("id=\"file-0\""), "survivors come first");
    // Only a full score is shown as 100 %.
    let nearly: Vec<_> = (0..3000)
        .map(|id| {
            MutantResult::new(
                mutant(id, 1, (1, 2), "b"),
                if id == 0 { MutantStatus::Survived } else { MutantStatus::Killed },
                None,
            )
        })
        .collect();
    assert!(written_of(&nearly, write_page).contains(">99.9 %</p>"));
    assert!(written_of(&[], write_page).contains("no score"));
}

/// Writes the page to the path in the variable, for viewing it in a browser.
#[test]
fn page_is_written_where_it_is_wanted() {
    let page = written(write_page);
    if let Some(file) = std::env::var_os("HEELER_MUTATION_PAGE") {
        std::fs::write(file, &page).unwrap();
    }
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
}
