//! Generates the messages and the client of the conformance service from the suite's own files, which are in
//! Go's module cache after the suite is installed.

use std::{path::PathBuf, process::Command};

/// The suite version that Heeler's tests expect.
const SUITE: &str = "connectrpc.com/conformance@v1.0.5";
/// All files, including imported ones, because code is generated only for files listed here.
const FILES: [&str; 5] = ["client_compat", "config", "server_compat", "service", "suite"];

fn main() {
    let protos = suite_protos();
    let files = FILES.map(|name| protos.join(format!("connectrpc/conformance/v1/{name}.proto")));
    let protoc = protoc_bin_vendored::protoc_bin_path().expect("protoc for this platform");
    // SAFETY: this process has one thread.
    unsafe { std::env::set_var("PROTOC", protoc) };
    connectrpc_build::Config::new()
        .files(&files)
        .includes(&[protos, protoc_bin_vendored::include_path().expect("the well-known types")])
        .include_file("conformance.rs")
        .compile()
        .expect("the suite's files are compiled");
}

/// Returns the directory of the suite's files: `$CONFORMANCE_PROTOS`, otherwise the one in Go's module cache.
fn suite_protos() -> PathBuf {
    println!("cargo:rerun-if-env-changed=CONFORMANCE_PROTOS");
    if let Some(named) = std::env::var_os("CONFORMANCE_PROTOS") {
        return named.into();
    }
    let asked =
        Command::new("go").args(["env", "GOMODCACHE"]).output().expect("go, which installs the suite");
    let cache = String::from_utf8(asked.stdout).expect("a path in UTF-8");
    let protos = PathBuf::from(cache.trim()).join(SUITE).join("proto");
    assert!(protos.is_dir(), "expected the suite's files in {}: install the suite with go", protos.display());
    protos
}
