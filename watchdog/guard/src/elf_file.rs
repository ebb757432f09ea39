//! Reads ELF files, but only the necessary parts: sections, searched in chunks, and symbols.

use std::{fs::File, os::unix::fs::FileExt};

/// Size of the chunks read from a section.
pub(super) const CHUNK_BYTES: usize = 256 << 10;
/// Maximum size of symbol and string tables that are searched. Searching larger ones costs more than it is
/// worth.
const SECTION_LIMIT: u64 = 256 << 20;
const SYMBOL_BYTES: usize = 24;

/// A 64-bit little-endian ELF file with its section headers.
pub(super) struct ElfFile<'a> {
    file: &'a File,
    sections: Vec<ElfSection>,
}

pub(super) struct ElfSection {
    name: Vec<u8>,
    offset: u64,
    size: u64,
}

impl<'a> ElfFile<'a> {
    /// Reads the headers. `None` if the file is of another kind.
    pub(super) fn read(file: &'a File) -> Option<Self> {
        let mut header = [0; 64];
        file.read_exact_at(&mut header, 0).ok()?;
        if !header.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let (entry, count) = (usize::from(read_u16(&header, 58)?), usize::from(read_u16(&header, 60)?));
        if entry < 64 {
            return None;
        }
        let mut table = vec![0; entry * count];
        file.read_exact_at(&mut table, read_u64(&header, 40)?).ok()?;
        let names = table.chunks_exact(entry).nth(usize::from(read_u16(&header, 62)?))?;
        // A table of section names has a few hundred bytes.
        let mut text = vec![0; usize::try_from(read_u64(names, 32)?.min(1 << 20)).ok()?];
        file.read_exact_at(&mut text, read_u64(names, 24)?).ok()?;
        let section = |bytes: &[u8]| {
            let name = text.get(usize::try_from(read_u32(bytes, 0)?).ok()?..)?;
            let name = name.split(|byte| *byte == 0).next()?.to_vec();
            Some(ElfSection { name, offset: read_u64(bytes, 24)?, size: read_u64(bytes, 32)? })
        };
        let sections = table.chunks_exact(entry).filter_map(section).collect();
        Some(Self { file, sections })
    }

    pub(super) fn has_section(&self, name: &[u8]) -> bool {
        self.section(name).is_some()
    }

    fn section(&self, name: &[u8]) -> Option<&ElfSection> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// Returns whether one of the named symbols is defined. A program may also refer to such a function
    /// without defining it, to call it if it exists.
    pub(super) fn defines_one(&self, symbols: &[u8], names: &[u64]) -> bool {
        self.has_one(symbols, names, true)
    }

    /// Returns whether one of the named symbols is imported from another program or library.
    pub(super) fn imports_one(&self, symbols: &[u8], names: &[u64]) -> bool {
        self.has_one(symbols, names, false)
    }

    fn has_one(&self, symbols: &[u8], names: &[u64], is_defined: bool) -> bool {
        let is_it = |symbol: &[u8]| {
            read_u32(symbol, 0).is_some_and(|name| names.contains(&u64::from(name)))
                && read_u16(symbol, 6).is_some_and(|section| (section != 0) == is_defined)
        };
        let size = CHUNK_BYTES / SYMBOL_BYTES * SYMBOL_BYTES;
        let look = |_, chunk: &[u8]| chunk.chunks_exact(SYMBOL_BYTES).any(is_it).then_some(());
        !names.is_empty() && self.scan_chunks(symbols, size, 0, look).is_some()
    }

    /// Reads a section in chunks, each starting with the last `overlap` bytes of the previous one.
    pub(super) fn scan_chunks<T>(
        &self,
        section: &[u8],
        size: usize,
        overlap: usize,
        mut look: impl FnMut(u64, &[u8]) -> Option<T>,
    ) -> Option<T> {
        let section = self.section(section).filter(|section| section.size <= SECTION_LIMIT)?;
        let mut chunk = vec![0; size.min(usize::try_from(section.size).ok()?)];
        let mut at = 0;
        while at < section.size {
            let length = usize::try_from((section.size - at).min(size as u64)).ok()?;
            let piece = chunk.get_mut(..length)?;
            self.file.read_exact_at(piece, section.offset.checked_add(at)?).ok()?;
            if let Some(found) = look(at, piece) {
                return Some(found);
            }
            if at + length as u64 == section.size {
                return None;
            }
            at += (length - overlap) as u64;
        }
        None
    }
}

fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
