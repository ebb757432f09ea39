//! Samples of each message of the Runtime Server Protocol in both directions, with every possible member.

use heeler_protocol::{
    rpc::{self, RpcError, RpcMessage, code},
    rsp::*,
};
use serde_json::json;

use crate::messages::{MessageSample, id, notification, request, response, sample};

const RUN: &str = "0b1f6f57-0d0e-4d0c-8a4b-5a1f3f4c2d11";

pub(crate) fn samples() -> Vec<MessageSample> {
    let mut all = requests();
    all.extend(responses());
    all.extend(refusals());
    all.extend(notifications());
    all
}

fn server_type() -> ServerType {
    ServerType {
        id: "heeler.suite".to_owned(),
        visible_name: "Test suite".to_owned(),
        description: "A test program; starting it runs its tests".to_owned(),
    }
}

fn server() -> ServerHandle {
    ServerHandle { id: "unit".to_owned(), server_type: server_type() }
}

fn job() -> JobHandle {
    JobHandle { name: "Tests of unit".to_owned(), id: RUN.to_owned() }
}

fn refused() -> Status {
    Status::refusal("not supported by Heeler")
}

fn requests() -> Vec<MessageSample> {
    let map = [("protocol.version", "0.21.0"), ("prompt.string", "true")];
    let map = map.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let attributes = json!({"filter": "test(~parse)", "jobs": 4, "rerun": "failed"});
    let launch = LaunchParams {
        mode: Some(RUN_MODE.to_owned()),
        params: LaunchedServer {
            server_type: Some("heeler.suite".to_owned()),
            id: "unit".to_owned(),
            attributes: attributes.as_object().cloned(),
        },
    };
    let asked =
        LaunchAttributesParams { server_type_id: "heeler.suite".to_owned(), mode: Some(RUN_MODE.to_owned()) };
    vec![
        request("register", method::REGISTER, ClientCapabilities { map }),
        request("server-types", method::SERVER_TYPES, ()),
        request("server-handles", method::SERVER_HANDLES, ()),
        request("server-state", method::SERVER_STATE, server()),
        request("launch-modes", method::LAUNCH_MODES, server_type()),
        request("launch-attributes", method::OPTIONAL_LAUNCH_ATTRIBUTES, asked),
        request("start", method::START, launch),
        request("stop", method::STOP, StopParams { id: "unit".to_owned(), force: Some(true) }),
        request("jobs", method::JOBS, ()),
        request("cancel-job", method::CANCEL_JOB, job()),
        notification("disconnect", method::DISCONNECT, ()),
        notification("shutdown", method::SHUTDOWN, ()),
    ]
}

fn responses() -> Vec<MessageSample> {
    let version = ("protocol.version".to_owned(), PROTOCOL_VERSION.to_owned());
    let registration =
        Registration { server_capabilities: [version].into(), client_registration_status: Status::success() };
    let attribute = Attribute {
        value_type: "string".to_owned(),
        description: "Filter expression to select tests".to_owned(),
        default_val: json!(null),
        secret: false,
    };
    let modes = vec![LaunchMode { mode: RUN_MODE.to_owned(), desc: "Runs the tests".to_owned() }];
    let progress = JobProgress { percent: 40, handle: job() };
    vec![
        response("register-answer", registration),
        response("server-types-answer", vec![server_type()]),
        response("server-handles-answer", vec![server()]),
        response(
            "server-state-answer",
            ServerState::new(server(), RunState::Stopped, PublishState::Required),
        ),
        response("launch-modes-answer", modes),
        response(
            "launch-attributes-answer",
            Attributes { attributes: [("filter".to_owned(), attribute)].into() },
        ),
        response("start-answer", StartResult { status: Status::success(), details: () }),
        response(
            "start-refusal",
            StartResult { status: Status::refusal("unit is already running"), details: () },
        ),
        response("status-answer", Status::success()),
        response("jobs-answer", vec![progress]),
        error_response(),
    ]
}

fn error_response() -> MessageSample {
    let error = RpcError::new(code::METHOD_NOT_FOUND, "the method \"server/none\" is not supported");
    sample(
        "error-answer",
        &rpc::encode_error(&id(), &error.clone()),
        move |message| matches!(message, RpcMessage::Response { outcome: Err(read), .. } if read == error),
    )
}

fn refusals() -> Vec<MessageSample> {
    let creation = || ServerCreation { status: refused(), invalid_keys: [] };
    let as_json = || ServerAsJson { status: refused(), server_json: String::new(), server_handle: server() };
    vec![
        response("runtimes-answer", Runtimes::default()),
        response("deployables-answer", Deployables { states: [], status: Status::success() }),
        response("server-actions-answer", ServerActions { workflows: [], status: Status::success() }),
        response("create-server-answer", creation()),
        response(
            "workflow-answer",
            Workflow {
                status: refused(),
                request_id: 17,
                job_id: String::new(),
                items: [],
                invalid_fields: [],
            },
        ),
        response("server-as-json-answer", as_json()),
        response(
            "update-server-answer",
            ServerUpdate { handle: server(), validation: creation(), server_json: as_json() },
        ),
        response(
            "deployment-options-answer",
            DeploymentOptions { attributes: Attributes::default(), status: refused() },
        ),
        response("refused-answer", refused()),
    ]
}

fn notifications() -> Vec<MessageSample> {
    let process = || ServerProcess { server: server(), process_id: RUN.to_owned() };
    let output = ProcessOutput {
        server: server(),
        process_id: RUN.to_owned(),
        stream_type: StreamType::Output,
        text: "passed          0.012 s  unit::Parser.Reads\n".to_owned(),
    };
    let end = JobEnd { status: Status::refusal("2 tests: 1 passed, 1 failed"), handle: job() };
    let state = ServerState::new(server(), RunState::Starting, PublishState::Unknown);
    vec![
        notification("state-changed", method::STATE_CHANGED, state),
        notification("process-created", method::PROCESS_CREATED, process()),
        notification("process-terminated", method::PROCESS_TERMINATED, process()),
        notification("output-appended", method::OUTPUT_APPENDED, output),
        notification("job-added", method::JOB_ADDED, job()),
        notification("job-changed", method::JOB_CHANGED, JobProgress { percent: 40, handle: job() }),
        notification("job-removed", method::JOB_REMOVED, end),
    ]
}
