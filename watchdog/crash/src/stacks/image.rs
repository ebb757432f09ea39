//! A program or library as an ELF file, or as bytes in memory for the vDSO: its segments, unwind tables and
//! build id. Reads only the necessary parts.

use std::{
    fs::File,
    ops::Range,
    path::{Path, PathBuf},
};

use framehop::{ExplicitModuleSectionInfo, Module};
use object::{
    Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadCache, ReadRef, SegmentFlags, elf::PF_X,
};

use super::maps::MemoryMapping;

/// Maximum plausible size of unwind tables. Larger ones are treated as damaged.
const MAX_TABLE_BYTES: u64 = 64 << 20;

/// Bits of an address within its page.
const PAGE_MASK: u64 = 0xfff;

/// Source of an image's bytes.
#[derive(Debug)]
pub(crate) enum ImageSource {
    /// A file, kept open so that it can be symbolized even if its path now refers to another file.
    File(File),
    /// Bytes read from memory.
    Bytes(Vec<u8>),
}

/// Parts of an image that the unwinder needs.
pub(crate) struct LoadedImage {
    /// Load bias: added to an address in the file, it gives the address in memory.
    pub(crate) bias: u64,
    /// Build id, if the linker wrote one.
    pub(crate) build_id: Option<Vec<u8>>,
    pub(crate) module: Module<Vec<u8>>,
}

impl ImageSource {
    /// Reads the image that contains `mapping`. `None` if the image is unreadable or not a program.
    pub(crate) fn load(&self, range: &Range<u64>, mapping: &MemoryMapping) -> Option<LoadedImage> {
        match self {
            Self::File(file) => load(&ReadCache::new(file), range, mapping),
            Self::Bytes(bytes) => load(bytes.as_slice(), range, mapping),
        }
    }

    /// Returns the address in memory of a symbol of the image, given the image's executable mapping. Only for
    /// images with a file.
    pub(crate) fn symbol_address(&self, name: &str, mapping: &MemoryMapping) -> Option<u64> {
        let Self::File(file) = self else { return None };
        symbol_address(&ReadCache::new(file), name, mapping)
    }

    #[cfg(feature = "minidump")]
    pub(crate) fn build_id(&self) -> Option<Vec<u8>> {
        match self {
            Self::File(file) => build_id(&object::File::parse(&ReadCache::new(file)).ok()?),
            Self::Bytes(bytes) => build_id(&object::File::parse(bytes.as_slice()).ok()?),
        }
    }

    /// Returns a path that other code can open to read the image's file. Its own path, unless that now refers
    /// to another file.
    pub(crate) fn readable_path(&self, own: &Path) -> Option<PathBuf> {
        use std::os::{fd::AsRawFd, unix::fs::MetadataExt};
        let Self::File(file) = self else { return None };
        let held = file.metadata().ok()?;
        let is_same =
            std::fs::metadata(own).is_ok_and(|now| now.dev() == held.dev() && now.ino() == held.ino());
        if is_same {
            Some(own.to_owned())
        } else {
            Some(format!("/proc/self/fd/{}", file.as_raw_fd()).into())
        }
    }

    /// Returns the exported function that contains this file address. Only for images without a file.
    pub(crate) fn exported_name(&self, address: u64) -> Option<String> {
        let Self::Bytes(bytes) = self else { return None };
        let file = object::File::parse(bytes.as_slice()).ok()?;
        let holds = |symbol: &object::Symbol<'_, '_>| {
            symbol.address() <= address && address < symbol.address().saturating_add(symbol.size())
        };
        file.dynamic_symbols().find(holds)?.name().ok().map(str::to_owned)
    }
}

fn load<'data, R: ReadRef<'data>>(
    data: R,
    range: &Range<u64>,
    mapping: &MemoryMapping,
) -> Option<LoadedImage> {
    let file = object::File::parse(data).ok()?;
    let bias = load_bias(&file, mapping)?;
    Some(LoadedImage { bias, build_id: build_id(&file), module: unwind_module(&file, range, bias) })
}

/// Returns the load bias of a file, given its executable mapping.
fn load_bias<'data, R: ReadRef<'data>>(
    file: &object::File<'data, R>,
    mapping: &MemoryMapping,
) -> Option<u64> {
    let shows = |segment: &object::Segment<'data, '_, R>| {
        let (start, length) = segment.file_range();
        let is_executable = match segment.flags() {
            SegmentFlags::Elf { p_flags, .. } => p_flags.contains(PF_X),
            _ => true,
        };
        // A mapping begins at a page boundary. Its segment may begin later on that page, after the end of a
        // data segment: linkers let adjacent segments share a page of the file, although their addresses
        // differ from their file offsets by different amounts.
        is_executable
            && mapping.offset <= start.saturating_add(length.saturating_sub(1))
            && start & !PAGE_MASK <= mapping.offset
    };
    let segment = file.segments().find(shows)?;
    let (start, _) = segment.file_range();
    let wanted = segment.address().wrapping_add(mapping.offset).wrapping_sub(start);
    Some(mapping.range.start.wrapping_sub(wanted))
}

fn symbol_address<'data, R: ReadRef<'data>>(data: R, name: &str, mapping: &MemoryMapping) -> Option<u64> {
    let file = object::File::parse(data).ok()?;
    let is_wanted =
        |symbol: &object::Symbol<'data, '_, R>| symbol.is_definition() && symbol.name() == Ok(name);
    // A static program has the symbol only in its full symbol table.
    let symbol = file.dynamic_symbols().find(is_wanted).or_else(|| file.symbols().find(is_wanted))?;
    Some(symbol.address().wrapping_add(load_bias(&file, mapping)?))
}

fn build_id<'data, R: ReadRef<'data>>(file: &object::File<'data, R>) -> Option<Vec<u8>> {
    file.build_id().ok().flatten().map(<[u8]>::to_vec)
}

fn unwind_module<'data, R: ReadRef<'data>>(
    file: &object::File<'data, R>,
    range: &Range<u64>,
    bias: u64,
) -> Module<Vec<u8>> {
    let data = |name: &str| {
        let section = file.section_by_name(name).filter(|section| section.size() <= MAX_TABLE_BYTES)?;
        section.uncompressed_data().ok().map(std::borrow::Cow::into_owned)
    };
    let place = |name: &str| {
        file.section_by_name(name)
            .map(|section| section.address()..section.address().saturating_add(section.size()))
    };
    let sections = ExplicitModuleSectionInfo {
        text_svma: place(".text"),
        got_svma: place(".got"),
        eh_frame_svma: place(".eh_frame"),
        eh_frame: data(".eh_frame"),
        eh_frame_hdr_svma: place(".eh_frame_hdr"),
        eh_frame_hdr: data(".eh_frame_hdr"),
        debug_frame: data(".debug_frame"),
        ..Default::default()
    };
    Module::new(String::new(), range.clone(), bias, sections)
}

/// Returns bytes in hexadecimal, the usual form of build ids.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _never = write!(text, "{byte:02x}");
        text
    })
}
