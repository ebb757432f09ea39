//! `cargo heeler …`: cargo starts the program `cargo-heeler`, which becomes the `heeler` installed beside
//! it. So all processes of a session run the same image.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
};

use heeler_core::error_chain;
use heeler_sys::spawn::{ChildStdio, SpawnOptions, exec};

/// Exit code when a requirement is missing, the same as in `heeler`.
const SETUP: u8 = 4;

pub(crate) fn main() -> ExitCode {
    let program = match std::env::current_exe() {
        Ok(own) => installed_heeler(&own),
        Err(source) => {
            eprintln!(
                "error: failed to find the path of cargo-heeler, which is installed beside heeler: {source}"
            );
            return ExitCode::from(SETUP);
        }
    };
    let args = own_arguments(std::env::args_os().skip(1).collect());
    let error = exec(SpawnOptions { args, stdin: ChildStdio::Inherit, ..SpawnOptions::new(program) });
    eprintln!(
        "error: failed to {}; cargo-heeler needs the program heeler in the same directory",
        error_chain(&error)
    );
    ExitCode::from(SETUP)
}

/// Returns the path of the `heeler` installed with this program.
fn installed_heeler(own: &Path) -> PathBuf {
    own.with_file_name("heeler")
}

/// Removes the name of the subcommand, which cargo passes as the first argument.
fn own_arguments(mut args: Vec<OsString>) -> Vec<OsString> {
    if args.first().is_some_and(|word| word == "heeler") {
        args.remove(0);
    }
    args
}
