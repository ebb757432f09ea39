//! User at the other end of a TCP connection on this machine. The kernel stores the user of every socket, and
//! reports it for a pair of addresses.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    net::{IpAddr, SocketAddr},
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, netlink, socket_with};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
/// Size of each message's header in bytes.
const HEADER_BYTES: usize = 16;
/// Number of attempts. A connection may change state between two requests: it is accepted, or its listener is
/// closed.
const ATTEMPTS: u32 = 3;

/// User who owns the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerUser {
    /// Effective id of this user when the socket was created.
    Known(u32),
    /// The peer is not on this machine, or not in this network namespace.
    NotLocal,
    /// This kernel does not report users of sockets.
    Unknown,
}

/// Returns the user of the socket at the other end of a connection from `own` to `peer`. If the connection
/// has not been accepted, returns the user of the listener.
///
/// # Errors
/// The other end is on this machine, but no longer has an owner.
pub fn peer_user(own: SocketAddr, peer: SocketAddr) -> io::Result<PeerUser> {
    let (own, peer) = (to_canonical(own), to_canonical(peer));
    let is_here = peer.ip().is_loopback() || peer.ip() == own.ip();
    // If the system rejects the request, it does not report users.
    query_peer_user(own, peer, is_here).unwrap_or(Ok(PeerUser::Unknown))
}

/// Queries the kernel. The outer error is an error of the query itself.
fn query_peer_user(own: SocketAddr, peer: SocketAddr, is_here: bool) -> io::Result<io::Result<PeerUser>> {
    let mut books = open_sock_diag()?;
    for _ in 0..ATTEMPTS {
        // A socket without a file is closed or not accepted yet, and its user would be reported as 0.
        let found = match find_socket(&mut books, peer, own)? {
            Some(end) if end.has_file => Some(end),
            Some(_ownerless) => {
                find_socket(&mut books, peer, unspecified_address(peer))?.filter(|listener| listener.has_file)
            }
            None if is_here => None,
            None => return Ok(Ok(PeerUser::NotLocal)),
        };
        if let Some(SocketEntry { user, .. }) = found {
            return Ok(Ok(PeerUser::Known(user)));
        }
        // Our own end certainly exists. If it is not found, the kernel does not report sockets.
        if find_socket(&mut books, own, peer)?.is_none() {
            return Ok(Ok(PeerUser::Unknown));
        }
    }
    Ok(Err(io::ErrorKind::ConnectionReset.into()))
}

/// Socket in the kernel's table.
struct SocketEntry {
    user: u32,
    has_file: bool,
}

fn open_sock_diag() -> io::Result<File> {
    let (kind, flags) = (SocketType::DGRAM, SocketFlags::CLOEXEC);
    Ok(File::from(socket_with(AddressFamily::NETLINK, kind, flags, Some(netlink::SOCK_DIAG))?))
}

/// Finds the socket at `here` that is connected to `there`, or else the listener for it.
fn find_socket(books: &mut File, here: SocketAddr, there: SocketAddr) -> io::Result<Option<SocketEntry>> {
    books.write_all(&diag_request(here, there))?;
    let mut answer = [0_u8; 512];
    let length = books.read(&mut answer)?;
    parse_diag_response(&answer[..length])
}

/// Returns the request: `nlmsghdr`, then `inet_diag_req_v2`. Ports and addresses are in network byte order,
/// everything else is in native order.
fn diag_request(here: SocketAddr, there: SocketAddr) -> Vec<u8> {
    let mut body = vec![family(here), libc::IPPROTO_TCP as u8, 0, 0];
    // Request sockets in any state.
    body.extend(u32::MAX.to_ne_bytes());
    body.extend(here.port().to_be_bytes());
    body.extend(there.port().to_be_bytes());
    body.extend(address(here.ip()));
    body.extend(address(there.ip()));
    // Any interface, without a cookie of an earlier response.
    body.extend(0_u32.to_ne_bytes());
    body.extend([u8::MAX; 8]);
    let length = u32::try_from(HEADER_BYTES + body.len()).expect("72 bytes");
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// Parses the response: `nlmsghdr`, then `inet_diag_msg`, which ends with user and inode, or a negative error
/// number.
fn parse_diag_response(answer: &[u8]) -> io::Result<Option<SocketEntry>> {
    const USER_AT: usize = HEADER_BYTES + 64;
    let number = |at: usize| {
        let bytes = answer.get(at..at + 4)?.try_into().expect("four bytes");
        Some(u32::from_ne_bytes(bytes))
    };
    let kind = answer.get(4..6).map(|bytes| u16::from_ne_bytes([bytes[0], bytes[1]]));
    let short = || io::Error::from(io::ErrorKind::InvalidData);
    match kind {
        Some(NLMSG_ERROR) => match number(HEADER_BYTES).ok_or_else(short)?.cast_signed() {
            error if error == -libc::ENOENT => Ok(None),
            error => Err(io::Error::from_raw_os_error(-error)),
        },
        Some(SOCK_DIAG_BY_FAMILY) => {
            let (user, inode) = number(USER_AT).zip(number(USER_AT + 4)).ok_or_else(short)?;
            Ok(Some(SocketEntry { user, has_file: inode != 0 }))
        }
        _ => Err(short()),
    }
}

fn family(address: SocketAddr) -> u8 {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    family as u8
}

fn address(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            bytes
        }
    }
}

/// Converts IPv4-mapped addresses: a listener for both families sees IPv4 addresses embedded in IPv6 ones.
fn to_canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn unspecified_address(like: SocketAddr) -> SocketAddr {
    let ip: IpAddr =
        if like.is_ipv4() { [0, 0, 0, 0].into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
    SocketAddr::new(ip, 0)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::process::effective_uid;

    /// Checks that the user is this process's own, or that the kernel does not report users.
    fn is_own(user: PeerUser) -> bool {
        [PeerUser::Known(effective_uid()), PeerUser::Unknown].contains(&user)
    }

    fn check_both_ends(listen: &str, dial: &str) {
        let Ok(listener) = TcpListener::bind(listen) else {
            // This machine has no IPv6.
            return assert!(listen.starts_with('['), "{listen}");
        };
        let stream = TcpStream::connect((dial, listener.local_addr().unwrap().port())).unwrap();
        let (own, peer) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
        // Before the connection is accepted, the listener's user counts.
        assert!(is_own(peer_user(own, peer).unwrap()));
        let (accepted, _) = listener.accept().unwrap();
        drop(listener);
        assert!(is_own(peer_user(own, peer).unwrap()));
        let (own, peer) = (accepted.local_addr().unwrap(), accepted.peer_addr().unwrap());
        assert!(is_own(peer_user(own, peer).unwrap()));
    }

    #[test]
    fn peer_user_is_found_from_both_ends() {
        check_both_ends("127.0.0.1:0", "127.0.0.1");
        check_both_ends("0.0.0.0:0", "127.0.0.2");
        check_both_ends("[::1]:0", "::1");
        check_both_ends("[::]:0", "127.0.0.1");
    }

    #[test]
    fn closed_peer_socket_has_no_user() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let (own, peer) = (accepted.local_addr().unwrap(), accepted.peer_addr().unwrap());
        drop(stream);
        let user = peer_user(own, peer);
        assert!(matches!(user, Err(_) | Ok(PeerUser::Unknown)), "{user:?}");
    }

    #[test]
    fn remote_address_is_not_local() {
        let own = "192.0.2.1:4000".parse().unwrap();
        let user = peer_user(own, "192.0.2.2:4001".parse().unwrap()).unwrap();
        assert!(matches!(user, PeerUser::NotLocal | PeerUser::Unknown), "{user:?}");
    }
}
