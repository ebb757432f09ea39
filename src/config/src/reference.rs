//! The reference of `heeler.toml`: the meaning of each key, for people. The README's table and the hints of
//! editors are generated from it. A test checks that this list and the reader in `file.rs` have the same
//! keys.

/// A kind of table in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigSection {
    /// The top level of the file, outside any table.
    Top,
    /// `[profile.NAME]`.
    Profile,
    /// `[[profile.NAME.override]]`.
    Override,
    /// `slow-timeout` written as a table.
    SlowTimeout,
    /// `[[suite]]`.
    Suite,
    /// `env` of a suite; its keys are the names of variables.
    Environment,
}

impl ConfigSection {
    /// Returns the heading of the section, in the notation of the file.
    #[must_use]
    pub fn heading(self) -> &'static str {
        match self {
            Self::Top => "top of the file",
            Self::Profile => "[profile.NAME]",
            Self::Override => "[[profile.NAME.override]]",
            Self::SlowTimeout => "slow-timeout = { … }",
            Self::Suite => "[[suite]]",
            Self::Environment => "[suite.env]",
        }
    }
}

/// One key with its type, default and description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigKey {
    /// The section that the key belongs to.
    pub section: ConfigSection,
    pub name: &'static str,
    /// The type of the value, in words.
    pub value: &'static str,
    /// The default value, in the notation of the file; empty where there is none.
    pub default: &'static str,
    /// Description of the effect, in full sentences.
    pub doc: &'static str,
}

macro_rules! keys {
    ($($section:ident { $($(#[doc = $doc:literal])+ $name:literal: $value:literal = $default:literal;)+ })+) => {
        &[$($(ConfigKey {
            section: ConfigSection::$section,
            name: $name,
            value: $value,
            default: $default,
            doc: concat!($($doc,)+).trim_ascii(),
        },)+)+]
    };
}

const KEYS: &[ConfigKey] = keys! {
    Top {
        /// Directory for the history and for journals of runs, relative to the file.
        "state-dir": "path" = ".heeler";
        /// The profiles. `default` holds when none is named; every other one inherits from it.
        "profile": "tables" = "";
        /// The suites that run when the command line names no program.
        "suite": "tables" = "";
    }
    Profile {
        /// Worker slots: so many test processes run at the same time.
        "jobs": "number or \"num-cpus\"" = "\"num-cpus\"";
        /// How often a failed test is tried again. A test that passes then is told as flaky.
        "retries": "number" = "0";
        /// A test that runs longer is terminated. `false` lifts an inherited limit.
        "timeout": "duration or false" = "false";
        /// A running test is told to be slow each time when this has passed; as a table it can also terminate.
        "slow-timeout": "duration or table" = "\"60s\"";
        /// Time between asking a test process to end (TERM) and killing it (KILL).
        "grace-period": "duration" = "\"5s\"";
        /// Whether the tests not yet begun are given up at the first failure.
        "fail-fast": "true or false" = "false";
        /// After so many failures, the tests not yet begun are given up. Instead of `fail-fast`.
        "max-fail": "number" = "";
        /// Whether each test gets a process of its own.
        "isolate": "true or false" = "false";
        /// A test process that uses more memory, with all below it, is killed; its test is told so. `false` lifts an
        /// inherited limit.
        "max-memory": "size or false" = "false";
        /// A running test that gives no sign (output, or the end of a test) for so long is ended, and its stacks are kept.
        /// Time in which the machine did not let it run does not count. `false` lifts an inherited limit.
        "silence-timeout": "duration or false" = "false";
        /// Of what minidumps are written: `off`, `crash`, `hang` or `all`. Stacks as text are kept all the same.
        "dumps": "word" = "\"all\"";
        /// Which processes are watched for crashes: `off`, `root` (the test process; where that is a script, also what it
        /// starts) or `tree` (all that it starts).
        "watch": "word" = "\"root\"";
        /// Order by chance: a seed, or `true` for a new one each time.
        "shuffle": "seed, true or false" = "false";
        /// What is printed while tests run: none, fail, retry, slow, pass, skip or all; each includes those before it.
        /// Without it, whatever fits the terminal or log and the number of tests.
        "status-level": "word" = "";
        /// Report files that each run writes, also of `heeler serve`: `FORMAT` or `FORMAT=FILE`, relative to the file;
        /// `{run}` in a name stands for the run's id. `heeler run --help` lists the formats.
        "reports": "array of strings" = "[]";
        /// Whether output of tests is shown as it comes. Then one test runs at a time, unless `--jobs` says otherwise.
        "no-capture": "true or false" = "false";
        /// So much of each of a test's two outputs is kept, half from the head and half from the tail.
        "output-limit": "size" = "\"1MiB\"";
        /// How long each step of proving that the client has everything may go on without progress.
        "drain-timeout": "duration" = "\"5s\"";
        /// A client that reads nothing for so long, while there is something to send, counts as gone; so does one that dialled and has not initialized by then.
        "stall-timeout": "duration" = "\"2m\"";
        /// A callback connection that is not up by then counts as refused.
        "connect-timeout": "duration" = "\"5s\"";
        /// A client that was asked to attach a debugger to a test process, and has not answered by then, or to launch one, and
        /// has not by then, has none: the test runs without.
        "debugger-timeout": "duration" = "\"2m\"";
        /// A test process that has not begun its first test by then, or not left after its last, is killed.
        "startup-timeout": "duration" = "\"60s\"";
        /// A listing of tests that takes longer is given up.
        "list-timeout": "duration" = "\"60s\"";
        /// The whole run ends after this time: what runs is cancelled, the rest is told as not run. `false` lifts an
        /// inherited limit.
        "run-timeout": "duration or false" = "false";
        /// A program that dies so often outside of any test, with one test a process, is given up.
        "give-up-after": "number" = "3";
        /// Whether durations and outcomes are recorded, for the order of the next run.
        "history": "true or false" = "true";
        /// So many runs are kept in the state directory, with journals and evidence; when a new one begins, the oldest
        /// go. One that still goes on never does.
        "keep-runs": "number" = "20";
        /// A dump that would be larger is not kept.
        "dump-limit": "size" = "\"64MiB\"";
        /// After so many dumps of one run no more are written.
        "dumps-per-run": "number" = "50";
        /// After so many bytes of dumps of one run no more are written.
        "dumps-total": "size" = "\"1GiB\"";
        /// Whether dumps keep the environment of the process, which often holds secrets.
        "dump-environment": "true or false" = "false";
        /// Settings of some tests; the first one that matches and says something decides.
        "override": "tables" = "";
    }
    Override {
        /// Which tests: a part of the uid, a glob (`*`, `?`) over it or over what follows a `::`, or a filter expression.
        "filter": "filter" = "required";
        /// As in a profile.
        "timeout": "duration or false" = "";
        /// As in a profile.
        "slow-timeout": "duration or table" = "";
        /// As in a profile.
        "retries": "number" = "";
        /// As in a profile.
        "isolate": "true or false" = "";
        /// As in a profile.
        "max-memory": "size or false" = "";
        /// As in a profile.
        "silence-timeout": "duration or false" = "";
        /// As in a profile.
        "dumps": "word" = "";
        /// As in a profile.
        "watch": "word" = "";
    }
    SlowTimeout {
        /// A running test is told to be slow each time when this has passed.
        "period": "duration" = "required";
        /// After so many periods the test is terminated.
        "terminate-after": "number" = "";
    }
    Suite {
        /// Its name: the first part of its tests' uids. A suite of several programs adds theirs.
        "name": "text" = "required";
        /// Test programs: paths or globs (`*`, `?`, `**`, `[…]`, `{…}`), relative to the file.
        "programs": "array of paths" = "this or cargo";
        /// A cargo package or workspace whose test programs are built and run, relative to the file.
        "cargo": "path" = "this or programs";
        /// Arguments behind `cargo test --no-run`, such as `["--features", "net"]`.
        "cargo-args": "array of strings" = "[]";
        /// The framework of the programs (gtest, libtest); without it each program is asked.
        "framework": "text" = "";
        /// Arguments of every start of the programs, before Heeler's own.
        "args": "array of strings" = "[]";
        /// Environment of the programs; see below.
        "env": "table" = "{}";
        /// Working directory of the programs, relative to the file; without it the file's directory, or cargo's package.
        "cwd": "path" = "";
        /// A command that runs first, in the directory of the file; when it fails, nothing is run.
        "build": "array of words" = "";
        /// As in a profile, and above it.
        "timeout": "duration or false" = "";
        /// As in a profile, and above it.
        "slow-timeout": "duration or table" = "";
        /// As in a profile, and above it.
        "retries": "number" = "";
        /// As in a profile, and above it.
        "isolate": "true or false" = "";
        /// As in a profile.
        "max-memory": "size or false" = "";
        /// As in a profile.
        "silence-timeout": "duration or false" = "";
        /// As in a profile.
        "dumps": "word" = "";
        /// As in a profile.
        "watch": "word" = "";
    }
    Environment {
        /// A variable and its value; `false` unsets it.
        "NAME": "text or false" = "";
    }
};

/// Returns every key of `heeler.toml`, in the order of the printed reference.
#[must_use]
pub fn config_keys() -> &'static [ConfigKey] {
    KEYS
}

/// Returns the reference as Markdown tables, one for each section.
#[must_use]
pub fn render_reference_tables() -> String {
    let mut text = String::new();
    let mut section = None;
    for key in KEYS {
        if section != Some(key.section) {
            let gap = if section.is_none() { "" } else { "\n" };
            let heading = key.section.heading();
            text += &format!(
                "{gap}`{heading}`\n\n| key | takes | default | what it does |\n| --- | --- | --- | --- |\n"
            );
            section = Some(key.section);
        }
        let default = match key.default {
            "" => String::new(),
            word @ ("required" | "this or cargo" | "this or programs") => word.to_owned(),
            value => format!("`{value}`"),
        };
        text += &format!("| `{}` | {} | {default} | {} |\n", key.name, key.value, key.doc);
    }
    text
}
