//! Recognizes Go test programs by their files, without running them: by the build information that the linker
//! writes, and by the name of the file that `go test` generates for each program.

use std::{fs::File, path::Path};

use object::{Object as _, ObjectSection as _, ReadCache};

use super::line_table::{FunctionPlace, function_places};

/// Longest table of functions that is read: that of a program of hundreds of megabytes.
const MAX_TABLE_BYTES: u64 = 256 << 20;
/// What begins the build information; it is in a section of its own.
const BUILD_INFO_MAGIC: &[u8] = b"\xff Go buildinf:";
/// Where the version stands since Go 1.18: its length, then the text.
const VERSION_OFFSET: usize = 32;
/// Bytes of the build information that are read.
const BUILD_INFO_BYTES: usize = 256;
/// The file with the `main` of a test program, which `go test` writes.
const TEST_MAIN_FILE: &[u8] = b"_testmain.go\0";

/// The minor version of Go that first marked its reports with a byte of their own.
const FIRST_FRAMED_VERSION: u32 = 20;

/// What a Go test program's file says about it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct GoTestProgram {
    /// The minor version of Go: 20 of `go1.20.3`. `None` where it is too old to say.
    minor_version: Option<u32>,
    table: Vec<u8>,
}

impl GoTestProgram {
    /// Reads a file; `None` if it is no Go test program.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let cache = ReadCache::new(File::open(path).ok()?);
        let file = object::File::parse(&cache).ok()?;
        let build_info = file.section_by_name(".go.buildinfo")?;
        let length = build_info.size().min(BUILD_INFO_BYTES as u64);
        let build_info = build_info.data_range(build_info.address(), length).ok()??;
        if !build_info.starts_with(BUILD_INFO_MAGIC) {
            return None;
        }
        // Of a position-independent program it is in a section whose name ends so.
        let is_table = |section: &object::Section<'_, '_, _>| {
            section.name().is_ok_and(|name| name.ends_with("gopclntab"))
        };
        let table = file.sections().find(is_table)?;
        if table.size() > MAX_TABLE_BYTES {
            return None;
        }
        let table = table.data().ok()?;
        memchr::memmem::find(table, TEST_MAIN_FILE)?;
        Some(Self { minor_version: minor_version(build_info), table: table.to_vec() })
    }

    /// Returns whether its reports are marked with a byte of their own.
    pub(super) fn is_framed(&self) -> bool {
        self.minor_version.is_none_or(|minor| minor >= FIRST_FRAMED_VERSION)
    }

    /// Returns the places of the functions in files of tests that can be tests by their names.
    pub(super) fn test_places(&self) -> Vec<FunctionPlace> {
        function_places(&self.table)
    }
}

/// Returns the minor version in build information: of `go1.19.8`, `devel go1.27-abc`, or `go1.26rc1`.
fn minor_version(build_info: &[u8]) -> Option<u32> {
    let length = usize::from(*build_info.get(VERSION_OFFSET)?);
    let text = build_info.get(VERSION_OFFSET + 1..)?.get(..length)?;
    let at = memchr::memmem::find(text, b"go1.")?;
    let digits: String =
        text[at + 4..].iter().map(|byte| char::from(*byte)).take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod cases {
    use super::*;

    fn build_info(version: &str) -> Vec<u8> {
        let mut bytes = [BUILD_INFO_MAGIC, b"\x08\x02"].concat();
        bytes.resize(VERSION_OFFSET, 0);
        bytes.push(u8::try_from(version.len()).unwrap());
        bytes.extend_from_slice(version.as_bytes());
        bytes
    }

    #[test]
    fn version_is_read_in_every_form() {
        for (version, minor) in [
            ("go1.19.8", Some(19)),
            ("go1.26rc1", Some(26)),
            ("devel go1.27-1a2b3c Mon", Some(27)),
            ("go1.20", Some(20)),
            ("go2", None),
            ("", None),
        ] {
            assert_eq!(minor_version(&build_info(version)), minor, "{version}");
        }
        assert_eq!(minor_version(b"\xff Go buildinf:"), None, "it is cut");
        let of = |minor| GoTestProgram { minor_version: minor, table: Vec::new() };
        assert!(!of(Some(19)).is_framed() && of(Some(20)).is_framed() && of(None).is_framed());
    }

    #[test]
    fn other_files_are_no_go_test_program() {
        assert_eq!(GoTestProgram::read(&std::env::current_exe().unwrap()), None);
        assert_eq!(GoTestProgram::read(Path::new("/nowhere")), None);
        assert_eq!(GoTestProgram::read(Path::new(env!("CARGO_MANIFEST_DIR"))), None);
    }
}
