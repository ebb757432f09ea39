//! The single executable. Hidden roles run the session's other processes, re-executed from the same image, so
//! that versions never mix.

use std::{ffi::OsStr, path::PathBuf, process::ExitCode};

use heeler_protocol::control::WorkerId;

pub(crate) fn main() -> ExitCode {
    // A process whose journal or dump write exceeds the file size limit continues without it, instead of
    // dying of SIGXFSZ.
    heeler_sys::process::ignore_file_size_signal();
    if let Err(error) = heeler_sys::fail::check() {
        eprintln!("heeler: failed to {error}");
        return ExitCode::from(5);
    }
    let mut args = std::env::args_os();
    let own_name = args.next().unwrap_or_default();
    if heeler::is_recorder(&own_name) {
        return heeler::record_start();
    }
    if heeler_mutate::is_rustc_wrapper(&own_name) {
        return heeler_mutate::run_rustc_wrapper();
    }
    if heeler_mutate::is_doctest_keeper(&own_name) {
        return heeler_mutate::run_doctest_keeper();
    }
    if heeler_mutate::is_compiler_shim(&own_name) {
        return heeler_mutate::run_compiler_shim();
    }
    let role = args.next();
    match role.as_deref().and_then(OsStr::to_str) {
        Some("__guard") => heeler_guard::main(),
        Some("__fork-server") => heeler_guard::fork_server::main(),
        Some("__watchdog") => match args.next() {
            Some(socket) => heeler_watchdog::main(&PathBuf::from(socket)),
            None => report_misuse("__watchdog SOCKET"),
        },
        Some("__worker") => {
            let number = |text: &std::ffi::OsString| text.to_str()?.parse().ok().map(WorkerId);
            match (args.next(), args.next().as_ref().and_then(number)) {
                (Some(socket), Some(worker)) => heeler_worker::main(&PathBuf::from(socket), worker),
                _ => report_misuse("__worker SOCKET NUMBER"),
            }
        }
        Some("__debuggee") => match args.next() {
            Some(directory) => heeler_worker::debuggee::main(&PathBuf::from(directory)),
            None => report_misuse("__debuggee DIRECTORY"),
        },
        // Aborts on purpose, so that `heeler doctor` can check whether a crash is captured.
        Some(heeler::CRASH_ROLE) => std::process::abort(),
        _ => heeler::main(),
    }
}

fn report_misuse(form: &str) -> ExitCode {
    eprintln!("heeler: this role is started by Heeler itself, as: heeler {form}");
    ExitCode::from(5)
}
