//! Checks that the types generate the committed schema, which validates all traffic of the tests.

use crate::check_file;

fn text(schema: &serde_json::Value) -> String {
    let mut text = serde_json::to_string_pretty(schema).unwrap();
    text.push('\n');
    text
}

#[test]
fn server_schema_matches_types() {
    check_file("tests/schema/server.schema.json", text(&heeler_protocol::mtp::server_schema()));
}

#[test]
fn client_schema_matches_types() {
    check_file("tests/schema/client.schema.json", text(&heeler_protocol::mtp::client_schema()));
}

#[test]
fn runtime_server_schemas_match_types() {
    check_file("tests/schema/rsp-server.schema.json", text(&heeler_protocol::rsp::server_schema()));
    check_file("tests/schema/rsp-client.schema.json", text(&heeler_protocol::rsp::client_schema()));
}

#[test]
fn mutation_server_schemas_match_types() {
    check_file("tests/schema/mutation-server.schema.json", text(&heeler_protocol::mutation::server_schema()));
    check_file("tests/schema/mutation-client.schema.json", text(&heeler_protocol::mutation::client_schema()));
}
