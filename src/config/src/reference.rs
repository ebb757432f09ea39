//! Generates the reference of `heeler.toml` from the types in `tables.rs` and `sources.rs`: the page
//! `docs/reference/config.md` and the JSON schema `docs/reference/heeler.schema.json`.

use std::{fmt::Write as _, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize as _, Serializer};
use serde_json::{Map, Value, json};
use toml::de::DeTable;

use super::{
    CaptureStrategy, CrashCapture, DumpPolicy, FailFast, FinalStatusLevel, FlakyResult, JobCount,
    MachineSlots, MemoryLimit, OutputTiming, RunLayer, RunSettings, ShuffleMode, SlowTimeout, StatusLevel,
    TestLayer, TestSettings, TimeLimit,
    notation::{
        ByteSize, CommandArray, CommandText, Count, DirectoryPath, DurationText, FilterText, Flag,
        FrameworkName, GroupName, NameArray, NameText, Number, PackagesText, PathArray, PathOrPaths,
        PeriodText, Priority, ProgramText, ReportArray, TextArray, UnitArray,
    },
    reader::{ConfigDocument, TableReader},
    resources::{ResourceUse, ResourceUses},
    retries::{BACKOFF_WORDS, BackoffWord, RetriesTable, RetryNotation},
    sources::SourceTable,
    tables::{
        FixtureTable, MachineTable, OverrideTable, ProfileTable, ResourceTable, SlowTimeoutTable, SuiteTable,
        TopTable,
    },
};

/// Writes values in their notation, for the defaults in the reference.
pub(super) trait WriteNotation {
    type Value;

    fn write(value: &Self::Value) -> Value;

    /// Required by `#[serde(with)]`.
    fn serialize<S: Serializer>(value: &Option<Self::Value>, serializer: S) -> Result<S::Ok, S::Error> {
        value.as_ref().map(Self::write).serialize(serializer)
    }
}

/// Describes notations: name, value type, short description of accepted values, JSON schema, and how a value
/// is written.
macro_rules! described_notations {
    ($($name:ident -> $value:ty, $words:literal, $schema:tt, |$written:pat_param| $write:expr;)+) => {$(
        impl WriteNotation for $name {
            type Value = $value;

            fn write($written: &$value) -> Value {
                json!($write)
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let mut schema = json_schema!($schema);
                schema.insert("title".to_owned(), $words.into());
                schema
            }
        }
    )+};
}

described_notations! {
    Flag -> bool, "true or false", {"type": "boolean"}, |flag| flag;
    Count -> std::num::NonZeroU32, "positive integer", {"type": "integer", "minimum": 1}, |count| count;
    Number -> u32, "integer", {"type": "integer", "minimum": 0}, |number| number;
    Priority -> i32, "integer", {"type": "integer", "minimum": -100, "maximum": 100}, |priority| priority;
    ResourceUses -> std::sync::Arc<[ResourceUse]>, "array of strings",
        {"type": "array", "items": {"type": "string"}}, |uses| {
            assert!(uses.is_empty(), "only the default is written");
            Vec::<String>::new()
        };
    GroupName -> std::sync::Arc<str>, "string", {"type": "string", "minLength": 1}, |name| name.to_string();
    NameArray -> std::sync::Arc<[String]>, "array of strings",
        {"type": "array", "items": {"type": "string", "minLength": 1}}, |names| names.to_vec();
    UnitArray -> std::sync::Arc<[String]>, "array of strings",
        {"type": "array", "items": {"type": "string", "pattern": "^[^,]+$"}, "minItems": 1, "uniqueItems": true},
        |names| names.to_vec();
    DurationText -> Duration, "duration", {"type": "string"}, |duration| duration_text(*duration);
    PeriodText -> Duration, "duration", {"type": "string"}, |duration| duration_text(*duration);
    ByteSize -> u64, "size", {"type": "string"}, |bytes| size_text(*bytes);
    DirectoryPath -> std::path::PathBuf, "path", {"type": "string", "minLength": 1}, |path| path;
    NameText -> String, "string", {"type": "string", "minLength": 1}, |text| text;
    ProgramText -> String, "program", {"type": "string", "minLength": 1}, |text| text;
    PackagesText -> String, "packages", {"type": "string", "minLength": 1}, |text| text;
    CommandText -> String, "command", {"type": "string", "minLength": 1}, |text| text;
    FrameworkName -> String, "string", {"type": "string", "minLength": 1}, |text| text;
    FilterText -> String, "filter", {"type": "string"}, |text| text;
    TextArray -> Vec<String>, "array of strings", {"type": "array", "items": {"type": "string"}}, |all| all;
    PathArray -> Vec<String>, "array of paths",
        {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}, |all| all;
    PathOrPaths -> Vec<String>, "path or array of paths",
        {"anyOf": [
            {"type": "string", "minLength": 1},
            {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}
        ]},
        |all| all;
    ReportArray -> Vec<heeler_report::ReportRequest>, "array of strings",
        {"type": "array", "items": {"type": "string"}},
        |all| all.iter().map(|one| format!("{}={}", one.format.name, one.file.display())).collect::<Vec<_>>();
    CommandArray -> Vec<String>, "array of strings",
        {"type": "array", "items": {"type": "string"}, "minItems": 1}, |all| all;
    JobCount -> Self, "positive integer or \"num-cpus\"",
        {"anyOf": [{"type": "integer", "minimum": 1}, {"const": "num-cpus"}]}, |jobs| match jobs {
            JobCount::Count(count) => json!(count),
            JobCount::Cpus => json!("num-cpus"),
        };
    MachineSlots -> Self, "positive integer or \"off\"",
        {"anyOf": [{"type": "integer", "minimum": 1}, {"const": "off"}]}, |slots| match slots {
            MachineSlots::Count(count) => json!(count),
            MachineSlots::Off => json!("off"),
        };
    FailFast -> Self, "true, false or \"immediate\"", {"enum": [true, false, "immediate"]},
        |fail_fast| match fail_fast {
            FailFast::Off => json!(false),
            FailFast::Wait => json!(true),
            FailFast::Immediate => json!("immediate"),
        };
    ShuffleMode -> Self, "seed, true or false",
        {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "boolean"}]}, |shuffle| match shuffle {
            ShuffleMode::Off => json!(false),
            ShuffleMode::Random => json!(true),
            ShuffleMode::Seed(seed) => json!(seed),
        };
    CaptureStrategy -> Self, "true or false", {"type": "boolean"},
        |capture| *capture == CaptureStrategy::Shown;
    TimeLimit -> Self, "duration or false", {"anyOf": [{"type": "string"}, {"const": false}]},
        |limit| match limit.duration() {
            Some(limit) => json!(duration_text(limit)),
            None => json!(false),
        };
    MemoryLimit -> Self, "size or false", {"anyOf": [{"type": "string"}, {"const": false}]},
        |limit| match limit.bytes() {
            Some(bytes) => json!(size_text(bytes)),
            None => json!(false),
        };
    StatusLevel -> Self, "string", {"enum": ["none", "fail", "retry", "slow", "pass", "skip", "all"]},
        |level| word_of(level, &StatusLevel::WORDS);
    FinalStatusLevel -> Self, "string", {"enum": ["none", "fail", "flaky", "slow", "skip", "pass", "all"]},
        |level| word_of(level, &FinalStatusLevel::WORDS);
    OutputTiming -> Self, "string", {"enum": ["immediate", "immediate-final", "final", "never"]},
        |timing| word_of(timing, &OutputTiming::WORDS);
    FlakyResult -> Self, "string", {"enum": ["pass", "fail"]}, |result| word_of(result, &FlakyResult::WORDS);
    BackoffWord -> heeler_core::Backoff, "string", {"enum": ["fixed", "exponential"]},
        |backoff| word_of(backoff, &BACKOFF_WORDS);
    DumpPolicy -> Self, "string", {"enum": ["off", "crash", "hang", "all"]},
        |policy| word_of(policy, &DumpPolicy::WORDS);
    CrashCapture -> Self, "string", {"enum": ["off", "root", "tree"]},
        |capture| word_of(capture, &CrashCapture::WORDS);
    TestArgumentKeys -> (), "table",
        {"type": "object", "additionalProperties": {"type": "object"}}, |()| ();
    EnvironmentKeys -> (), "table",
        {"type": "object", "additionalProperties": {"anyOf": [{"type": "string"}, {"const": false}]}}, |()| ();
}

impl WriteNotation for SlowTimeout {
    type Value = Self;

    fn write(slow: &Self) -> Value {
        assert_eq!(slow.terminate_after, None, "only the short notation is written");
        json!(duration_text(slow.period))
    }
}

impl JsonSchema for SlowTimeout {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SlowTimeout".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<SlowTimeoutTable>();
        json_schema!({"title": "duration or table", "anyOf": [{"type": "string"}, table]})
    }
}

impl WriteNotation for RetryNotation {
    type Value = heeler_core::RetryPolicy;

    fn write(retries: &heeler_core::RetryPolicy) -> Value {
        assert_eq!(retries.delay, heeler_core::RetryDelay::NONE, "only the short notation is written");
        json!(retries.count)
    }
}

impl JsonSchema for RetryNotation {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "RetryNotation".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<RetriesTable>();
        json_schema!({"title": "integer or table", "anyOf": [{"type": "integer", "minimum": 0}, table]})
    }
}

fn word_of<T: PartialEq>(value: &T, words: &[(&'static str, T)]) -> &'static str {
    words.iter().find(|(_, known)| known == value).unwrap().0
}

fn duration_text(duration: Duration) -> String {
    match duration.as_secs() {
        seconds if seconds > 60 && seconds % 60 == 0 => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    }
}

fn size_text(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 30) { format!("{}GiB", bytes >> 30) } else { format!("{}MiB", bytes >> 20) }
}

/// `arguments` of a suite; its keys are the names of tests.
pub(super) struct TestArgumentKeys;

/// `env` of a suite; its keys are the names of variables.
pub(super) struct EnvironmentKeys;

/// All keys of `[profile.NAME]`.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct ProfileKeys {
    #[schemars(flatten)]
    run: RunLayer,
    #[schemars(flatten)]
    tests: TestLayer,
    #[schemars(flatten)]
    own: ProfileTable,
}

/// All keys of `[[profile.NAME.override]]`.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct OverrideKeys {
    #[schemars(flatten)]
    own: OverrideTable,
    #[schemars(flatten)]
    tests: TestLayer,
}

/// All keys of `[[suite]]`.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct SuiteKeys {
    #[schemars(flatten)]
    own: SuiteTable,
    #[schemars(flatten)]
    source: SourceTable,
    #[schemars(flatten)]
    tests: TestLayer,
}

/// Returns the defaults of all profile settings, in the notation of the file.
pub(super) fn defaults() -> Map<String, Value> {
    let written = [
        serde_json::to_value(RunSettings::default().into_layer()).unwrap(),
        serde_json::to_value(TestSettings::default().into_layer()).unwrap(),
    ];
    let settings = written.into_iter().flat_map(|written| written.as_object().unwrap().clone());
    settings.filter(|(_, value)| !value.is_null()).collect()
}

/// Returns the JSON schema of the file.
pub(super) fn json_schema() -> Value {
    let mut schema = schemars::schema_for!(TopTable).to_value();
    schema["title"] = json!("heeler.toml");
    schema["additionalProperties"] = json!(false);
    tidy(&mut schema);
    let defaults = defaults();
    let settings = schema["$defs"]["ProfileKeys"]["properties"].as_object_mut().unwrap();
    for (key, value) in &defaults {
        settings[key]["default"] = value.clone();
    }
    schema
}

/// Removes defaults, which are not valid in the file, and joins the lines of descriptions.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            object.remove("default");
            if let Some(Value::String(text)) = object.get_mut("description") {
                *text = text.replace('\n', " ");
            }
            object.values_mut().for_each(tidy);
        }
        Value::Array(array) => array.iter_mut().for_each(tidy),
        _ => {}
    }
}

/// Returns the keys of a type in declaration order.
fn keys_of<T: Deserialize<'static> + Default>() -> Vec<&'static str> {
    static EMPTY: std::sync::LazyLock<DeTable<'static>> = std::sync::LazyLock::new(DeTable::new);
    static DOCUMENT: std::sync::LazyLock<String> = std::sync::LazyLock::new(String::new);
    let document: &'static ConfigDocument<'static> = Box::leak(Box::new(ConfigDocument::new(&DOCUMENT)));
    let table = TableReader::new(document, "", &EMPTY, 0..0);
    let _: T = table.read();
    table.known_keys()
}

/// Returns the reference page.
pub(super) fn render_page() -> String {
    let schema = json_schema();
    let defs = &schema["$defs"];
    let mut page = PAGE_HEAD.to_owned();
    // A section has one row for each key.
    let mut section = |heading: &str, keys: Vec<&str>, table: &Value| {
        page += &format!(
            "\n## {heading}\n\n| key | value | default | description |\n| --- | --- | --- | --- |\n"
        );
        for key in keys {
            let property = &table["properties"][key];
            let takes = match (property["title"].as_str(), property["type"].as_str()) {
                (Some(words), _) => words,
                (None, Some("array" | "object")) => "tables",
                (None, None) if property["$ref"].is_string() => "table",
                _ => panic!("{key} has no notation: {property}"),
            };
            let is_required =
                table["required"].as_array().is_some_and(|required| required.contains(&json!(key)));
            let default = match &property["default"] {
                Value::Null if is_required => "required".to_owned(),
                Value::Null => String::new(),
                value => format!("`{value}`"),
            };
            let description = property["description"].as_str().expect(key);
            writeln!(page, "| `{key}` | {takes} | {default} | {description} |").unwrap();
        }
    };
    // One section for each table, in the order of the file.
    let profile = &defs["ProfileKeys"];
    section("Top of the file", keys_of::<TopTable>(), &schema);
    section("Settings of a run: `[profile.NAME]`", keys_of::<RunLayer>(), profile);
    section(
        "Settings of tests: `[profile.NAME]`, `[[profile.NAME.override]]` and `[[suite]]`",
        keys_of::<TestLayer>(),
        profile,
    );
    section("`retries = { … }`", keys_of::<RetriesTable>(), &defs["RetriesTable"]);
    section("`slow-timeout = { … }`", keys_of::<SlowTimeoutTable>(), &defs["SlowTimeoutTable"]);
    section("Further keys of `[profile.NAME]`", keys_of::<ProfileTable>(), profile);
    section("Further keys of `[[profile.NAME.override]]`", keys_of::<OverrideTable>(), &defs["OverrideKeys"]);
    section("`[machine]`", keys_of::<MachineTable>(), &defs["MachineTable"]);
    section("`[[resource]]`", keys_of::<ResourceTable>(), &defs["ResourceTable"]);
    section("`[[fixture]]`", keys_of::<FixtureTable>(), &defs["FixtureTable"]);
    let suite = [keys_of::<SuiteTable>(), keys_of::<SourceTable>()].concat();
    section("Further keys of `[[suite]]`", suite, &defs["SuiteKeys"]);
    page
}

const PAGE_HEAD: &str = "\
# heeler.toml

<!-- Generated from the types in src/config/src/{tables,sources}.rs: UPDATE_GOLDEN=1 cargo test -p heeler-config. -->

Heeler reads the file given with `--config-file`, or the nearest `heeler.toml` in the working directory or above. It
refuses a `heeler.toml` owned by a user other than you, root or the owner of the working directory, unless you name
it with `--config-file`.

All errors of the file are reported at once, each with its line and column. Editors that support JSON schemas for
TOML can use [heeler.schema.json](heeler.schema.json).

Each setting of a test comes from the first of these that sets it: the command line, the overrides of the profile,
the overrides of the profile `default`, the suite, the profile, the profile `default`, the defaults below.

Durations are numbers with a unit (`ms`, `s`, `m`, `h`, `d`), and can be added up: `\"1m 30s\"`. Sizes are numbers with
a unit (`B`, `kB`, `MB`, `GB`, `KiB`, `MiB`, `GiB`): `\"64KiB\"`.
";
