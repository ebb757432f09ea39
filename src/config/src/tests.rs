//! Valid and invalid `heeler.toml` files, as written by users.

use std::{num::NonZeroU32, path::Path, time::Duration};

use heeler_core::{RetryPolicy, SourceRequest};

use super::*;
use crate::filter::FilterSubject;

fn parse(text: &str) -> Config {
    Config::parse(Path::new("heeler.toml"), text).unwrap()
}

/// Checks the problems of a file as printed below the heading.
#[track_caller]
fn check_problems(text: &str, expected: &str) {
    let error = Config::parse(Path::new("heeler.toml"), text).unwrap_err().to_string();
    let (_, problems) = error.split_once('\n').unwrap();
    assert_eq!(problems, expected.trim());
}

const FULL: &str = r#"
state-dir = "state"
stryker = "tools/core"

[profile.default]
jobs = 3
timeout = "2m"
slow-timeout = "10s"

[[profile.default.override]]
filter = "net::*"
retries = 2
timeout = "9s"

[profile.ci]
jobs = "num-cpus"
retries = 1
timeout = false
slow-timeout = { period = "20s", terminate-after = 3 }
grace-period = "1s"
max-fail = 5
isolate = true
shuffle = 7
status-level = "fail"
final-status-level = "slow"
success-output = "final"
failure-output = "immediate-final"
reports = ["junit=out/junit.xml", "ctrf"]
no-capture = false
output-limit = "64KiB"
drain-timeout = "1s"
client-stall-timeout = "2s"
connect-timeout = "3s"
startup-timeout = "4s"
list-timeout = "500ms"
run-timeout = "2h"
max-startup-crashes = 1
history = false

[[profile.ci.override]]
filter = "net::slow"
timeout = "1h"
isolate = false
slow-timeout = "5m"

[[suite]]
name = "unit"
programs = ["build/a_test", "build/*_test"]
framework = "gtest"
args = ["--fast"]
env = { DATA = "data", HOME = false }
cwd = "build"
build = ["make", "-C", "build"]
timeout = "30s"
retries = 4
isolate = false

[[suite]]
name = "rust"
cargo = "crates"
cargo-args = ["--features", "net"]

[[suite]]
name = "tools"
mcp = "node 'my server.js'"

[suite.arguments]
"mcp.test.echo" = { echo = "hi", list = [1, -2.5, true, 2026-01-02], deep = { hex = 0x10 } }
none = {}
"#;

/// Compares a generated file with the one in `docs/reference`; `UPDATE_GOLDEN=1` writes it.
fn check_generated(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == text, "docs/reference/{name} is not up to date; UPDATE_GOLDEN=1 rewrites it");
}

#[test]
fn reference_page_is_generated_from_the_tables() {
    check_generated("config.md", &reference::render_page());
}

#[test]
fn json_schema_is_generated_from_the_tables() {
    let schema = serde_json::to_string_pretty(&reference::json_schema()).unwrap();
    check_generated("heeler.schema.json", &(schema + "\n"));
}

#[test]
fn reference_describes_every_key_with_its_default() {
    let page = reference::render_page();
    for row in [
        "| `grace-period` | duration | `\"5s\"` | Time between SIGTERM and SIGKILL when a test process is terminated. |",
        "| `jobs` | positive integer or \"num-cpus\" | `\"num-cpus\"` | Number of worker slots",
        "| `fail-fast` | true, false or \"immediate\" | `false` | ",
        "| `name` | string | required | Name of the suite",
        "| `period` | duration | required | ",
        "| `crash-capture` | string | `\"root\"` | ",
    ] {
        assert!(page.contains(&format!("\n{row}")), "{page}");
    }
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    assert!(rows.iter().all(|row| row.ends_with(". |")), "{rows:?}");
}

#[test]
fn documented_defaults_equal_the_default_settings() {
    let lines: String =
        reference::defaults().iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
    let config = parse(&format!("[profile.default]\n{lines}"));
    let written = &config.profiles["default"];
    assert_eq!(written.run, RunSettings::default().into_layer());
    assert_eq!(written.tests, TestSettings::default().into_layer());
}

#[test]
fn json_schema_accepts_the_full_file_and_no_unknown_key() {
    let validator = jsonschema::validator_for(&reference::json_schema()).unwrap();
    let full: serde_json::Value = toml::from_str(FULL).unwrap();
    assert!(validator.is_valid(&full), "{:?}", validator.iter_errors(&full).next());
    for wrong in [
        "statedir = \"x\"",
        "[profile.a]\njob = 1",
        "[profile.a]\njobs = 0",
        "[profile.a]\nfail-fast = \"later\"",
        "[[profile.a.override]]\nretries = 1",
        "[profile.a]\nslow-timeout = { terminate-after = 2 }",
        "[[suite]]\ncargo = \".\"",
    ] {
        let wrong: serde_json::Value = toml::from_str(wrong).unwrap();
        assert!(!validator.is_valid(&wrong), "{wrong}");
    }
}

#[test]
fn file_with_every_key_is_read() {
    let config = parse(FULL);
    assert_eq!(config.state_dir, Path::new("state"));
    assert_eq!(config.stryker.as_deref(), Some(Path::new("tools/core")));
    let run = config.resolve_profile("ci").unwrap().run;
    assert_eq!(run.jobs, JobCount::Cpus);
    assert_eq!(run.fail_limit(), FailLimit::After { failures: 5.try_into().unwrap(), is_immediate: false });
    assert_eq!(run.shuffle, ShuffleMode::Seed(7));
    assert_eq!(run.status_level, Some(StatusLevel::Fail));
    assert_eq!(run.final_status_level, Some(FinalStatusLevel::Slow));
    assert_eq!((run.success_output, run.failure_output), (OutputTiming::Final, OutputTiming::ImmediateFinal));
    let files: Vec<_> = run.reports.iter().map(|one| (one.format.name, one.file.as_path())).collect();
    assert_eq!(files, [("junit", Path::new("out/junit.xml")), ("ctrf", Path::new("ctrf-report.json"))]);
    assert_eq!(run.output_limit_bytes, 65_536);
    assert_eq!(run.list_timeout, Duration::from_millis(500));
    assert_eq!(run.run_timeout, TimeLimit::After(Duration::from_secs(7200)));
    assert_eq!(run.max_startup_crashes.get(), 1);
    assert!(!run.is_history_kept);
    let unit = &config.suites[0];
    assert_eq!((unit.name.as_str(), unit.position), ("unit", FilePosition { line: 46, column: 1 }));
    assert_eq!(unit.source, SourceRequest::new("programs", ["build/a_test".into(), "build/*_test".into()]));
    assert_eq!(unit.env, [("DATA".into(), Some("data".into())), ("HOME".into(), None)]);
    assert_eq!(unit.build.as_deref(), Some(&["make".to_owned(), "-C".to_owned(), "build".to_owned()][..]));
    assert_eq!(unit.cwd.as_deref(), Some(Path::new("build")));
    assert_eq!(
        config.suites[1].source,
        SourceRequest::new("cargo", ["crates".into(), "--features".into(), "net".into()])
    );
    let tools = &config.suites[2];
    assert_eq!(tools.source, SourceRequest::new("mcp", ["".into(), "node 'my server.js'".into()]));
    let arguments: Vec<_> =
        tools.test_arguments.iter().map(|(name, text)| format!("{name} {text}")).collect();
    let echo = r#"{"deep":{"hex":16},"echo":"hi","list":[1,-2.5,true,"2026-01-02"]}"#;
    assert_eq!(arguments, [format!("mcp.test.echo {echo}"), "none {}".to_owned()]);
}

#[test]
fn paths_are_relative_to_the_file() {
    let config = Config::parse(
        Path::new("/w/sub/heeler.toml"),
        "state-dir = \"/var/state\"\n[profile.default]\nreports = [\"junit=j.xml\"]\n[[suite]]\nname = \"s\"\ncargo = \".\"\ncwd = \"/tmp\"",
    )
    .unwrap();
    assert_eq!(config.dir, Path::new("/w/sub"));
    assert_eq!(config.state_dir, Path::new("/var/state"));
    assert_eq!(
        config.resolve_profile("default").unwrap().run.reports.first().map(|one| one.file.as_path()),
        Some(Path::new("/w/sub/j.xml"))
    );
    assert_eq!(config.suites[0].cwd.as_deref(), Some(Path::new("/tmp")));
    assert_eq!(config.suites[0].source, SourceRequest::new("cargo", ["/w/sub/.".into()]));
}

#[test]
fn misspelt_key_error_suggests_the_nearest_key() {
    check_problems(
        "[profile.default]\njobs = 2\n\n[profile.ci]\nretries = 2\n\ntimout = \"5s\"\n",
        "heeler.toml:7:1: unknown key \"timout\" in [profile.ci]; did you mean \"timeout\"?",
    );
}

#[test]
fn file_errors_are_all_reported_in_order() {
    check_problems(
        r#"statedir = "x"
zebra = 1
[profile.default]
jobs = 0
retries = -1
timeout = 60
slow-timeout = "0s"
grace-period = "5"
status-level = "loud"
[profile.ci]
fail-fast = true
max-fail = 2
slow-timeout = { terminate-after = 2 }
"#,
        r#"
heeler.toml:1:1: unknown key "statedir"; did you mean "state-dir"?
heeler.toml:2:1: unknown key "zebra" (available: state-dir, stryker, suite, resource, fixture, machine, profile)
heeler.toml:4:8: expected a positive integer or "num-cpus" for "jobs" in [profile.default], found the number 0
heeler.toml:5:11: expected a non-negative integer, or a table { backoff = "exponential", count = 3, delay = "1s" } for "retries" in [profile.default], found the number -1
heeler.toml:6:11: expected a duration such as "60s" or "1m 30s", or false (no limit) for "timeout" in [profile.default], found the number 60
heeler.toml:7:16: expected a duration such as "60s", or a table { period = "60s", terminate-after = 2 } for "slow-timeout" in [profile.default]: the duration must be longer than zero
heeler.toml:8:16: expected a duration such as "60s" or "1m 30s" for "grace-period" in [profile.default]: "5" has no unit; the units are ms, s, m, h and d
heeler.toml:9:16: expected one of none, fail, retry, slow, pass, skip, all for "status-level" in [profile.default], found the string "loud"
heeler.toml:12:1: "max-fail" and "fail-fast" can't be combined; "fail-fast = true" means "max-fail = 1"
heeler.toml:13:16: "slow-timeout" needs a "period" such as "60s"
"#,
    );
}

#[test]
fn invalid_suites_are_reported() {
    check_problems(
        r#"
[[suite]]
name = "a"
programs = []
[[suite]]
cargo = "x"
[[suite]]
name = "b"
cargo = "x"
programs = ["y"]
env = { "A=B" = "c", D = 1 }
[[suite]]
name = "b"
programs = ["y"]
cargo-args = ["z"]
build = []
[[suite]]
name = "c"
"#,
        r#"
heeler.toml:4:12: expected an array of paths or globs for "programs" in [[suite]], found an empty array
heeler.toml:5:1: [[suite]] needs a "name"
heeler.toml:9:1: "cargo" and "programs" can't be combined; split them into two suites
heeler.toml:11:9: invalid environment variable name "A=B"
heeler.toml:11:26: expected a string for D in [suite.env], or false to unset it
heeler.toml:13:1: duplicate suite name "b" (already defined on line 7)
heeler.toml:15:1: "cargo-args" has no effect without "cargo"
heeler.toml:16:9: expected a command as an array of strings, such as ["make", "tests"] for "build" in [[suite]], found an empty array
heeler.toml:17:1: [[suite]] needs one of "programs", "cargo", "mcp", "mtp", "pytest", "go", "ctest", "command" to find its tests
"#,
    );
    check_problems(
        "[[suite]]\nname = \"d\"\nmcp = \"\"\narguments = { x = 1 }\n",
        r#"
heeler.toml:3:7: expected a command, such as "node server.js" for "mcp" in [[suite]], found an empty string
heeler.toml:4:19: expected a table of arguments for "x" in [suite.arguments], such as { name = "value" }
"#,
    );
}

#[test]
fn wrong_values_of_every_notation_are_reported() {
    check_problems(
        r#"
state-dir = ""
[profile.default]
jobs = "many"
retries = 1.5
isolate = 1
max-memory = true
idle-timeout = true
dumps = "core"
crash-capture = 3
shuffle = -1
reports = ["ctrf", "junt=a"]
no-capture = "no"
output-limit = "1X"
keep-runs = 99999999999999999999
fail-fast = "later"
slow-timeout = { period = "x", terminate-after = 0, after = 1 }
override = 1
[[suite]]
name = "a"
programs = ["x", 3]
args = "x"
slow-timeout = 3
env = 1
"#,
        r#"
heeler.toml:2:13: expected a directory path for "state-dir", found an empty string
heeler.toml:4:8: expected a positive integer or "num-cpus" for "jobs" in [profile.default], found the string "many"
heeler.toml:5:11: expected a non-negative integer, or a table { backoff = "exponential", count = 3, delay = "1s" } for "retries" in [profile.default], found the number 1.5
heeler.toml:6:11: expected true or false for "isolate" in [profile.default], found the number 1
heeler.toml:7:14: expected a size such as "512MiB", or false (no limit) for "max-memory" in [profile.default], found true
heeler.toml:8:16: expected a duration such as "60s" or "1m 30s", or false (no limit) for "idle-timeout" in [profile.default], found true
heeler.toml:9:9: expected one of "off", "crash", "hang", "all" for "dumps" in [profile.default], found the string "core"
heeler.toml:10:17: expected one of "off", "root", "tree" for "crash-capture" in [profile.default], found the number 3
heeler.toml:11:11: expected a seed (a non-negative integer), true or false for "shuffle" in [profile.default], found the number -1
heeler.toml:12:20: expected an array of reports such as ["junit=out/junit.xml"] for "reports" in [profile.default]: unknown report format "junt"; did you mean "junit"?
and 12 more
"#,
    );
}

#[test]
fn slow_timeout_table_reports_each_error_once() {
    check_problems(
        "[profile.ci]\nslow-timeout = { period = \"x\", terminate-after = 0, perod = 1 }\n[[suite]]\nname = \"a\"\nprograms = [\"x\", 3]\nslow-timeout = 3\nenv = 1\n",
        r#"
heeler.toml:2:27: expected a duration such as "60s" for "period" in [profile.ci.slow-timeout]: "x" does not begin with a number
heeler.toml:2:50: expected a positive integer for "terminate-after" in [profile.ci.slow-timeout], found the number 0
heeler.toml:2:53: unknown key "perod" in [profile.ci.slow-timeout]; did you mean "period"?
heeler.toml:5:12: expected an array of paths or globs for "programs" in [[suite]], found an array
heeler.toml:6:16: expected a duration such as "60s", or a table { period = "60s", terminate-after = 2 } for "slow-timeout" in [[suite]], found the number 3
heeler.toml:7:7: expected a table for "env" in [[suite]], found the number 1
"#,
    );
}

#[test]
fn fail_limit_of_a_profile_replaces_the_inherited_one() {
    let config = parse(
        "[profile.default]\nmax-fail = 5\n[profile.off]\nfail-fast = false\n[profile.now]\nfail-fast = \"immediate\"\n[profile.one]\nfail-fast = true\n",
    );
    let limit = |profile: &str| config.resolve_profile(profile).unwrap().run.fail_limit();
    let after = |failures: u32, is_immediate| FailLimit::After {
        failures: failures.try_into().unwrap(),
        is_immediate,
    };
    assert_eq!(limit("default"), after(5, false));
    assert_eq!(limit("off"), FailLimit::Never);
    assert_eq!(limit("one"), after(1, false));
    assert_eq!(limit("now"), after(1, true));
}

#[test]
fn error_list_stops_at_ten() {
    let text: String = (0..12).map(|number| format!("key{number} = 1\n")).collect();
    let error = Config::parse(Path::new("heeler.toml"), &text).unwrap_err().to_string();
    assert!(error.starts_with("heeler.toml has 12 errors:\n"), "{error}");
    assert_eq!(error.lines().count(), 12);
    assert!(error.ends_with("\nand 2 more"));
}

#[test]
fn toml_syntax_error_has_its_position() {
    check_problems("a = \n", "heeler.toml:1:5: string values must be quoted, expected literal string");
    check_problems("[profile.a]\njobs = 1\njobs = 2\n", "heeler.toml:3:1: duplicate key");
}

#[test]
fn columns_are_counted_in_characters() {
    check_problems(
        "state-dir = \"é\" \n\"ü\" = 1",
        "heeler.toml:2:1: unknown key \"ü\" (available: state-dir, stryker, suite, resource, fixture, machine, profile)",
    );
    check_problems(
        "[[suite]]\nname = \"a\"\ncargo = \".\"\nenv = { \"üü\" = \"\", b = 1 }",
        "heeler.toml:4:24: expected a string for b in [suite.env], or false to unset it",
    );
}

#[test]
fn missing_or_binary_file_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("heeler.toml");
    let missing = Config::load(&path).unwrap_err();
    assert!(matches!(missing, ConfigError::Read { .. }));
    std::fs::write(&path, b"state-dir = \"a\"\n# \xff").unwrap();
    let error = Config::load(&path).unwrap_err().to_string();
    assert!(error.ends_with("heeler.toml:2:3: the file is not valid UTF-8"), "{error}");
}

#[test]
fn nearest_parent_file_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let below = dir.path().join("a/b");
    std::fs::create_dir_all(&below).unwrap();
    let path = dir.path().join("a").join(FILE_NAME);
    std::fs::write(&path, "").unwrap();
    assert_eq!(Config::find(&below), Some(path));
}

#[test]
fn profiles_inherit_from_the_default_profile() {
    let config = parse("[profile.default]\nretries = 2\njobs = 4\n[profile.ci]\nretries = 5\n");
    let profile = config.resolve_profile("ci").unwrap();
    assert_eq!(profile.tests.retries, RetryPolicy::immediate(5));
    assert_eq!(profile.run.jobs, JobCount::Count(4.try_into().unwrap()));
    assert_eq!(config.resolve_profile("default").unwrap().tests.retries, RetryPolicy::immediate(2));
    assert_eq!(
        Config::without_file(Path::new("")).resolve_profile("default").unwrap().run,
        RunSettings::default()
    );
}

#[test]
fn unknown_profile_error_suggests_the_nearest() {
    let config = parse("[profile.nightly]\n");
    assert_eq!(
        config.resolve_profile("nightli").unwrap_err().to_string(),
        "unknown profile \"nightli\"; did you mean \"nightly\"?"
    );
    assert_eq!(
        config.resolve_profile("ci").unwrap_err().to_string(),
        "unknown profile \"ci\" (available: default, nightly)"
    );
    let error = config.resolve_profile("release").unwrap_err().to_string();
    assert!(error.ends_with("nightly); to select a cargo profile, use --cargo-profile"), "{error}");
}

fn subject(uid: &str) -> FilterSubject<'_> {
    FilterSubject { uid, tags: vec![("speed", "slow")], ..FilterSubject::default() }
}

fn settings(command_line: CommandLineSettings) -> ResolvedSettings {
    ResolvedSettings::resolve(&parse(FULL), command_line).unwrap()
}

#[test]
fn setting_precedence_of_a_test() {
    let settings_of = |profile: &str, tests: TestLayer| {
        settings(CommandLineSettings {
            profile: Some(profile.to_owned()),
            tests,
            ..CommandLineSettings::default()
        })
    };
    let default = settings_of("default", TestLayer::default());
    let seconds = |test: &TestSettings| test.timeout.duration().map(|timeout| timeout.as_secs());
    assert_eq!(seconds(&default.for_test(None, &subject("x::a"))), Some(120));
    assert_eq!(seconds(&default.for_test(Some("unit"), &subject("unit::a"))), Some(30));
    assert_eq!(default.for_test(Some("unit"), &subject("unit::net::a")).retries.count, 2);
    assert_eq!(seconds(&default.for_test(Some("unit"), &subject("unit::net::a"))), Some(9));

    let ci = settings_of("ci", TestLayer::default());
    assert_eq!(seconds(&ci.for_test(None, &subject("x::a"))), Some(60), "three periods of 20 s");
    assert!(ci.for_test(None, &subject("x::a")).is_isolated);
    let slow = ci.for_test(None, &subject("x::net::slow"));
    assert_eq!(
        (seconds(&slow), slow.retries.count, slow.is_isolated),
        (Some(3_600), 2, false),
        "both overrides, the first first"
    );
    assert_eq!(slow.slow_timeout.period, Duration::from_secs(300));

    let tests = TestLayer {
        timeout: Some(TimeLimit::Unlimited),
        retries: Some(RetryPolicy::immediate(0)),
        ..TestLayer::default()
    };
    let chosen = settings_of("ci", tests).for_test(Some("unit"), &subject("unit::net::slow"));
    assert_eq!((chosen.timeout, chosen.retries.count), (TimeLimit::Unlimited, 0));
}

#[test]
fn request_of_a_run_precedes_all_other_settings() {
    let tests = TestLayer { retries: Some(RetryPolicy::immediate(7)), ..TestLayer::default() };
    let run = RunLayer { jobs: Some(JobCount::Count(4.try_into().unwrap())), ..RunLayer::default() };
    let session = settings(CommandLineSettings { tests, run, ..CommandLineSettings::default() });
    let of_net = subject("unit::net::a");
    let before = session.for_test(Some("unit"), &of_net);
    for (jobs, slots) in [(None, 4), (NonZeroU32::new(2), 2), (NonZeroU32::new(9), 4)] {
        let tests = TestLayer {
            retries: Some(RetryPolicy::immediate(1)),
            timeout: Some(TimeLimit::After(Duration::from_millis(1))),
            is_isolated: Some(true),
            ..TestLayer::default()
        };
        let run = session.for_run(&RunOptions { jobs, tests, ..RunOptions::default() });
        let test = run.for_test(Some("unit"), &of_net);
        assert_eq!((test.retries.count, test.is_isolated), (1, true));
        assert_eq!(test.timeout.duration(), Some(Duration::from_millis(1)));
        assert_eq!(test.max_memory, before.max_memory, "what the request does not set stays");
        assert_eq!(run.run.jobs.slots().get(), slots);
    }
    assert_eq!(session.for_run(&RunOptions::default()), session);
    assert_eq!(session.for_test(Some("unit"), &of_net), before, "the session's own settings stay");
}

#[test]
fn repeat_of_request_precedes_the_command_line() {
    let three = CommandLineSettings { repeat: NonZeroU32::new(3), ..CommandLineSettings::default() };
    for (said, requested, expected) in [
        (CommandLineSettings::default(), "{}", None),
        (CommandLineSettings::default(), r#"{"repeat": 2}"#, NonZeroU32::new(2)),
        (three.clone(), "{}", NonZeroU32::new(3)),
        (three, r#"{"repeat": 2}"#, NonZeroU32::new(2)),
    ] {
        let options: RunOptions = serde_json::from_str(requested).unwrap();
        assert_eq!(settings(said).for_run(&options).program.repeat, expected, "{requested}");
    }
}

#[test]
fn live_output_implies_one_job() {
    let shown = RunLayer { capture: Some(CaptureStrategy::Shown), ..RunLayer::default() };
    let one = settings(CommandLineSettings { run: shown.clone(), ..CommandLineSettings::default() });
    assert_eq!(one.run.jobs, JobCount::Count(1.try_into().unwrap()));
    let jobs = JobCount::Count(3.try_into().unwrap());
    let three = settings(CommandLineSettings {
        run: RunLayer { jobs: Some(jobs), ..shown },
        ..CommandLineSettings::default()
    });
    assert_eq!(three.run.jobs, jobs);
}

#[test]
fn test_is_selected_by_any_filter() {
    assert!(settings(CommandLineSettings::default()).is_selected(&subject("a::b")));
    let filters = ["x", "*b"].map(|text| text.parse().unwrap()).to_vec();
    let some = settings(CommandLineSettings { filters, ..CommandLineSettings::default() });
    assert!(some.is_selected(&subject("a::b")));
    assert!(!some.is_selected(&subject("a::c")));
}

#[test]
fn override_accepts_a_filter_expression() {
    let text = "[[profile.default.override]]\nfilter = 'tag(speed=slow) & !test(=b)'\nretries = 7\n";
    let settings = ResolvedSettings::resolve(&parse(text), CommandLineSettings::default()).unwrap();
    assert_eq!(settings.for_test(None, &subject("a::a")).retries.count, 7);
    assert_eq!(settings.for_test(None, &subject("a::b")).retries.count, 0);
}

#[test]
fn filter_error_has_its_own_position() {
    let parse_error = |filter: &str| {
        let text = format!("[[profile.default.override]]\nfilter = {filter}\nretries = 7\n");
        Config::parse(Path::new("heeler.toml"), &text).unwrap_err().to_string()
    };
    let message = "expected a substring of a name, a glob or a filter expression for \"filter\" in [[profile.default.override]]: ";
    let fault = "unknown function \"tset\"; did you mean \"test\"?";
    for (filter, place) in
        [("\"all() & tset(x)\"", "heeler.toml:2:19: "), ("'all() & tset(x)'", "heeler.toml:2:19: ")]
    {
        assert!(
            parse_error(filter).ends_with(&format!("{place}{message}{fault}")),
            "{}",
            parse_error(filter)
        );
    }
    // Escapes in the string hide the position inside it, so the message has the filter's own column.
    for filter in ["\"\\u0061ll() & tset(x)\"", "\"\"\"all() & tset(x)\"\"\""] {
        let expected = format!("heeler.toml:2:10: {message}column 9: {fault}");
        assert!(parse_error(filter).ends_with(&expected), "{}", parse_error(filter));
    }
    assert!(parse_error("3").contains("found the number 3"), "{}", parse_error("3"));
}

#[test]
fn config_of_this_repository_is_valid() {
    let file = Config::find(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))).unwrap();
    let config = Config::load(&file).unwrap();
    let settings = ResolvedSettings::resolve(&config, CommandLineSettings::default()).unwrap();
    let fox = settings.for_test(Some("samples"), &subject("kennel::night_watch::the_fox_comes_back"));
    assert_eq!(fox.timeout, TimeLimit::After(Duration::from_secs(2)));
    assert!(
        ResolvedSettings::resolve(
            &config,
            CommandLineSettings { profile: Some("ci".to_owned()), ..CommandLineSettings::default() }
        )
        .is_ok()
    );
}
