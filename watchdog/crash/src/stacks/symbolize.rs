//! Symbolizes code addresses: functions, inlined functions, files and lines, from the programs' files. The
//! processes may be gone.

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

/// The stacks of a process, with the blamed thread first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessStacks {
    pub threads: Vec<ThreadStack>,
    /// Why frames or names are missing: each names a program or thread, and what its tables did.
    pub problems: Vec<String>,
}

/// From what functions and lines are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SymbolSource {
    /// Debug information, and symbol tables where there is none.
    DebugInformation,
    /// Symbol tables: functions without inlined ones, files and lines.
    SymbolTables,
    /// Nothing: modules and offsets only.
    Nothing,
}

/// The stack of one thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadStack {
    pub tid: Pid,
    /// Its name as the kernel knows it.
    pub name: String,
    /// Innermost first.
    pub frames: Vec<StackFrame>,
}

/// One line of a stack: a function, or an inlined one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StackFrame {
    /// The demangled function; `<signal handler called>` for a signal frame; `None` if unknown.
    pub function: Option<String>,
    /// The source file, as recorded in the debug information.
    pub file: Option<PathBuf>,
    /// The line in the file, from 1.
    pub line: Option<u32>,
    /// The program or library; `None` if the address is in no mapped file.
    pub module: Option<PathBuf>,
    /// The module's build id in hexadecimal, if it has one.
    pub build_id: Option<Arc<str>>,
    /// The virtual address in the module's file, which `addr2line` accepts; without a module, the address in
    /// the process.
    pub offset: u64,
    /// Whether the function was inlined into the next frame.
    pub is_inline: bool,
    /// Frames left out at this point; if there are any, no other field is set.
    pub omitted: OmittedFrames,
}

/// Files from this size on are worth a thread: smaller ones are symbolized in less than the time that it
/// takes to start one.
const LARGE_FILE_BYTES: u64 = 1 << 20;

/// The value of [`StackFrame::function`] for a signal frame.
pub(super) const SIGNAL_HANDLER: &str = "<signal handler called>";

/// Symbolizes all frames of `raw`. Never fails: a frame without a symbol keeps its module and offset.
#[must_use]
pub fn symbolize(raw: RawStacks) -> ProcessStacks {
    symbolize_all(vec![raw]).pop().expect("one in, one out")
}

/// Symbolizes the frames of several processes, in their order. Files that they share, such as the C library,
/// are read once. Several large files are symbolized at once on idle cores: one file is the smallest piece,
/// because its debug information must be indexed before its first address. No thread of the pool forks,
/// traces or waits for a process.
#[must_use]
pub fn symbolize_all(raws: Vec<RawStacks>) -> Vec<ProcessStacks> {
    symbolize_from(&raws, SymbolSource::DebugInformation)
}

/// Symbolizes the frames of several processes from a source. A file whose contents make the symbolizer panic
/// costs its own names only. Contents that make it run or allocate without end, or overflow its stack, are
/// not noticed here: a caller that must survive them calls this in a process of its own.
#[must_use]
pub fn symbolize_from(raws: &[RawStacks], source: SymbolSource) -> Vec<ProcessStacks> {
    // All processes are symbolized before any result is put together: an image whose path is gone is opened
    // by its descriptor number, which must not be reused for another image.
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

/// The frames at each code address of a process, and what could not be symbolized.
#[derive(Default)]
struct SymbolizedFrames {
    by_address: HashMap<u64, Vec<StackFrame>>,
    problems: Vec<String>,
}

/// The addresses of one process in one of its modules.
struct ModuleAddresses<'a> {
    /// Index of the process.
    process: usize,
    module: &'a MappedModule,
    /// The path by which the module's file can be read; `None` without a file.
    path: Option<PathBuf>,
    addresses: Vec<u64>,
}

/// The addresses of all processes in one file.
struct FileAddresses<'a> {
    /// The size of the file; 0 without one.
    bytes: u64,
    pieces: Vec<ModuleAddresses<'a>>,
}

/// Returns the addresses to symbolize, those in the same file together, and the largest files first.
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

/// Symbolizes the addresses in one file, with one symbolizer that reads the file once; returns the frames
/// with the index of their process.
fn symbolize_file(group: &FileAddresses<'_>, source: SymbolSource) -> Vec<(usize, SymbolizedFrames)> {
    // Names that are not mangled would be taken for types: `d` for `double`.
    let symbolizer = Symbolizer::builder().enable_auto_reload(false).enable_demangling(false).build();
    let mut results = Vec::new();
    for piece in &group.pieces {
        // The symbolizer is not used again after a panic.
        let named = catch_unwind(AssertUnwindSafe(|| symbolize_module(&symbolizer, piece, source)));
        let Ok(named) = named else {
            let file = piece.module.path.display();
            let problem = format!("the symbols of {file} are not readable: they make the symbolizer panic");
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
    /// Blames the thread that runs a Rust test, if the first one only waits for it.
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
    /// Returns whether a function of the stack begins with one of these texts.
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
    let Some(image) = &module.image else {
        for address in addresses {
            let offset = address - module.range.start;
            let frame = StackFrame { module: Some(module.path.clone()), offset, ..StackFrame::default() };
            named.by_address.insert(*address, vec![frame]);
        }
        return named;
    };
    let build_id: Option<Arc<str>> = image.build_id.as_deref().map(|id| to_hex(id).into());
    let offsets: Vec<u64> = addresses.iter().map(|address| address.wrapping_sub(image.bias)).collect();
    let look_up = |path: &PathBuf, debug_syms: bool| {
        let mut elf = source::Elf::new(path);
        elf.debug_syms = debug_syms;
        symbolizer.symbolize(&source::Source::Elf(elf), Input::VirtOffset(&offsets)).ok()
    };
    // Unreadable debug information must not cost the names of functions.
    let symbols = path.as_ref().and_then(|path| match source {
        SymbolSource::DebugInformation => look_up(path, true).or_else(|| look_up(path, false)),
        SymbolSource::SymbolTables => look_up(path, false),
        SymbolSource::Nothing => None,
    });
    if symbols.is_none() && path.is_some() && source != SymbolSource::Nothing {
        named.problems.push(format!("the symbols of {} are not readable", module.path.display()));
    }
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

/// Returns the frames at one address, which can be in several functions, each inlined into the next.
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

/// Demangles a name that is mangled: of Rust in either scheme, or of C++.
fn demangle(name: &str) -> String {
    if !["_Z", "__Z", "_R", "__R"].iter().any(|prefix| name.starts_with(prefix)) {
        return name.to_owned();
    }
    if let Ok(demangled) = rustc_demangle::try_demangle(name) {
        // Without the hash of the crate.
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
