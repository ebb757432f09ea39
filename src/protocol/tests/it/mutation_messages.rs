//! Samples of each message of the Mutation Server Protocol, in both versions and directions, with every
//! possible member.

use heeler_protocol::{
    mutation::{
        SourceLocation, SourcePosition, StatusName, TestedMutant,
        alpha::{self, *},
        code, method,
        v0_4::{self, *},
    },
    rpc::{self, RequestId, RpcError, RpcMessage},
};

use crate::messages::{MessageSample, id, notification, request, response, sample};

pub(crate) fn samples() -> Vec<MessageSample> {
    let mut all = alpha_messages();
    all.extend(v0_4_messages());
    all
}

fn location() -> SourceLocation {
    SourceLocation {
        start: SourcePosition { line: 125, column: 9 },
        end: SourcePosition { line: 125, column: 25 },
    }
}

fn pending() -> TestedMutant {
    TestedMutant {
        id: "9f2c4e0a1b3d5f77".to_owned(),
        location: location(),
        mutator_name: "ConditionalExpression".to_owned(),
        replacement: "true".to_owned(),
        description: None,
        status: StatusName::Pending,
        status_reason: None,
        covered_by: Vec::new(),
        killed_by: Vec::new(),
        tests_completed: None,
        r#static: None,
        duration: None,
    }
}

fn killed() -> TestedMutant {
    TestedMutant {
        description: Some("the condition is always true".to_owned()),
        status: StatusName::Killed,
        status_reason: Some("assertion failed: is_empty()".to_owned()),
        covered_by: vec!["unit::parse::empty".to_owned(), "unit::parse::long".to_owned()],
        killed_by: vec!["unit::parse::long".to_owned()],
        tests_completed: Some(2),
        r#static: Some(false),
        duration: Some(12.5),
        ..pending()
    }
}

fn in_file(mutant: TestedMutant) -> MutantInFile {
    MutantInFile { file_name: "/project/src/lib.rs".to_owned(), mutant }
}

fn token() -> ProgressToken {
    serde_json::from_str("\"5f6f349e\"").unwrap()
}

fn error(name: &'static str, code: i64, message: &str) -> MessageSample {
    let error = RpcError::new(code, message);
    sample(
        name,
        &rpc::encode_error(&id(), &error.clone()),
        move |message| matches!(message, RpcMessage::Response { outcome: Err(read), .. } if read == error),
    )
}

fn alpha_messages() -> Vec<MessageSample> {
    let version = || PeerVersion { version: alpha::PROTOCOL_VERSION.to_owned() };
    let initialize = InitializeParams {
        client_info: version(),
        config_uri: Some("file:///project/heeler.toml".to_owned()),
    };
    let globs = || Some(vec!["src/**/*.rs".to_owned(), "!src/generated".to_owned()]);
    let mutate = MutateParams { glob_patterns: globs(), partial_result_token: Some(token()) };
    let progress = |value| ProgressParams { token: token(), value };
    let list = || vec![in_file(killed())];
    vec![
        request("initialize", method::INITIALIZE, initialize),
        response("initialize-answer", InitializeResult::of_heeler()),
        error("version-error", code::UNKNOWN_PROTOCOL_VERSION, "expected another version"),
        error("not-initialized-error", code::SERVER_NOT_INITIALIZED, "expected initialize first"),
        request("instrument", method::INSTRUMENT, InstrumentParams { glob_patterns: globs() }),
        response("instrument-answer", vec![in_file(pending())]),
        request("mutate", method::MUTATE, mutate),
        response("mutate-answer", list()),
        response("mutate-answer-after-progress", Vec::<MutantInFile>::new()),
        notification("progress", method::PROGRESS, progress(ProgressValue::List(list()))),
        notification(
            "progress-object",
            method::PROGRESS,
            progress(ProgressValue::Object { mutants: list() }),
        ),
        notification("cancel", method::CANCEL, CancelParams { id: RequestId::number(7) }),
        error("cancelled-error", code::REQUEST_CANCELLED, "the request was cancelled"),
    ]
}

fn v0_4_messages() -> Vec<MessageSample> {
    let files = || Some(vec![FileRange { path: "src/lib.rs".to_owned(), range: Some(location()) }]);
    let TestedMutant { id, location, mutator_name, replacement, description, .. } = killed();
    let found = DiscoveredMutant { id, location, mutator_name, replacement: Some(replacement), description };
    let found = DiscoveredFiles::from([("src/lib.rs".to_owned(), DiscoveredFile { mutants: vec![found] })]);
    let tested = TestedFile { mutants: vec![killed()] };
    let tested = MutationTestResult { files: [("src/lib.rs".to_owned(), tested)].into() };
    let config_file_path = Some("heeler.toml".to_owned());
    vec![
        request("configure", method::CONFIGURE, ConfigureParams { config_file_path }),
        response("configure-answer", ConfigureResult { version: v0_4::PROTOCOL_VERSION.to_owned() }),
        request("discover", method::DISCOVER, DiscoverParams { files: files() }),
        response("discover-answer", DiscoverResult { files: found.clone() }),
        request(
            "mutation-test",
            method::MUTATION_TEST,
            MutationTestParams { files: files(), mutants: Some(found) },
        ),
        notification("report-progress", method::REPORT_PROGRESS, tested),
        response("mutation-test-answer", MutationTestResult::default()),
    ]
}
