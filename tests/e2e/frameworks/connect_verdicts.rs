//! The verdicts of `heeler-connect-judge` about answers of a client, against those of the real conformance
//! suite: of its reference client, of one whose answers are damaged, and of one that makes mistakes.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::Path,
    process::{Command, Stdio},
    thread,
};

use heeler_connect_judge::{
    Case, JudgedRun,
    message::{
        Any, CallResult, CaseAnswer, CaseError, CaseRequest, CaseResponse, ConformancePayload, Header,
        RequestInfo, RpcError,
    },
    not_judged, problems_of_answer,
};
use prost::Message as _;

use super::{
    connect::real_suite,
    connect_cases::{expanded, judge_played_client, read_message, suites_dir, write_message},
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

/// Returns a number that selects a change for a case.
fn hash_of_name(name: &str) -> usize {
    name.bytes().fold(7, |sum, byte| sum * 31 % 65_521 + usize::from(byte))
}

/// Damages an answer in a way that its name selects; a few answers are errors, or nothing.
fn damage(response: &mut CaseResponse) -> &'static str {
    if let Some(CaseAnswer::Response(result)) = &mut response.answer
        && let Some(get_info) = info(result).and_then(|info| info.connect_get_info.as_mut())
    {
        get_info.query_params.iter_mut().for_each(|parameter| parameter.value = vec!["x".to_owned()]);
        return "other query parameters";
    }
    match hash_of_name(&response.test_name) % (DAMAGES.len() + 2) {
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

/// A client that does not do what it is asked: what it does instead.
type Mistake = fn(&mut CaseRequest);

const MISTAKES: [(&str, Mistake); 20] = [
    ("another codec", |request| request.codec = 3 - request.codec),
    ("another compression", |request| request.compression = if request.compression == 1 { 2 } else { 1 }),
    ("another protocol", |request| request.protocol = if request.protocol == 3 { 1 } else { 3 }),
    ("no header of the case", |request| {
        request.request_headers.retain(|header| header.name.starts_with("x-"));
    }),
    ("a header twice", |request| {
        let first = request.request_headers.first().cloned();
        request.request_headers.extend(first);
    }),
    ("no expected protocol", |request| remove_header(request, "x-expect-protocol")),
    ("no name of the case", |request| remove_header(request, "x-test-case-name")),
    ("no timeout", |request| request.timeout_ms = None),
    ("a longer timeout", |request| {
        request.timeout_ms = request.timeout_ms.map(|timeout| timeout + 600);
    }),
    ("a short timeout", |request| request.timeout_ms = request.timeout_ms.map(|_| 1)),
    ("other data", |request| {
        for any in &mut request.request_messages {
            let data = if any.type_url.contains("Bidi") { b"\x1a\x01!" } else { b"\x12\x01!" };
            any.value.extend_from_slice(data);
        }
    }),
    ("a later second message", |request| request.request_delay_ms += 10),
    ("another HTTP version", |request| {
        if request.stream_type == 1 {
            request.http_version = 3 - request.http_version;
        }
    }),
    ("no expected codec", |request| remove_header(request, "x-expect-codec")),
    ("no expected compression", |request| remove_header(request, "x-expect-compression")),
    ("no expected HTTP version", |request| remove_header(request, "x-expect-http-version")),
    ("no expected HTTP method", |request| remove_header(request, "x-expect-http-method")),
    ("no expected TLS", |request| remove_header(request, "x-expect-tls")),
    ("a message more", |request| {
        let last = request.request_messages.last().cloned();
        request.request_messages.extend(last);
    }),
    ("other values of headers", |request| {
        for header in request.request_headers.iter_mut().filter(|header| !header.name.starts_with("x-expect"))
        {
            header.value.iter_mut().for_each(|value| value.push('!'));
        }
    }),
];

fn remove_header(request: &mut CaseRequest, name: &str) {
    request.request_headers.retain(|header| header.name != name);
}

/// Makes the mistake that the name of the case selects.
pub(super) fn make_mistake(request: &mut CaseRequest) -> &'static str {
    // Whether a cancelled call fails before it is cancelled depends on the moment.
    if request.test_name.starts_with("Client Cancellation/") {
        return "nothing";
    }
    let (name, mistake) = MISTAKES[hash_of_name(&request.test_name) / 3 % MISTAKES.len()];
    mistake(request);
    name
}

/// Plays the reference client, whose requests and answers are changed; returns all answers.
pub(super) fn play_reference_client(
    programs: &Path,
    connection: &UnixStream,
    change_request: impl Fn(&mut CaseRequest) + Send,
    mut change: impl FnMut(&mut CaseResponse),
) -> BTreeMap<String, CaseResponse> {
    // A server that does not answer a call would keep the client waiting.
    let mut client = Command::new("timeout");
    client.arg("180").arg(programs.join("referenceclient")).args(["-p", "16"]);
    client.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = client.spawn().unwrap();
    let (mut requests, mut answers) = (client.stdin.take().unwrap(), client.stdout.take().unwrap());
    let mut responses = BTreeMap::new();
    thread::scope(|scope| {
        scope.spawn(move || {
            while let Some(request) = read_message(&mut { connection }) {
                let mut request = CaseRequest::decode(&request[..]).unwrap();
                change_request(&mut request);
                if write_message(&mut requests, &request.encode_to_vec()).is_err() {
                    break;
                }
            }
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

/// How the reference client is made a worse one: requests and answers are changed; the changes are named.
#[derive(Clone, Copy)]
struct WorseClient {
    mistake: fn(&mut CaseRequest) -> &'static str,
    damage: fn(&mut CaseResponse) -> &'static str,
}

/// What judges found: cases that failed, with what is wrong about them.
type FailedCases = BTreeMap<String, String>;

/// Has the real suite judge a client; returns the failed cases, and all answers.
fn judge_by_suite(
    programs: &Path,
    configuration: &str,
    client: WorseClient,
) -> (FailedCases, BTreeMap<String, CaseResponse>) {
    let mut responses = BTreeMap::new();
    let ran = judge_played_client(programs, configuration, |connection| {
        let mistake = |request: &mut CaseRequest| {
            (client.mistake)(request);
        };
        let damage = |response: &mut CaseResponse| {
            (client.damage)(response);
        };
        responses = play_reference_client(programs, &connection, mistake, damage);
    });
    assert!(ran.stdout.contains(&format!("Total cases: {}\n", responses.len())), "{}", ran.stderr);
    let mut failed = FailedCases::new();
    let mut name = String::new();
    for line in ran.stdout.lines() {
        if let Some(case) = line.strip_prefix("FAILED: ").and_then(|line| line.strip_suffix(':')) {
            name = case.to_owned();
            failed.insert(name.clone(), String::new());
        } else if let Some(problem) = line.strip_prefix('\t') {
            failed.entry(name.clone()).or_default().push_str(problem);
        }
    }
    (failed, responses)
}

/// Has our servers and our judge judge a client, as far as they do; returns the judged and the failed cases.
fn judge_by_us(programs: &Path, cases: Vec<Case>, client: WorseClient) -> (BTreeSet<String>, FailedCases) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let run = runtime.block_on(JudgedRun::start(cases)).unwrap();
    let (suite, connection) = UnixStream::pair().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let responses = thread::scope(|scope| {
        scope.spawn(|| runtime.block_on(stopped));
        scope.spawn(|| {
            for request in run.requests() {
                write_message(&mut &suite, &request).unwrap();
            }
            suite.shutdown(Shutdown::Write).unwrap();
        });
        // Somebody has to read what the client writes.
        scope.spawn(|| while read_message(&mut &suite).is_some() {});
        let mistake = |request: &mut CaseRequest| {
            (client.mistake)(request);
        };
        let damage = |response: &mut CaseResponse| {
            (client.damage)(response);
        };
        let responses = play_reference_client(programs, &connection, mistake, damage);
        drop(stop);
        responses
    });
    assert_eq!(responses.len(), run.requests().count(), "every case is answered");
    let problems = |response: &CaseResponse| run.problems(response).unwrap();
    let failed = responses.iter().map(|(name, response)| (name.clone(), problems(response)));
    let failed = failed.filter(|(_, problems)| !problems.is_empty());
    let failed = failed.map(|(name, problems)| (name, format!("{problems:?}"))).collect();
    (responses.into_keys().collect(), failed)
}

/// Asserts that the cases that failed are the same.
fn assert_same_failures(real: &FailedCases, ours: &FailedCases, change_of: impl Fn(&str) -> String) {
    let only_in = |one: &FailedCases, other: &FailedCases| -> Vec<String> {
        let only = one.iter().filter(|(name, _)| !other.contains_key(*name));
        only.map(|(name, problem)| format!("{name}: {}: {problem}", change_of(name))).collect()
    };
    let (missed, invented) = (only_in(real, ours), only_in(ours, real));
    assert!(missed.is_empty() && invented.is_empty(), "missed: {missed:#?}\ninvented: {invented:#?}");
}

const PERFECT: WorseClient = WorseClient { mistake: |_| "nothing", damage: |_| "nothing" };

/// Returns the number of failed cases of each change.
fn count_changes(failed: &FailedCases, change_of: impl Fn(&str) -> String) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for name in failed.keys() {
        *counts.entry(change_of(name)).or_default() += 1;
    }
    counts
}

#[test]
fn reference_client_passes_all_cases_of_all_judges() {
    let (Some(programs), Some(suites)) = (real_suite(), suites_dir()) else { return };
    let (failed, responses) = judge_by_suite(&programs, "", PERFECT);
    assert_eq!(failed, FailedCases::new());
    let cases = expanded(&suites, "");
    for case in &cases {
        let problems = problems_of_answer(case, responses[case.name()].answer.as_ref());
        assert!(problems.is_empty(), "{}: {problems:?}", case.name());
    }
    let (judged, failed) = judge_by_us(&programs, cases.clone(), PERFECT);
    assert_eq!(failed, FailedCases::new());
    let expected = cases.iter().filter(|case| not_judged(case).is_none());
    let expected: BTreeSet<_> = expected.map(|case| case.name().to_owned()).collect();
    assert_eq!(judged, expected);
}

/// The default configuration, and certificates of clients.
const CLIENT_CERTS: &str = "features:
  supportsTlsClientCerts: true
";

#[test]
fn certificates_of_clients_are_judged_alike() {
    let (Some(programs), Some(suites)) = (real_suite(), suites_dir()) else { return };
    let with_certs = |mut cases: Vec<Case>| {
        cases.retain(|case| case.server.uses_client_certs);
        cases
    };
    let cases = with_certs(expanded(&suites, CLIENT_CERTS));
    let mistake = |request: &mut CaseRequest| match hash_of_name(&request.test_name) / 2 % 4 {
        0 => {
            request.client_tls_creds = None;
            "no certificate"
        }
        1 => {
            remove_header(request, "x-expect-client-cert");
            "no expected certificate"
        }
        2 => {
            request.server_tls_cert.clear();
            "without TLS"
        }
        _ => "nothing",
    };
    let (real, _) = judge_by_suite(&programs, CLIENT_CERTS, WorseClient { mistake, damage: |_| "nothing" });
    let (judged, ours) = judge_by_us(&programs, cases, WorseClient { mistake, damage: |_| "nothing" });
    let real: FailedCases = real.into_iter().filter(|(name, _)| judged.contains(name)).collect();
    let change_of = |name: &str| {
        mistake(&mut CaseRequest { test_name: name.to_owned(), ..CaseRequest::default() }).to_owned()
    };
    assert_same_failures(&real, &ours, change_of);
    let failed = count_changes(&real, change_of);
    let all: BTreeMap<String, usize> = judged.iter().fold(BTreeMap::new(), |mut all, name| {
        *all.entry(change_of(name)).or_default() += 1;
        all
    });
    for change in ["no certificate", "no expected certificate", "without TLS"] {
        assert_eq!(failed.get(change), all.get(change), "{change}: {failed:?}");
    }
    assert_eq!((failed.get("nothing"), all.len()), (None, 4), "{all:?}");
}

#[test]
fn damaged_answers_fail_the_same_cases_of_both_judges() {
    let (Some(programs), Some(suites)) = (real_suite(), suites_dir()) else { return };
    let client = WorseClient { mistake: |_| "nothing", damage };
    let (real, responses) = judge_by_suite(&programs, "", client);
    let problems = |case: &Case| problems_of_answer(case, responses[case.name()].answer.as_ref());
    let cases = expanded(&suites, "");
    let ours = cases.iter().map(|case| (case.name().to_owned(), problems(case)));
    let ours = ours.filter(|(_, problems)| !problems.is_empty());
    let ours = ours.map(|(name, problems)| (name, format!("{problems:?}"))).collect();
    let change_of = |name: &str| {
        let answer = responses[name].answer.clone();
        damage(&mut CaseResponse { test_name: name.to_owned(), answer }).to_owned()
    };
    assert_same_failures(&real, &ours, change_of);
    let failed = count_changes(&real, change_of);
    let tolerated = [
        "nothing",
        "names in capitals",
        "values are joined",
        "another order of fields in requests",
        "another number of unsent requests, another status",
    ];
    let names = DAMAGES.iter().map(|(name, _)| *name);
    for name in names.chain(["other query parameters", "an error instead", "nothing instead"]) {
        // A tolerated change may meet a case that fails for its time, in both runs.
        assert!(failed.contains_key(name) || tolerated.contains(&name), "{name}: {failed:#?}");
    }
}

#[test]
fn mistaken_calls_fail_the_same_cases_of_both_judges() {
    let (Some(programs), Some(suites)) = (real_suite(), suites_dir()) else { return };
    let client = WorseClient { mistake: make_mistake, damage: |_| "nothing" };
    let (mut real, _) = judge_by_suite(&programs, "", client);
    let (judged, ours) = judge_by_us(&programs, expanded(&suites, ""), client);
    real.retain(|name, _| judged.contains(name));
    let change_of = |name: &str| {
        make_mistake(&mut CaseRequest { test_name: name.to_owned(), ..CaseRequest::default() }).to_owned()
    };
    assert_same_failures(&real, &ours, change_of);
    let failed = count_changes(&real, change_of);
    for (name, _) in MISTAKES {
        let is_tolerated = name == "a later second message";
        assert_eq!(failed.contains_key(name), !is_tolerated, "{name}: {failed:#?}");
    }
}
