//! The single executable. Hidden roles run the session's other processes, re-executed from the same image, so
//! that versions never mix.

use std::{ffi::OsStr, path::PathBuf, process::ExitCode};

use wire::control::WorkerId;

pub(crate) fn main() -> ExitCode {
    // A process whose journal or dump write exceeds the file size limit continues without it, instead of
    // dying of SIGXFSZ.
    host::process::ignore_file_size_signal();
    if let Err(error) = host::fail::check() {
        eprintln!("heeler: failed to {error}");
        return ExitCode::from(5);
    }
    let mut args = std::env::args_os().skip(1);
    let role = args.next();
    match role.as_deref().and_then(OsStr::to_str) {
        Some("__guard") => watchdog::guard::main(),
        Some("__nursery") => watchdog::fork_server::main(),
        Some("__watchdog") => match args.next() {
            Some(socket) => watchdog::main(&PathBuf::from(socket)),
            None => report_misuse("__watchdog SOCKET"),
        },
        Some("__worker") => {
            let number = |text: &std::ffi::OsString| text.to_str()?.parse().ok().map(WorkerId);
            match (args.next(), args.next().as_ref().and_then(number)) {
                (Some(socket), Some(worker)) => worker::main(&PathBuf::from(socket), worker),
                _ => report_misuse("__worker SOCKET NUMBER"),
            }
        }
        Some("__debuggee") => match args.next() {
            Some(directory) => worker::debuggee::main(&PathBuf::from(directory)),
            None => report_misuse("__debuggee DIRECTORY"),
        },
        // Aborts on purpose, so that `heeler doctor` can check whether a crash is captured.
        Some(heeler::cli::CRASH_ROLE) => std::process::abort(),
        _ => heeler::cli::main(),
    }
}

fn report_misuse(form: &str) -> ExitCode {
    eprintln!("heeler: this role is started by Heeler itself, as: heeler {form}");
    ExitCode::from(5)
}
