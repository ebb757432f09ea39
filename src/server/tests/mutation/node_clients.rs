//! Clients in Node on third-party libraries: `ws` and `json-rpc-2.0` for 0.0.1-alpha.1,
//! `mutation-server-protocol` for 0.4.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::service::{MUTANTS, TestServer};

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients").join(name)
}

/// Runs a script against a server that tests each mutant immediately.
async fn run(name: &str, scenario: &str, server: &TestServer) -> Output {
    assert!(
        script("node_modules").is_dir(),
        "the clients' libraries are missing; scripts/test installs them"
    );
    let (script, words) = (script(name), [scenario.to_owned(), server.port.to_string()]);
    let ran = tokio::task::spawn_blocking(move || Command::new("node").arg(script).args(words).output());
    ran.await.unwrap().unwrap()
}

async fn play(name: &str, scenario: &str) {
    let server = TestServer::start().await;
    server.service.steps.add_permits(MUTANTS * 100);
    let output = run(name, scenario, &server).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{scenario} passed\n"));
    server.stop().await;
}

#[tokio::test]
async fn alpha_client_lists_and_tests_mutants() {
    play("mutation_alpha.mjs", "lists_and_tests").await;
}

#[tokio::test]
async fn alpha_client_sees_the_errors_of_the_specification() {
    play("mutation_alpha.mjs", "errors").await;
}

#[tokio::test]
async fn alpha_client_that_ends_leaves_nothing() {
    let server = TestServer::start().await;
    let output = run("mutation_alpha.mjs", "leaves_in_the_middle", &server).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    server.service.wait_for(|counts| counts.started == 1 && counts.cancelled == 1).await;
}

#[tokio::test]
async fn client_of_0_4_parses_every_answer() {
    play("mutation_v0_4.mjs", "discovers_and_tests").await;
}
