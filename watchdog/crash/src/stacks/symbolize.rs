//! Symbolizes code addresses using the programs' files: functions, inlined functions, source files and lines.
//! The processes may be gone.

use std::{
    collections::{BTreeSet, HashMap},
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::Arc,
};

use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolizer, source};
use heeler_sys::{cpu_pool, process::Pid};

use super::{
    image::to_hex,
    unwind::{MappedModule, OmittedFrames, RawFrame, RawStacks},
};

/// Stack traces of a process, the blamed thread first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessStacks {
    pub threads: Vec<ThreadStack>,
    /// Why frames or names are missing. Each entry names a program or thread and the problem with its tables.
    pub problems: Vec<String>,
}

/// Where functions and lines come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SymbolSource {
    /// Debug information, or symbol tables if there is none.
    DebugInformation,
    /// Symbol tables: functions only, without inlined functions, source files and lines.
    SymbolTables,
    /// Modules and offsets only.
    Nothing,
}

/// Stack trace of one thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadStack {
    pub tid: Pid,
    /// Name of the thread in the kernel.
    pub name: String,
    /// Frames, innermost first.
    pub frames: Vec<StackFrame>,
}

/// One line of a stack trace: a function or an inlined function.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StackFrame {
    /// Demangled function, or `<signal handler called>` for a signal frame. `None` if unknown.
    pub function: Option<String>,
    /// Source file, as recorded in the debug information.
    pub file: Option<PathBuf>,
    /// Line in the source file, starting at 1.
    pub line: Option<u32>,
    /// Program or library. `None` if the address is in no mapped file.
    pub module: Option<PathBuf>,
    /// Build id of the module in hexadecimal, if any.
    pub build_id: Option<Arc<str>>,
    /// Virtual address in the module's file, as accepted by `addr2line`. Without a module, the address in the
    /// process.
    pub offset: u64,
    /// The function was inlined into the next frame.
    pub is_inline: bool,
    /// Frames left out at this point. If there are any, no other field is set.
    pub omitted: OmittedFrames,
}

/// Minimum size of a file to symbolize in its own thread. A smaller one is finished before a thread would
/// start.
const LARGE_FILE_BYTES: u64 = 1 << 20;

/// Value of [`StackFrame::function`] for a signal frame.
pub(super) const SIGNAL_HANDLER: &str = "<signal handler called>";

/// Symbolizes all frames of `raw`. Never fails: a frame without a symbol keeps its module and offset.
#[must_use]
pub fn symbolize(raw: RawStacks) -> ProcessStacks {
    symbolize_all(vec![raw]).pop().expect("one in, one out")
}

/// Symbolizes the frames of several processes, in order. Files that they share, such as the C library, are
/// read once. Several large files are symbolized in parallel on idle cores. A file is not split further,
/// because its debug information must be indexed before the first address. No thread of the pool forks,
/// traces or waits for a process.
#[must_use]
pub fn symbolize_all(raws: Vec<RawStacks>) -> Vec<ProcessStacks> {
    symbolize_from(&raws, SymbolSource::DebugInformation)
}

/// Symbolizes the frames of several processes using this source. If a file's contents make the symbolizer
/// panic, only that file's names are lost. Contents that cause endless loops or allocations, or overflow the
/// stack, are not handled here; a caller that must survive them needs a separate process.
#[must_use]
pub fn symbolize_from(raws: &[RawStacks], source: SymbolSource) -> Vec<ProcessStacks> {
    // Symbolize everything before assembling the results: an image whose path is gone is opened by its
    // descriptor number, which must not be reused for another image.
    let groups = group_by_file(raws);
    let large = groups.iter().filter(|group| group.bytes >= LARGE_FILE_BYTES).count();
    let named = if large > 1 {
        cpu_pool::map_on_idle_cores(groups, |group| symbolize_file(&group, source))
    } else {
        groups.iter().map(|group| symbolize_file(group, source)).collect()
    };
    let mut frames: Vec<SymbolizedFrames> = raws.iter().map(|_| SymbolizedFrames::default()).collect();
    for (process, named) in named.into_iter().flatten() {
        frames[process].by_address.extend(named.by_address);
        frames[process].problems.extend(named.problems);
    }
    raws.iter().zip(frames).map(|(raw, named)| assemble_stacks(raw, named)).collect()
}

/// Frames at each code address of a process, and problems with symbols.
#[derive(Default)]
struct SymbolizedFrames {
    by_address: HashMap<u64, Vec<StackFrame>>,
    problems: Vec<String>,
}

/// Addresses in one module of one process.
struct ModuleAddresses<'a> {
    process: usize,
    module: &'a MappedModule,
    /// Path to read the module's file. `None` without a file.
    path: Option<PathBuf>,
    addresses: Vec<u64>,
}

/// Addresses of all processes in one file.
struct FileAddresses<'a> {
    /// Size of the file. 0 without a file.
    bytes: u64,
    pieces: Vec<ModuleAddresses<'a>>,
}

/// Groups the addresses to symbolize by file, largest file first.
fn group_by_file(raws: &[RawStacks]) -> Vec<FileAddresses<'_>> {
    let mut groups: Vec<FileAddresses<'_>> = Vec::new();
    let mut places: HashMap<PathBuf, usize> = HashMap::new();
    for (process, raw) in raws.iter().enumerate() {
        let frames = raw.threads.iter().flat_map(|thread| &thread.frames);
        let addresses: BTreeSet<u64> = frames
            .filter_map(|frame| match frame {
                RawFrame::Code(address) => Some(*address),
                RawFrame::Signal | RawFrame::Omitted(_) => None,
            })
            .collect();
        for module in &raw.modules {
            let addresses: Vec<u64> = addresses.range(module.range.clone()).copied().collect();
            if addresses.is_empty() {
                continue;
            }
            let path = module.image.as_ref().and_then(|image| image.content.readable_path(&module.path));
            let place = match &path {
                Some(path) => *places.entry(path.clone()).or_insert(groups.len()),
                None => groups.len(),
            };
            if place == groups.len() {
                let metadata = path.as_ref().and_then(|path| std::fs::metadata(path).ok());
                groups
                    .push(FileAddresses { bytes: metadata.map_or(0, |file| file.len()), pieces: Vec::new() });
            }
            groups[place].pieces.push(ModuleAddresses { process, module, path, addresses });
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.bytes));
    groups
}

/// Symbolizes the addresses in one file, which is read once. Returns the frames with the index of their
/// process.
fn symbolize_file(group: &FileAddresses<'_>, source: SymbolSource) -> Vec<(usize, SymbolizedFrames)> {
    // Demangling is off, because plain names would be demangled as types: `d` as `double`.
    let symbolizer = Symbolizer::builder().enable_auto_reload(false).enable_demangling(false).build();
    let mut results = Vec::new();
    for piece in &group.pieces {
        // The symbolizer is not used again after a panic.
        let named = catch_unwind(AssertUnwindSafe(|| symbolize_module(&symbolizer, piece, source)));
        let Ok(named) = named else {
            let file = piece.module.path.display();
            let problem = format!("cannot read the symbols of {file}: the symbolizer panicked");
            results.extend(group.pieces.iter().skip(results.len()).map(|piece| {
                let symbolizer = Symbolizer::new();
                let mut named = symbolize_module(&symbolizer, piece, SymbolSource::Nothing);
                named.problems.push(problem.clone());
                (piece.process, named)
            }));
            break;
        };
        results.push((piece.process, named));
    }
    results
}

fn assemble_stacks(raw: &RawStacks, named: SymbolizedFrames) -> ProcessStacks {
    let SymbolizedFrames { by_address, problems } = named;
    let frames = |frame: &RawFrame| match *frame {
        RawFrame::Code(address) => by_address
            .get(&address)
            .cloned()
            .unwrap_or_else(|| vec![StackFrame { offset: address, ..StackFrame::default() }]),
        RawFrame::Signal => {
            vec![StackFrame { function: Some(SIGNAL_HANDLER.to_owned()), ..StackFrame::default() }]
        }
        RawFrame::Omitted(omitted) => vec![StackFrame { omitted, ..StackFrame::default() }],
    };
    let threads = raw.threads.iter().map(|thread| ThreadStack {
        tid: thread.tid,
        name: thread.name.clone(),
        frames: thread.frames.iter().flat_map(frames).collect(),
    });
    let problems = raw.problems.iter().cloned().chain(problems).collect();
    let mut stacks = ProcessStacks { threads: threads.collect(), problems };
    stacks.put_test_first();
    stacks
}

impl ProcessStacks {
    /// Blames the thread that runs a Rust test if the first thread only waits for it.
    fn put_test_first(&mut self) {
        const TEST: [&str; 1] = ["test::__rust_begin_short_backtrace"];
        const WAITER: [&str; 2] = ["test::run_tests", "test::console::run_tests_console"];
        let is_waiter = |thread: &ThreadStack| thread.has_frame(&WAITER) && !thread.has_frame(&TEST);
        if self.threads.first().is_some_and(is_waiter)
            && let Some(place) = self.threads.iter().position(|thread| thread.has_frame(&TEST))
        {
            self.threads[..=place].rotate_right(1);
        }
    }
}

impl ThreadStack {
    /// Returns whether a function in the stack trace has one of these prefixes.
    fn has_frame(&self, prefixes: &[&str]) -> bool {
        let mut functions = self.frames.iter().filter_map(|frame| frame.function.as_deref());
        functions.any(|function| prefixes.iter().any(|prefix| function.starts_with(prefix)))
    }
}

fn symbolize_module(
    symbolizer: &Symbolizer,
    piece: &ModuleAddresses<'_>,
    source: SymbolSource,
) -> SymbolizedFrames {
    let ModuleAddresses { module, path, addresses, .. } = piece;
    let mut named = SymbolizedFrames::default();
    // The vDSO or a missing file: only the offset is known.
    let Some(image) = &module.image else {
        for address in addresses {
            let offset = address - module.range.start;
            let frame = StackFrame { module: Some(module.path.clone()), offset, ..StackFrame::default() };
            named.by_address.insert(*address, vec![frame]);
        }
        return named;
    };
    // Look up all addresses of the module at once.
    let build_id: Option<Arc<str>> = image.build_id.as_deref().map(|id| to_hex(id).into());
    let offsets: Vec<u64> = addresses.iter().map(|address| address.wrapping_sub(image.bias)).collect();
    let look_up = |path: &PathBuf, debug_syms: bool| {
        let mut elf = source::Elf::new(path);
        elf.debug_syms = debug_syms;
        symbolizer.symbolize(&source::Source::Elf(elf), Input::VirtOffset(&offsets)).ok()
    };
    // If the debug information is unreadable, the function names must not be lost.
    let symbols = path.as_ref().and_then(|path| match source {
        SymbolSource::DebugInformation => look_up(path, true).or_else(|| look_up(path, false)),
        SymbolSource::SymbolTables => look_up(path, false),
        SymbolSource::Nothing => None,
    });
    if symbols.is_none() && path.is_some() && source != SymbolSource::Nothing {
        named.problems.push(format!("cannot read the symbols of {}", module.path.display()));
    }
    // Convert the symbols to frames.
    for (index, (address, offset)) in addresses.iter().zip(&offsets).enumerate() {
        let base = StackFrame {
            module: Some(module.path.clone()),
            build_id: build_id.clone(),
            offset: *offset,
            ..StackFrame::default()
        };
        let symbol = symbols.as_ref().and_then(|symbols| symbols.get(index)?.as_sym());
        let frames = match symbol {
            Some(symbol) => expand_inlined(symbol, &base),
            None => {
                let function = image.content.exported_name(*offset).map(|name| demangle(&name));
                vec![StackFrame { function, ..base }]
            }
        };
        named.by_address.insert(*address, frames);
    }
    named
}

/// Returns the frames at one address. The address may be in several functions, each inlined into the next.
fn expand_inlined(symbol: &Sym<'_>, base: &StackFrame) -> Vec<StackFrame> {
    let frame = |name: &str, code: Option<&CodeInfo<'_>>, is_inline| StackFrame {
        function: Some(demangle(name)),
        file: code.map(|code| code.to_path().into_owned()),
        line: code.and_then(|code| code.line),
        is_inline,
        ..base.clone()
    };
    let inlined = symbol.inlined.iter().rev();
    let mut frames: Vec<StackFrame> =
        inlined.map(|inlined| frame(&inlined.name, inlined.code_info.as_ref(), true)).collect();
    frames.push(frame(&symbol.name, symbol.code_info.as_deref(), false));
    frames
}

/// Demangles a mangled name of Rust (either scheme) or C++.
fn demangle(name: &str) -> String {
    if !["_Z", "__Z", "_R", "__R"].iter().any(|prefix| name.starts_with(prefix)) {
        return name.to_owned();
    }
    if let Ok(demangled) = rustc_demangle::try_demangle(name) {
        // Leave out the crate's hash.
        return format!("{demangled:#}");
    }
    let plain = name.strip_prefix("__Z").map_or(name.to_owned(), |rest| format!("_Z{rest}"));
    cpp_demangle::Symbol::new(&plain)
        .ok()
        .and_then(|symbol| symbol.demangle().ok())
        .unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_of_a_rust_test_comes_before_the_one_that_waits_for_it() {
        let thread = |tid, functions: &[&str]| ThreadStack {
            tid: Pid(tid),
            name: String::new(),
            frames: functions
                .iter()
                .map(|function| StackFrame { function: Some((*function).into()), ..StackFrame::default() })
                .collect(),
        };
        let waiter =
            thread(1, &["futex", "test::run_tests::<test::console::run_tests_console::{closure#2}>", "main"]);
        let helper = thread(2, &["sleep", "start_thread"]);
        let test =
            thread(3, &["park", "herd::hangs", "test::__rust_begin_short_backtrace::<()>", "start_thread"]);
        let own = thread(1, &["park", "test::__rust_begin_short_backtrace::<()>", "test::run_tests", "main"]);
        let order = |threads: Vec<ThreadStack>| {
            let mut stacks = ProcessStacks { threads, ..ProcessStacks::default() };
            stacks.put_test_first();
            stacks.threads.iter().map(|thread| thread.tid.0).collect::<Vec<_>>()
        };
        assert_eq!(order(vec![waiter.clone(), helper.clone(), test.clone()]), [3, 1, 2]);
        assert_eq!(order(vec![own, helper.clone(), test.clone()]), [1, 2, 3]);
        assert_eq!(order(vec![helper.clone(), test, waiter.clone()]), [2, 3, 1], "another one has crashed");
        assert_eq!(order(vec![waiter, helper]), [1, 2]);
        assert!(order(Vec::new()).is_empty());
    }

    #[test]
    fn only_mangled_names_are_demangled() {
        let cases = [
            ("d", "d"),
            ("i", "i"),
            ("main", "main"),
            ("_Z", "_Z"),
            ("_Z1di", "d(int)"),
            ("__Z1di", "d(int)"),
            ("_ZL4dropv", "drop()"),
            ("_ZN4herd5graze17h0123456789abcdefE", "herd::graze"),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
        ];
        for (name, expected) in cases {
            assert_eq!(demangle(name), expected);
        }
    }
}
