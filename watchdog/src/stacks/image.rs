//! A program or library as a file (or, for the system's own code, as bytes in memory): where its parts want to be,
//! what its unwind tables say, and its build id. Reads what it needs, not the whole file.

use std::{
    fs::File,
    ops::Range,
    path::{Path, PathBuf},
};

use framehop::{ExplicitModuleSectionInfo, Module};
use object::{
    Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadCache, ReadRef, SegmentFlags, elf::PF_X,
};

use super::maps::Mapping;

/// Unwind tables that are longer than this are taken for broken.
const MOST_TABLE_BYTES: u64 = 64 << 20;

/// The bits of an address within its page.
const PAGE_MASK: u64 = 0xfff;

/// Where an image is read from.
#[derive(Debug)]
pub(crate) enum Content {
    /// A file, kept open, so that it can still be named when its path says something else.
    File(File),
    /// Bytes found in memory.
    Bytes(Vec<u8>),
}

/// What the unwinder needs of an image.
pub(crate) struct Loaded {
    /// What is added to an address in the file to get the address in memory.
    pub(crate) bias: u64,
    /// Identifies the build, where the linker wrote it.
    pub(crate) build_id: Option<Vec<u8>>,
    /// Unwind tables.
    pub(crate) module: Module<Vec<u8>>,
}

impl Content {
    /// Reads the image that `mapping`, one of its own, is a part of. `None` if it is no program, or is unreadable.
    pub(crate) fn load(&self, range: &Range<u64>, mapping: &Mapping) -> Option<Loaded> {
        match self {
            Self::File(file) => load(&ReadCache::new(file), range, mapping),
            Self::Bytes(bytes) => load(bytes.as_slice(), range, mapping),
        }
    }

    /// Returns the build id.
    pub(crate) fn build_id(&self) -> Option<Vec<u8>> {
        match self {
            Self::File(file) => build_id(&object::File::parse(&ReadCache::new(file)).ok()?),
            Self::Bytes(bytes) => build_id(&object::File::parse(bytes.as_slice()).ok()?),
        }
    }

    /// Returns a path by which other code can open the image's file: its own, as long as it still leads there.
    pub(crate) fn path(&self, own: &Path) -> Option<PathBuf> {
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

    /// Returns the exported function that holds `address` (in the file's terms). Only for images without a file.
    pub(crate) fn exported_name(&self, address: u64) -> Option<String> {
        let Self::Bytes(bytes) = self else { return None };
        let file = object::File::parse(bytes.as_slice()).ok()?;
        let holds = |symbol: &object::Symbol<'_, '_>| {
            symbol.address() <= address && address < symbol.address().saturating_add(symbol.size())
        };
        file.dynamic_symbols().find(holds)?.name().ok().map(str::to_owned)
    }
}

fn load<'data, R: ReadRef<'data>>(data: R, range: &Range<u64>, mapping: &Mapping) -> Option<Loaded> {
    let file = object::File::parse(data).ok()?;
    let shows = |segment: &object::Segment<'data, '_, R>| {
        let (start, length) = segment.file_range();
        let is_executable = match segment.flags() {
            SegmentFlags::Elf { p_flags, .. } => p_flags.contains(PF_X),
            _ => true,
        };
        // A mapping begins at a page, its segment perhaps later on that page, where a segment of data may still end:
        // linkers let neighbours share a page of the file, at different distances from their addresses.
        is_executable
            && mapping.offset <= start.saturating_add(length.saturating_sub(1))
            && start & !PAGE_MASK <= mapping.offset
    };
    let segment = file.segments().find(shows)?;
    let (start, _) = segment.file_range();
    let wanted = segment.address().wrapping_add(mapping.offset).wrapping_sub(start);
    let bias = mapping.range.start.wrapping_sub(wanted);
    Some(Loaded { bias, build_id: build_id(&file), module: module(&file, range, bias) })
}

fn build_id<'data, R: ReadRef<'data>>(file: &object::File<'data, R>) -> Option<Vec<u8>> {
    file.build_id().ok().flatten().map(<[u8]>::to_vec)
}

fn module<'data, R: ReadRef<'data>>(
    file: &object::File<'data, R>,
    range: &Range<u64>,
    bias: u64,
) -> Module<Vec<u8>> {
    let data = |name: &str| {
        let section = file.section_by_name(name).filter(|section| section.size() <= MOST_TABLE_BYTES)?;
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

/// Returns bytes as people write build ids.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _never = write!(text, "{byte:02x}");
        text
    })
}
