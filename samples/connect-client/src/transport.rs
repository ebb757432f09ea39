//! The HTTP connection and client configuration of a case.

use std::sync::Arc;

use ::connectrpc::{
    client::{ClientBody, ClientConfig, ServiceTransport},
    codec::CodecFormat,
    compression::{CompressionPolicy, CompressionRegistry},
    protocol::Protocol,
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{
    ClientConfig as TlsConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use crate::suite::{self, ClientCompatRequest};

/// Why a case can't be started.
pub(crate) type SetUpError = String;

/// The HTTP client of a case.
pub(crate) type HttpTransport = ServiceTransport<Client<HttpsConnector<HttpConnector>, ClientBody>>;

/// Returns the transport and the configuration for a case.
pub(crate) fn client(request: &ClientCompatRequest) -> Result<(HttpTransport, ClientConfig), SetUpError> {
    let is_http2 = request.http_version.as_known() == Some(suite::HTTPVersion::HTTP_VERSION_2);
    let has_tls = !request.server_tls_cert.is_empty();
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls(request)?).https_or_http();
    let connector =
        if is_http2 { connector.enable_http2().build() } else { connector.enable_http1().build() };
    let http = Client::builder(TokioExecutor::new()).http2_only(is_http2).build(connector);
    let transport = ServiceTransport::new(http);
    let scheme = if has_tls { "https" } else { "http" };
    let uri = format!("{scheme}://{}:{}", request.host, request.port);
    let uri = uri.parse().map_err(|error| format!("the address {uri:?}: {error}"))?;
    let config = ClientConfig::new(uri).with_protocol(protocol(request)?).with_codec_format(codec(request)?);
    Ok((transport, with_compression(config, request)?))
}

fn protocol(request: &ClientCompatRequest) -> Result<Protocol, SetUpError> {
    match request.protocol.as_known() {
        Some(suite::Protocol::PROTOCOL_CONNECT) => Ok(Protocol::Connect),
        Some(suite::Protocol::PROTOCOL_GRPC) => Ok(Protocol::Grpc),
        Some(suite::Protocol::PROTOCOL_GRPC_WEB) => Ok(Protocol::GrpcWeb),
        other => Err(format!("the protocol {other:?} is not known")),
    }
}

fn codec(request: &ClientCompatRequest) -> Result<CodecFormat, SetUpError> {
    match request.codec.as_known() {
        Some(suite::Codec::CODEC_PROTO) => Ok(CodecFormat::Proto),
        Some(suite::Codec::CODEC_JSON) => Ok(CodecFormat::Json),
        other => Err(format!("the codec {other:?} is not known")),
    }
}

fn with_compression(config: ClientConfig, request: &ClientCompatRequest) -> Result<ClientConfig, SetUpError> {
    let encoding = match request.compression.as_known() {
        Some(suite::Compression::COMPRESSION_UNSPECIFIED | suite::Compression::COMPRESSION_IDENTITY) => {
            // An empty registry, so that the client neither offers nor accepts compression.
            return Ok(config.with_compression(CompressionRegistry::new()));
        }
        Some(suite::Compression::COMPRESSION_GZIP) => "gzip",
        other => return Err(format!("the compression {other:?} is not known")),
    };
    // Compress small messages too.
    Ok(config
        .compress_requests(encoding)
        .with_compression_policy(CompressionPolicy::default().with_min_size(0)))
}

/// Returns the TLS configuration, with the server's certificate as the only root. The connector offers the
/// HTTP version of the case.
fn tls(request: &ClientCompatRequest) -> Result<TlsConfig, SetUpError> {
    let problem = |what: &str, error: &dyn std::fmt::Display| format!("the {what}: {error}");
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&request.server_tls_cert) {
        let certificate = certificate.map_err(|error| problem("certificate of the server", &error))?;
        roots.add(certificate).map_err(|error| problem("certificate of the server", &error))?;
    }
    // rustls's default provider takes a good part of a second to initialise its random numbers.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = TlsConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| problem("versions of TLS", &error))?
        .with_root_certificates(roots);
    Ok(match request.client_tls_creds.as_option() {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let chain = CertificateDer::pem_slice_iter(&own.cert).collect::<Result<Vec<_>, _>>();
            let chain = chain.map_err(|error| problem("certificate of the client", &error))?;
            let key = PrivateKeyDer::from_pem_slice(&own.key);
            let key = key.map_err(|error| problem("key of the client", &error))?;
            builder.with_client_auth_cert(chain, key).map_err(|error| problem("key of the client", &error))?
        }
    })
}
