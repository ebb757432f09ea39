//! The address of a server on this machine: `http://127.0.0.1:3000/mcp`.

use std::{fmt, net::IpAddr};

/// Why a text is not the address of a server on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LocalUrlError {
    #[error("expected http://HOST:PORT/PATH; TLS is not supported")]
    Scheme,
    #[error("expected a server on this machine: localhost, 127.0.0.1 or [::1]")]
    Host,
    #[error("expected a port from 1 to 65535")]
    Port,
    #[error("the path must not contain spaces, control characters or a fragment")]
    Path,
}

/// Address of a server on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalUrl {
    host: String,
    port: u16,
    /// Path with leading slash, including the query.
    path: String,
}

impl LocalUrl {
    /// Returns whether a text is an address rather than a command.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        ["http://", "https://"]
            .iter()
            .any(|scheme| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
    }

    /// Parses an address. The default path is `/`.
    ///
    /// # Errors
    /// See [`LocalUrlError`].
    pub fn parse(text: &str) -> Result<Self, LocalUrlError> {
        let scheme = text.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("http://"));
        let rest = scheme.and_then(|scheme| text.get(scheme.len()..)).ok_or(LocalUrlError::Scheme)?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (host, port) = split_authority(authority).ok_or(LocalUrlError::Host)?;
        if !is_loopback_name(host) {
            return Err(LocalUrlError::Host);
        }
        let port = match port {
            None => 80,
            Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or(LocalUrlError::Port)?,
        };
        if !path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
            return Err(LocalUrlError::Path);
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(Self { host: host.to_owned(), port, path: format!("{slash}{path}") })
    }

    /// Returns the host; an IPv6 address is in brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the path, including the query.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the path of an absolute reference to this server, so a client that follows it keeps the
    /// address that it uses. `None` if the reference is relative or points elsewhere.
    #[must_use]
    pub fn path_of<'r>(&self, reference: &'r str) -> Option<&'r str> {
        let scheme = reference.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("http:"));
        let rest = &reference[scheme.map_or(0, str::len)..];
        let rest = rest.strip_prefix("//")?;
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (host, port) = split_authority(authority)?;
        let port = port.map_or(Some(80), |port| port.parse().ok());
        // Every loopback name refers to the server.
        let is_meant = is_loopback_name(host) && port == Some(self.port);
        is_meant.then_some(if path.starts_with('/') { path } else { "/" })
    }

    /// Returns host and port in the form of the `Host` header.
    #[must_use]
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

impl fmt::Display for LocalUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}{}", self.host, self.port, self.path)
    }
}

/// Splits `HOST:PORT`, `HOST` or `[ADDRESS]:PORT`. The port must be digits.
pub(super) fn split_authority(authority: &str) -> Option<(&str, Option<&str>)> {
    let port_at = match authority.rfind(']') {
        Some(end) if authority.starts_with('[') => end + 1,
        Some(_) => return None,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (host, port) = authority.split_at(port_at);
    match port.strip_prefix(':') {
        None if port.is_empty() => Some((host, None)),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Some((host, Some(digits))),
        _ => None,
    }
}

/// Returns whether a host is this machine without asking a name server: a web site can resolve its own name
/// to any address.
pub(super) fn is_loopback_name(host: &str) -> bool {
    let address = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(bare) => bare.parse().map(IpAddr::V6).ok(),
        None => host.parse().map(IpAddr::V4).ok(),
    };
    address.is_some_and(|address| address.to_canonical().is_loopback())
        || host.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_are_parsed() {
        for (text, shown) in [
            ("http://127.0.0.1:3000/mcp", "http://127.0.0.1:3000/mcp"),
            ("HTTP://LocalHost/a?b=c", "http://LocalHost:80/a?b=c"),
            ("http://[::1]:8080", "http://[::1]:8080/"),
            ("http://127.9.9.9:1?x", "http://127.9.9.9:1/?x"),
        ] {
            assert!(LocalUrl::is_meant(text));
            assert_eq!(LocalUrl::parse(text).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn reference_to_the_server_becomes_a_path() {
        let url = LocalUrl::parse("http://127.0.0.1:3000/mcp").unwrap();
        for (reference, path) in [
            ("http://127.0.0.1:3000/mcp/?a=b", Some("/mcp/?a=b")),
            ("HTTP://localhost:3000/messages?s=1", Some("/messages?s=1")),
            ("//[::1]:3000/x", Some("/x")),
            ("http://127.0.0.1:3000", Some("/")),
            ("http://127.0.0.1:3001/mcp", None),
            ("http://127.0.0.1/mcp", None),
            ("http://example.com:3000/mcp", None),
            ("https://127.0.0.1:3000/mcp", None),
            ("/mcp/", None),
            ("mcp", None),
            ("\u{fc}\u{fc}\u{fc}", None),
        ] {
            assert_eq!(url.path_of(reference), path, "{reference}");
        }
    }

    #[test]
    fn other_addresses_are_refused() {
        for (text, error) in [
            ("https://127.0.0.1/", LocalUrlError::Scheme),
            ("node", LocalUrlError::Scheme),
            ("http://example.com/", LocalUrlError::Host),
            ("http://localhost.example.com/", LocalUrlError::Host),
            ("http://user@127.0.0.1/", LocalUrlError::Host),
            ("http://0.0.0.0:1/", LocalUrlError::Host),
            ("http://::1/", LocalUrlError::Host),
            ("http://[::1/", LocalUrlError::Host),
            ("http:///mcp", LocalUrlError::Host),
            ("http://127.0.0.1:x/", LocalUrlError::Host),
            ("http://127.0.0.1:/", LocalUrlError::Port),
            ("http://127.0.0.1:0/", LocalUrlError::Port),
            ("http://127.0.0.1:65536/", LocalUrlError::Port),
            ("http://127.0.0.1/a b", LocalUrlError::Path),
            ("http://127.0.0.1/#a", LocalUrlError::Path),
            ("http://127.0.0.1/\r\n", LocalUrlError::Path),
            ("http://127.0.0.1/ü", LocalUrlError::Path),
        ] {
            assert_eq!(LocalUrl::parse(text), Err(error), "{text}");
        }
    }
}
