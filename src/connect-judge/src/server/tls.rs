//! TLS of a reference server: certificates that are made with it, and its handshakes.

use std::{
    io,
    sync::Arc,
    time::{Duration, SystemTime},
};

use rcgen::{
    Certificate, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair,
    KeyUsagePurpose,
};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        crypto::{CryptoProvider, ring},
        pki_types::PrivateKeyDer,
        server::WebPkiClientVerifier,
    },
    server::TlsStream,
};

use crate::{
    axes::HttpVersion,
    expansion::{CLIENT_CERT_NAME, ServerKind},
    message::TlsCreds,
};

/// How long a handshake may take: as long as the reference server waits for the head of a request.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// The name in a server's certificate, which nothing checks.
const SERVER_CERT_NAME: &str = "Conformance Server";
/// What a server's certificate is valid for.
const SERVER_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// Certificates are valid from a day before, for clients whose clock differs, to a week after.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The protocols that clients choose from.
const HTTP1: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";

/// The certificates of a server, and how it accepts connections.
#[derive(Debug)]
pub(super) struct ServerTls {
    config: Arc<ServerConfig>,
    /// The server's certificate, in PEM, which its clients trust.
    pub(super) cert_pem: Vec<u8>,
    /// Certificate and key of its clients, in PEM, where it asks for one.
    pub(super) client_creds: Option<TlsCreds>,
}

/// A connection after its handshake.
pub(super) struct AcceptedTls {
    pub(super) stream: TlsStream<TcpStream>,
    pub(super) is_http2: bool,
    /// Whether the client has shown the certificate that was made for it. No other is accepted.
    pub(super) has_client_cert: bool,
}

impl ServerTls {
    /// Makes certificates for a server that uses TLS; takes a few milliseconds.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(super) fn generate(kind: ServerKind) -> io::Result<Self> {
        let server = generate_cert(SERVER_CERT_NAME, &SERVER_HOSTS, ExtendedKeyUsagePurpose::ServerAuth)?;
        let client = if kind.uses_client_certs {
            Some(generate_cert(CLIENT_CERT_NAME, &[], ExtendedKeyUsagePurpose::ClientAuth)?)
        } else {
            None
        };
        let provider = Arc::new(ring::default_provider());
        let config = server_config(kind.http_version, &server, client.as_ref(), provider)?;
        Ok(Self {
            config: Arc::new(config),
            cert_pem: server.0.pem().into_bytes(),
            client_creds: client.map(|(cert, key)| TlsCreds {
                cert: cert.pem().into_bytes(),
                key: key.serialize_pem().into_bytes(),
            }),
        })
    }

    /// Performs a handshake. Cancel safe: no, the connection is lost.
    ///
    /// # Errors
    /// The client does not complete it in time, does not trust the server, shows no certificate where it
    /// must, or offers none of the server's protocols.
    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<AcceptedTls> {
        let stream =
            timeout(HANDSHAKE_LIMIT, TlsAcceptor::from(Arc::clone(&self.config)).accept(stream)).await??;
        let (_, connection) = stream.get_ref();
        Ok(AcceptedTls {
            is_http2: connection.alpn_protocol() == Some(HTTP2),
            has_client_cert: connection.peer_certificates().is_some_and(|shown| !shown.is_empty()),
            stream,
        })
    }
}

/// Returns the configuration of a server with this certificate, which asks for the client's, if there is one.
fn server_config(
    http_version: HttpVersion,
    (cert, key): &(Certificate, KeyPair),
    client: Option<&(Certificate, KeyPair)>,
    provider: Arc<CryptoProvider>,
) -> io::Result<ServerConfig> {
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let builder = match client {
        None => builder.with_no_client_auth(),
        Some((client_cert, _)) => {
            let mut trusted = RootCertStore::empty();
            trusted.add(client_cert.der().clone()).map_err(io::Error::other)?;
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(trusted), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(io::Error::other)?)
        }
    };
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let mut config = builder.with_single_cert(vec![cert.der().clone()], key).map_err(io::Error::other)?;
    // A server of HTTP/2 accepts clients that speak only HTTP/1.1, and says so in its feedback.
    let protocols: &[&[u8]] = if http_version == HttpVersion::Http1 { &[HTTP1] } else { &[HTTP2, HTTP1] };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}

/// Makes a certificate that is signed by itself, and its key.
fn generate_cert(
    name: &str,
    hosts: &[&str],
    usage: ExtendedKeyUsagePurpose,
) -> io::Result<(Certificate, KeyPair)> {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut params = CertificateParams::new(hosts).map_err(io::Error::other)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    let now = SystemTime::now();
    params.not_before = (now - DAY).into();
    params.not_after = (now + 7 * DAY).into();
    let key = KeyPair::generate().map_err(io::Error::other)?;
    Ok((params.self_signed(&key).map_err(io::Error::other)?, key))
}
