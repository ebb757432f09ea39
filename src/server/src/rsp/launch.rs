//! Launch attributes: which of a suite's tests run, and how. Pure.

use std::collections::BTreeMap;

use heeler_config::{RunOptions, filter::Filter};
use heeler_protocol::rsp::{Attribute, LaunchMode, LaunchParams, RUN_MODE};
use heeler_run_store::RerunSelector;
use serde_json::{Map, Value, json};

const FILTER: &str = "filter";
const JOBS: &str = "jobs";
const RERUN: &str = "rerun";

/// Options of a launch besides its suite.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct LaunchOptions {
    pub(super) filter: Option<Filter>,
    pub(super) rerun: Option<RerunSelector>,
    pub(super) run: RunOptions,
}

impl LaunchOptions {
    /// Reads the attributes of a launch.
    ///
    /// # Errors
    /// Returns a sentence that names the attribute and the expected value.
    pub(super) fn read(params: &LaunchParams) -> Result<Self, String> {
        if let Some(mode) = params.mode.as_deref().filter(|mode| *mode != RUN_MODE) {
            return Err(format!("unknown mode {mode:?}; expected \"{RUN_MODE}\""));
        }
        let mut options = Self::default();
        for (name, value) in params.params.attributes.iter().flatten() {
            // A form field that was left empty counts as absent.
            if matches!(value, Value::Null) || value.as_str().is_some_and(|text| text.trim().is_empty()) {
                continue;
            }
            match name.as_str() {
                FILTER => options.filter = Some(read_filter(value)?),
                JOBS => options.run = read_jobs(value)?,
                RERUN => options.rerun = Some(read_rerun(value)?),
                _ => {
                    return Err(format!("unknown attribute {name:?}; expected {FILTER}, {JOBS} or {RERUN}"));
                }
            }
        }
        Ok(options)
    }

    /// Returns whether selecting the tests requires files of earlier runs.
    pub(super) fn depends_on_earlier_runs(&self) -> bool {
        self.rerun.is_some() || self.filter.as_ref().is_some_and(Filter::depends_on_history)
    }
}

fn read_filter(value: &Value) -> Result<Filter, String> {
    let text = value.as_str().ok_or_else(|| format!("{FILTER} must be a string, got {value}"))?;
    text.parse().map_err(|error| format!("invalid {FILTER}: {error}"))
}

/// Reads the number of jobs, which some forms send as text or with a decimal point.
fn read_jobs(value: &Value) -> Result<RunOptions, String> {
    let text = value.as_str().map_or_else(|| value.to_string(), |text| text.trim().to_owned());
    let whole = text.strip_suffix(".0").unwrap_or(&text).parse::<u32>();
    let wrong = || format!("{JOBS} must be an integer of at least 1, got {value}");
    let jobs = whole.map_err(|_| wrong())?;
    let options = Map::from_iter([(JOBS.to_owned(), json!(jobs))]);
    serde_json::from_value(Value::Object(options)).map_err(|_| wrong())
}

fn read_rerun(value: &Value) -> Result<RerunSelector, String> {
    match value.as_str() {
        Some("failed") => Ok(RerunSelector::Failed),
        Some("not-run") => Ok(RerunSelector::NotRun),
        Some(_) | None => Err(format!("{RERUN} must be \"failed\" or \"not-run\", got {value}")),
    }
}

/// Returns the launch modes of a suite.
pub(super) fn launch_modes() -> Vec<LaunchMode> {
    vec![LaunchMode { mode: RUN_MODE.to_owned(), desc: "Runs the tests".to_owned() }]
}

/// Returns the optional attributes of a launch.
pub(super) fn optional_attributes() -> BTreeMap<String, Attribute> {
    let attribute = |value_type: &str, description: &str| Attribute {
        value_type: value_type.to_owned(),
        description: description.to_owned(),
        default_val: Value::Null,
        secret: false,
    };
    let filter = "Filter expression to select tests, such as test(~parse) & not tag(slow)";
    let jobs = "Maximum number of tests to run in parallel";
    let rerun = "Rerun tests of the suite's latest run: failed or not-run";
    BTreeMap::from([
        (FILTER.to_owned(), attribute("string", filter)),
        (JOBS.to_owned(), attribute("integer", jobs)),
        (RERUN.to_owned(), attribute("string", rerun)),
    ])
}

#[cfg(test)]
mod tests {
    use heeler_protocol::rsp::LaunchedServer;

    use super::*;

    fn read(attributes: Value) -> Result<LaunchOptions, String> {
        let attributes = serde_json::from_value(attributes).unwrap();
        let params = LaunchedServer { server_type: None, id: "s".into(), attributes };
        LaunchOptions::read(&LaunchParams { mode: Some("run".into()), params })
    }

    #[test]
    fn absent_and_empty_attributes_select_everything() {
        for attributes in [json!(null), json!({}), json!({"filter": "", "jobs": null, "rerun": " "})] {
            assert_eq!(read(attributes.clone()), Ok(LaunchOptions::default()), "{attributes}");
        }
    }

    #[test]
    fn number_of_jobs_is_read_in_each_form_that_clients_send() {
        let expected: RunOptions = serde_json::from_value(json!({"jobs": 3})).unwrap();
        for jobs in [json!(3), json!(3.0), json!("3"), json!(" 3 ")] {
            assert_eq!(read(json!({"jobs": jobs})).unwrap().run, expected, "{jobs}");
        }
    }

    #[test]
    fn wrong_attribute_is_refused_with_its_name() {
        for (attributes, text) in [
            (json!({"jobs": 0}), "jobs must be an integer of at least 1, got 0"),
            (json!({"jobs": 1.5}), "jobs must be an integer of at least 1, got 1.5"),
            (json!({"jobs": -1}), "jobs must be an integer of at least 1, got -1"),
            (json!({"jobs": "many"}), "jobs must be an integer of at least 1, got \"many\""),
            (json!({"rerun": "all"}), "rerun must be \"failed\" or \"not-run\", got \"all\""),
            (json!({"filter": 7}), "filter must be a string, got 7"),
            (json!({"filters": "x"}), "unknown attribute \"filters\"; expected filter, jobs or rerun"),
        ] {
            assert_eq!(read(attributes.clone()).unwrap_err(), text, "{attributes}");
        }
        let error = read(json!({"filter": "test(~parse) & "})).unwrap_err();
        assert!(error.starts_with("invalid filter: column 16: "), "{error}");
    }

    #[test]
    fn only_runs_are_offered() {
        assert_eq!(launch_modes().len(), 1);
        let params = LaunchedServer { server_type: None, id: "s".into(), attributes: None };
        let debug = LaunchParams { mode: Some("debug".into()), params };
        assert_eq!(LaunchOptions::read(&debug).unwrap_err(), "unknown mode \"debug\"; expected \"run\"");
    }

    #[test]
    fn each_offered_attribute_is_read() {
        let values = json!({"filter": "all()", "jobs": 1, "rerun": "failed"});
        let names: Vec<_> = optional_attributes().into_keys().collect();
        assert!(names.iter().all(|name| values.get(name).is_some()) && names.len() == 3, "{names:?}");
        let options = read(values).unwrap();
        assert!(options.filter.is_some() && options.rerun.is_some() && options.depends_on_earlier_runs());
    }
}
