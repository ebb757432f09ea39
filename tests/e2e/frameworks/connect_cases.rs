//! The cases that `heeler-connect-judge` expands, against those that the real conformance suite sends to a
//! client that records its requests. The recording's fingerprint stands in where the suite is not installed.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use heeler_connect_judge::{
    Case, Configuration, Endpoint, expand,
    message::{CaseRequest, TlsCreds},
};
use prost::Message as _;

use super::connect::real_suite;
use crate::support::world::{TestWorld, run_with_separate_outputs};

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

/// Returns the requests that the real suite sends, in the order of their names.
fn recorded(suite: &Path, configuration: &str) -> BTreeMap<String, Vec<u8>> {
    let world = TestWorld::with_fake("connect-recorder");
    world.env("HEELER_FIXTURE_RECORD", &world.path("requests").display().to_string());
    world.write("conf.yaml", configuration);
    let words = ["--mode", "client", "--conf", "conf.yaml", "--", "./connect-recorder"];
    let ran =
        run_with_separate_outputs(world.command(Command::new(suite.join("connectconformance")), &words));
    assert_eq!(ran.code, Some(1), "every case has failed: {}", ran.stderr);
    let recording = fs::read(world.path("requests")).unwrap();
    let mut requests = BTreeMap::new();
    let mut rest = recording.as_slice();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (message, after) = after.split_at(u32::from_be_bytes(*length) as usize);
        let name = CaseRequest::decode(message).unwrap().test_name;
        assert_eq!(requests.insert(name, message.to_vec()), None, "a case is sent once");
        rest = after;
    }
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

const FINGERPRINT: &str = "tests/golden/connect_cases.txt";

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
