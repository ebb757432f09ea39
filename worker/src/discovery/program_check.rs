//! Checks a program's file before the program is started.

use std::{fs, path::Path};

use super::{
    discover_error::DiscoverError,
    framework_claims::{ProgramKind, RecognizedProgram},
};

pub(super) fn check_recognized(path: &Path, recognized: &RecognizedProgram) -> Result<(), DiscoverError> {
    let program = path.display().to_string();
    if recognized.is_tool() {
        return Err(DiscoverError::Tool { program, marks: recognized.marks() });
    }
    match recognized.kind {
        _ if !recognized.claims.is_empty() => Ok(()),
        ProgramKind::Native => Err(DiscoverError::NoMark { program }),
        ProgramKind::Empty => Err(DiscoverError::Empty { program }),
        ProgramKind::Other | ProgramKind::Unread => Err(DiscoverError::Script { program }),
    }
}

/// Checks the file without starting it. A directory counts as a program only if an adapter claims it.
pub(super) fn check_program(path: &Path, is_claimed: bool) -> Result<(), DiscoverError> {
    use std::os::unix::fs::PermissionsExt as _;
    let program = path.display().to_string();
    match fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(match fs::read_link(path) {
            Ok(target) => DiscoverError::DanglingLink { program, target },
            Err(_) => DiscoverError::Missing { program },
        }),
        Err(source) => Err(DiscoverError::Unreadable { program, source }),
        Ok(found) if found.is_dir() && is_claimed => Ok(()),
        Ok(found) if found.is_dir() => Err(DiscoverError::Directory { program }),
        Ok(found) if !found.is_file() => {
            Err(DiscoverError::Special { program, kind: special_kind(found.file_type()) })
        }
        Ok(found) if found.permissions().mode() & 0o111 == 0 => Err(DiscoverError::NotExecutable { program }),
        Ok(_) => Ok(()),
    }
}

/// Names the type of a file that is neither a regular file nor a directory.
fn special_kind(file_type: fs::FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt as _;
    if file_type.is_fifo() {
        "named pipe"
    } else if file_type.is_socket() {
        "socket"
    } else {
        "device"
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn invalid_program_is_reported_before_start() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        let said = |path: &Path| check_program(path, false).unwrap_err().to_string();
        assert_eq!(said(&file), format!("{} does not exist", file.display()));
        assert_eq!(said(dir.path()), format!("{} is a directory, not a test program", dir.path().display()));
        fs::write(&file, "").unwrap();
        assert_eq!(said(&file), format!("{} is not executable", file.display()));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o700)).unwrap();
        check_program(&file, false).unwrap();
    }
}
