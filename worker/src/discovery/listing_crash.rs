//! Crash capture of listings. A listing that a signal ended is repeated with tracing, which provides a stack
//! trace and a dump. Listings that succeed cost nothing extra.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
};

use heeler_core::error_chain;
use heeler_protocol::control::{CrashReport, ListingCapture, TracePlan, WorkerId};
use heeler_sys::dirs::{DirError, private_dir, trusted_dir, write_new_file};

use crate::process::evidence_files::{plain_file_name, remove_partial_files};

/// Files of one program's crashed listing.
pub(super) struct ListingCrashFiles {
    plan: TracePlan,
    /// Path of the program's files without extension. A later crash replaces the files.
    base: PathBuf,
}

impl ListingCrashFiles {
    /// Creates the directory for a capture.
    pub(super) fn prepare(
        capture: &ListingCapture,
        program: &Path,
        worker: WorkerId,
        expected_crash_markers: &[&str],
    ) -> Result<Self, DirError> {
        let dir = capture.dir.as_path();
        if let Some(state_dir) = dir.parent() {
            trusted_dir(state_dir)?;
        }
        private_dir(dir)?;
        // Keeps files of a run out of the user's repository. The file already exists after the first capture.
        drop(write_new_file(&dir.join(".gitignore"), b"*\n"));
        let name = format!("worker-{worker}");
        // Left by an earlier worker with this id that was lost during a dump.
        remove_partial_files(dir, &name);
        let plan = TracePlan {
            mode: capture.plan.mode.unwrap_or_default(),
            dumps: capture.plan.dumps,
            dir: capture.dir.clone(),
            name,
            limit_bytes: capture.plan.limit_bytes,
            keeps_environment: capture.plan.keeps_environment,
            expected_crash_markers: expected_crash_markers.iter().map(ToString::to_string).collect(),
            // Allowed, because a listing does not check for a tracer, and its process is ended in any case.
            is_tracer_read_by_framework: true,
            run_mark: None,
        };
        Ok(Self { plan, base: dir.join(base_name(program)) })
    }

    /// Returns how the guard must trace the listing.
    pub(super) fn plan(&self) -> TracePlan {
        self.plan.clone()
    }

    /// Keeps the files of a crash under the program's name. Returns lines that describe the crash.
    pub(super) fn keep(&self, crash: CrashReport) -> String {
        let mut text = String::new();
        if !crash.stack.is_empty() {
            text.push_str(&format!("\nstack:\n{}", crash.stack.trim_end()));
        }
        let files =
            [(crash.dump, "dmp", "minidump"), (crash.stacks_file, "stacks.txt", "stacks of all threads")];
        for (path, extension, description) in files {
            let Some(path) = path else { continue };
            let target = PathBuf::from(format!("{}.{extension}", self.base.display()));
            // A file that cannot be renamed keeps its first name.
            let kept =
                fs::rename(path.as_path(), &target).map_or_else(|_| path.as_path().to_owned(), |()| target);
            text.push_str(&format!("\n{description}: {}", kept.display()));
        }
        for error in crash.soft_errors {
            text.push_str(&format!("\nsome crash evidence could not be kept: {error}"));
        }
        text
    }
}

/// Returns the text used instead of evidence if none could be captured.
pub(super) fn missing_evidence(error: &DirError) -> String {
    format!("\nno stack trace: failed to {}", error_chain(error))
}

/// Returns the base name of a program's files: its own name plus a hash of its path, because programs in
/// different directories may have the same name.
fn base_name(program: &Path) -> String {
    let mut hasher = DefaultHasher::new();
    program.hash(&mut hasher);
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    format!("{}-{:08x}", plain_file_name(&name), hasher.finish() & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_one_name_have_files_of_their_own() {
        let (one, other) = (base_name(Path::new("/a/unit test")), base_name(Path::new("/b/unit test")));
        assert_ne!(one, other);
        assert!(one.starts_with("unit_test-") && one.len() == "unit_test-01234567".len(), "{one}");
        assert_eq!(one, base_name(Path::new("/a/unit test")));
    }
}
