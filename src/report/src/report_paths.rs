//! Paths in report files, as CI services resolve them: sources and attached files relative to the checkout,
//! and of a test's files first the readable ones.

use std::path::{Component, Path};

use super::FailureDetail;

/// A file that a report attaches to a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReportAttachment<'a> {
    pub path: &'a str,
    pub description: &'a str,
    pub content_type: &'static str,
}

/// Returns a path relative to `root`; a path outside stays absolute.
pub(super) fn relative_to<'a>(path: &'a str, root: &Path) -> &'a str {
    let below = Path::new(path).strip_prefix(root).ok().filter(|below| !is_outside(below));
    below.and_then(Path::to_str).filter(|below| !below.is_empty()).unwrap_or(path)
}

/// Returns whether a relative path leaves its directory.
fn is_outside(below: &Path) -> bool {
    let mut depth = 0;
    below.components().any(|part| {
        depth += if part == Component::ParentDir { -1 } else { 1 };
        depth < 0
    })
}

/// Returns the files of a test, readable ones first, because CI services open or show the first.
pub(super) fn attachments<'a>(detail: &'a FailureDetail, root: &Path) -> Vec<ReportAttachment<'a>> {
    let mut files: Vec<_> = detail
        .files
        .iter()
        .map(|(path, description)| ReportAttachment {
            path: relative_to(path, root),
            description,
            content_type: content_type(path),
        })
        .collect();
    files.sort_by_key(|file| !is_readable(file.content_type));
    files
}

fn is_readable(content_type: &str) -> bool {
    content_type.starts_with("text/") || matches!(content_type, "application/json" | "application/xml")
}

fn content_type(path: &str) -> &'static str {
    match Path::new(path).extension().and_then(|extension| extension.to_str()) {
        Some("txt" | "log" | "out" | "err" | "md") => "text/plain",
        Some("html") => "text/html",
        Some("csv") => "text/csv",
        Some("json") => "application/json",
        Some("xml") => "application/xml",
        Some("png") => "image/png",
        Some("dmp") => "application/x-dmp",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_relative_only_below_the_root() {
        let root = Path::new("/w/project");
        for (path, expected) in [
            ("/w/project/src/a.rs", "src/a.rs"),
            ("/w/project/build/../src/a.cc", "build/../src/a.cc"),
            ("/w/project/../other/a.cc", "/w/project/../other/a.cc"),
            ("/w/projects/a.rs", "/w/projects/a.rs"),
            ("/usr/include/a.h", "/usr/include/a.h"),
            ("/w/project", "/w/project"),
            ("src/a.rs", "src/a.rs"),
        ] {
            assert_eq!(relative_to(path, root), expected);
            assert_eq!(relative_to(path, Path::new("")), path, "without a root");
        }
        assert_eq!(relative_to("/w/project/a.rs", Path::new("/w/project/")), "a.rs");
    }

    #[test]
    fn readable_files_come_first_in_their_order() {
        let files = ["/w/t.dmp", "/w/t.stacks.txt", "/v/core", "/w/t.crashreport.json", "/w/t.stdout.txt"];
        let files = files.map(|path| (path.to_owned(), "about".to_owned())).to_vec();
        let detail = FailureDetail { files, ..FailureDetail::default() };
        let sorted = attachments(&detail, Path::new("/w"));
        let paths: Vec<_> = sorted.iter().map(|file| file.path).collect();
        assert_eq!(paths, ["t.stacks.txt", "t.crashreport.json", "t.stdout.txt", "t.dmp", "/v/core"]);
    }
}
