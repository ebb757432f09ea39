//! Finds the C and C++ sources to mutate: everything below a directory except tests, headers included.

use std::path::{Component, Path, PathBuf};

use heeler_mutant_model::Language;

use crate::{
    module_tree::{MutatedProject, ReadSourceError},
    selection::SourceSelection,
    source_tree::{find_files, search_sources},
};

/// Names of directories that contain no product sources, at any depth.
const OTHER_DIRECTORIES: [&str; 25] = [
    "3rdparty",
    "bench",
    "benches",
    "benchmark",
    "benchmarks",
    "contrib",
    "deps",
    "doc",
    "docs",
    "example",
    "examples",
    "external",
    "fuzz",
    "fuzzing",
    "node_modules",
    "single_include",
    "test",
    "test_package",
    "testing",
    "tests",
    "third_party",
    "thirdparty",
    "unittest",
    "unittests",
    "vendor",
];
/// Extensions of included files, in addition to those that begin with `h`.
const INCLUDED: [&str; 6] = ["inc", "inl", "ipp", "ixx", "tcc", "tpp"];
/// Names and extensions of build tool files.
const BUILD_FILES: [&str; 6] =
    ["CMakeLists.txt", "GNUmakefile", "Makefile", "configure", "makefile", "meson.build"];
const BUILD_EXTENSIONS: [&str; 6] = ["ac", "am", "cmake", "in", "mk", "sh"];
/// Files that mark a directory as build output.
const BUILT: [&str; 2] = ["CMakeCache.txt", "CACHEDIR.TAG"];

/// Reads the C and C++ sources below a directory and searches the selected ones for mutants. Sources of
/// tests, examples and third-party libraries are searched only if the selection names them. Files that are
/// not UTF-8 have no mutants. Blocks, on several cores.
///
/// # Errors
/// A directory or a selected source can't be read.
pub fn find_c_sources(root: &Path, selection: &SourceSelection) -> Result<MutatedProject, ReadSourceError> {
    let mut paths = Vec::new();
    find_files(root, &is_built, &|path| language_of(path, Language::C).is_some(), &mut paths)?;
    paths.sort();
    // A `.h` file may be C or C++.
    let is_cpp = |path: &PathBuf| Language::of_path(&path.to_string_lossy()) == Some(Language::Cpp);
    let headers = if paths.iter().any(is_cpp) { Language::Cpp } else { Language::C };
    let unmatched = selection.unmatched(paths.iter().map(PathBuf::as_path));
    paths.retain(|path| selection.may_select(path));
    if selection.is_everything() {
        paths.retain(|path| path.strip_prefix(root).is_ok_and(|below| !is_of_tests(below)));
    }
    let language = |path: &Path| language_of(path, headers).unwrap_or(headers);
    let sources = search_sources(root, selection, paths, language)?;
    Ok(MutatedProject { root: root.to_owned(), sources, unmatched })
}

/// Returns the files other than sources that affect compilation, sorted: headers, other included files, and
/// build tool files. Skips unreadable directories.
#[must_use]
pub fn find_build_inputs(root: &Path) -> Vec<PathBuf> {
    let is_included = |path: &Path| {
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        extension.starts_with(['h', 'H'])
            || INCLUDED.contains(&&*extension)
            || BUILD_FILES.contains(&&*name)
            || BUILD_EXTENSIONS.contains(&&*extension)
    };
    let mut paths = Vec::new();
    // Copying the tree reports unreadable directories.
    let _unread = find_files(root, &is_built, &is_included, &mut paths);
    paths.sort();
    paths
}

/// Adds the object files and build output directories below a directory to `found`, without descending into
/// entries of `found`. Skips unreadable directories: copying the tree reports them.
pub fn add_built_files(directory: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) && !found.contains(&path) {
            if is_built(&path) {
                found.push(path);
            } else {
                add_built_files(&path, found);
            }
        } else if path.extension().is_some_and(|name| name == "o" || name == "lo") {
            found.push(path);
        }
    }
}

fn is_built(directory: &Path) -> bool {
    BUILT.iter().any(|name| directory.join(name).exists())
}

/// Returns whether a source belongs to tests, judged by its path below the root.
fn is_of_tests(below: &Path) -> bool {
    let is_other = |component: Component<'_>| {
        let Component::Normal(name) = component else { return false };
        OTHER_DIRECTORIES.iter().any(|other| name == *other)
    };
    let stem = below.file_stem().unwrap_or_default().to_string_lossy();
    let lower = stem.to_lowercase();
    let is_test = ["test", "tests", "unittest", "unittests"].contains(&lower.as_str())
        || lower.starts_with("test_")
        || ["_test", "_tests", "-test", "-tests", "_unittest"].iter().any(|end| lower.ends_with(end))
        || ["Test", "Tests"].iter().any(|end| stem.ends_with(end));
    is_test || below.parent().is_some_and(|directory| directory.components().any(is_other))
}

/// Returns the language of a source; `headers` is the language assumed for `.h` files.
fn language_of(path: &Path, headers: Language) -> Option<Language> {
    if path.extension()? == "h" {
        return Some(headers);
    }
    let is_compiled_here = |language: &Language| matches!(language, Language::C | Language::Cpp);
    Language::of_path(&path.to_string_lossy()).filter(is_compiled_here)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn paths(project: &MutatedProject) -> Vec<&str> {
        project.sources.iter().map(|source| &*source.source.file().path).collect()
    }

    #[test]
    fn sources_of_the_product_have_mutants_and_those_of_tests_if_they_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let others = ["test.c", "tests/c.c", "src/d_test.c", "build/e.c", ".git/f.c", "src/ETest.cpp"];
        for path in ["a.c", "src/b.cc", "g.h", "h.hpp", "i.txt", "gen.py", "page.js", "lib.rs"]
            .into_iter()
            .chain(others)
        {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "int f(int a) { return a + 1; }\n").unwrap();
        }
        fs::write(root.join("build/CMakeCache.txt"), "").unwrap();
        let all = find_c_sources(root, &SourceSelection::default()).unwrap();
        assert_eq!(paths(&all), ["a.c", "g.h", "h.hpp", "src/b.cc"]);
        let languages = all.sources.iter().map(|source| source.source.file().language);
        let expected = [Language::C, Language::Cpp, Language::Cpp, Language::Cpp];
        assert!(languages.eq(expected), "beside sources in C++, a header is one of C++");
        assert!(all.sources.iter().all(|source| !source.selected.is_empty()));
        let named = SourceSelection::read(&["tests/c.c".to_owned(), "x.c".to_owned()], root).unwrap();
        let named = find_c_sources(root, &named).unwrap();
        assert_eq!((paths(&named), &named.unmatched[..]), (vec!["tests/c.c"], &["x.c".to_owned()][..]));
    }

    #[test]
    fn header_of_a_project_in_c_is_one_of_c() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["a.c", "a.h"] {
            fs::write(dir.path().join(path), "int f(int a) { return a + 1; }\n").unwrap();
        }
        let all = find_c_sources(dir.path(), &SourceSelection::default()).unwrap();
        assert!(all.sources.iter().all(|source| source.source.file().language == Language::C));
        assert_eq!(paths(&all), ["a.c", "a.h"]);
    }
}
