//! Finds a program by its name in a command, like a shell.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

/// Returns the path of a program. A name without a slash is searched for in `PATH` first; any other name is
/// a path relative to `dir`.
pub fn find_program(name: &str, dir: &Path) -> Option<PathBuf> {
    let in_path = if name.contains('/') { None } else { search_path(OsStr::new(name)) };
    in_path.or_else(|| Some(dir.join(name)).filter(|path| is_program(path)))
}

/// Returns the absolute path of the first program with this name in `PATH`.
pub fn search_path(name: &OsStr) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| is_program(path));
    // A relative path would be resolved in the child's working directory.
    found.map(|path| std::path::absolute(&path).unwrap_or(path))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_found_in_path_or_in_the_directory() {
        let dir = Path::new("/");
        assert!(find_program("sh", dir).is_some_and(|path| path.is_absolute() && path.ends_with("sh")));
        assert_eq!(find_program("bin/sh", dir), Some("/bin/sh".into()));
        assert_eq!(find_program("/bin/sh", Path::new("/usr")), Some("/bin/sh".into()));
        let own = std::env::current_exe().unwrap();
        let name = own.file_name().unwrap().to_str().unwrap();
        assert_eq!(find_program(name, own.parent().unwrap()), Some(own.clone()), "not in PATH");
        assert_eq!(find_program("./bin", dir), None, "a directory is no program");
        assert_eq!(find_program("no-such-program", dir), None);
    }
}
