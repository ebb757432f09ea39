//! Detects programs that would behave differently when traced. Leak sanitizers and crash handlers trace their
//! own process, which fails if the process is already traced. Other programs check whether they are traced.
//! The decision uses only the program's file, before the first instruction runs.

use std::{fs::File, path::Path};

use memchr::memmem::{self, Finder};

use super::elf_file::{CHUNK_BYTES, ElfFile};

/// Sanitizer runtimes that are libraries.
const LIBRARIES: [&[u8]; 5] =
    [b"libasan.so", b"liblsan.so", b"libhwasan.so", b"libclang_rt.asan", b"libclang_rt.hwasan"];
/// Sanitizer runtimes linked into the program, recognized by one function each.
const FUNCTIONS: [&[u8]; 4] = [b"__asan_init", b"__hwasan_init", b"__lsan_init", b"__lsan_do_leak_check"];
/// Each of the above names contains one of these parts. Two searches instead of one per name save time, which
/// matters at each start of a program of a hundred megabytes.
const SANITIZER_PARTS: [&[u8]; 2] = [b"asan", b"lsan"];
/// Message of a sanitizer runtime, to recognize it in stripped programs.
const MESSAGE: &[u8] = b"LeakSanitizer does not work under ptrace";
/// C library function that makes the tracing system call.
const TRACE_FUNCTION: &[u8] = b"ptrace";
/// Crash handlers that make the system call directly, recognized by parts of their function names.
const CRASH_HANDLERS: [&[u8]; 2] = [b"15google_breakpad16ExceptionHandler", b"8crashpad14CrashpadClient"];
/// Line in `/proc/self/status` that names the tracer.
const TRACER_LINE: &[u8] = b"TracerPid";
/// Overlap between chunks of a string table, so that every name is complete in one chunk.
const LONGEST_NAME: usize = 64;

/// Why a program behaves differently when traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TraceConflict {
    /// Has a sanitizer that traces its own process to find leaks, and fails if it cannot.
    LeakSanitizer,
    /// Can trace processes: its parent, through a child process, or itself.
    Tracer,
    /// Checks which process traces it.
    ReadsTracer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConflictSearch {
    /// Only leak sanitizers, because tracing was requested for everything else.
    LeakSanitizers,
    /// All except programs that check their tracer, because their framework does so anyway.
    ExceptTracerReads,
    /// All conflicts.
    All,
}

impl TraceConflict {
    /// Returns the first conflict of a program, if any.
    pub(super) fn find(program: &Path, search: ConflictSearch) -> Option<Self> {
        let file = File::open(program).ok()?;
        let elf = ElfFile::read(&file)?;
        // Needed libraries are named in the same table as dynamic symbols.
        let dynamic = NamesFound::in_table(&elf, b".dynstr", &[TRACE_FUNCTION], &[]);
        // Checked before the full symbol table, which is large.
        if dynamic.has_library || elf.defines_one(b".dynsym", &dynamic.sanitizer_functions) {
            return Some(Self::LeakSanitizer);
        }
        let is_stripped = !elf.has_section(b".symtab");
        // A statically linked program contains the tracing function itself. In any other program, the
        // function belongs to a sanitizer that intercepts it.
        let is_static = !elf.has_section(b".interp");
        let trace_functions: &[_] = if is_static { &[TRACE_FUNCTION] } else { &[] };
        let full = match is_stripped {
            true => NamesFound::default(),
            false => NamesFound::in_table(&elf, b".strtab", trace_functions, &CRASH_HANDLERS),
        };
        // Sanitizers in the full symbol table, or by message if the program is stripped.
        if elf.defines_one(b".symtab", &full.sanitizer_functions) || (is_stripped && contains(&elf, MESSAGE))
        {
            return Some(Self::LeakSanitizer);
        }
        if search == ConflictSearch::LeakSanitizers {
            return None;
        }
        // Calls of the tracing function, and crash handlers.
        if elf.imports_one(b".dynsym", &dynamic.trace_functions)
            || elf.defines_one(b".symtab", &full.trace_functions)
            || full.has_crash_handler
        {
            return Some(Self::Tracer);
        }
        (search == ConflictSearch::All && contains(&elf, TRACER_LINE)).then_some(Self::ReadsTracer)
    }

    /// Describes the conflict as a clause that follows "it".
    pub(super) fn description(self) -> &'static str {
        match self {
            Self::LeakSanitizer => "uses LeakSanitizer, which does not work under ptrace",
            Self::Tracer => {
                "uses ptrace itself, which may fail when traced; crash-capture = \"tree\" traces it anyway"
            }
            Self::ReadsTracer => {
                "checks whether it is traced (TracerPid); crash-capture = \"tree\" traces it anyway"
            }
        }
    }
}

/// Returns whether an environment loads a leak sanitizer into every program.
pub(super) fn preloads_leak_sanitizer(libraries: &[u8]) -> bool {
    LIBRARIES.iter().any(|library| memmem::find(libraries, library).is_some())
}

fn contains(elf: &ElfFile<'_>, text: &[u8]) -> bool {
    let finder = Finder::new(text);
    elf.scan_chunks(b".rodata", CHUNK_BYTES, text.len(), |_, chunk| finder.find(chunk).map(|_| ())).is_some()
}

/// Names found in a string table, with the offsets of functions.
#[derive(Default)]
struct NamesFound {
    has_library: bool,
    has_crash_handler: bool,
    sanitizer_functions: Vec<u64>,
    trace_functions: Vec<u64>,
}

impl NamesFound {
    /// Scans a string table once for sanitizers, for these functions, and for these parts of crash handlers'
    /// names.
    fn in_table(
        elf: &ElfFile<'_>,
        section: &[u8],
        trace_functions: &[&[u8]],
        crash_handlers: &[&[u8]],
    ) -> Self {
        let mut found = Self::default();
        let parts = SANITIZER_PARTS.map(Finder::new);
        let trace: Vec<_> = trace_functions.iter().map(Finder::new).collect();
        let handlers: Vec<_> = crash_handlers.iter().map(Finder::new).collect();
        let _complete: Option<()> = elf.scan_chunks(section, CHUNK_BYTES, LONGEST_NAME, |at, chunk| {
            for place in parts.iter().flat_map(|part| part.find_iter(chunk)) {
                let (start, name) = name_at(chunk, place);
                found.has_library |= LIBRARIES.iter().any(|library| memmem::find(name, library).is_some());
                if FUNCTIONS.contains(&name) {
                    found.sanitizer_functions.push(at + start as u64);
                }
            }
            for finder in &trace {
                found.trace_functions.extend(whole_names(finder, at, chunk));
            }
            found.has_crash_handler |= handlers.iter().any(|handler| handler.find(chunk).is_some());
            None
        });
        found
    }
}

/// Returns the name around this place in a chunk of a string table, and its start. Cuts off names longer than
/// any searched name.
fn name_at(chunk: &[u8], place: usize) -> (usize, &[u8]) {
    let least = place.saturating_sub(LONGEST_NAME);
    let start = memchr::memrchr(0, &chunk[least..place]).map_or(least, |end| least + end + 1);
    let most = chunk.len().min(place + LONGEST_NAME);
    let end = memchr::memchr(0, &chunk[place..most]).map_or(most, |length| place + length);
    (start, &chunk[start..end])
}

/// Returns the offsets of a complete name in a chunk of a string table. Names that only end with it do not
/// count.
fn whole_names(finder: &Finder<'_>, at: u64, chunk: &[u8]) -> Vec<u64> {
    let is_whole = |start: &usize| {
        let end = start + finder.needle().len();
        (*start == 0 || chunk[start - 1] == 0) && chunk.get(end).is_none_or(|byte| *byte == 0)
    };
    finder.find_iter(chunk).filter(is_whole).map(|start| at + start as u64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_a_sanitizer_has_a_part_that_is_searched_for() {
        for name in LIBRARIES.iter().chain(&FUNCTIONS) {
            assert!(SANITIZER_PARTS.iter().any(|part| memmem::find(name, part).is_some()));
        }
    }

    #[test]
    fn names_are_taken_whole_from_a_chunk() {
        let long = [b'x'; LONGEST_NAME + 1];
        for (chunk, place, expected) in [
            (&b"a\0__asan_init\0b"[..], 4, (2, &b"__asan_init"[..])),
            (b"asan", 0, (0, b"asan")),
            (b"\0x__lsan_init_more", 4, (1, b"x__lsan_init_more")),
            (
                &[&long[..], b"asan", &long[..]].concat(),
                long.len(),
                (1, &[&long[1..], b"asan", &long[..60]].concat()),
            ),
        ] {
            assert_eq!(name_at(chunk, place), expected);
        }
    }

    #[test]
    fn conflicts_are_found_as_far_as_they_are_searched_for() {
        // This test program reads the tracers of others.
        let own = Path::new("/proc/self/exe");
        assert_eq!(TraceConflict::find(own, ConflictSearch::All), Some(TraceConflict::ReadsTracer));
        assert_eq!(TraceConflict::find(own, ConflictSearch::ExceptTracerReads), None);
        assert_eq!(TraceConflict::find(own, ConflictSearch::LeakSanitizers), None);
        assert_eq!(TraceConflict::find(Path::new("/bin/sh"), ConflictSearch::All), None);
        assert_eq!(TraceConflict::find(Path::new("/etc/passwd"), ConflictSearch::All), None);
    }
}
