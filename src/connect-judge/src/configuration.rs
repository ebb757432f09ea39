//! A configuration file: which points of the axes a client under test supports.

use std::collections::BTreeSet;

use prost::Message as _;

use crate::{
    axes::{CaseAxes, Codec, Compression, HttpVersion, Protocol, StreamType, UnknownValue},
    message::{Config, ConfigCase, Features},
    text::{TextError, encode_document, message_types::CONFIG},
};

/// A configuration that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigurationError {
    /// The text is no configuration.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A value is none of its axis.
    #[error(transparent)]
    UnknownValue(#[from] UnknownValue),
    /// Features, or an included or excluded case, exclude each other.
    #[error("{place}: {problem}")]
    Contradiction { place: String, problem: &'static str },
    /// Nothing is left.
    #[error("no case is left by this configuration")]
    NoCases,
}

/// What a client under test supports: points of the axes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    pub(crate) supported: BTreeSet<CaseAxes>,
}

impl Configuration {
    /// Reads a configuration file; an empty one, and one of comments only, is the default configuration.
    ///
    /// # Errors
    /// The text is no configuration, contradicts itself, or leaves nothing.
    pub fn parse(text: &str) -> Result<Self, ConfigurationError> {
        let is_empty = text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
        let bytes = if is_empty { Vec::new() } else { encode_document(text, &CONFIG)? };
        let config = Config::decode(&bytes[..]).expect("the fields are those of the message");
        let features = SupportedFeatures::resolve(&config.features.unwrap_or_default())?;
        let mut supported = features.points(&ForcedValues::default());
        for (place, case) in config.include_cases.iter().enumerate() {
            supported.extend(features.points_of_case(case, &format!("include case {}", place + 1))?);
        }
        for (place, case) in config.exclude_cases.iter().enumerate() {
            for excluded in features.points_of_case(case, &format!("exclude case {}", place + 1))? {
                supported.remove(&excluded);
            }
        }
        if supported.is_empty() { Err(ConfigurationError::NoCases) } else { Ok(Self { supported }) }
    }
}

/// Features with their defaults.
#[derive(Debug, Clone)]
struct SupportedFeatures {
    versions: Vec<HttpVersion>,
    protocols: Vec<Protocol>,
    codecs: Vec<Codec>,
    compressions: Vec<Compression>,
    stream_types: Vec<StreamType>,
    h2c: bool,
    tls: bool,
    client_certs: bool,
    half_duplex_over_http1: bool,
    connect_get: bool,
    receive_limit: bool,
}

/// Values that an included or excluded case fixes; without them the features decide.
#[derive(Debug, Clone, Copy, Default)]
struct ForcedValues {
    tls: Option<bool>,
    client_certs: Option<bool>,
    receive_limit: Option<bool>,
}

fn values<T>(numbers: &[i32], read: fn(i32) -> Result<T, UnknownValue>) -> Result<Vec<T>, UnknownValue> {
    numbers.iter().map(|number| read(*number)).collect()
}

fn or_default<T: Clone>(values: Vec<T>, default: &[T]) -> Vec<T> {
    if values.is_empty() { default.to_vec() } else { values }
}

fn in_features(problem: &'static str) -> ConfigurationError {
    ConfigurationError::Contradiction { place: "features".to_owned(), problem }
}

impl SupportedFeatures {
    fn resolve(features: &Features) -> Result<Self, ConfigurationError> {
        let h2c = features.supports_h2c.unwrap_or(true);
        let tls = features.supports_tls.unwrap_or(true);
        let client_certs = features.supports_tls_client_certs.unwrap_or(false);
        let trailers = features.supports_trailers.unwrap_or(true);
        let half_duplex_over_http1 = features.supports_half_duplex_bidi_over_http1.unwrap_or(false);
        if client_certs && !tls {
            return Err(in_features("client certificates are supported, but TLS is not"));
        }
        let given_versions = values(&features.versions, HttpVersion::of_number)?;
        if !given_versions.is_empty()
            && features.supports_h2c == Some(true)
            && !given_versions.contains(&HttpVersion::Http2)
        {
            return Err(in_features("H2C is supported, but HTTP/2 is not"));
        }
        let default_versions: &[_] =
            if h2c || tls { &[HttpVersion::Http1, HttpVersion::Http2] } else { &[HttpVersion::Http1] };
        let versions = or_default(given_versions, default_versions);
        let has_http2 = versions.contains(&HttpVersion::Http2);
        if versions.contains(&HttpVersion::Http3) && !tls {
            return Err(in_features("HTTP/3 is supported, but TLS is not"));
        }
        if has_http2 && !h2c && !tls {
            return Err(in_features("HTTP/2 is supported, but neither H2C nor TLS is"));
        }
        let given_protocols = values(&features.protocols, Protocol::of_number)?;
        if given_protocols.contains(&Protocol::Grpc) && !trailers {
            return Err(in_features("gRPC is supported, but trailers are not"));
        }
        if given_protocols.contains(&Protocol::Grpc) && !has_http2 {
            return Err(in_features("gRPC is supported, but HTTP/2 is not"));
        }
        let default_protocols =
            if trailers && has_http2 { Protocol::ALL } else { &[Protocol::Connect, Protocol::GrpcWeb] };
        Ok(Self {
            protocols: or_default(given_protocols, default_protocols),
            codecs: or_default(values(&features.codecs, Codec::of_number)?, &[Codec::Proto, Codec::Json]),
            compressions: or_default(
                values(&features.compressions, Compression::of_number)?,
                &[Compression::Identity, Compression::Gzip],
            ),
            stream_types: stream_types(features, &versions, half_duplex_over_http1)?,
            versions,
            h2c,
            tls,
            client_certs,
            half_duplex_over_http1,
            connect_get: features.supports_connect_get.unwrap_or(true),
            receive_limit: features.supports_message_receive_limit.unwrap_or(true),
        })
    }

    /// Returns the points that an included or excluded case stands for.
    fn points_of_case(
        &self,
        case: &ConfigCase,
        place: &str,
    ) -> Result<BTreeSet<CaseAxes>, ConfigurationError> {
        let contradiction =
            |problem| Err(ConfigurationError::Contradiction { place: place.to_owned(), problem });
        let mut features = self.clone();
        if case.version != 0 {
            let version = HttpVersion::of_number(case.version)?;
            let uses_tls = case.use_tls.unwrap_or(self.tls);
            match version {
                HttpVersion::Http2 if !uses_tls && !self.h2c => {
                    return contradiction("HTTP/2 without TLS, but H2C is not supported");
                }
                HttpVersion::Http3 if !uses_tls => return contradiction("HTTP/3 without TLS"),
                HttpVersion::Http1 | HttpVersion::Http2 | HttpVersion::Http3 => {}
            }
            features.versions = vec![version];
        }
        if case.protocol != 0 {
            let protocol = Protocol::of_number(case.protocol)?;
            if protocol == Protocol::Grpc && !features.versions.contains(&HttpVersion::Http2) {
                return contradiction("gRPC without HTTP/2");
            }
            features.protocols = vec![protocol];
        }
        if case.codec != 0 {
            features.codecs = vec![Codec::of_number(case.codec)?];
        }
        if case.compression != 0 {
            features.compressions = vec![Compression::of_number(case.compression)?];
        }
        if case.stream_type != 0 {
            let stream_type = StreamType::of_number(case.stream_type)?;
            let is_only_http1 = features.versions.iter().all(|version| *version == HttpVersion::Http1);
            match stream_type {
                StreamType::HalfDuplexBidi if is_only_http1 && !self.half_duplex_over_http1 => {
                    return contradiction("half-duplex streams over HTTP/1.1, which are not supported");
                }
                StreamType::FullDuplexBidi if is_only_http1 => {
                    return contradiction("full-duplex streams over HTTP/1.1");
                }
                StreamType::Unary
                | StreamType::ClientStream
                | StreamType::ServerStream
                | StreamType::HalfDuplexBidi
                | StreamType::FullDuplexBidi => {}
            }
            features.stream_types = vec![stream_type];
        }
        if case.use_tls_client_certs.is_some() {
            if case.use_tls == Some(false) {
                return contradiction("client certificates without TLS");
            }
            if case.use_tls.is_none() && !self.tls {
                return contradiction("client certificates, but TLS is not supported");
            }
        }
        Ok(features.points(&ForcedValues {
            tls: case.use_tls,
            client_certs: case.use_tls_client_certs,
            receive_limit: case.use_message_receive_limit,
        }))
    }

    /// Returns all points that exist.
    fn points(&self, forced: &ForcedValues) -> BTreeSet<CaseAxes> {
        let either = |forced: Option<bool>, is_supported: bool| match forced {
            Some(value) => vec![value],
            None if is_supported => vec![false, true],
            None => vec![false],
        };
        let mut points = BTreeSet::new();
        let codecs = || self.codecs.iter().filter(|codec| **codec != Codec::Text);
        for transport in
            self.transports(&either(forced.tls, self.tls), &either(forced.client_certs, self.client_certs))
        {
            let gets = either(None, transport.protocol == Protocol::Connect && self.connect_get);
            for stream_type in self.stream_types_over(transport.http_version) {
                for codec in codecs() {
                    for compression in &self.compressions {
                        for uses_connect_get in &gets {
                            for uses_receive_limit in either(forced.receive_limit, self.receive_limit) {
                                points.insert(CaseAxes {
                                    http_version: transport.http_version,
                                    protocol: transport.protocol,
                                    codec: *codec,
                                    compression: *compression,
                                    stream_type,
                                    uses_tls: transport.uses_tls,
                                    uses_client_certs: transport.uses_client_certs,
                                    uses_connect_get: *uses_connect_get,
                                    uses_receive_limit,
                                });
                            }
                        }
                    }
                }
            }
        }
        points
    }

    /// Returns the possible combinations of what a connection and its protocol are.
    fn transports(&self, tls: &[bool], client_certs: &[bool]) -> Vec<Transport> {
        let mut transports = Vec::new();
        for http_version in self.versions.iter().copied() {
            for uses_tls in tls.iter().copied() {
                let needs_tls = match http_version {
                    HttpVersion::Http1 => false,
                    HttpVersion::Http2 => !self.h2c,
                    HttpVersion::Http3 => true,
                };
                for uses_client_certs in client_certs.iter().copied() {
                    for protocol in self.protocols.iter().copied() {
                        let is_possible = (uses_tls || !needs_tls && !uses_client_certs)
                            && (protocol != Protocol::Grpc || http_version == HttpVersion::Http2);
                        if is_possible {
                            transports.push(Transport {
                                http_version,
                                protocol,
                                uses_tls,
                                uses_client_certs,
                            });
                        }
                    }
                }
            }
        }
        transports
    }

    fn stream_types_over(&self, http_version: HttpVersion) -> impl Iterator<Item = StreamType> {
        let is_http1 = http_version == HttpVersion::Http1;
        self.stream_types.iter().copied().filter(move |stream_type| match stream_type {
            StreamType::HalfDuplexBidi => !is_http1 || self.half_duplex_over_http1,
            StreamType::FullDuplexBidi => !is_http1,
            StreamType::Unary | StreamType::ClientStream | StreamType::ServerStream => true,
        })
    }
}

/// What a connection and its protocol are.
#[derive(Debug, Clone, Copy)]
struct Transport {
    http_version: HttpVersion,
    protocol: Protocol,
    uses_tls: bool,
    uses_client_certs: bool,
}

fn stream_types(
    features: &Features,
    versions: &[HttpVersion],
    half_duplex_over_http1: bool,
) -> Result<Vec<StreamType>, ConfigurationError> {
    let given = values(&features.stream_types, StreamType::of_number)?;
    let is_only_http1 = versions.iter().all(|version| *version == HttpVersion::Http1);
    if given.contains(&StreamType::FullDuplexBidi) && is_only_http1 {
        return Err(in_features("full-duplex streams are supported, but neither HTTP/2 nor HTTP/3 is"));
    }
    if given.contains(&StreamType::HalfDuplexBidi) && is_only_http1 && !half_duplex_over_http1 {
        return Err(in_features(
            "half-duplex streams are supported, but not over HTTP/1.1, the only version",
        ));
    }
    let count = match (is_only_http1, half_duplex_over_http1) {
        (false, _) => 5,
        (true, true) => 4,
        (true, false) => 3,
    };
    Ok(or_default(given, &StreamType::ALL[..count]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(text: &str) -> BTreeSet<CaseAxes> {
        Configuration::parse(text).unwrap().supported
    }

    #[test]
    fn default_configuration_has_two_versions_and_three_protocols() {
        let default = points("");
        assert_eq!(points("# nothing\n\n"), default);
        assert_eq!(points("features: {}"), default);
        let versions: BTreeSet<_> = default.iter().map(|point| point.http_version).collect();
        assert_eq!(versions, BTreeSet::from([HttpVersion::Http1, HttpVersion::Http2]));
        assert!(default.iter().all(|point| !point.uses_client_certs));
        // Connect: 8 stream types over both versions, GET or not; gRPC: 5; gRPC-Web: 8; all of them with and
        // without TLS and a limit, in two codecs and two compressions.
        assert_eq!(default.len(), (8 * 2 + 5 + 8) * 2 * 2 * 2 * 2);
    }

    #[test]
    fn cases_are_included_and_excluded() {
        let only = "features: {versions: [HTTP_VERSION_1], protocols: [PROTOCOL_CONNECT], codecs: [CODEC_JSON], \
                    compressions: [COMPRESSION_GZIP], streamTypes: [STREAM_TYPE_UNARY], supportsTls: false, \
                    supportsConnectGet: false, supportsMessageReceiveLimit: false}";
        assert_eq!(points(only).len(), 1);
        let more = format!("{only}\nincludeCases: [{{version: HTTP_VERSION_2}}, {{useTls: true}}]");
        assert_eq!(points(&more).len(), 3);
        let fewer = format!("{more}\nexcludeCases: [{{version: HTTP_VERSION_1, useTls: false}}]");
        assert_eq!(points(&fewer).len(), 2);
        let none = format!("{only}\nexcludeCases: [{{}}]");
        assert_eq!(Configuration::parse(&none), Err(ConfigurationError::NoCases));
    }

    #[test]
    fn contradictions_are_named() {
        for (text, expected) in [
            ("features: {supportsTlsClientCerts: true, supportsTls: false}", "features: client certificates"),
            ("features: {versions: [HTTP_VERSION_1], supportsH2c: true}", "features: H2C is supported"),
            ("features: {versions: [3], supportsTls: false}", "features: HTTP/3 is supported"),
            ("features: {versions: [2], supportsTls: false, supportsH2c: false}", "features: HTTP/2 is"),
            (
                "features: {protocols: [2], supportsTrailers: false}",
                "features: gRPC is supported, but trailers",
            ),
            ("features: {protocols: [2], versions: [1]}", "features: gRPC is supported, but HTTP/2"),
            ("features: {streamTypes: [5], versions: [1]}", "features: full-duplex"),
            ("features: {streamTypes: [4], versions: [1]}", "features: half-duplex"),
            ("features: {versions: [4]}", "there is no HTTP version 4"),
            ("includeCases: [{}, {version: 3, useTls: false}]", "include case 2: HTTP/3 without TLS"),
            ("excludeCases: [{protocol: 2, version: 1}]", "exclude case 1: gRPC without HTTP/2"),
            ("includeCases: [{streamType: 5, version: 1}]", "include case 1: full-duplex"),
            ("includeCases: [{streamType: 4, version: 1}]", "include case 1: half-duplex"),
            (
                "includeCases: [{useTls: false, useTlsClientCerts: true}]",
                "include case 1: client certificates",
            ),
        ] {
            let error = Configuration::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
