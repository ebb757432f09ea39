//! Runs the scripts of the GitHub action and the GitLab template as these services run them. Service features
//! such as caches and artifacts are not tested.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use serde_json::Value;

use crate::support::world::{FinishedCommand, TestWorld, run_with_separate_outputs};

/// Reads a YAML file of the repository.
fn template(name: &str) -> Value {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap();
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A GitHub runner in a world: the action's inputs and the files that a step writes.
struct ActionRunner {
    world: TestWorld,
    action: Value,
    inputs: BTreeMap<String, String>,
}

impl ActionRunner {
    fn new(world: TestWorld, inputs: &[(&str, &str)]) -> Self {
        let action = template("action.yml");
        let declared = action["inputs"].as_object().unwrap();
        let mut values: BTreeMap<_, _> = declared
            .iter()
            .map(|(name, input)| (name.clone(), input["default"].as_str().unwrap().to_owned()))
            .collect();
        for (name, value) in inputs {
            assert!(values.insert((*name).to_owned(), (*value).to_owned()).is_some(), "{name} is an input");
        }
        for file in ["output", "summary", "path"] {
            world.write(file, "");
        }
        fs::create_dir(world.path("temp")).unwrap();
        Self { world, action, inputs: values }
    }

    /// Replaces expressions with the values that the service would insert.
    fn expand(&self, text: &str) -> String {
        let mut expanded = String::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("${{") {
            let (expression, after) = behind.split_once("}}").unwrap();
            expanded.push_str(before);
            expanded.push_str(&self.value(expression.trim()));
            rest = after;
        }
        expanded + rest
    }

    fn value(&self, expression: &str) -> String {
        match expression {
            "runner.temp" => self.world.path("temp").display().to_string(),
            "github.action_path" => env!("CARGO_MANIFEST_DIR").to_owned(),
            _ => {
                let input = expression.strip_prefix("inputs.");
                let value = input.and_then(|input| self.inputs.get(input));
                value.unwrap_or_else(|| panic!("{expression:?} has no value in a script")).clone()
            }
        }
    }

    /// Runs a step's script, with `heeler` in `PATH`.
    fn run(&self, name: &str) -> FinishedCommand {
        let steps = self.action["runs"]["steps"].as_array().unwrap();
        let step = steps.iter().find(|step| step["name"] == name).unwrap();
        assert_eq!(step["shell"], "bash", "{step}");
        let script = step["run"].as_str().unwrap();
        assert!(!script.contains("${{"), "a value in a script would be executed: {script}");
        let words = ["--noprofile", "--norc", "-eo", "pipefail", "-c", script];
        let mut command = self.world.command(Command::new("bash"), &words);
        for (name, value) in step["env"].as_object().into_iter().flatten() {
            command.env(name, self.expand(value.as_str().unwrap()));
        }
        for (name, file) in
            [("GITHUB_OUTPUT", "output"), ("GITHUB_STEP_SUMMARY", "summary"), ("GITHUB_PATH", "path")]
        {
            command.env(name, self.world.path(file));
        }
        command.env("GITHUB_ACTIONS", "true").env("PATH", path_with_heeler());
        run_with_separate_outputs(command)
    }
}

fn path_with_heeler() -> String {
    let program = crate::support::heeler();
    let programs = program.parent().unwrap();
    format!("{}:{}", programs.display(), std::env::var("PATH").unwrap())
}

#[test]
fn action_reports_failures_in_annotations_summary_output_and_junit() {
    let runner =
        ActionRunner::new(TestWorld::with_gtest("kinds"), &[("arguments", "kinds --filter 'Math.*'")]);
    let ran = runner.run("Run the tests");
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(format!("{}{}", ran.stdout, ran.stderr).contains("::error "), "{ran:?}");
    assert_eq!(runner.world.read("output"), "exit-code=2\n");
    let summary = runner.world.read("summary");
    assert!(summary.starts_with("### FAILED 2 of ") && summary.contains("Math.Fail"), "{summary}");
    assert!(summary.contains(" failed") && !summary.contains('\u{1b}'), "{summary}");
    assert!(runner.world.read("heeler-junit.xml").contains("<failure"), "the report");
}

#[test]
fn action_with_a_mistake_in_its_arguments_says_that_no_run_was_recorded() {
    let runner = ActionRunner::new(TestWorld::new(), &[("arguments", "nothing-here")]);
    let ran = runner.run("Run the tests");
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(runner.world.read("summary").contains("heeler run exited with code 4"));
}

#[test]
fn action_uses_a_heeler_that_is_in_the_path() {
    let runner = ActionRunner::new(TestWorld::new(), &[]);
    let ran = runner.run("Install Heeler");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!runner.world.path("temp/heeler-program").exists(), "nothing was compiled");
}

#[test]
fn gitlab_template_runs_tests_and_writes_the_report_that_it_names() {
    let world = TestWorld::with_gtest("kinds");
    let job = &template("ci/gitlab.yml")[".heeler"];
    let lines = |key: &str| -> Vec<String> {
        let lines = job[key].as_array().unwrap();
        lines.iter().map(|line| line.as_str().unwrap().to_owned()).collect()
    };
    let script = [vec!["set -eo pipefail".to_owned()], lines("before_script"), lines("script")].concat();
    let mut command = world.shell(&script.join("\n"));
    command
        .env("HEELER_ARGUMENTS", "kinds --filter 'Math.*'")
        .env("CI_PROJECT_DIR", world.dir())
        .env("GITLAB_CI", "true");
    command.env("PATH", path_with_heeler());
    let ran = run_with_separate_outputs(command);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let report = job["artifacts"]["reports"]["junit"].as_str().unwrap();
    assert!(world.read(report).contains("<failure"), "{ran:?}");
}

/// Returns the steps of all jobs.
fn steps(workflow: &Value) -> Vec<&Value> {
    let jobs = workflow["jobs"].as_object().unwrap().values();
    jobs.flat_map(|job| job["steps"].as_array().unwrap()).collect()
}

/// Panics if a workflow lacks a field that the service needs, or runs a script that does not exist.
fn check_workflow(name: &str) {
    let workflow = template(&format!(".github/workflows/{name}"));
    assert!(workflow["on"].is_object() && workflow["permissions"].is_object(), "{name}");
    for (job, content) in workflow["jobs"].as_object().unwrap() {
        assert!(content["runs-on"].is_string() && content["timeout-minutes"].is_u64(), "{name}: {job}");
    }
    for step in steps(&workflow) {
        let Some(script) = step["run"].as_str() else {
            let action = step["uses"].as_str().unwrap_or_else(|| panic!("{name}: {step}"));
            assert!(action.contains("@v"), "{name}: {action} has a version");
            continue;
        };
        let world = TestWorld::new();
        let checked = run_with_separate_outputs(world.command(Command::new("bash"), &["-n", "-c", script]));
        assert_eq!(checked.code, Some(0), "{name}: {script}: {checked:?}");
        let words = script.split_whitespace();
        let starts = ["scripts/", ".ci/", "tests/"];
        for own in words.filter(|word| starts.iter().any(|start| word.starts_with(start))) {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(own);
            assert!(path.exists(), "{name} runs {own}");
        }
    }
}

#[test]
fn workflow_of_the_gate_is_complete() {
    check_workflow("ci.yml");
}

#[test]
fn workflow_of_the_long_forms_is_complete() {
    check_workflow("long-forms.yml");
}

/// Runs the script of a release step for a tag. A fake `gh` records its arguments.
fn run_release_step(world: &TestWorld, name: &str, tag: &str) -> FinishedCommand {
    let workflow = template(".github/workflows/release.yml");
    let step = steps(&workflow).into_iter().find(|step| step["name"] == name).unwrap().clone();
    let words = ["--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"].as_str().unwrap()];
    world.write_program("gh", "#!/bin/sh\nprintf '%s\\n' \"$@\" >gh-arguments\n");
    let mut command = world.command(Command::new("bash"), &words);
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", world.dir().display())).env("GITHUB_REF_NAME", tag);
    run_with_separate_outputs(command)
}

#[test]
fn workflow_of_a_release_is_complete() {
    check_workflow("release.yml");
    let workflow = template(".github/workflows/release.yml");
    let release = &workflow["jobs"]["release"];
    assert_eq!(release["needs"], "test", "untested packages are not released");
    assert_eq!(workflow["jobs"]["test"]["needs"], "packages");
    for permission in ["attestations", "contents", "id-token"] {
        assert_eq!(release["permissions"][permission], "write", "{permission}");
    }
}

#[test]
fn release_accepts_only_the_tag_of_its_version() {
    let world = TestWorld::new();
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    world.write("Cargo.toml", &manifest);
    let version = env!("CARGO_PKG_VERSION");
    let check = |tag: &str| run_release_step(&world, "Check that the tag is the version", tag);
    let checked = check(&format!("v{version}"));
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert_eq!(check(&format!("v{version}1")).code, Some(1));
}

#[test]
fn release_is_a_draft_with_every_package_and_its_section_of_the_change_log() {
    let world = TestWorld::new();
    fs::create_dir_all(world.path("target/packages")).unwrap();
    world.write("target/packages/SHA256SUMS", "");
    world.write("target/packages/heeler.deb", "");
    world.write("CHANGELOG.md", "# Changelog\n\n## 1.2.0\n\n- New.\n\n## 1.1.0\n\n- Old.\n");
    let ran = run_release_step(&world, "Draft the release", "v1.2.0");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let arguments = world.read("gh-arguments");
    for word in ["v1.2.0", "--draft", "target/packages/SHA256SUMS", "target/packages/heeler.deb"] {
        assert!(arguments.lines().any(|argument| argument == word), "{word}: {arguments}");
    }
    assert_eq!(world.read("notes.md"), "## 1.2.0\n\n- New.\n\n");
}

#[test]
fn issue_forms_have_titles_and_fields() {
    for form in ["wrong_result", "bug", "feature"] {
        let form = template(&format!(".github/ISSUE_TEMPLATE/{form}.yml"));
        assert!(form["name"].is_string() && form["description"].is_string(), "{form}");
        for field in form["body"].as_array().unwrap() {
            assert!(field["type"].is_string() && field["attributes"].is_object(), "{field}");
        }
    }
}
