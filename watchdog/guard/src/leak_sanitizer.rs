//! Detects programs that must not be traced: leak sanitizers trace their own process at its exit, and fail
//! when another process traces it. Reads ELF files, and only the sections needed.

use std::{fs::File, os::unix::fs::FileExt, path::Path};

/// Sanitizer runtimes as libraries.
const LIBRARIES: [&[u8]; 5] =
    [b"libasan.so", b"liblsan.so", b"libhwasan.so", b"libclang_rt.asan", b"libclang_rt.hwasan"];
/// Sanitizer runtimes linked into the program, by a function that each has.
const FUNCTIONS: [&[u8]; 4] = [b"__asan_init", b"__hwasan_init", b"__lsan_init", b"__lsan_do_leak_check"];
/// The same by a message that they print, for programs whose symbols are stripped.
const MESSAGE: &[u8] = b"LeakSanitizer does not work under ptrace";
/// Size of the chunks in which a section is read.
const CHUNK_BYTES: usize = 256 << 10;
/// Larger symbol and string tables are not searched: they would cost more than they are worth.
const SECTION_LIMIT: u64 = 256 << 20;
const SYMBOL_BYTES: usize = 24;
/// Overlap of the chunks of a string table, so that no name is cut in both.
const LONGEST_NAME: usize = 64;

/// Returns whether a program has a sanitizer that cannot be traced.
pub(super) fn has_leak_sanitizer(program: &Path) -> bool {
    let Ok(file) = File::open(program) else { return false };
    let Some(elf) = ElfFile::read(&file) else { return false };
    // The names of needed libraries are in the same table as those of dynamic symbols.
    let (has_library, functions) = elf.find_runtime_names(b".dynstr");
    if has_library || elf.defines_one(b".dynsym", &functions) {
        return true;
    }
    if elf.section(b".symtab").is_some() {
        let (_, functions) = elf.find_runtime_names(b".strtab");
        return elf.defines_one(b".symtab", &functions);
    }
    let finder = memchr::memmem::Finder::new(MESSAGE);
    elf.scan_chunks(b".rodata", CHUNK_BYTES, MESSAGE.len(), |_, chunk| finder.find(chunk).map(|_| ()))
        .is_some()
}

/// Returns whether an environment loads such a sanitizer into every program.
pub(super) fn preloads_leak_sanitizer(libraries: &[u8]) -> bool {
    LIBRARIES.iter().any(|library| memchr::memmem::find(libraries, library).is_some())
}

/// A 64-bit little-endian ELF file, by its section headers.
struct ElfFile<'a> {
    file: &'a File,
    sections: Vec<ElfSection>,
}

struct ElfSection {
    name: Vec<u8>,
    offset: u64,
    size: u64,
}

impl<'a> ElfFile<'a> {
    fn read(file: &'a File) -> Option<Self> {
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
        // A table of section names has some hundred bytes.
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

    fn section(&self, name: &[u8]) -> Option<&ElfSection> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// Scans a string table once, and returns whether it names a runtime's library, and the offsets of
    /// runtimes' functions.
    fn find_runtime_names(&self, section: &[u8]) -> (bool, Vec<u64>) {
        let mut functions = Vec::new();
        let finders: Vec<_> =
            FUNCTIONS.iter().map(|function| memchr::memmem::Finder::new(*function)).collect();
        let libraries: Vec<_> =
            LIBRARIES.iter().map(|library| memchr::memmem::Finder::new(*library)).collect();
        let found = self.scan_chunks(section, CHUNK_BYTES, LONGEST_NAME, |at, chunk| {
            for finder in &finders {
                // A name that only ends like this one is another name.
                let is_whole = |start: &usize| {
                    let end = start + finder.needle().len();
                    (*start == 0 || chunk[start - 1] == 0) && chunk.get(end).is_none_or(|byte| *byte == 0)
                };
                functions.extend(finder.find_iter(chunk).filter(is_whole).map(|start| at + start as u64));
            }
            libraries.iter().any(|library| library.find(chunk).is_some()).then_some(())
        });
        (found.is_some(), functions)
    }

    /// Returns whether one of the named symbols is defined. A program may refer to such a function without
    /// defining it, to call it if it exists.
    fn defines_one(&self, symbols: &[u8], names: &[u64]) -> bool {
        let is_it = |symbol: &[u8]| {
            read_u32(symbol, 0).is_some_and(|name| names.contains(&u64::from(name)))
                && read_u16(symbol, 6).is_some_and(|section| section != 0)
        };
        let size = CHUNK_BYTES / SYMBOL_BYTES * SYMBOL_BYTES;
        let look = |_, chunk: &[u8]| chunk.chunks_exact(SYMBOL_BYTES).any(is_it).then_some(());
        !names.is_empty() && self.scan_chunks(symbols, size, 0, look).is_some()
    }

    /// Reads a section in chunks, each with the last `overlap` bytes of the previous one.
    fn scan_chunks<T>(
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
            self.file.read_exact_at(piece, section.offset + at).ok()?;
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
