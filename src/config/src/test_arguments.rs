//! Reads test arguments from `[suite.arguments]`. Each test has a table, which is passed to its framework as
//! JSON.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use toml::de::{DeArray, DeTable, DeValue};

use super::reader::TableReader;

/// Reads the arguments of a suite's tests, each as the text of a JSON object.
pub(super) fn read_test_arguments(table: &TableReader<'_, '_>) -> BTreeMap<String, String> {
    let mut arguments = BTreeMap::new();
    let Some(tests) = table.read_table("arguments") else { return arguments };
    for (name, value) in tests.entries() {
        match value.get_ref() {
            DeValue::Table(values) => {
                arguments.insert(name.get_ref().to_string(), Value::Object(object(values)).to_string());
            }
            _ => {
                let message = format!(
                    "expected a table of arguments for {:?} in [suite.arguments], such as {{ name = \"value\" }}",
                    name.get_ref()
                );
                tests.document.report(value.span(), message);
            }
        }
    }
    arguments
}

fn object(table: &DeTable<'_>) -> Map<String, Value> {
    table.iter().map(|(name, value)| (name.get_ref().to_string(), json(value.get_ref()))).collect()
}

fn array(values: &DeArray<'_>) -> Vec<Value> {
    values.iter().map(|value| json(value.get_ref())).collect()
}

/// Converts a value to JSON. Dates, and numbers that JSON can't represent, become strings.
fn json(value: &DeValue<'_>) -> Value {
    let text = |text: String| Value::String(text);
    match value {
        DeValue::String(one) => text(one.to_string()),
        DeValue::Boolean(one) => Value::Bool(*one),
        DeValue::Integer(one) => {
            let digits = one.as_str();
            i64::from_str_radix(digits, one.radix()).map_or_else(|_| text(digits.to_owned()), Value::from)
        }
        DeValue::Float(one) => {
            let number = one.as_str().parse().ok().and_then(serde_json::Number::from_f64);
            number.map_or_else(|| text(one.as_str().to_owned()), Value::Number)
        }
        DeValue::Datetime(one) => text(one.to_string()),
        DeValue::Array(values) => Value::Array(array(values)),
        DeValue::Table(table) => Value::Object(object(table)),
    }
}
