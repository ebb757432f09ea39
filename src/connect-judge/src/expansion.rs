//! Suites and a configuration become cases: each template at each point of the axes that both have.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;

use crate::{
    axes::{CaseAxes, Codec, Compression, HttpVersion, Protocol, StreamType, UnknownValue},
    configuration::Configuration,
    expected::expected_result,
    message::{CallResult, CaseRequest, CaseTemplate, Header, RawHttpResponse, SERVICE, Suite, TlsCreds},
    suite::{MODE_CLIENT, SuiteProblem, parse_suite, raw_response},
};

/// Maximum size of a message that clients accept. Above that of servers, whose responses echo requests.
const CLIENT_RECEIVE_LIMIT_BYTES: u32 = 1 << 20;

/// Component of the names of cases that run against a server of another implementation.
const GRPC_SERVER_COMPONENT: &str = "(grpc server impl)";

/// Common name of the certificate of clients.
pub const CLIENT_CERT_NAME: &str = "Conformance Client";

/// Suites that can't become cases.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpansionError {
    /// A suite file is wrong.
    #[error("{file}: {problem}")]
    Suite { file: String, problem: SuiteProblem },
    /// Two suite files have the same name of a suite.
    #[error("{first} and {second} both have a suite named {name:?}")]
    DuplicateSuite { name: String, first: String, second: String },
    /// No suite has a case that the configuration has.
    #[error("no case of these suites is in the configuration")]
    NoCases,
}

/// The server that a case needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerKind {
    pub http_version: HttpVersion,
    pub protocol: Protocol,
    pub uses_tls: bool,
    pub uses_client_certs: bool,
    pub implementation: ServerImplementation,
}

/// Whose server it is. The conformance suite has two; they differ in what they check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerImplementation {
    /// Checks the requests beside answering them.
    Reference,
    /// Answers only. Speaks gRPC and gRPC-Web.
    Grpc,
}

/// A case of a client under test.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    pub server: ServerKind,
    /// The request without what a run adds.
    request: CaseRequest,
    pub stream_type: StreamType,
    pub compression: Compression,
    /// The result that the client should report.
    pub expected: CallResult,
    /// Codes that an error may have instead of the expected one.
    pub other_allowed_error_codes: Vec<i32>,
}

/// Where a server listens, and what a client needs to reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub host: String,
    pub port: u32,
    /// The server's certificate, in PEM; empty without TLS.
    pub server_cert: Vec<u8>,
    pub client_creds: Option<TlsCreds>,
}

impl Case {
    /// Returns the full name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.request.test_name
    }

    /// Returns the raw HTTP response that the case asks for.
    #[must_use]
    pub fn raw_response(&self) -> Option<RawHttpResponse> {
        raw_response(&self.request.request_messages)
    }

    /// Returns the request as a client under test gets it, encoded.
    #[must_use]
    pub fn encoded_request(&self, endpoint: &Endpoint) -> Vec<u8> {
        self.request(endpoint).encode_to_vec()
    }

    /// Returns the request as a client under test gets it.
    #[must_use]
    pub fn request(&self, endpoint: &Endpoint) -> CaseRequest {
        let mut request = self.request.clone();
        request.host.clone_from(&endpoint.host);
        request.port = endpoint.port;
        request.server_tls_cert.clone_from(&endpoint.server_cert);
        request.client_tls_creds.clone_from(&endpoint.client_creds);
        let mut add = |name, value: &str| request.request_headers.push(Header::new(name, value));
        add("x-test-case-name", &self.request.test_name);
        if self.server.implementation == ServerImplementation::Reference {
            add("x-expect-http-version", &self.request.http_version.to_string());
            add("x-expect-http-method", if self.request.use_get_http_method { "GET" } else { "POST" });
            add("x-expect-protocol", &self.request.protocol.to_string());
            add("x-expect-codec", &self.request.codec.to_string());
            add("x-expect-compression", &self.request.compression.to_string());
            add("x-expect-tls", &(!endpoint.server_cert.is_empty()).to_string());
            if endpoint.client_creds.is_some() {
                add("x-expect-client-cert", CLIENT_CERT_NAME);
            }
        }
        request
    }
}

/// Reads suite files, given with their names, and returns the cases of a client under test: ordered by
/// server, then by name.
///
/// # Errors
/// A suite is wrong, or there are no cases.
pub fn expand<'t>(
    suites: impl IntoIterator<Item = (&'t str, &'t str)>,
    configuration: &Configuration,
) -> Result<Vec<Case>, ExpansionError> {
    let mut files: BTreeMap<String, &str> = BTreeMap::new();
    let mut cases = Vec::new();
    let mut names = BTreeSet::new();
    for (file, text) in suites {
        let wrong = |problem| ExpansionError::Suite { file: file.to_owned(), problem };
        let suite = parse_suite(text).map_err(wrong)?;
        if let Some(first) = files.insert(suite.name.clone(), file) {
            let (first, second) = (first.to_owned(), file.to_owned());
            return Err(ExpansionError::DuplicateSuite { name: suite.name, first, second });
        }
        if suite.mode == 0 || suite.mode == MODE_CLIENT {
            expand_suite(&suite, configuration, &mut names, &mut cases).map_err(wrong)?;
        }
    }
    if cases.is_empty() {
        return Err(ExpansionError::NoCases);
    }
    cases.sort_by(|one, other| (one.server, one.name()).cmp(&(other.server, other.name())));
    Ok(cases)
}

fn relevant<T: Copy>(
    numbers: &[i32],
    all: &[T],
    read: fn(i32) -> Result<T, UnknownValue>,
) -> Result<Vec<T>, UnknownValue> {
    if numbers.is_empty() { Ok(all.to_vec()) } else { numbers.iter().map(|number| read(*number)).collect() }
}

fn expand_suite(
    suite: &Suite,
    configuration: &Configuration,
    names: &mut BTreeSet<String>,
    cases: &mut Vec<Case>,
) -> Result<(), SuiteProblem> {
    let protocols = relevant(&suite.relevant_protocols, Protocol::ALL, Protocol::of_number)?;
    let versions = relevant(&suite.relevant_http_versions, HttpVersion::ALL, HttpVersion::of_number)?;
    let codecs = relevant(&suite.relevant_codecs, Codec::ALL, Codec::of_number)?;
    let compressions = relevant(&suite.relevant_compressions, Compression::ALL, Compression::of_number)?;
    // The configuration knows no modes of the version of Connect: suites with one have no cases.
    let points = configuration.supported.iter().filter(|point| {
        suite.connect_version_mode == 0
            && protocols.contains(&point.protocol)
            && versions.contains(&point.http_version)
            && codecs.contains(&point.codec)
            && compressions.contains(&point.compression)
            && (point.uses_tls || !suite.relies_on_tls)
            && point.uses_client_certs == suite.relies_on_tls_client_certs
            && point.uses_connect_get == suite.relies_on_connect_get
            && point.uses_receive_limit == suite.relies_on_message_receive_limit
    });
    for point in points {
        let prefix = [vec![suite.name.clone()], point.components(suite)].concat();
        for template in &suite.test_cases {
            let Some(case) = expand_template(template, point, &prefix)? else { continue };
            for case in [case_of_grpc_server(&case, template), Some(case)].into_iter().flatten() {
                if !names.insert(case.name().to_owned()) {
                    return Err(SuiteProblem::DuplicateCase { name: case.name().to_owned() });
                }
                cases.push(case);
            }
        }
    }
    Ok(())
}

/// Returns the case of a template at a point of the axes, if it is one of its stream type.
fn expand_template(
    template: &CaseTemplate,
    point: &CaseAxes,
    prefix: &[String],
) -> Result<Option<Case>, SuiteProblem> {
    let mut request = template.request.clone().expect("the suite was checked");
    let stream_type = StreamType::of_number(request.stream_type)?;
    if stream_type != point.stream_type {
        return Ok(None);
    }
    if request.service().is_empty() {
        request.service = Some(SERVICE.to_owned());
        request.method = Some(stream_type.default_method().to_owned());
    }
    let simple_name = request.test_name;
    request.test_name = joined_name(prefix, &simple_name);
    request.server_tls_cert = Vec::new();
    request.client_tls_creds = None;
    request.http_version = point.http_version.number();
    request.protocol = point.protocol.number();
    request.codec = point.codec.number();
    request.compression = point.compression.number();
    request.message_receive_limit = CLIENT_RECEIVE_LIMIT_BYTES;
    let expected = match &template.expected_response {
        Some(expected) => expected.clone(),
        None => expected_result(&request, stream_type)
            .map_err(|problem| SuiteProblem::of_case(&simple_name, problem))?,
    };
    Ok(Some(Case {
        server: ServerKind {
            http_version: point.http_version,
            protocol: point.protocol,
            uses_tls: point.uses_tls,
            uses_client_certs: point.uses_tls && point.uses_client_certs,
            implementation: ServerImplementation::Reference,
        },
        request,
        stream_type,
        compression: point.compression,
        expected,
        other_allowed_error_codes: template.other_allowed_error_codes.clone(),
    }))
}

/// Returns the same case against a server of the other implementation, if that can serve it.
fn case_of_grpc_server(case: &Case, template: &CaseTemplate) -> Option<Case> {
    let is_served = match case.server.protocol {
        Protocol::Connect => false,
        Protocol::Grpc => case.server.http_version == HttpVersion::Http2,
        Protocol::GrpcWeb => case.server.http_version != HttpVersion::Http3,
    };
    let compressions = [Compression::Identity.number(), Compression::Gzip.number()];
    let is_possible = is_served
        && case.request.codec == Codec::Proto.number()
        && compressions.contains(&case.request.compression)
        && !case.server.uses_tls
        && case.raw_response().is_none();
    if !is_possible {
        return None;
    }
    let simple_name = &template.request.as_ref()?.test_name;
    let name = case.name();
    let prefix = name.strip_suffix(simple_name.as_str()).unwrap_or(name);
    let mut of_grpc_server = case.clone();
    of_grpc_server.request.test_name = format!("{prefix}{GRPC_SERVER_COMPONENT}/{simple_name}");
    of_grpc_server.server.implementation = ServerImplementation::Grpc;
    Some(of_grpc_server)
}

/// Joins the components of a name, and resolves it as a path: without empty components, `.` and `..`.
fn joined_name(prefix: &[String], simple_name: &str) -> String {
    let mut components: Vec<&str> = Vec::new();
    for component in prefix.iter().map(String::as_str).chain([simple_name]).flat_map(|part| part.split('/')) {
        match component {
            "" | "." => {}
            ".." if components.last().is_some_and(|last| *last != "..") => {
                components.pop();
            }
            _ => components.push(component),
        }
    }
    components.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUITE: &str = "name: My Suite\nrelevantCodecs: [CODEC_PROTO]\nrelevantCompressions: [COMPRESSION_GZIP]\n\
                         testCases:\n- request:\n    testName: unary/one\n    streamType: STREAM_TYPE_UNARY\n\
                         - request:\n    testName: stream\n    streamType: STREAM_TYPE_SERVER_STREAM\n";

    fn configuration(text: &str) -> Configuration {
        Configuration::parse(text).unwrap()
    }

    fn names(cases: &[Case]) -> Vec<&str> {
        cases.iter().map(Case::name).collect()
    }

    #[test]
    fn names_have_what_the_suite_does_not_fix() {
        let only = configuration(
            "features: {versions: [HTTP_VERSION_2], protocols: [PROTOCOL_GRPC], supportsTls: false}",
        );
        let cases = expand([("a.yaml", SUITE)], &only).unwrap();
        let expected = [
            "My Suite/HTTPVersion:2/Protocol:PROTOCOL_GRPC/TLS:false/stream",
            "My Suite/HTTPVersion:2/Protocol:PROTOCOL_GRPC/TLS:false/unary/one",
            "My Suite/HTTPVersion:2/Protocol:PROTOCOL_GRPC/TLS:false/(grpc server impl)/stream",
            "My Suite/HTTPVersion:2/Protocol:PROTOCOL_GRPC/TLS:false/(grpc server impl)/unary/one",
        ];
        assert_eq!(names(&cases), expected);
    }

    #[test]
    fn suite_cut_anywhere_is_read_or_refused() {
        let messages = "    requestMessages:\n    - \"@type\": x/connectrpc.conformance.v1.ServerStreamRequest\n      \
                        responseDefinition: {responseData: [\"YQ==\"], error: {code: CODE_ABORTED}}\n";
        let whole = format!("{SUITE}{messages}");
        let default = configuration("");
        assert!(expand([("a.yaml", whole.as_str())], &default).is_ok());
        for cut in 0..whole.len() {
            for text in [&whole[..cut], &whole[cut..], &whole.replace(&whole[cut..=cut], "")] {
                let expanded = expand([("a.yaml", text)], &default);
                assert!(expanded.is_err() || expanded.is_ok_and(|cases| !cases.is_empty()), "{text}");
            }
        }
    }

    #[test]
    fn names_are_resolved_as_paths() {
        let prefix = ["Suite".to_owned(), "TLS:true".to_owned()];
        for (name, expected) in
            [("a/b", "Suite/TLS:true/a/b"), ("./a//b/", "Suite/TLS:true/a/b"), ("../../../a", "../a")]
        {
            assert_eq!(joined_name(&prefix, name), expected);
        }
    }

    #[test]
    fn suites_are_refused_with_their_files() {
        let default = configuration("");
        let error = expand([("a.yaml", SUITE), ("b.yaml", SUITE)], &default).unwrap_err();
        assert_eq!(error.to_string(), "a.yaml and b.yaml both have a suite named \"My Suite\"");
        let error = expand([("a.yaml", "name: 1\nnam: 2")], &default).unwrap_err().to_string();
        assert!(error.starts_with("a.yaml: line 2: no field \"nam\""), "{error}");
        let servers = format!("mode: TEST_MODE_SERVER\n{SUITE}");
        assert_eq!(expand([("a.yaml", servers.as_str())], &default), Err(ExpansionError::NoCases));
        let twice =
            SUITE.replace("testName: stream", "testName: unary/one").replace("SERVER_STREAM", "UNARY");
        let error = expand([("a.yaml", twice.as_str())], &default).unwrap_err().to_string();
        assert!(error.starts_with("a.yaml: two cases are named \"My Suite/HTTPVersion:1/"), "{error}");
    }
}
