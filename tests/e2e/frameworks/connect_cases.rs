//! The cases that `heeler-connect-judge` expands, against those that the real conformance suite sends to a
//! client that records its requests. The recording's fingerprint stands in where the suite is not installed.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::{self, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use heeler_connect_judge::{
    Case, Configuration, Endpoint, expand,
    message::{CaseAnswer, CaseError, CaseRequest, CaseResponse, TlsCreds},
};
use prost::Message as _;

use super::connect::real_suite;
use crate::support::world::{FinishedCommand, TestWorld, run_with_separate_outputs};

/// All values of all axes, and every feature.
const EVERYTHING: &str = "features:
  versions: [HTTP_VERSION_1, HTTP_VERSION_2, HTTP_VERSION_3]
  compressions: [COMPRESSION_IDENTITY, COMPRESSION_GZIP, COMPRESSION_BR, COMPRESSION_ZSTD, COMPRESSION_DEFLATE, \
                          COMPRESSION_SNAPPY]
  supportsTlsClientCerts: true
  supportsHalfDuplexBidiOverHttp1: true
";
/// Few features, and both kinds of exceptions.
const EXCEPTIONS: &str = "features:
  codecs: [CODEC_JSON]
  compressions: [COMPRESSION_ZSTD]
  supports_tls: false
  supportsMessageReceiveLimit: false
includeCases:
- {version: HTTP_VERSION_2, protocol: PROTOCOL_GRPC, useTls: true, codec: CODEC_PROTO}
- {streamType: STREAM_TYPE_UNARY, compression: COMPRESSION_IDENTITY, useMessageReceiveLimit: true}
excludeCases:
- {protocol: PROTOCOL_GRPC_WEB, version: HTTP_VERSION_1}
";
const CONFIGURATIONS: [(&str, &str); 3] =
    [("default", ""), ("everything", EVERYTHING), ("exceptions", EXCEPTIONS)];

/// Returns the directory of the suites, in the module cache of Go.
pub(super) fn suites_dir() -> Option<PathBuf> {
    let output = Command::new("go").args(["env", "GOMODCACHE"]).output().ok()?;
    let cache = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    let suites = "connectrpc.com/conformance@v1.0.5/internal/app/connectconformance/testsuites/data";
    let found = Some(cache.join(suites)).filter(|dir| dir.is_dir());
    if found.is_none() {
        eprintln!("the suites of Connect's conformance suite are not in the module cache: not tried");
    }
    found
}

/// Expands the suites of a directory.
pub(super) fn expanded(suites: &Path, configuration: &str) -> Vec<Case> {
    let mut files: Vec<(String, String)> = fs::read_dir(suites)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.display().to_string(), fs::read_to_string(&path).unwrap()))
        .collect();
    files.sort();
    let files = files.iter().map(|(file, text)| (file.as_str(), text.as_str()));
    expand(files, &Configuration::parse(configuration).unwrap()).unwrap()
}

/// Has the real suite judge a client that the test plays, on a connection.
pub(super) fn judge_played_client(
    suite: &Path,
    configuration: &str,
    play: impl FnOnce(UnixStream) + Send,
) -> FinishedCommand {
    let world = TestWorld::with_fake("connect-bridge");
    let socket = world.path("client.socket");
    world.env("HEELER_FIXTURE_SOCKET", &socket.display().to_string());
    world.write("conf.yaml", configuration);
    let words = ["--mode", "client", "--conf", "conf.yaml", "--", "./connect-bridge"];
    let suite = world.command(Command::new(suite.join("connectconformance")), &words);
    let listener = UnixListener::bind(&socket).unwrap();
    thread::scope(|scope| {
        scope.spawn(move || play(listener.accept().unwrap().0));
        let ran = run_with_separate_outputs(suite);
        // A suite that has started no client leaves the player waiting; else nobody listens any more.
        drop(UnixStream::connect(&socket));
        ran
    })
}

/// Reads a message with its size; none at the end.
pub(super) fn read_message(from: &mut impl Read) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length).ok()?;
    let mut message = vec![0; u32::from_be_bytes(length) as usize];
    from.read_exact(&mut message).unwrap();
    Some(message)
}

/// Writes a message with its size.
pub(super) fn write_message(to: &mut impl Write, message: &[u8]) -> io::Result<()> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    to.write_all(&[&length, message].concat())
}

/// Returns the requests that the real suite sends, in the order of their names.
fn recorded(suite: &Path, configuration: &str) -> BTreeMap<String, Vec<u8>> {
    let mut requests = BTreeMap::new();
    let ran = judge_played_client(suite, configuration, |mut connection| {
        while let Some(request) = read_message(&mut connection) {
            let test_name = CaseRequest::decode(&request[..]).unwrap().test_name;
            let answer = Some(CaseAnswer::Error(CaseError { message: "recorded".to_owned() }));
            let response = CaseResponse { test_name: test_name.clone(), answer };
            write_message(&mut connection, &response.encode_to_vec()).unwrap();
            assert_eq!(requests.insert(test_name, request), None, "a case is sent once");
        }
    });
    assert_eq!(ran.code, Some(1), "every case has failed: {}", ran.stderr);
    requests
}

/// The endpoint of a case in a fingerprint.
fn fixed_endpoint(case: &Case) -> Endpoint {
    let when = |is_used: bool, text: &str| if is_used { text.as_bytes().to_vec() } else { Vec::new() };
    let creds = TlsCreds { cert: when(true, "client cert"), key: when(true, "client key") };
    Endpoint {
        host: "127.0.0.1".to_owned(),
        port: 1,
        server_cert: when(case.server.uses_tls, "server cert"),
        client_creds: case.server.uses_client_certs.then_some(creds),
    }
}

/// Hashes bytes by FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Returns a line for each suite of a configuration: number of cases, and the sum of their requests' hashes.
fn fingerprint(configuration: &str, requests: impl Iterator<Item = CaseRequest>) -> String {
    let mut suites: BTreeMap<String, (usize, u64)> = BTreeMap::new();
    for request in requests {
        let suite = request.test_name.split('/').next().unwrap().to_owned();
        let (count, sum) = suites.entry(suite).or_default();
        *count += 1;
        *sum = sum.wrapping_add(hash(&request.encode_to_vec()));
    }
    suites.into_iter().fold(String::new(), |mut lines, (suite, (count, sum))| {
        writeln!(lines, "{configuration} | {suite} | {count} | {sum:016x}").unwrap();
        lines
    })
}

const FINGERPRINT: &str = "tests/e2e/frameworks/connect_cases.txt";

#[test]
fn expanded_cases_have_the_fingerprint_of_the_real_ones() {
    let Some(suites) = suites_dir() else { return };
    let lines = CONFIGURATIONS.map(|(name, configuration)| {
        let cases = expanded(&suites, configuration);
        fingerprint(name, cases.iter().map(|case| case.request(&fixed_endpoint(case))))
    });
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join(FINGERPRINT);
    assert_eq!(lines.concat(), fs::read_to_string(golden).unwrap());
}

#[test]
fn expanded_cases_are_those_that_the_real_suite_sends() {
    let (Some(suite), Some(suites)) = (real_suite(), suites_dir()) else { return };
    let mut lines = String::new();
    for (name, configuration) in CONFIGURATIONS {
        let cases: BTreeMap<String, Case> =
            expanded(&suites, configuration).into_iter().map(|case| (case.name().to_owned(), case)).collect();
        let recorded = recorded(&suite, configuration);
        let names = [recorded.keys().collect::<Vec<_>>(), cases.keys().collect()];
        assert_eq!(names[0], names[1], "{name}");
        for (request, case) in recorded.values().zip(cases.values()) {
            let sent = CaseRequest::decode(&request[..]).unwrap();
            let endpoint = Endpoint {
                host: sent.host,
                port: sent.port,
                server_cert: sent.server_tls_cert,
                client_creds: sent.client_tls_creds,
            };
            let uses = (!endpoint.server_cert.is_empty(), endpoint.client_creds.is_some());
            assert_eq!(uses, (case.server.uses_tls, case.server.uses_client_certs), "{}", case.name());
            let expanded = case.request(&endpoint).encode_to_vec();
            let both = || [&expanded, request].map(|bytes| bytes.escape_ascii().to_string());
            assert!(expanded == *request, "{name}: {}: {:#?}", case.name(), both());
        }
        let normalized = recorded.values().zip(cases.values()).map(|(request, case)| {
            let (fixed, sent) = (fixed_endpoint(case), CaseRequest::decode(&request[..]).unwrap());
            let Endpoint { host, port, server_cert: server_tls_cert, client_creds: client_tls_creds } = fixed;
            CaseRequest { host, port, server_tls_cert, client_tls_creds, ..sent }
        });
        lines.push_str(&fingerprint(name, normalized));
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join(FINGERPRINT);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&golden, &lines).unwrap();
    }
    assert_eq!(lines, fs::read_to_string(golden).unwrap(), "UPDATE_GOLDEN=1 writes it");
}
