//! Reads `heeler.toml`: finds the file, reads its tables, and checks keys against each other. Errors are
//! collected, so a single reading reports all of them. Keys and their types are in `tables.rs`.

use std::{
    collections::BTreeMap,
    fmt,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use heeler_report::ReportRequest;
use toml::de::{DeTable, DeValue};

use super::{
    Config, FilePosition, MachineSlots, RunLayer, SettingsOverride, SuiteConfig,
    declarations::Declarations,
    profiles::{STATE_DIR, resolve_path},
    reader::{ConfigDocument, TableReader},
    sources::read_source,
    tables::{MachineTable, OverrideTable, ProfileTable, SuiteTable, TopTable},
    test_arguments::read_test_arguments,
    types::UnresolvedProfile,
};

/// Name of the configuration file.
pub const FILE_NAME: &str = "heeler.toml";

/// Root can read and change every file anyway, so trusting its configuration adds no risk.
const ROOT_UID: u32 = 0;

/// Maximum number of problems printed for a file. The rest is only counted.
const MAX_PRINTED_PROBLEMS: usize = 10;

/// Error of finding or reading the configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("{}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// The file was found by searching, not named by the user, and belongs to another user. It could contain
    /// commands to run.
    #[error(
        "{} belongs to another user (uid {owner}) and could run commands as you; if you trust it, \
         pass it with --config-file",
        path.display()
    )]
    UntrustedOwner {
        path: PathBuf,
        /// User id of the owner.
        owner: u32,
    },
    /// The file has errors.
    #[error("{} has {}:{}", path.display(), error_count_text(problems.len()), problem_list(path, problems))]
    Invalid {
        path: PathBuf,
        /// Problems in file order; never empty.
        problems: Vec<ConfigProblem>,
    },
}

/// An error in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    pub position: FilePosition,
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

    /// Returns the nearest configuration file. The file must belong to this user, to root, or to the owner of
    /// `start`, whose tests this user is about to run.
    ///
    /// # Errors
    /// Another user owns the file.
    pub fn find_trusted(start: &Path) -> Result<Option<PathBuf>, ConfigError> {
        let Some(path) = Self::find(start) else { return Ok(None) };
        let read = |source| ConfigError::Read { path: path.clone(), source };
        let owner_of_start = std::fs::metadata(start).map_err(read)?.uid();
        // For a symbolic link, both link and target are checked, because the owner of the link chooses the
        // file.
        let files = [std::fs::symlink_metadata(&path), std::fs::metadata(&path)];
        for file in files {
            let owner = file.map_err(read)?.uid();
            if ![heeler_sys::process::effective_uid(), ROOT_UID, owner_of_start].contains(&owner) {
                return Err(ConfigError::UntrustedOwner { path, owner });
            }
        }
        Ok(Some(path))
    }

    /// Returns the names of all profiles, in order.
    #[must_use]
    pub fn profile_names(&self) -> Vec<String> {
        let default = [super::profiles::DEFAULT_PROFILE.to_owned()];
        let names = default.into_iter().chain(self.profiles.keys().cloned());
        names.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
    }

    /// Reads the given configuration file, or the nearest one. If there is none, returns the defaults for the
    /// current directory.
    ///
    /// # Errors
    /// Same as [`Self::find_trusted`] and [`Self::load`].
    pub fn load_nearest(file: Option<&Path>) -> Result<Self, ConfigError> {
        let here = || {
            std::env::current_dir()
                .map_err(|source| ConfigError::Read { path: Path::new(".").to_owned(), source })
        };
        let found = match file {
            Some(file) => Some(file.to_owned()),
            None => Self::find_trusted(&here()?)?,
        };
        match found {
            Some(file) => Self::load(&file),
            None => {
                let here = here()?;
                let root = heeler_sys::workspace::workspace_root(&here, std::env::home_dir().as_deref());
                Ok(Self::without_file(&here).with_state_below(root.as_deref().unwrap_or(&here)))
            }
        }
    }

    /// Reads a configuration file.
    ///
    /// # Errors
    /// The file can't be read, or has errors. All errors are reported.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let bytes =
            std::fs::read(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        match std::str::from_utf8(&bytes) {
            Ok(text) => Self::parse(path, text),
            Err(error) => {
                let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
                let position = ConfigDocument::new(&before).position(before.len());
                let problem = ConfigProblem { position, message: "the file is not valid UTF-8".to_owned() };
                Err(ConfigError::Invalid { path: path.to_owned(), problems: vec![problem] })
            }
        }
    }

    /// Parses the text of the configuration file at `path`.
    ///
    /// # Errors
    /// The text has errors. All of them are reported.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let document = ConfigDocument::new(text);
        let (tree, syntax_errors) = DeTable::parse_recoverable(text);
        for error in &syntax_errors {
            document.report(error.span().unwrap_or(0..0), error.message().replace('\n', ", "));
        }
        // After a syntax error the tree is incomplete, so reading it would report errors that are not in the
        // file.
        let config = syntax_errors
            .is_empty()
            .then(|| read_config(path, &TableReader::new(&document, "", tree.get_ref(), tree.span())));
        match (config, document.into_problems()) {
            (Some(config), problems) if problems.is_empty() => Ok(config),
            (_, problems) => Err(ConfigError::Invalid { path: path.to_owned(), problems }),
        }
    }
}

fn read_config(path: &Path, top: &TableReader<'_, '_>) -> Config {
    let dir = path.parent().unwrap_or(Path::new("")).to_owned();
    let TopTable { state_dir, stryker, .. } = top.read();
    let declared = Declarations::read(top);
    let mut suites: Vec<SuiteConfig> = Vec::new();
    for table in top.read_tables("suite", "[[suite]]") {
        let Some(suite) = read_suite(&dir, &table) else { continue };
        declared.check(&table, &suite.tests);
        match suites.iter().find(|other| other.name == suite.name) {
            Some(other) => {
                let line = other.position.line;
                let message =
                    format!("duplicate suite name \"{}\" (already defined on line {line})", suite.name);
                top.document.report(table.key_span("name"), message);
            }
            None => suites.push(suite),
        }
    }
    let profiles = read_profiles(&dir, top, &declared);
    declared.check_all_needed(top);
    top.report_unknown_keys();
    let state_dir = resolve_path(&dir, state_dir.as_deref().unwrap_or(Path::new(STATE_DIR)));
    let stryker = stryker.map(|directory| resolve_path(&dir, &directory));
    let Declarations { resources, fixtures, .. } = declared;
    let machine_slots = read_machine_slots(top);
    Config {
        file: Some(path.to_owned()),
        state_dir,
        stryker,
        dir,
        suites,
        resources,
        fixtures,
        machine_slots,
        profiles,
    }
}

fn read_machine_slots(top: &TableReader<'_, '_>) -> Option<MachineSlots> {
    let table = top.read_table("machine")?;
    let MachineTable { slots } = table.read();
    table.report_unknown_keys();
    slots
}

fn read_profiles(
    dir: &Path,
    top: &TableReader<'_, '_>,
    declared: &Declarations,
) -> BTreeMap<String, UnresolvedProfile> {
    let mut profiles = BTreeMap::new();
    let Some(tables) = top.read_table("profile") else { return profiles };
    for (name, value) in tables.entries() {
        let title = format!("[profile.{}]", name.get_ref());
        match value.get_ref() {
            DeValue::Table(entries) => {
                let table = TableReader::new(top.document, title, entries, value.span());
                let profile = read_profile(dir, name.get_ref(), &table, declared);
                profiles.insert(name.get_ref().to_string(), profile);
            }
            _ => top
                .document
                .report(name.span(), format!("expected a table {title} with the profile's settings")),
        }
    }
    profiles
}

fn read_profile(
    dir: &Path,
    name: &str,
    table: &TableReader<'_, '_>,
    declared: &Declarations,
) -> UnresolvedProfile {
    let run: RunLayer = table.read();
    if table.contains_key("fail-fast") && table.contains_key("max-fail") {
        let message =
            "\"max-fail\" and \"fail-fast\" can't be combined; \"fail-fast = true\" means \"max-fail = 1\"";
        table.document.report(table.key_span("max-fail"), message);
    }
    let tests = table.read();
    declared.check(table, &tests);
    let ProfileTable { .. } = table.read();
    let title = format!("[[profile.{name}.override]]");
    let overrides = table.read_tables("override", &title);
    let overrides = overrides.iter().filter_map(|table| read_override(&title, table, declared)).collect();
    table.report_unknown_keys();
    let resolve = |one: ReportRequest| ReportRequest { file: resolve_path(dir, one.file), ..one };
    let reports = run.reports.map(|reports| reports.into_iter().map(resolve).collect());
    UnresolvedProfile { run: RunLayer { reports, ..run }, tests, overrides }
}

fn read_override(
    title: &str,
    table: &TableReader<'_, '_>,
    declared: &Declarations,
) -> Option<SettingsOverride> {
    let OverrideTable { filter } = table.read();
    if !table.contains_key("filter") {
        table
            .document
            .report(table.span.clone(), format!("{title} needs a \"filter\" that selects its tests"));
    }
    let filter = filter.and_then(|text| table.parse_filter("filter", &text));
    let tests = table.read();
    declared.check(table, &tests);
    table.report_unknown_keys();
    Some(SettingsOverride { filter: filter?, tests })
}

fn read_suite(dir: &Path, table: &TableReader<'_, '_>) -> Option<SuiteConfig> {
    let suite: SuiteTable = table.read();
    let source = read_source(dir, table);
    let tests = table.read();
    table.report_unknown_keys();
    if !table.contains_key("name") {
        table.document.report(table.span.clone(), "[[suite]] needs a \"name\"");
    }
    Some(SuiteConfig {
        // A missing name has been reported above.
        name: suite.name?,
        position: table.document.position(table.span.start),
        source,
        framework: suite.framework,
        args: suite.args.unwrap_or_default(),
        env: read_env(table),
        test_arguments: read_test_arguments(table),
        cwd: suite.cwd.map(|path| resolve_path(dir, &path)),
        build: suite.build,
        tests,
    })
}

/// Returns whether the text is a valid name of an environment variable.
pub(super) fn is_variable_name(text: &str) -> bool {
    !text.is_empty() && !text.contains(['=', '\0'])
}

fn read_env(table: &TableReader<'_, '_>) -> Vec<(String, Option<String>)> {
    let Some(env) = table.read_table("env") else { return Vec::new() };
    let mut variables = Vec::new();
    for (name, value) in env.entries() {
        let name_text = name.get_ref().to_string();
        if !is_variable_name(&name_text) {
            env.document.report(name.span(), format!("invalid environment variable name {name_text:?}"));
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
