//! Makes the source files of listed tests absolute. Compilers record file names as given, plus their working
//! directory. The program is only read, never run.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fs::File,
    path::Path,
};

use gimli::{
    AttributeValue, DebugAbbrev, DebugInfo, DebugLineStr, DebugStr, DebugStrOffsets, DebugStrOffsetsBase,
    EndianSlice, LittleEndian, UnitHeader,
};
use heeler_protocol::control::{ListedTest, TestProgram};
use object::{Object as _, ObjectSection as _, ReadCache};

/// Maximum size of a section that is read, because the listing waits for it.
const MAX_SECTION_BYTES: u64 = 64 << 20;
/// Offset of the first entry in a unit's part of the string offsets section, after its header.
const FIRST_STRING_OFFSET: usize = 8;
/// Path parts of compilation directories that belong to libraries, not to the user.
const LIBRARY_PARTS: [&str; 2] = ["/.cargo/registry/", "/.cargo/git/"];

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Names of a program's compilation units, by compilation directory.
type Units = BTreeMap<String, BTreeSet<String>>;

/// Makes the files of tests absolute if the program's debug information or its working directory shows where
/// they are. Other files stay as listed.
pub(super) fn make_absolute(program: &TestProgram, tests: &mut [ListedTest]) {
    let is_relative = |file: &&str| !file.is_empty() && !Path::new(file).is_absolute();
    let relative: BTreeSet<String> =
        tests.iter().filter_map(|test| test.file.as_deref()).filter(is_relative).map(str::to_owned).collect();
    if relative.is_empty() {
        return;
    }
    let units = units_of(program.path.as_path()).unwrap_or_default();
    let directory = directory_of(&relative, &units, |path| path.is_file());
    let is_there = |file: &String, directory: &str| Path::new(directory).join(file).is_file();
    let cwd = program.cwd.to_text();
    let absolute = |file: &String| {
        // Prefer the unit with this name, then the directory of all files, then the working directory.
        let by_unit = units.iter().filter(|(_, names)| names.contains(file)).map(|(directory, _)| directory);
        // If several units have the same name, only units whose file exists count.
        let mut candidates: Vec<_> = by_unit.collect();
        if candidates.len() > 1 {
            candidates.retain(|directory| is_there(file, directory));
        }
        let own = candidates.first().filter(|_| candidates.len() == 1).map(|directory| directory.as_str());
        let here = || Some(cwd.as_ref()).filter(|cwd| Path::new(cwd).is_absolute() && is_there(file, cwd));
        let found = own.or(directory.as_deref()).or_else(here)?;
        Some(format!("{}/{file}", found.trim_end_matches('/')))
    };
    // Resolve each file once: many tests share few files.
    let known: BTreeMap<&String, String> =
        relative.iter().filter_map(|file| Some((file, absolute(file)?))).collect();
    for test in tests {
        if let Some(path) = test.file.as_ref().and_then(|file| known.get(file)) {
            // The framework's reports use the name as compiled.
            test.reported_file = test.file.replace(path.clone());
        }
    }
}

/// Returns the only compilation directory that contains all of these files.
fn directory_of(files: &BTreeSet<String>, units: &Units, is_file: impl Fn(&Path) -> bool) -> Option<String> {
    let holds_all = |directory: &&String| files.iter().all(|file| is_file(&Path::new(directory).join(file)));
    let holding: Vec<&String> = units.keys().filter(holds_all).collect();
    let is_own = |directory: &&&String| !LIBRARY_PARTS.iter().any(|part| directory.contains(part));
    match holding.as_slice() {
        [only] => Some((*only).clone()),
        several => {
            let mut own = several.iter().filter(is_own);
            let first = own.next()?;
            own.next().is_none().then(|| (*first).clone())
        }
    }
}

/// Reads the compilation units of a program. `None` if the file has no debug information.
fn units_of(path: &Path) -> Option<Units> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    if !file.is_little_endian() {
        return None;
    }
    let section = |name: &str| -> Option<Cow<'_, [u8]>> {
        let section = file.section_by_name(name)?;
        let data = section.compressed_file_range().ok()?;
        (data.uncompressed_size <= MAX_SECTION_BYTES).then(|| section.uncompressed_data().ok())?
    };
    let [info, abbreviations, strings, line_strings, string_offsets] =
        [".debug_info", ".debug_abbrev", ".debug_str", ".debug_line_str", ".debug_str_offsets"].map(section);
    let sections = Sections {
        abbreviations: DebugAbbrev::new(abbreviations.as_deref()?, LittleEndian),
        strings: DebugStr::new(strings.as_deref().unwrap_or_default(), LittleEndian),
        line_strings: DebugLineStr::new(line_strings.as_deref().unwrap_or_default(), LittleEndian),
        string_offsets: DebugStrOffsets::from(EndianSlice::new(
            string_offsets.as_deref().unwrap_or_default(),
            LittleEndian,
        )),
    };
    let mut units = Units::new();
    let mut headers = DebugInfo::new(info.as_deref()?, LittleEndian).units();
    // Stop at damaged information.
    while let Ok(Some(header)) = headers.next() {
        let Some((name, directory)) = sections.read_unit(&header) else { continue };
        if Path::new(&directory).is_absolute() {
            // Rust appends the codegen unit to the file name.
            let name = name.split_once("/@/").map_or(name.as_str(), |(file, _)| file).to_owned();
            units.entry(directory).or_default().insert(name);
        }
    }
    Some(units)
}

struct Sections<'a> {
    abbreviations: DebugAbbrev<Bytes<'a>>,
    strings: DebugStr<Bytes<'a>>,
    line_strings: DebugLineStr<Bytes<'a>>,
    string_offsets: DebugStrOffsets<Bytes<'a>>,
}

impl<'a> Sections<'a> {
    /// Returns the name and the compilation directory of a unit.
    fn read_unit(&self, header: &UnitHeader<Bytes<'a>>) -> Option<(String, String)> {
        let abbreviations = header.abbreviations(&self.abbreviations).ok()?;
        let mut entries = header.entries(&abbreviations);
        let root = entries.next_dfs().ok()??;
        let base = match root.attr_value(gimli::DW_AT_str_offsets_base) {
            Some(AttributeValue::DebugStrOffsetsBase(base)) => base,
            _ => DebugStrOffsetsBase(FIRST_STRING_OFFSET),
        };
        let text = |attribute| {
            let found = match root.attr_value(attribute)? {
                AttributeValue::String(text) => text,
                AttributeValue::DebugStrRef(offset) => self.strings.get_str(offset).ok()?,
                AttributeValue::DebugLineStrRef(offset) => self.line_strings.get_str(offset).ok()?,
                AttributeValue::DebugStrOffsetsIndex(index) => {
                    let offset = self.string_offsets.get_str_offset(header.format(), base, index).ok()?;
                    self.strings.get_str(offset).ok()?
                }
                _ => return None,
            };
            Some(String::from_utf8_lossy(found.slice()).into_owned())
        };
        Some((text(gimli::DW_AT_name)?, text(gimli::DW_AT_comp_dir)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(all: &[(&str, &[&str])]) -> Units {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        all.iter().map(|(directory, of)| ((*directory).to_owned(), names(of))).collect()
    }

    #[test]
    fn directory_is_the_only_one_that_holds_all_files() {
        let files: BTreeSet<String> = ["src/lib.rs", "src/herd.rs"].map(str::to_owned).into();
        let own = "/w/herd";
        let registry = "/home/a/.cargo/registry/src/x/serde";
        let all =
            units(&[(own, &["src/lib.rs"]), (registry, &["src/lib.rs"]), ("/rustc/1", &["library/a.rs"])]);
        let find = |holding: &[&str]| {
            directory_of(&files, &all, |path| holding.iter().any(|directory| path.starts_with(directory)))
        };
        assert_eq!(find(&[own]).as_deref(), Some(own));
        assert_eq!(find(&[own, registry]).as_deref(), Some(own));
        assert_eq!(find(&[registry]).as_deref(), Some(registry));
        assert_eq!(find(&[]), None);
        assert_eq!(find(&[own, "/rustc/1"]), None, "either may be meant");
    }

    #[test]
    fn own_program_has_units() {
        let program = std::env::current_exe().unwrap();
        let units = units_of(&program).unwrap();
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        assert!(
            own.into_iter().any(|directory| units.contains_key(directory.to_str().unwrap())),
            "{units:?}"
        );
        let mut tests = vec![
            ListedTest { file: Some(file!().to_owned()), ..ListedTest::default() },
            ListedTest { file: Some("/absolute.rs".to_owned()), ..ListedTest::default() },
            ListedTest { file: Some("nowhere/at/all.rs".to_owned()), ..ListedTest::default() },
            ListedTest::default(),
        ];
        let program = TestProgram { path: program.as_path().into(), ..TestProgram::default() };
        make_absolute(&program, &mut tests[..2]);
        assert!(Path::new(tests[0].file.as_deref().unwrap()).is_file(), "{tests:?}");
        make_absolute(&program, &mut tests[1..]);
        let files: Vec<_> = tests[1..].iter().map(|test| test.file.as_deref()).collect();
        assert_eq!(files, [Some("/absolute.rs"), Some("nowhere/at/all.rs"), None]);
        assert_eq!(units_of(Path::new("/nowhere")), None);
        assert_eq!(units_of(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml").as_path()), None);
    }
}
