//! The RSP servers that represent suites, and the answers to requests that need no run. Pure.

use heeler_protocol::{
    rpc::RpcError,
    rsp::{
        Attributes, Deployables, DeploymentOptions, LaunchAttributesParams, NamedById, PROTOCOL_VERSION,
        Registration, Runtimes, ServerActions, ServerAsJson, ServerCreation, ServerHandle, ServerResult,
        ServerType, ServerUpdate, Status, UpdateParams, Workflow, WorkflowParams, method, read_params,
    },
};
use serde_json::value::RawValue;

use super::launch;

/// Id of the only server type.
const SUITE_TYPE: &str = "heeler.suite";
/// Reason given in the status of a refused request.
const NOT_OFFERED: &str = "not supported by Heeler";

/// Returns the type of the RSP servers that represent suites.
pub(super) fn server_type() -> ServerType {
    ServerType {
        id: SUITE_TYPE.to_owned(),
        visible_name: "Test suite".to_owned(),
        description: "A test program; starting it runs its tests".to_owned(),
    }
}

/// Returns the handle of the RSP server that represents a suite.
pub(super) fn server_handle(id: &str) -> ServerHandle {
    ServerHandle { id: id.to_owned(), server_type: server_type() }
}

/// Answers a request that needs neither a suite's state nor a run; `None` for other requests.
pub(super) fn answer_fixed(
    method: &str,
    params: Option<&RawValue>,
    suites: impl FnOnce() -> Vec<ServerHandle>,
) -> Option<Result<ServerResult, RpcError>> {
    Some(match method {
        method::REGISTER => Ok(ServerResult::Registration(registration())),
        method::SERVER_TYPES => Ok(ServerResult::ServerTypes([server_type()])),
        method::SERVER_HANDLES => Ok(ServerResult::ServerHandles(suites())),
        method::LAUNCH_MODES => read_params::<NamedById>(params).map(|asked| {
            let is_suite = asked.id == SUITE_TYPE;
            ServerResult::LaunchModes(if is_suite { launch::launch_modes() } else { Vec::new() })
        }),
        method::OPTIONAL_LAUNCH_ATTRIBUTES => read_params::<LaunchAttributesParams>(params).map(|asked| {
            let is_suite = asked.server_type_id == SUITE_TYPE;
            let attributes = if is_suite { launch::optional_attributes() } else { Default::default() };
            ServerResult::Attributes(Attributes { attributes })
        }),
        method::REQUIRED_LAUNCH_ATTRIBUTES | method::OPTIONAL_ATTRIBUTES | method::REQUIRED_ATTRIBUTES => {
            Ok(ServerResult::Attributes(Attributes::default()))
        }
        method::DOWNLOADABLE_RUNTIMES => Ok(ServerResult::Runtimes(Runtimes::default())),
        method::DEPLOYABLES => {
            Ok(ServerResult::Deployables(Deployables { states: [], status: Status::success() }))
        }
        method::SERVER_ACTIONS => {
            Ok(ServerResult::ServerActions(ServerActions { workflows: [], status: Status::success() }))
        }
        method::DISCOVERY_PATHS | method::FIND_SERVER_BEANS => Ok(ServerResult::EmptyList([])),
        _ => return answer_refused(method, params),
    })
}

/// Answers a request that Heeler does not support; `None` for other requests.
fn answer_refused(method: &str, params: Option<&RawValue>) -> Option<Result<ServerResult, RpcError>> {
    let status = || Status::refusal(NOT_OFFERED);
    let creation = || ServerCreation { status: status(), invalid_keys: [] };
    let as_json = |id: &str| ServerAsJson {
        status: status(),
        server_json: String::new(),
        server_handle: server_handle(id),
    };
    Some(match method {
        method::CREATE_SERVER => Ok(ServerResult::Creation(creation())),
        method::CREATE_SERVER_WORKFLOW | method::DOWNLOAD_RUNTIME | method::EXECUTE_ACTION => {
            read_params::<WorkflowParams>(params).map(|asked| {
                ServerResult::Workflow(Workflow {
                    status: status(),
                    request_id: asked.request_id.unwrap_or_default(),
                    job_id: String::new(),
                    items: [],
                    invalid_fields: [],
                })
            })
        }
        method::SERVER_AS_JSON => {
            read_params::<NamedById>(params).map(|server| ServerResult::AsJson(as_json(&server.id)))
        }
        method::UPDATE_SERVER => read_params::<UpdateParams>(params).map(|asked| {
            ServerResult::Update(Box::new(ServerUpdate {
                handle: server_handle(&asked.handle.id),
                validation: creation(),
                server_json: as_json(&asked.handle.id),
            }))
        }),
        method::DEPLOYMENT_OPTIONS => Ok(ServerResult::DeploymentOptions(DeploymentOptions {
            attributes: Attributes::default(),
            status: status(),
        })),
        // The result of this request has no status and may be null.
        method::LAUNCH_COMMAND => Ok(ServerResult::Null),
        _ if method::REFUSED_WITH_STATUS.contains(&method) => Ok(ServerResult::Status(status())),
        _ => return None,
    })
}

fn registration() -> Registration {
    let version = ("protocol.version".to_owned(), PROTOCOL_VERSION.to_owned());
    Registration { server_capabilities: [version].into(), client_registration_status: Status::success() }
}

#[cfg(test)]
mod tests {
    use heeler_protocol::{rpc::code, rsp::Severity};
    use serde_json::{Value, json};

    use super::*;

    fn answer(method: &str, params: &Value) -> Option<Result<Value, RpcError>> {
        let raw = RawValue::from_string(params.to_string()).unwrap();
        let answer = answer_fixed(method, Some(&raw), || vec![server_handle("unit")])?;
        Some(answer.map(|result| serde_json::to_value(result).unwrap()))
    }

    #[test]
    fn each_request_without_an_offer_has_a_status_in_its_result() {
        let refusal = u8::from(Severity::Error);
        let handle = json!({"id": "unit", "type": server_type()});
        let by_status = [method::CREATE_SERVER, method::CREATE_SERVER_WORKFLOW, method::DOWNLOAD_RUNTIME];
        let by_status = by_status.into_iter().chain([
            method::EXECUTE_ACTION,
            method::SERVER_AS_JSON,
            method::DEPLOYMENT_OPTIONS,
        ]);
        for method in by_status {
            let result = answer(method, &handle).unwrap().unwrap();
            assert_eq!(result["status"]["severity"], refusal, "{method}");
            assert_eq!(result["status"]["message"], NOT_OFFERED, "{method}");
        }
        for method in method::REFUSED_WITH_STATUS {
            let result = answer(method, &handle).unwrap().unwrap();
            assert_eq!((&result["severity"], &result["ok"]), (&json!(refusal), &json!(false)), "{method}");
        }
        let update = answer(method::UPDATE_SERVER, &json!({"handle": handle, "serverJson": "{}"})).unwrap();
        assert_eq!(update.unwrap()["validation"]["status"]["severity"], refusal);
        assert_eq!(answer(method::LAUNCH_COMMAND, &handle), Some(Ok(Value::Null)));
    }

    #[test]
    fn workflow_result_repeats_the_number_of_its_request() {
        let result = answer(method::CREATE_SERVER_WORKFLOW, &json!({"requestId": 17})).unwrap();
        assert_eq!(result.unwrap()["requestId"], 17);
    }

    #[test]
    fn launch_attributes_belong_to_the_type_of_suites() {
        let optional = |of: &str| {
            let params = json!({"serverTypeId": of, "mode": "run"});
            answer(method::OPTIONAL_LAUNCH_ATTRIBUTES, &params).unwrap().unwrap()
        };
        assert_eq!(optional("other"), json!({"attributes": {}}));
        assert_eq!(optional(SUITE_TYPE)["attributes"]["jobs"]["secret"], false);
        let modes = |of: &str| answer(method::LAUNCH_MODES, &json!({"id": of})).unwrap().unwrap();
        assert_eq!((modes("other"), &modes(SUITE_TYPE)[0]["mode"]), (json!([]), &json!("run")));
    }

    #[test]
    fn unreadable_parameters_and_unknown_methods_are_told_apart() {
        let error = answer(method::LAUNCH_MODES, &json!({})).unwrap().unwrap_err();
        assert_eq!(error.code, code::INVALID_PARAMS);
        assert!(error.message.contains("missing field `id`"), "{error}");
        assert_eq!(answer("server/none", &json!({})), None);
    }
}
