//! The text of `heeler --version`: the version, the commit of the sources, the profile and the target. No
//! other build step belongs here.
#![expect(clippy::disallowed_methods, reason = "the crate that starts processes is not built yet")]

use std::{
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=HEELER_COMMIT");
    let profile = profile_name().unwrap_or_else(|| variable("PROFILE"));
    let build = format!("{profile} build for {}", variable("TARGET"));
    let details = match commit() {
        Some(commit) => format!("{commit}, {build}"),
        None => build,
    };
    println!("cargo::rustc-env=HEELER_VERSION={} ({details})", variable("CARGO_PKG_VERSION"));
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

/// Returns the name of the profile. `PROFILE` knows debug and release only; the output directory is
/// `…/PROFILE/build/…`.
fn profile_name() -> Option<String> {
    let output = PathBuf::from(env::var_os("OUT_DIR")?);
    let build = output.ancestors().find(|path| path.file_name() == Some(OsStr::new("build")))?;
    Some(build.parent()?.file_name()?.to_str()?.to_owned())
}

/// Returns the commit with its date: from the environment, from git, or from the file that cargo adds to a
/// package.
fn commit() -> Option<String> {
    if let Some(commit) = env::var("HEELER_COMMIT").ok().filter(|commit| !commit.is_empty()) {
        return Some(commit);
    }
    // A debug build would be compiled again after every commit.
    if variable("PROFILE") == "debug" {
        return None;
    }
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR")?);
    commit_of_checkout(&root).or_else(|| commit_of_package(&root))
}

fn commit_of_checkout(root: &Path) -> Option<String> {
    // Unpacked sources without git may be inside another project's checkout.
    if !root.join(".git").exists() {
        return None;
    }
    for path in ["HEAD", "logs/HEAD"] {
        let file = git(root, &["rev-parse", "--path-format=absolute", "--git-path", path])?;
        if Path::new(&file).exists() {
            println!("cargo::rerun-if-changed={file}");
        }
    }
    // Changed sources are `-dirty`.
    for sources in ["src", "watchdog", "worker", "Cargo.lock", "Cargo.toml"] {
        println!("cargo::rerun-if-changed={sources}");
    }
    let commit = git(root, &["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"])?;
    let date = git(root, &["show", "--no-patch", "--format=%cs", "HEAD"])?;
    Some(format!("{commit} {date}"))
}

fn git(root: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

fn commit_of_package(root: &Path) -> Option<String> {
    let text = fs::read_to_string(root.join(".cargo_vcs_info.json")).ok()?;
    let (_, hash) = text.split_once("\"sha1\"")?;
    let hash = hash.split('"').nth(1)?;
    hash.get(..12).map(str::to_owned)
}
