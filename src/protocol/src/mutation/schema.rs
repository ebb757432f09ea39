//! JSON Schema of the messages that Heeler sends and accepts, generated from the types.

use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Value, json};

use super::{
    alpha::{
        CancelParams, InitializeParams, InitializeResult, InstrumentParams, MutantInFile, MutateParams,
        ProgressParams,
    },
    method,
    v0_4::{
        ConfigureParams, ConfigureResult, DiscoverParams, DiscoverResult, MutationTestParams,
        MutationTestResult,
    },
};
use crate::schema::{close_objects, envelope_schema, subschema};

/// Returns the schema of every message that Heeler sends to a client.
#[must_use]
pub fn server_schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let methods = [
        (method::PROGRESS, subschema::<ProgressParams>(&mut generator)),
        (method::REPORT_PROGRESS, subschema::<MutationTestResult>(&mut generator)),
    ];
    let results = results(&mut generator);
    let mut schema = envelope_schema(&mut generator, "Messages from Heeler to a client", &methods, results);
    close_objects(&mut schema);
    schema
}

fn results(generator: &mut SchemaGenerator) -> Vec<Value> {
    vec![
        subschema::<InitializeResult>(generator),
        subschema::<Vec<MutantInFile>>(generator),
        subschema::<ConfigureResult>(generator),
        subschema::<DiscoverResult>(generator),
        subschema::<MutationTestResult>(generator),
    ]
}

/// Returns the schema of the messages that Heeler accepts from a client. Unknown members are ignored.
#[must_use]
pub fn client_schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let methods = [
        (method::INITIALIZE, subschema::<InitializeParams>(&mut generator)),
        (method::INSTRUMENT, subschema::<InstrumentParams>(&mut generator)),
        (method::MUTATE, subschema::<MutateParams>(&mut generator)),
        (method::CONFIGURE, subschema::<ConfigureParams>(&mut generator)),
        (method::DISCOVER, subschema::<DiscoverParams>(&mut generator)),
        (method::MUTATION_TEST, subschema::<MutationTestParams>(&mut generator)),
        (method::CANCEL, subschema::<CancelParams>(&mut generator)),
    ];
    envelope_schema(&mut generator, "Messages from a client to Heeler", &methods, vec![json!({})])
}
