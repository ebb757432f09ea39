//! Sessions of both versions: answers, their order, and the work that ends with the client.

use serde_json::{Value, json};

use heeler_server::mutation::{MutationSessionOptions, ProgressForm};

use crate::{
    client::{TestClient, initialize_params},
    service::{DEADLINE, MUTANTS, TestServer, options},
};

const INVALID_REQUEST: i64 = -32600;
const NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const CANCELLED: i64 = -32000;
const NOT_INITIALIZED: i64 = -32001;

#[tokio::test]
async fn before_initialize_requests_are_refused_and_notifications_dropped() {
    let server = TestServer::start().await;
    let mut client = TestClient::connect(server.port).await;
    for method in ["mutate", "instrument", "discover", "mutationTest", "$/cancelRequest", "none"] {
        assert_eq!(client.error(method, json!({})).await, NOT_INITIALIZED, "{method}");
    }
    client.cancel(1).await;
    // Requests are also refused while initialize is in progress, before initialize is answered.
    server.service.openings.forget_permits(1000);
    client.request(0, "initialize", initialize_params()).await;
    assert_eq!(client.error("mutate", json!({})).await, NOT_INITIALIZED);
    assert_eq!(client.error("initialize", initialize_params()).await, INVALID_REQUEST);
    server.service.openings.add_permits(1000);
    let initialized = client.response().await;
    assert_eq!((&initialized["id"], &client.notifications), (&json!(0), &vec![]));
    assert_eq!(client.error("initialize", initialize_params()).await, INVALID_REQUEST);
    for method in ["configure", "discover", "mutationTest", "none", "$/cancelRequest", "$/other"] {
        assert_eq!(client.error(method, json!({})).await, NOT_FOUND, "{method}");
    }
    server.stop().await;
}

#[tokio::test]
async fn failed_initialize_may_be_followed_by_another() {
    let server = TestServer::start().await;
    let mut client = TestClient::connect(server.port).await;
    for (params, code) in [
        (json!({"clientInfo": {"version": "1.0.0"}}), -5000),
        (json!({"clientInfo": {"version": "one"}}), -5000),
        (json!({"clientInfo": {"version": 1}}), INVALID_PARAMS),
        (json!({"clientInfo": {}}), INVALID_PARAMS),
        (json!({}), INVALID_PARAMS),
        (json!([]), INVALID_PARAMS),
        (json!({"clientInfo": {"version": "0.0.1"}, "configUri": "missing.toml"}), INVALID_PARAMS),
        (json!({"clientInfo": {"version": "0.0.1"}, "configUri": "http://a/b"}), INVALID_PARAMS),
        (json!({"clientInfo": {"version": "0.0.1"}, "configUri": "panic"}), -32603),
    ] {
        assert_eq!(client.error("initialize", params.clone()).await, code, "{params}");
    }
    client.initialize().await;
}

#[tokio::test]
async fn invalid_bodies_are_answered_and_the_session_kept() {
    let server = TestServer::start().await;
    let mut client = TestClient::connect(server.port).await;
    client.initialize().await;
    for (body, code, id) in [
        ("{", -32700, Value::Null),
        ("[]", INVALID_REQUEST, Value::Null),
        (r#"{"jsonrpc":"1.0","id":1,"method":"mutate"}"#, INVALID_REQUEST, json!(1)),
        (r#"{"jsonrpc":"2.0","id":null,"method":"mutate"}"#, INVALID_REQUEST, Value::Null),
        (r#"{"jsonrpc":"2.0","id":0,"method":"mutate","params":[]}"#, INVALID_PARAMS, json!(0)),
        (
            r#"{"jsonrpc":"2.0","id":"","method":"mutate","params":{"globPatterns":["["]}}"#,
            INVALID_PARAMS,
            json!(""),
        ),
        (
            r#"{"jsonrpc":"2.0","id":"","method":"mutate","params":{"partialResultToken":{}}}"#,
            INVALID_PARAMS,
            json!(""),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"instrument","params":{"globPatterns":7}}"#,
            INVALID_PARAMS,
            json!(1),
        ),
    ] {
        client.send_text(body).await;
        let response = client.response().await;
        assert_eq!((&response["error"]["code"], &response["id"]), (&json!(code), &id), "{body}");
    }
    // Absent and null parameters, unknown members and unrequested responses are accepted.
    client.send_text(r#"{"jsonrpc":"2.0","id":1,"result":1}"#).await;
    for params in [Value::Null, json!({"globPatterns": null, "other": 1}), json!({"globPatterns": []})] {
        assert_eq!(client.result("instrument", params).await.as_array().unwrap().len(), MUTANTS);
    }
}

#[tokio::test]
async fn instrument_returns_pending_and_ignored_mutants_of_globs() {
    let server = TestServer::start().await;
    let mut client = TestClient::connect(server.port).await;
    client.initialize().await;
    let found = client.result("instrument", json!({"globPatterns": ["tests", "src/deep"]})).await;
    assert_eq!(
        found,
        json!([
            {"fileName": "/project/src/deep/ü.rs", "id": "0000000000000003", "mutatorName": "ConditionalExpression",
             "location": {"start": {"line": 3, "column": 5}, "end": {"line": 3, "column": 11}},
             "replacement": "", "status": "Pending"},
            {"fileName": "/project/tests/it.rs", "id": "0000000000000004", "mutatorName": "ConditionalExpression",
             "location": {"start": {"line": 4, "column": 5}, "end": {"line": 4, "column": 11}},
             "replacement": "true", "status": "Ignored"},
        ])
    );
    let part = json!({"globPatterns": ["/project/src/lib.rs:2:4-2:11"]});
    assert_eq!(client.result("instrument", part).await[0]["id"], "0000000000000002");
    assert_eq!(client.result("instrument", json!({"globPatterns": ["none"]})).await, json!([]));
}

#[tokio::test]
async fn results_come_one_by_one_and_before_the_response() {
    let server = TestServer::start().await;
    let mut client = TestClient::connect(server.port).await;
    client.initialize().await;
    client.request(1, "mutate", json!({"partialResultToken": 0})).await;
    for number in 1..=MUTANTS {
        server.service.steps.add_permits(1);
        let progress = client.next().await.unwrap();
        assert_eq!((&progress["method"], &progress["params"]["token"]), (&json!("progress"), &json!(0)));
        let value = progress["params"]["value"].as_array().unwrap();
        assert_eq!((value.len(), &value[0]["id"]), (1, &json!(format!("{number:016x}"))));
    }
    assert_eq!(client.response().await["result"], json!([]));
    assert_eq!(client.notifications, Vec::<Value>::new());
    // Without a token the response contains all results.
    server.service.steps.add_permits(MUTANTS);
    let results = client.result("mutate", json!({})).await;
    let statuses: Vec<_> =
        results.as_array().unwrap().iter().map(|one| one["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["Killed", "Survived", "NoCoverage", "Ignored"]);
    assert_eq!((&results[0]["duration"], &results[0]["killedBy"]), (&json!(1.5), &json!(["unit::both"])));
    assert_eq!(client.notifications, Vec::<Value>::new());
}

#[tokio::test]
async fn progress_has_the_other_form_where_it_is_wanted() {
    let options = MutationSessionOptions { progress_form: ProgressForm::Object, ..options() };
    let server = TestServer::start_with(options).await;
    let mut client = TestClient::connect(server.port).await;
    client.initialize().await;
    server.service.steps.add_permits(MUTANTS);
    client.request(1, "mutate", json!({"partialResultToken": "t", "globPatterns": ["tests"]})).await;
    let progress = client.next().await.unwrap();
    assert_eq!(progress["params"]["value"]["mutants"][0]["status"], "Ignored");
}

#[tokio::test]
async fn requests_are_cancelled_while_they_wait_and_while_they_run() {
    let server = TestServer::start().await;
    let service = &server.service;
    let mut client = TestClient::connect(server.port).await;
    client.initialize().await;
    client.request(1, "mutate", json!({"partialResultToken": "a"})).await;
    service.wait_for(|counts| counts.started == 1).await;
    client.request("1", "mutate", json!({})).await;
    client.request(2, "mutate", json!({})).await;
    // Cancelling an unknown id has no effect, 1 differs from "1", and an id in use cannot be reused.
    client.cancel("unknown").await;
    client.cancel("1").await;
    let cancelled = client.response().await;
    assert_eq!((&cancelled["id"], &cancelled["error"]["code"]), (&json!("1"), &json!(CANCELLED)));
    client.request(1, "mutate", json!({})).await;
    assert_eq!(client.response().await["error"]["code"], json!(INVALID_REQUEST));
    service.steps.add_permits(1);
    assert_eq!(client.next().await.unwrap()["method"], "progress");
    client.cancel(1).await;
    let cancelled = client.response().await;
    assert_eq!((&cancelled["id"], &cancelled["error"]["code"]), (&json!(1), &json!(CANCELLED)));
    // The next run begins once the first has ended completely.
    service.wait_for(|counts| counts.started == 2 && counts.cancelled == 1).await;
    service.steps.add_permits(MUTANTS);
    let response = client.response().await;
    assert_eq!((&response["id"], response["result"].as_array().unwrap().len()), (&json!(2), MUTANTS));
    assert_eq!(client.notifications, Vec::<Value>::new());
}

#[tokio::test]
async fn one_client_tests_mutants_at_a_time_and_others_are_answered() {
    let server = TestServer::start().await;
    let mut first = TestClient::connect(server.port).await;
    let mut second = TestClient::connect(server.port).await;
    first.initialize().await;
    assert_eq!(second.result("configure", json!({})).await, json!({"version": "0.4.0"}));
    first.request(1, "mutate", json!({})).await;
    server.service.wait_for(|counts| counts.started == 1).await;
    second.request(1, "mutationTest", json!({})).await;
    assert_eq!(second.result("discover", json!({"files": []})).await, json!({"files": {}}));
    assert_eq!(server.service.counts.borrow().started, 1);
    server.service.steps.add_permits(2 * MUTANTS);
    assert_eq!(first.response().await["result"].as_array().unwrap().len(), MUTANTS);
    assert_eq!(second.response().await["result"], json!({"files": {}}));
    assert!(!second.notifications.is_empty());
}

#[tokio::test]
async fn end_of_a_client_ends_what_it_started() {
    let server = TestServer::start().await;
    for round in 1..=2 {
        let mut client = TestClient::connect(server.port).await;
        client.initialize().await;
        client.request(1, "mutate", json!({"partialResultToken": 1})).await;
        client.request(2, "mutate", json!({"partialResultToken": 2})).await;
        server.service.wait_for(|counts| counts.started == round).await;
        if round == 1 {
            client.half_close().await;
            for _ in 0..2 {
                assert_eq!(client.response().await["error"]["code"], CANCELLED);
            }
            assert_eq!(client.next().await, None);
        } else {
            drop(client);
        }
        server.service.wait_for(|counts| counts.cancelled == round).await;
    }
    assert_eq!(server.service.counts.borrow().started, 2, "what waited never began");
}

#[tokio::test]
async fn stopped_server_cancels_what_runs() {
    let server = TestServer::start().await;
    let mut client = TestClient::connect(server.port).await;
    client.initialize().await;
    client.request(1, "mutate", json!({"partialResultToken": 1})).await;
    let service = server.service.clone();
    service.wait_for(|counts| counts.started == 1).await;
    server.stop().await;
    assert_eq!(service.counts.borrow().cancelled, 1);
    assert_eq!(client.response().await["error"]["code"], CANCELLED);
    assert_eq!(client.next().await, None);
}

#[tokio::test]
async fn batch_is_answered_as_an_array_in_its_order() {
    let server = TestServer::start().await;
    let mut client = TestClient::connect(server.port).await;
    client.initialize().await;
    let request = |id: Value, method: &str, params: Value| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    server.service.steps.add_permits(MUTANTS);
    client
        .send(json!([
            request(json!(1), "mutate", json!({"partialResultToken": "t"})),
            7,
            {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": "unknown"}},
            request(json!("1"), "instrument", json!({"globPatterns": ["tests"]})),
            request(json!(2), "none", json!({})),
        ]))
        .await;
    let responses = client.response().await;
    let shown: Vec<_> = responses
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["id"].clone(), one["error"]["code"].as_i64()))
        .collect();
    let expected = [
        (json!(1), None),
        (Value::Null, Some(INVALID_REQUEST)),
        (json!("1"), None),
        (json!(2), Some(NOT_FOUND)),
    ];
    assert_eq!(shown, expected);
    assert!(!client.notifications.is_empty(), "progress is outside of the batch");
    // A batch of notifications has no answer.
    client.send(json!([{"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 1}}])).await;
    assert_eq!(client.result("instrument", json!({"globPatterns": ["none"]})).await, json!([]));
}

#[tokio::test]
async fn silent_connection_is_closed() {
    let options =
        MutationSessionOptions { begin_within: Some(std::time::Duration::from_millis(50)), ..options() };
    let server = TestServer::start_with(options).await;
    let mut client = TestClient::connect(server.port).await;
    // A session begins with the first bytes; this notification is dropped.
    client.cancel(1).await;
    assert_eq!(client.next().await, None);
}

#[tokio::test]
async fn slow_client_loses_no_result() {
    let server = TestServer::start().await;
    let mut client = TestClient::connect(server.port).await;
    client.initialize().await;
    let runs = 500;
    server.service.steps.add_permits(MUTANTS * runs);
    let mut ids = 0;
    for batch in 0..runs / 50 {
        for id in 0..50 {
            client.request(batch * 50 + id, "mutate", json!({"partialResultToken": id})).await;
        }
        // The client reads nothing up to this point.
        for _ in 0..50 {
            assert_eq!(client.response().await["result"], json!([]));
        }
        for progress in client.notifications.drain(..) {
            ids += progress["params"]["value"].as_array().unwrap().len();
        }
    }
    assert_eq!(ids, MUTANTS * runs);
    tokio::time::timeout(DEADLINE, server.stop()).await.unwrap();
}
