//! The role `intruder`: a process of another user. Executes the commands on standard input, one per line,
//! with that user's permissions. Prints a line for each: `ok` with the result, or `no` with the system's
//! error.

use std::{
    fs,
    io::{self, BufRead, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::linux::net::SocketAddrExt as _,
    os::unix::{
        fs::symlink,
        net::{UnixListener, UnixStream},
    },
    path::Path,
    time::Duration,
};

/// Read timeout. A peer that neither sends nor closes for this time counts as holding the connection.
const PATIENCE: Duration = Duration::from_secs(20);

/// Connections and listeners that stay open until this process exits.
#[derive(Default)]
struct HeldConnections {
    streams: Vec<TcpStream>,
    listeners: Vec<TcpListener>,
    sockets: Vec<UnixListener>,
}

/// Executes commands until standard input ends.
pub(crate) fn execute_commands() -> u8 {
    let mut held = HeldConnections::default();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split('\t').collect();
        match execute(&words, &mut held) {
            Ok(found) => println!("ok {}", found.replace('\n', " ")),
            Err(error) => println!("no {:?}", error.kind()),
        }
    }
    0
}

fn execute(words: &[&str], held: &mut HeldConnections) -> io::Result<String> {
    let done = |()| String::new();
    match *words {
        ["read", path] => Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned()),
        ["list", path] => fs::read_dir(path)?.map(|entry| Ok(entry?.path().display().to_string())).collect(),
        ["append", path] => fs::OpenOptions::new().append(true).open(path)?.write_all(b"injected").map(done),
        ["create", path] => fs::write(path, "injected").map(done),
        ["text", path, text] => fs::write(path, text).map(done),
        ["make", path] => fs::create_dir(path).map(done),
        ["rename", from, to] => fs::rename(from, to).map(done),
        ["remove", path] => fs::remove_file(path).or_else(|_| fs::remove_dir_all(path)).map(done),
        ["link", to, path] => symlink(to, path).map(done),
        ["connect", path] => {
            let mut stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            read_to_close(&mut stream)
        }
        ["bind", path] => {
            held.sockets.push(UnixListener::bind(path)?);
            Ok(String::new())
        }
        ["dial", address, text] => send_and_read(address, text),
        ["hold", address, count] => hold_connections(address, count, held),
        ["listen", address] => {
            let listener = TcpListener::bind(address)?;
            let port = listener.local_addr()?.port();
            held.listeners.push(listener);
            Ok(port.to_string())
        }
        ["received"] => received_text(held),
        ["signal", pid] => signal(pid),
        ["command-lines"] => Ok(command_lines()),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Sends a text and reads to the end of the stream; `\r\n` in the text is unescaped.
fn send_and_read(address: &str, text: &str) -> io::Result<String> {
    let text = text.replace("\\r\\n", "\r\n");
    // A peer that has already closed receives nothing.
    if let Some(name) = address.strip_prefix('@') {
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
        let mut stream = UnixStream::connect_addr(&address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        drop(stream.write_all(text.as_bytes()));
        return read_to_close(&mut stream);
    }
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    drop(stream.write_all(text.as_bytes()));
    read_to_close(&mut stream)
}

/// Reads until the peer closes or resets the connection.
fn read_to_close(stream: &mut impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => Err(error),
        Ok(_) | Err(_) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
    }
}

/// Opens `count` connections from several addresses of this machine, and keeps them open.
fn hold_connections(address: &str, count: &str, held: &mut HeldConnections) -> io::Result<String> {
    let address: SocketAddr = address.parse().map_err(io::Error::other)?;
    for _ in 0..count.parse().map_err(io::Error::other)? {
        held.streams.push(TcpStream::connect(address)?);
    }
    Ok(String::new())
}

/// Returns everything that the listeners have received.
fn received_text(held: &mut HeldConnections) -> io::Result<String> {
    let mut text = String::new();
    for listener in &held.listeners {
        listener.set_nonblocking(true)?;
        while let Ok((mut stream, _)) = listener.accept() {
            stream.set_nonblocking(false)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            text += &read_to_close(&mut stream)?;
        }
    }
    Ok(text)
}

#[expect(clippy::disallowed_methods, reason = "the fake stands outside, as its user's shell does")]
fn signal(pid: &str) -> io::Result<String> {
    let status = std::process::Command::new("kill")
        .args(["-KILL", pid])
        .stderr(std::process::Stdio::null())
        .status()?;
    if status.success() { Ok(String::new()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Returns the world-readable arguments of all processes, and their environments as far as they can be read.
fn command_lines() -> String {
    let Ok(entries) = fs::read_dir("/proc") else { return String::new() };
    let mut text = String::new();
    for entry in entries.flatten().filter(|entry| entry.path().join("stat").exists()) {
        for name in ["cmdline", "environ", "maps"] {
            text +=
                &String::from_utf8_lossy(&fs::read(Path::new(&entry.path()).join(name)).unwrap_or_default());
        }
    }
    text
}
