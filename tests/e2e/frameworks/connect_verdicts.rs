//! The verdicts of `heeler-connect-judge` about answers of a client, against those of the real conformance
//! suite: of its reference client, and of one whose answers are damaged in many ways.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::Path,
    process::{Command, Stdio},
    thread,
};

use heeler_connect_judge::{
    message::{
        Any, CallResult, CaseAnswer, CaseError, CaseResponse, ConformancePayload, Header, RequestInfo,
        RpcError,
    },
    problems_of_answer,
};
use prost::Message as _;

use super::{
    connect::real_suite,
    connect_cases::{CONFIGURATIONS, expanded, judge_played_client, read_message, suites_dir, write_message},
};

/// A way to damage an answer.
type Damage = fn(&mut CallResult);

fn info(result: &mut CallResult) -> Option<&mut RequestInfo> {
    result.payloads.first_mut()?.request_info.as_mut()
}

fn change_info(result: &mut CallResult, change: fn(&mut RequestInfo)) {
    if let Some(info) = info(result) {
        change(info);
    }
}

fn change_error(result: &mut CallResult, change: fn(&mut RpcError)) {
    if let Some(error) = &mut result.error {
        change(error);
    }
}

/// Changes what the server has seen, where it is the detail of an error.
fn change_info_in_error(result: &mut CallResult, change: fn(&mut RequestInfo)) {
    let detail = result.error.as_mut().and_then(|error| error.details.last_mut());
    let Some(detail) = detail.filter(|detail| detail.type_url.ends_with(".RequestInfo")) else { return };
    let mut info = RequestInfo::decode(&detail.value[..]).unwrap();
    change(&mut info);
    detail.value = info.encode_to_vec();
}

/// Writes the fields of a message in the reverse order, which means the same.
fn reverse_fields(any: &mut Any) {
    let fields = RawRequest::decode(&any.value[..]).unwrap();
    let data = ReversedRequest { definition: fields.definition, ..ReversedRequest::default() };
    let rest = ReversedRequest { definition: None, second: fields.second, third: fields.third };
    any.value = [rest.encode_to_vec(), data.encode_to_vec()].concat();
}

/// A request message of any type, as it is written: its second field is a number or bytes.
#[derive(Clone, PartialEq, prost::Message)]
struct RawRequest {
    #[prost(bytes = "vec", optional, tag = "1")]
    definition: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "2")]
    second: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "3")]
    third: Option<Vec<u8>>,
}
type ReversedRequest = RawRequest;

const DAMAGES: [(&str, Damage); 29] = [
    ("nothing", |_| {}),
    ("no headers", |result| result.response_headers.clear()),
    ("no trailers", |result| result.response_trailers.clear()),
    ("headers and trailers are exchanged", |result| {
        std::mem::swap(&mut result.response_headers, &mut result.response_trailers);
    }),
    ("headers are among the trailers", |result| {
        result.response_trailers.append(&mut result.response_headers);
    }),
    ("trailers are among the headers", |result| {
        result.response_headers.append(&mut result.response_trailers);
    }),
    ("names in capitals", |result| {
        for header in result.response_headers.iter_mut().chain(&mut result.response_trailers) {
            header.name = header.name.to_uppercase();
        }
    }),
    ("values are joined", |result| {
        for header in result.response_headers.iter_mut().chain(&mut result.response_trailers) {
            header.value = vec![header.value.join(" , ")];
        }
    }),
    ("values are reversed", |result| {
        for header in result.response_headers.iter_mut().chain(&mut result.response_trailers) {
            header.value.reverse();
        }
    }),
    ("values with a space more", |result| {
        for header in result.response_headers.iter_mut().chain(&mut result.response_trailers) {
            header.value.iter_mut().for_each(|value| value.push(' '));
        }
    }),
    ("another header", |result| result.response_headers.push(Header::new("x-custom-header", "other"))),
    ("another code", |result| change_error(result, |error| error.code = error.code % 16 + 1)),
    ("code deadline exceeded", |result| change_error(result, |error| error.code = 4)),
    ("another message", |result| change_error(result, |error| error.message = Some("other".to_owned()))),
    ("no message", |result| change_error(result, |error| error.message = None)),
    ("no error", |result| result.error = None),
    ("an error", |result| result.error = Some(RpcError { code: 2, ..RpcError::default() })),
    ("no details", |result| change_error(result, |error| error.details.clear())),
    ("details of another address", |result| {
        change_error(result, |error| {
            for detail in &mut error.details {
                detail.type_url = detail.type_url.replace("type.googleapis.com", "example.com");
            }
        });
    }),
    ("a payload less", |result| drop(result.payloads.pop())),
    ("a payload more", |result| result.payloads.push(ConformancePayload::default())),
    ("other data", |result| result.payloads.iter_mut().for_each(|payload| payload.data.push(b'!'))),
    ("no request information", |result| {
        result.payloads.iter_mut().for_each(|payload| payload.request_info = None);
        change_info_in_error(result, |info| *info = RequestInfo::default());
    }),
    ("no request headers", |result| {
        change_info(result, |info| info.request_headers.clear());
        change_info_in_error(result, |info| info.request_headers.clear());
    }),
    ("another timeout", |result| {
        let change = |info: &mut RequestInfo| info.timeout_ms = Some(info.timeout_ms.unwrap_or(0) - 501);
        change_info(result, change);
        change_info_in_error(result, change);
    }),
    ("a request less", |result| {
        change_info(result, |info| drop(info.requests.pop()));
        change_info_in_error(result, |info| drop(info.requests.pop()));
    }),
    ("an unknown field in requests", |result| {
        let change = |info: &mut RequestInfo| {
            info.requests.iter_mut().for_each(|request| request.value.extend_from_slice(b"\xa0\x06\x01"));
        };
        change_info(result, change);
        change_info_in_error(result, change);
    }),
    ("another order of fields in requests", |result| {
        let change = |info: &mut RequestInfo| {
            let unary = info.requests.iter_mut().filter(|any| !any.type_url.contains("Bidi"));
            unary.for_each(reverse_fields);
        };
        change_info(result, change);
        change_info_in_error(result, change);
    }),
    ("another number of unsent requests, another status", |result| {
        result.num_unsent_requests += 1;
        result.http_status_code = Some(418);
    }),
];

/// Damages an answer in a way that its name selects; a few answers are errors, or nothing.
fn damage(response: &mut CaseResponse) -> &'static str {
    if let Some(CaseAnswer::Response(result)) = &mut response.answer
        && let Some(get_info) = info(result).and_then(|info| info.connect_get_info.as_mut())
    {
        get_info.query_params.iter_mut().for_each(|parameter| parameter.value = vec!["x".to_owned()]);
        return "other query parameters";
    }
    let number = response.test_name.bytes().fold(7_usize, |sum, byte| sum * 31 % 65_521 + usize::from(byte));
    match number % (DAMAGES.len() + 2) {
        0 => {
            response.answer = Some(CaseAnswer::Error(CaseError { message: "no".to_owned() }));
            "an error instead"
        }
        1 => {
            response.answer = None;
            "nothing instead"
        }
        place => {
            let (name, damage) = DAMAGES[place - 2];
            if let Some(CaseAnswer::Response(result)) = &mut response.answer {
                damage(result);
            }
            name
        }
    }
}

/// Plays the reference client, whose answers `change` changes; returns all answers.
fn play_reference_client(
    programs: &Path,
    connection: &UnixStream,
    mut change: impl FnMut(&mut CaseResponse),
) -> BTreeMap<String, CaseResponse> {
    let mut client = Command::new(programs.join("referenceclient"));
    client.args(["-p", "16"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = client.spawn().unwrap();
    let (mut requests, mut answers) = (client.stdin.take().unwrap(), client.stdout.take().unwrap());
    let mut responses = BTreeMap::new();
    thread::scope(|scope| {
        scope.spawn(move || {
            while let Some(request) = read_message(&mut { connection })
                && write_message(&mut requests, &request).is_ok()
            {}
        });
        while let Some(answer) = read_message(&mut answers) {
            let mut response = CaseResponse::decode(&answer[..]).unwrap();
            change(&mut response);
            if write_message(&mut { connection }, &response.encode_to_vec()).is_err() {
                // The suite has given up: its output, which is checked, says why.
                client.kill().unwrap();
                break;
            }
            responses.insert(response.test_name.clone(), response);
        }
        connection.shutdown(Shutdown::Both).unwrap();
    });
    client.wait().unwrap();
    responses
}

/// Has the real suite and ours judge the reference client with damaged answers; returns the failed cases with
/// their damages.
fn judge_damaged(
    configuration: &str,
    damage: impl Fn(&mut CaseResponse) -> &'static str + Sync,
) -> Option<BTreeMap<&'static str, usize>> {
    let (programs, suites) = (real_suite()?, suites_dir()?);
    let mut damages = BTreeMap::new();
    let mut responses = BTreeMap::new();
    let ran = judge_played_client(&programs, configuration, |connection| {
        responses = play_reference_client(&programs, &connection, |response| {
            damages.insert(response.test_name.clone(), damage(response));
        });
    });
    let real: BTreeSet<&str> =
        ran.stdout.lines().filter_map(|line| line.strip_prefix("FAILED: ")?.strip_suffix(':')).collect();
    let cases = expanded(&suites, configuration);
    assert_eq!(responses.len(), cases.len(), "{}", ran.stderr);
    assert!(ran.stdout.contains(&format!("Total cases: {}\n", cases.len())), "{}", ran.stdout);
    let verdicts: BTreeMap<&str, Vec<String>> = cases
        .iter()
        .map(|case| (case.name(), problems_of_answer(case, responses[case.name()].answer.as_ref())))
        .collect();
    let ours: BTreeSet<&str> =
        verdicts.iter().filter(|(_, problems)| !problems.is_empty()).map(|(name, _)| *name).collect();
    let described = |name: &&&str| format!("{name}: {}: {:?}", damages[**name], verdicts[**name]);
    let (missed, invented): (Vec<_>, Vec<_>) = (
        real.difference(&ours).collect::<Vec<_>>().iter().map(described).collect(),
        ours.difference(&real).collect::<Vec<_>>().iter().map(described).collect(),
    );
    assert!(missed.is_empty() && invented.is_empty(), "missed: {missed:#?}\ninvented: {invented:#?}");
    let mut failed = BTreeMap::new();
    for name in real {
        *failed.entry(damages[name]).or_default() += 1;
    }
    Some(failed)
}

#[test]
fn reference_client_passes_all_cases_of_both_judges() {
    let Some(failed) = judge_damaged(CONFIGURATIONS[0].1, |_| "nothing") else { return };
    assert_eq!(failed, BTreeMap::new());
}

#[test]
fn damaged_answers_fail_the_same_cases_of_both_judges() {
    let Some(failed) = judge_damaged(CONFIGURATIONS[0].1, damage) else { return };
    let tolerated = [
        "nothing",
        "names in capitals",
        "values are joined",
        "another order of fields in requests",
        "another number of unsent requests, another status",
    ];
    let names = DAMAGES.iter().map(|(name, _)| *name).chain([
        "other query parameters",
        "an error instead",
        "nothing instead",
    ]);
    for name in names {
        assert_eq!(failed.contains_key(name), !tolerated.contains(&name), "{name}: {failed:#?}");
    }
}
