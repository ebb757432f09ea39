//! The single executable. Hidden roles run the other processes of a session, re-executed from the same
//! image, so that versions never mix.

use std::{
    env::ArgsOs,
    ffi::{OsStr, OsString},
    path::PathBuf,
    process::ExitCode,
};

use heeler_cargo::doctests;
use heeler_protocol::control::WorkerId;

/// How a role is selected.
enum RoleSelector {
    /// The program's name; another program starts this one in place of a tool.
    ProgramName(fn(&OsStr) -> bool),
    /// The first argument.
    Argument(&'static str),
}

/// Runs a role with the remaining arguments; `None` if the arguments do not fit the role.
type RunRole = fn(&mut ArgsOs) -> Option<ExitCode>;

use RoleSelector::{Argument, ProgramName};

/// Every role except the command line, with its arguments. Program names come first.
const ROLES: &[(RoleSelector, RunRole, &str)] = &[
    (ProgramName(doctests::is_recorder), |_| Some(doctests::record_start()), ""),
    #[cfg(feature = "mutation")]
    (ProgramName(heeler_mutate::is_rustc_wrapper), |_| Some(heeler_mutate::run_rustc_wrapper()), ""),
    #[cfg(feature = "mutation")]
    (ProgramName(heeler_mutate::is_doctest_keeper), |_| Some(heeler_mutate::run_doctest_keeper()), ""),
    #[cfg(feature = "mutation")]
    (ProgramName(heeler_mutate::is_compiler_shim), |_| Some(heeler_mutate::run_compiler_shim()), ""),
    (Argument("__guard"), |_| Some(heeler_guard::main()), ""),
    (Argument("__fork-server"), |_| Some(heeler_guard::fork_server::main()), ""),
    (Argument("__watchdog"), |args| Some(heeler_watchdog::main(&path(args)?)), "SOCKET"),
    (Argument("__worker"), |args| Some(heeler_worker::main(&path(args)?, worker(args)?)), "SOCKET NUMBER"),
    (Argument("__debuggee"), |args| Some(heeler_worker::debuggee::main(&path(args)?)), "DIRECTORY"),
    (Argument(heeler::COMPLETION_ROLE), |args| Some(heeler::complete(args)), "SHELL WORD…"),
    // Aborts on purpose, so that `heeler doctor` can check whether a crash is captured.
    (Argument(heeler::CRASH_ROLE), |_| std::process::abort(), ""),
];

pub(crate) fn main() -> ExitCode {
    // A journal or dump that exceeds the file size limit must not kill the process with SIGXFSZ.
    heeler_sys::process::ignore_file_size_signal();
    if let Err(error) = heeler_sys::fail::check() {
        eprintln!("heeler: failed to {error}");
        return ExitCode::from(5);
    }
    let mut args = std::env::args_os();
    let own_name = args.next().unwrap_or_default();
    // A tool's arguments are its own, so arguments select a role only under Heeler's own name.
    let disguise = ROLES.iter().find(|(selector, ..)| matches!(selector, ProgramName(is) if is(&own_name)));
    if let Some((_, run, _)) = disguise {
        return run(&mut args).unwrap_or(ExitCode::FAILURE);
    }
    let first: OsString = args.next().unwrap_or_default();
    let hidden = ROLES.iter().find(|(selector, ..)| matches!(selector, Argument(name) if first == *name));
    let Some((_, run, form)) = hidden else { return heeler::main() };
    run(&mut args).unwrap_or_else(|| {
        eprintln!(
            "heeler: internal command, started only by Heeler itself: heeler {} {form}",
            first.display()
        );
        ExitCode::from(5)
    })
}

/// Takes a path argument.
fn path(args: &mut ArgsOs) -> Option<PathBuf> {
    args.next().map(PathBuf::from)
}

/// Takes a worker number argument.
fn worker(args: &mut ArgsOs) -> Option<WorkerId> {
    args.next()?.to_str()?.parse().ok().map(WorkerId)
}
