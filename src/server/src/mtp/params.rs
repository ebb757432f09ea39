//! Parses and validates the parameters of discovery and run requests.

use heeler_protocol::{
    mtp::{ClientMembers, RequestedNode, RunIdMember, RunShard, TestsParams},
    rpc::{RpcError, code},
};
use serde_json::value::RawValue;

use crate::discovery::TestSelection;
use heeler_config::{RunOptions, filter::GraphQuery};

#[derive(Debug, Clone)]
pub(super) struct TestsRequest {
    /// Run id, echoed exactly as the client sent it.
    pub(super) run_id: String,
    pub(super) selection: TestSelection,
    /// Members that the client added to the requested nodes, returned with the nodes.
    pub(super) client_members: ClientMembers,
    /// Whether each test runs under the client's debugger.
    pub(super) is_debug: bool,
    /// Whether the programs are built before they are listed.
    pub(super) is_built: bool,
    /// The shard, if the tests are part of a larger selection.
    pub(super) shard: Option<RunShard>,
    /// Run options, if the client sent any.
    pub(super) options: Option<RunOptions>,
}

impl TestsRequest {
    /// Rejects options that change how programs are started. Called for clients on other machines.
    pub(super) fn for_other_machine(self) -> Result<Self, RpcError> {
        match &self.options {
            Some(options) if options.changes_programs() => {
                let message =
                    "\"args\" and \"env\" in heeler.options are only accepted from clients on this machine";
                Err(RpcError::new(code::INVALID_PARAMS, message))
            }
            _ => Ok(self),
        }
    }

    /// Rejects run options in a discovery. All clients and runs share a program's listing, so it is always
    /// made with the configured arguments and environment.
    pub(super) fn for_discovery(self) -> Result<Self, RpcError> {
        match self.options {
            None => Ok(self),
            Some(_) => {
                let message = "heeler.options is only valid in testing/runTests";
                Err(RpcError::new(code::INVALID_PARAMS, message))
            }
        }
    }
}

/// Parses and validates the parameters.
pub(super) fn parse_tests_request(params: Option<&RawValue>) -> Result<TestsRequest, RpcError> {
    let invalid = |message: String| RpcError::new(code::INVALID_PARAMS, message);
    let raw = params.ok_or_else(|| invalid("missing params: \"runId\" is required".to_owned()))?;
    let params: TestsParams<RequestedNode> = serde_json::from_str(raw.get())
        .map_err(|error| invalid(format!("invalid params, expected {{runId, tests?, filter?}}: {error}")))?;
    if !is_guid(&params.run_id) {
        return Err(invalid(format!("runId must be a GUID, got {:?}", truncated(&params.run_id))));
    }
    let filter = params.filter.as_deref().filter(|filter| !filter.trim().is_empty());
    let filter = filter.map(str::parse::<GraphQuery>).transpose();
    let filter = filter.map_err(|error| invalid(format!("invalid graph query in filter: {error}")))?;
    let options = params.options.map(serde_json::from_value::<RunOptions>).transpose();
    let options = options.map_err(|error| invalid(format!("invalid heeler.options: {error}")))?;
    let nodes = params.tests.or(params.test_cases);
    let mut client_members = ClientMembers::default();
    let uids =
        nodes.map(|nodes| nodes.into_iter().map(|node| store_members(node, &mut client_members)).collect());
    let selection = TestSelection { uids, filter };
    let TestsParams { run_id, is_debug, is_built, shard, .. } = params;
    Ok(TestsRequest { run_id, selection, client_members, is_debug, is_built, shard, options })
}

/// Returns the run id, even if other parameters are invalid.
pub(super) fn readable_run_id(params: Option<&RawValue>) -> Option<String> {
    let member: RunIdMember = serde_json::from_str(params?.get()).ok()?;
    Some(member.run_id).filter(|run_id| is_guid(run_id))
}

fn store_members(node: RequestedNode, all: &mut ClientMembers) -> String {
    if let Some(members) = node.client_members {
        all.insert(node.uid.clone(), members);
    }
    node.uid
}

/// Returns whether the text is a GUID in a common form: with or without hyphens, in braces or in parentheses.
fn is_guid(text: &str) -> bool {
    let inner = text.trim();
    let inner = inner
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
        .or_else(|| inner.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')))
        .unwrap_or(inner);
    uuid::Uuid::try_parse(inner).is_ok()
}

fn truncated(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod cases {
    use super::*;

    fn read(text: &str) -> Result<TestsRequest, RpcError> {
        parse_tests_request(Some(&RawValue::from_string(text.to_owned()).unwrap()))
    }

    #[test]
    fn guid_in_any_form_is_accepted_and_echoed() {
        for id in [
            "0b1f6f57-0d0e-4d0c-8a4b-5a1f3f4c2d11",
            "0b1f6f570d0e4d0c8a4b5a1f3f4c2d11",
            "{0b1f6f57-0d0e-4d0c-8a4b-5a1f3f4c2d11}",
            "(0B1F6F57-0D0E-4D0C-8A4B-5A1F3F4C2D11)",
        ] {
            assert_eq!(read(&format!(r#"{{"runId":"{id}"}}"#)).unwrap().run_id, id);
        }
        for id in ["", "not-a-guid", "0b1f6f57-0d0e-4d0c-8a4b"] {
            assert_eq!(
                read(&format!(r#"{{"runId":"{id}"}}"#)).unwrap_err().code,
                code::INVALID_PARAMS,
                "{id}"
            );
        }
    }

    #[test]
    fn run_id_is_read_from_invalid_parameters() {
        let id = "0b1f6f57-0d0e-4d0c-8a4b-5a1f3f4c2d11";
        let read = |text: &str| readable_run_id(Some(&RawValue::from_string(text.to_owned()).unwrap()));
        for rest in ["", r#","filter":7"#, r#","tests":"all""#, r#","tests":[{"uid":null}]"#] {
            assert_eq!(read(&format!(r#"{{"runId":"{id}"{rest}}}"#)).as_deref(), Some(id), "{rest}");
        }
        for text in ["[]", "{}", r#"{"runId":null}"#, r#"{"runId":7}"#, r#"{"runId":"all"}"#] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(readable_run_id(None), None);
    }

    #[test]
    fn invalid_filter_error_names_the_column() {
        let id = "0b1f6f57-0d0e-4d0c-8a4b-5a1f3f4c2d11";
        let with = |filter: &str| read(&format!(r#"{{"runId":"{id}","filter":"{filter}"}}"#));
        assert!(with("/unit/**").unwrap().selection.filter.is_some());
        assert!(with("").unwrap().selection.filter.is_none(), "some clients send an empty one for none");
        let error = with("/unit/**/Name").unwrap_err();
        assert_eq!(error.code, code::INVALID_PARAMS);
        assert_eq!(
            error.message,
            "invalid graph query in filter: column 7: \"**\" is allowed only at the end of the path"
        );
    }

    #[test]
    fn wrong_run_option_error_names_the_member() {
        let id = "0b1f6f57-0d0e-4d0c-8a4b-5a1f3f4c2d11";
        let with = |options: &str| read(&format!(r#"{{"runId":"{id}","heeler.options":{options}}}"#));
        assert_eq!(with("null").unwrap().options, None);
        assert_eq!(with("{}").unwrap().options, Some(RunOptions::default()));
        let error = with(r#"{"jobs":0}"#).unwrap_err();
        assert_eq!(error.code, code::INVALID_PARAMS);
        assert_eq!(error.message, "invalid heeler.options: expected a positive integer for \"jobs\"");
        assert!(with("{}").unwrap().for_discovery().is_err());
        assert!(with("null").unwrap().for_discovery().is_ok());
    }

    #[test]
    fn client_of_another_machine_cannot_change_what_programs_are_started_with() {
        let id = "0b1f6f57-0d0e-4d0c-8a4b-5a1f3f4c2d11";
        let with = |options: &str| read(&format!(r#"{{"runId":"{id}","heeler.options":{options}}}"#));
        for (options, is_refused) in [
            ("null", false),
            (r#"{"jobs":1,"liveOutput":true,"args":[],"env":{}}"#, false),
            (r#"{"args":["--gtest_output=xml:/etc/x"]}"#, true),
            (r#"{"env":{"LD_PRELOAD":"x"}}"#, true),
            (r#"{"env":{"PATH":false}}"#, true),
        ] {
            assert_eq!(with(options).unwrap().for_other_machine().is_err(), is_refused, "{options}");
        }
    }

    #[test]
    fn null_tests_mean_all_and_empty_none() {
        let id = "0b1f6f57-0d0e-4d0c-8a4b-5a1f3f4c2d11";
        assert_eq!(read(&format!(r#"{{"runId":"{id}","tests":null}}"#)).unwrap().selection.uids, None);
        assert_eq!(read(&format!(r#"{{"runId":"{id}","tests":[]}}"#)).unwrap().selection.uids, Some(vec![]));
        let cases = read(&format!(r#"{{"runId":"{id}","testCases":[{{"uid":"a"}}]}}"#)).unwrap();
        assert_eq!(cases.selection.uids, Some(vec!["a".to_owned()]));
    }
}
