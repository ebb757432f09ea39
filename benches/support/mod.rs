//! Helpers for benches that start the real program as an editor would.

use std::{
    fs,
    path::{Path, PathBuf},
};

use heeler_sys::spawn::{ChildStdio, SpawnOptions, SpawnedChild, spawn};

/// Builds a real Rust test program with tests `case_0`, `case_1` and so on, with the given bodies.
pub(crate) fn build_program(dir: &Path, name: &str, bodies: impl Iterator<Item = String>) -> PathBuf {
    let (source, program) = (dir.join(format!("{name}.rs")), dir.join(name));
    let test = |(number, body)| format!("#[test] fn case_{number}() {{ {body} }}\n");
    fs::write(&source, bodies.enumerate().map(test).collect::<String>()).unwrap();
    let rustc = std::env::var_os("RUSTC").map_or_else(|| found_in_path("rustc"), PathBuf::from);
    let args = vec!["--test".into(), "-o".into(), program.clone().into(), source.into()];
    let ended = spawn(SpawnOptions { args, ..SpawnOptions::new(rustc) }).unwrap().wait().unwrap();
    assert_eq!(ended.code, Some(0));
    program
}

fn found_in_path(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.exists()).unwrap()
}

/// Starts a server that connects to this port of its client.
pub(crate) fn start_server(heeler: &str, dir: &Path, programs: &[&Path], port: u16) -> SpawnedChild {
    let mut args: Vec<_> = programs.iter().map(|program| program.as_os_str().to_owned()).collect();
    let port = port.to_string();
    args.extend(["--server", "--client-port", &port].map(Into::into));
    spawn(SpawnOptions {
        args,
        cwd: Some(dir.to_owned()),
        stdout: ChildStdio::Null,
        ..SpawnOptions::new(heeler)
    })
    .unwrap()
}
