//! Worker, fork server and guard in one small program, for the worker's own tests: the installed program is
//! built elsewhere.

use std::{env, path::Path, process::ExitCode};

use heeler_protocol::control::WorkerId;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["__guard", ..] => heeler_guard::main(),
        ["__fork-server"] if env::var_os("HEELER_WITHOUT_FORK_SERVER").is_some() => ExitCode::FAILURE,
        ["__fork-server"] => heeler_guard::fork_server::main(),
        ["__worker", socket, id] => match id.parse() {
            Ok(id) => heeler_worker::main(Path::new(socket), WorkerId(id)),
            Err(_) => ExitCode::FAILURE,
        },
        _ => ExitCode::FAILURE,
    }
}
