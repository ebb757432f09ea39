//! Reading `heeler.toml`: the keys, their types, and the settings they become. Errors are collected, so that
//! one reading reports all of them.

use std::{
    collections::BTreeMap,
    fmt,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use heeler_report::ReportRequest;
use toml::de::{DeTable, DeValue};

use super::{
    CaptureStrategy, Config, ConfigSection, CrashCapture, DumpPolicy, FailLimit, FilePosition, JobCount,
    MemoryLimit, RunLayer, SettingsOverride, ShuffleMode, SlowTimeout, StatusLevel, SuiteConfig, SuiteSource,
    TestLayer, TimeLimit,
    defaults::{STATE_DIR, resolve_path},
    quantity::parse_size,
    reader::{ConfigDocument, TableReader, integer, parse_positive_duration},
    reports::parse_report_request,
    types::UnresolvedProfile,
};

/// The name of the configuration file.
pub const FILE_NAME: &str = "heeler.toml";

/// Root may read and change every file anyway, so its configuration file adds no risk.
const ROOT_UID: u32 = 0;

/// The number of problems of a file that are printed; the rest is only counted.
const MAX_PRINTED_PROBLEMS: usize = 10;

/// The error of finding or reading the configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// The file was found, not named, and belongs to another user. It could name commands to run.
    #[error(
        "use {}, which belongs to user {owner}: name it by --config-file if that user may run commands as you",
        path.display()
    )]
    UntrustedOwner {
        path: PathBuf,
        /// The user id of the owner.
        owner: u32,
    },
    /// The file has errors.
    #[error("use {}, which has {}:{}", path.display(), error_count_text(problems.len()), problem_list(path, problems))]
    Invalid {
        path: PathBuf,
        /// The problems in the order of the file; never empty.
        problems: Vec<ConfigProblem>,
    },
}

/// One error in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    pub position: FilePosition,
    /// The error message.
    pub message: String,
}

fn error_count_text(problems: usize) -> String {
    if problems == 1 { "an error".to_owned() } else { format!("{problems} errors") }
}

fn problem_list(path: &Path, problems: &[ConfigProblem]) -> String {
    let mut lines = String::new();
    for problem in problems.iter().take(MAX_PRINTED_PROBLEMS) {
        lines += &format!("\n{}:{problem}", path.display());
    }
    if problems.len() > MAX_PRINTED_PROBLEMS {
        lines += &format!("\nand {} more", problems.len() - MAX_PRINTED_PROBLEMS);
    }
    lines
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.position.line, self.position.column, self.message)
    }
}

impl Config {
    /// Returns the nearest `heeler.toml` in `start` or a parent directory.
    #[must_use]
    pub fn find(start: &Path) -> Option<PathBuf> {
        start.ancestors().map(|dir| dir.join(FILE_NAME)).find(|path| path.is_file())
    }

    /// Returns the nearest configuration file. It must belong to this user, to root, or to the owner of
    /// `start`, whose tests this user means to run.
    ///
    /// # Errors
    /// Another user owns the file.
    pub fn find_trusted(start: &Path) -> Result<Option<PathBuf>, ConfigError> {
        let Some(path) = Self::find(start) else { return Ok(None) };
        let read = |source| ConfigError::Read { path: path.clone(), source };
        let owner_of_start = std::fs::metadata(start).map_err(read)?.uid();
        // A symbolic link is checked as well, because its owner chooses the file.
        let files = [std::fs::symlink_metadata(&path), std::fs::metadata(&path)];
        for file in files {
            let owner = file.map_err(read)?.uid();
            if ![heeler_sys::process::effective_uid(), ROOT_UID, owner_of_start].contains(&owner) {
                return Err(ConfigError::UntrustedOwner { path, owner });
            }
        }
        Ok(Some(path))
    }

    /// Reads a configuration file.
    ///
    /// # Errors
    /// The file can't be read, or it has errors, all of which are reported.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let bytes =
            std::fs::read(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        match std::str::from_utf8(&bytes) {
            Ok(text) => Self::parse(path, text),
            Err(error) => {
                let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
                let position = ConfigDocument::new(&before).position(before.len());
                let problem = ConfigProblem { position, message: "the file is not UTF-8".to_owned() };
                Err(ConfigError::Invalid { path: path.to_owned(), problems: vec![problem] })
            }
        }
    }

    /// Reads the text of a configuration file whose path is `path`.
    ///
    /// # Errors
    /// The text has errors, all of which are reported.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        parse_config(path, text).0
    }
}

/// Reads a file; also returns the keys that the reader looked up.
pub(super) fn parse_config(
    path: &Path,
    text: &str,
) -> (Result<Config, ConfigError>, Vec<(ConfigSection, &'static str)>) {
    let document = ConfigDocument::new(text);
    let (tree, syntax_errors) = DeTable::parse_recoverable(text);
    for error in &syntax_errors {
        document.report(error.span().unwrap_or(0..0), error.message().replace('\n', ", "));
    }
    // After a syntax error the tree is incomplete, and reading it would report errors that are not in the
    // file.
    let config = syntax_errors.is_empty().then(|| {
        let table = TableReader::new(&document, ConfigSection::Top, "", (tree.get_ref(), tree.span()));
        read_config(path, table)
    });
    let (problems, asked) = document.into_parts();
    let result = match config {
        Some(config) if problems.is_empty() => Ok(config),
        _ => Err(ConfigError::Invalid { path: path.to_owned(), problems }),
    };
    (result, asked)
}

fn read_config(path: &Path, top: TableReader<'_, '_>) -> Config {
    let dir = path.parent().unwrap_or(Path::new("")).to_owned();
    let state_dir = top.read_string("state-dir", "a path").unwrap_or_else(|| STATE_DIR.to_owned());
    let mut suites: Vec<SuiteConfig> = Vec::new();
    for table in top.read_tables("suite", ConfigSection::Suite, "[[suite]]") {
        let name_span = table.key_span("name");
        let document = table.document;
        let Some(suite) = read_suite(&dir, table) else { continue };
        match suites.iter().find(|other| other.name == suite.name) {
            Some(other) => {
                let line = other.position.line;
                document.report(
                    name_span,
                    format!("a suite named \"{}\" is there already, in line {line}", suite.name),
                );
            }
            None => suites.push(suite),
        }
    }
    let profiles = read_profiles(&dir, &top);
    top.report_unknown_keys();
    Config { file: Some(path.to_owned()), state_dir: resolve_path(&dir, &state_dir), dir, suites, profiles }
}

fn read_profiles(dir: &Path, top: &TableReader<'_, '_>) -> BTreeMap<String, UnresolvedProfile> {
    let mut profiles = BTreeMap::new();
    let Some(tables) = top.read_table("profile", ConfigSection::Profile, "[profile]") else {
        return profiles;
    };
    for (name, value) in tables.entries() {
        let title = format!("[profile.{}]", name.get_ref());
        match value.get_ref() {
            DeValue::Table(entries) => {
                let table =
                    TableReader::new(top.document, ConfigSection::Profile, title, (entries, value.span()));
                profiles.insert(name.get_ref().to_string(), read_profile(dir, name.get_ref(), table));
            }
            _ => top
                .document
                .report(name.span(), format!("expected a table {title} with the profile's settings")),
        }
    }
    profiles
}

fn read_profile(dir: &Path, name: &str, table: TableReader<'_, '_>) -> UnresolvedProfile {
    let run = read_run_layer(dir, &table);
    let title = format!("[[profile.{name}.override]]");
    let overrides = table.read_tables("override", ConfigSection::Override, &title);
    let overrides = overrides.into_iter().filter_map(|table| read_override(&title, table)).collect();
    let tests = read_test_layer(&format!("[profile.{name}.slow-timeout]"), &table);
    table.report_unknown_keys();
    UnresolvedProfile { run, tests, overrides }
}

fn read_run_layer(dir: &Path, table: &TableReader<'_, '_>) -> RunLayer {
    let jobs = table.read("jobs", "a whole number from 1 or \"num-cpus\"", |value| match value.as_str() {
        Some("num-cpus") => Some(JobCount::Cpus),
        Some(_) => None,
        None => usize::try_from(integer(value)?).ok()?.try_into().ok().map(JobCount::Count),
    });
    let shuffle = table.read("shuffle", "a seed (a whole number from 0), true or false", |value| {
        match (value.as_bool(), integer(value)) {
            (Some(true), _) => Some(ShuffleMode::Random),
            (Some(false), _) => Some(ShuffleMode::Off),
            (None, Some(seed)) => u64::try_from(seed).ok().map(ShuffleMode::Seed),
            (None, None) => None,
        }
    });
    let words = StatusLevel::WORDS.map(|(word, _)| word).join(", ");
    let status_level = table.read("status-level", &format!("one of {words}"), |value| {
        StatusLevel::WORDS.iter().find(|(word, _)| Some(*word) == value.as_str()).map(|(_, level)| *level)
    });
    let is_output_shown = table.read_bool("no-capture");
    RunLayer {
        jobs,
        fail_limit: read_fail_limit(table),
        shuffle,
        status_level,
        reports: read_reports(dir, table),
        capture: is_output_shown
            .map(|is_shown| if is_shown { CaptureStrategy::Shown } else { CaptureStrategy::Kept }),
        output_limit_bytes: table.read_size("output-limit"),
        grace_period: table.read_duration("grace-period"),
        drain_timeout: table.read_duration("drain-timeout"),
        client_stall_timeout: table.read_duration("stall-timeout"),
        connect_timeout: table.read_duration("connect-timeout"),
        debugger_timeout: table.read_duration("debugger-timeout"),
        startup_timeout: table.read_duration("startup-timeout"),
        list_timeout: table.read_duration("list-timeout"),
        run_timeout: read_time_limit("run-timeout", table),
        max_startup_crashes: table.read_count("give-up-after"),
        keep_runs: table.read_count("keep-runs"),
        history: table.read_bool("history"),
        dump_limit_bytes: table.read_size("dump-limit"),
        dumps_per_run: read_number("dumps-per-run", table),
        dumps_total_bytes: table.read_size("dumps-total"),
        dump_environment: table.read_bool("dump-environment"),
    }
}

fn read_reports(dir: &Path, table: &TableReader<'_, '_>) -> Option<Vec<ReportRequest>> {
    let read = |text: &str| parse_report_request(text);
    let requests = table.parse_array("reports", "reports such as \"junit=out/junit.xml\"", read)?;
    let resolve = |request: ReportRequest| ReportRequest {
        file: resolve_path(dir, &request.file.to_string_lossy()),
        ..request
    };
    Some(requests.into_iter().map(resolve).collect())
}

fn read_fail_limit(table: &TableReader<'_, '_>) -> Option<FailLimit> {
    let fail_fast = table.read_bool("fail-fast");
    let max_fail = table.read_count("max-fail");
    if table.contains_key("fail-fast") && table.contains_key("max-fail") {
        let message =
            "\"max-fail\" and \"fail-fast\" exclude each other; \"fail-fast = true\" is \"max-fail = 1\"";
        table.document.report(table.key_span("max-fail"), message);
    }
    let by_fail_fast = fail_fast
        .map(|is_fast| if is_fast { FailLimit::After(std::num::NonZeroU32::MIN) } else { FailLimit::Never });
    max_fail.map(FailLimit::After).or(by_fail_fast)
}

fn read_override(title: &str, table: TableReader<'_, '_>) -> Option<SettingsOverride> {
    let filter = table.read_filter("filter");
    if !table.contains_key("filter") {
        table.document.report(
            table.span.clone(),
            format!("{title} needs a \"filter\" that says which tests it is for"),
        );
    }
    let tests = read_test_layer(title, &table);
    table.report_unknown_keys();
    Some(SettingsOverride { filter: filter?, tests })
}

/// Reads a time limit: a duration, or `false` for none.
fn read_time_limit(key: &'static str, table: &TableReader<'_, '_>) -> Option<TimeLimit> {
    let limit = "a duration such as \"60s\" or \"1m 30s\", or false for none";
    match table.read_any(key).and_then(DeValue::as_bool) {
        Some(false) => Some(TimeLimit::Unlimited),
        _ => table.parse(key, limit, parse_positive_duration).map(TimeLimit::After),
    }
}

fn read_word<T: Copy>(
    key: &'static str,
    words: &[(&'static str, T)],
    table: &TableReader<'_, '_>,
) -> Option<T> {
    let all: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
    table.read(key, &format!("one of {}", all.join(", ")), |value| {
        let word = value.as_str()?;
        words.iter().find(|(known, _)| *known == word).map(|(_, kind)| *kind)
    })
}

fn read_number(key: &'static str, table: &TableReader<'_, '_>) -> Option<u32> {
    table.read(key, "a number", |value| integer(value).and_then(|number| u32::try_from(number).ok()))
}

fn read_memory_limit(table: &TableReader<'_, '_>) -> Option<MemoryLimit> {
    let limit = "a size such as \"512MiB\", or false for none";
    match table.read_any("max-memory").and_then(DeValue::as_bool) {
        Some(false) => Some(MemoryLimit::Unlimited),
        _ => table.parse("max-memory", limit, parse_size).map(MemoryLimit::Bytes),
    }
}

/// Reads the test settings of a profile, a suite or an override.
fn read_test_layer(slow_title: &str, table: &TableReader<'_, '_>) -> TestLayer {
    let timeout = read_time_limit("timeout", table);
    TestLayer {
        timeout,
        slow_timeout: read_slow_timeout(slow_title, table),
        retries: table.read("retries", "a whole number from 0", |value| u32::try_from(integer(value)?).ok()),
        isolate: table.read_bool("isolate"),
        max_memory: read_memory_limit(table),
        idle_timeout: read_time_limit("silence-timeout", table),
        dumps: read_word("dumps", &DumpPolicy::WORDS, table),
        crash_capture: read_word("watch", &CrashCapture::WORDS, table),
    }
}

fn read_slow_timeout(title: &str, table: &TableReader<'_, '_>) -> Option<SlowTimeout> {
    let expected = "a duration such as \"60s\", or a table { period = \"60s\", terminate-after = 2 }";
    if !matches!(table.read_any("slow-timeout"), Some(DeValue::Table(_))) {
        let period = table.parse("slow-timeout", expected, parse_positive_duration)?;
        return Some(SlowTimeout { period, terminate_after: None });
    }
    let table = table.read_table("slow-timeout", ConfigSection::SlowTimeout, title)?;
    let period = table.parse("period", "a duration such as \"60s\"", parse_positive_duration);
    if !table.contains_key("period") {
        table.document.report(table.span.clone(), "\"slow-timeout\" needs a \"period\" such as \"60s\"");
    }
    let terminate_after = table.read_count("terminate-after");
    table.report_unknown_keys();
    Some(SlowTimeout { period: period?, terminate_after })
}

fn read_suite(dir: &Path, table: TableReader<'_, '_>) -> Option<SuiteConfig> {
    let position = table.document.position(table.span.start);
    let name = table.read_string("name", "a name");
    if !table.contains_key("name") {
        table.document.report(table.span.clone(), "[[suite]] needs a \"name\"");
    }
    let source = read_source(dir, &table);
    let build =
        table.read("build", "a command as an array of words, such as [\"make\", \"tests\"]", |value| {
            let words: Option<Vec<String>> =
                value.as_array()?.iter().map(|word| word.get_ref().as_str().map(str::to_owned)).collect();
            words.filter(|words| words.first().is_some_and(|program| !program.is_empty()))
        });
    let suite = SuiteConfig {
        name: name.unwrap_or_default(),
        position,
        source: source.unwrap_or(SuiteSource::Programs(Vec::new())),
        framework: table.read_string("framework", "the name of a framework, such as \"gtest\""),
        args: table.read_strings("args", "an array of strings").unwrap_or_default(),
        env: read_env(&table),
        cwd: table.read_string("cwd", "the path of a directory").map(|path| resolve_path(dir, &path)),
        build,
        tests: read_test_layer("[suite.slow-timeout]", &table),
    };
    table.report_unknown_keys();
    // A missing name or source was reported above.
    (!suite.name.is_empty()).then_some(suite)
}

fn read_source(dir: &Path, table: &TableReader<'_, '_>) -> Option<SuiteSource> {
    let programs = table.read("programs", "an array of paths or globs", |value| {
        let paths: Option<Vec<String>> =
            value.as_array()?.iter().map(|path| path.get_ref().as_str().map(str::to_owned)).collect();
        paths.filter(|paths| !paths.is_empty() && paths.iter().all(|path| !path.is_empty()))
    });
    let cargo = table.read_string("cargo", "the directory of a cargo package or workspace");
    let args = table.read_strings("cargo-args", "an array of strings");
    match (table.contains_key("programs"), table.contains_key("cargo")) {
        (true, true) => {
            table.document.report(
                table.key_span("cargo"),
                "\"cargo\" and \"programs\" exclude each other; make two suites",
            );
        }
        (false, false) => {
            let message =
                "[[suite]] needs \"programs\" or \"cargo\", which say where its test programs come from";
            table.document.report(table.span.clone(), message);
        }
        (true, false) if args.is_some() => {
            table
                .document
                .report(table.key_span("cargo-args"), "\"cargo-args\" says nothing without \"cargo\"");
        }
        (true, false) | (false, true) => {}
    }
    match (cargo, programs) {
        (Some(path), _) => {
            Some(SuiteSource::Cargo { dir: resolve_path(dir, &path), args: args.unwrap_or_default() })
        }
        (None, Some(programs)) => Some(SuiteSource::Programs(programs)),
        (None, None) => None,
    }
}

fn read_env(table: &TableReader<'_, '_>) -> Vec<(String, Option<String>)> {
    let Some(env) = table.read_table("env", ConfigSection::Environment, "[suite.env]") else {
        return Vec::new();
    };
    let mut variables = Vec::new();
    for (name, value) in env.entries() {
        let name_text = name.get_ref().to_string();
        if name_text.is_empty() || name_text.contains(['=', '\0']) {
            env.document
                .report(name.span(), format!("{name_text:?} can't be the name of an environment variable"));
        }
        match value.get_ref() {
            DeValue::String(text) => variables.push((name_text, Some(text.to_string()))),
            DeValue::Boolean(false) => variables.push((name_text, None)),
            _ => {
                let message =
                    format!("expected a string for {name_text} in [suite.env], or false to unset it");
                env.document.report(value.span(), message);
            }
        }
    }
    variables
}
