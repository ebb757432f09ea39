//! Unwinds stacks: from registers to code addresses, using the programs' own unwind tables. Does not
//! symbolize, because the process is stopped meanwhile and must continue soon.

use std::{
    collections::VecDeque,
    ffi::OsString,
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use framehop::{FrameAddress, Unwinder as _};
use heeler_sys::process::Pid;

use super::{
    image::ImageSource,
    maps::{self, MemoryMapping},
    memory::{MemoryReader, ProcessMemory},
    registers::ThreadRegisters,
};
use crate::arch::{
    GeneralRegisterSet, TRAMPOLINE, UnwindCache, UnwindStart, Unwinder, caller, interrupted_registers,
};

/// Number of frames kept at the top of a deep stack.
const HEAD_FRAMES: usize = 48;
/// Number of frames kept at the bottom of a deep stack.
const TAIL_FRAMES: usize = 16;
/// Maximum number of functions in a recognized recursion.
pub(super) const MAX_PERIOD: usize = 8;
/// Maximum number of frames unwound. An overflowed stack of 8 MiB has at most about this many.
const MAX_FRAMES: usize = 200_000;

/// Why unwinding could not begin.
#[derive(Debug, thiserror::Error)]
pub enum StacksError {
    #[error("cannot open the memory of process {pid}")]
    Memory { pid: Pid, source: io::Error },
    #[error("cannot read the memory map of process {pid}")]
    Maps { pid: Pid, source: io::Error },
}

/// Unwound stacks without symbols, and the programs that contain the addresses. Keeps the files of these
/// programs open.
#[derive(Debug)]
pub struct RawStacks {
    pub(super) modules: Vec<MappedModule>,
    pub(super) threads: Vec<RawThread>,
    /// Stacks that end early, with the reason.
    pub(super) problems: Vec<String>,
}

impl RawStacks {
    /// Returns the number of frames of the deepest stack.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.threads.iter().map(|thread| thread.frames.len()).max().unwrap_or_default()
    }
}

/// One program or library.
#[derive(Debug)]
pub(super) struct MappedModule {
    pub(super) path: PathBuf,
    pub(super) range: Range<u64>,
    /// `None` until a frame in the module is found.
    pub(super) image: Option<ModuleImage>,
    mapping: MemoryMapping,
    is_load_attempted: bool,
}

/// Parts of a module read from its image.
#[derive(Debug)]
pub(super) struct ModuleImage {
    pub(super) content: ImageSource,
    pub(super) bias: u64,
    pub(super) build_id: Option<Vec<u8>>,
}

/// Stack of one thread, innermost frame first.
#[derive(Debug)]
pub(super) struct RawThread {
    pub(super) tid: Pid,
    pub(super) name: String,
    pub(super) frames: Vec<RawFrame>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum RawFrame {
    /// A code address. For callers, the last byte of the call instruction, so that symbolization finds the
    /// line of the call instead of the next one.
    Code(u64),
    Signal,
    /// Frames left out at this point.
    Omitted(OmittedFrames),
}

/// Frames left out of a deep stack.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct OmittedFrames {
    pub count: usize,
    /// Number of preceding frames that the omitted frames repeat over and over, or 0.
    pub period: usize,
}

/// Mapped programs of a process, and how to open them.
pub(crate) struct AddressSpace<'a> {
    pub(crate) mappings: Vec<MemoryMapping>,
    /// Opens the file or memory that a mapping was loaded from.
    pub(crate) open: &'a dyn Fn(&MemoryMapping) -> Option<ImageSource>,
}

/// Unwinds `threads` of the process `pid`, all of them stopped. The first one is the blamed thread.
///
/// # Errors
///
/// If the process is gone, or this process is not permitted to trace it. A thread whose stack cannot be
/// followed has fewer frames instead.
pub fn unwind(pid: Pid, threads: &[ThreadRegisters]) -> Result<RawStacks, StacksError> {
    let memory = ProcessMemory::open(pid).map_err(|source| StacksError::Memory { pid, source })?;
    let text = std::fs::read(format!("/proc/{pid}/maps"));
    let mappings = maps::parse_maps(&text.map_err(|source| StacksError::Maps { pid, source })?);
    let open = |mapping: &MemoryMapping| open_live_image(pid, mapping, &memory);
    Ok(unwind_in(AddressSpace { mappings, open: &open }, &memory, threads))
}

/// Unwinds `threads` in any memory.
pub(crate) fn unwind_in(
    layout: AddressSpace<'_>,
    memory: &dyn MemoryReader,
    threads: &[ThreadRegisters],
) -> RawStacks {
    let mut walker = StackWalker::new(layout, memory);
    let threads = threads.iter().map(|thread| walker.unwind_thread(thread)).collect();
    RawStacks { modules: walker.modules, threads, problems: walker.problems }
}

/// Opens the image of a live mapping. Tries the mapping itself, which needs privileges but cannot be wrong,
/// then its path in the process's file system, then its path in this one.
pub(super) fn open_live_image(
    pid: Pid,
    mapping: &MemoryMapping,
    memory: &dyn MemoryReader,
) -> Option<ImageSource> {
    if mapping.path == "[vdso]" {
        let mut bytes = vec![0; usize::try_from(mapping.range.end - mapping.range.start).ok()?];
        return memory.read(mapping.range.start, &mut bytes).then_some(ImageSource::Bytes(bytes));
    }
    let Range { start, end } = mapping.range;
    let mut own = OsString::from(format!("/proc/{pid}/root"));
    own.push(&mapping.path);
    File::open(format!("/proc/{pid}/map_files/{start:x}-{end:x}"))
        .or_else(|_| File::open(own))
        .or_else(|_| File::open(Path::new(&mapping.path)))
        .ok()
        .map(ImageSource::File)
}

struct StackWalker<'a> {
    modules: Vec<MappedModule>,
    open: &'a dyn Fn(&MemoryMapping) -> Option<ImageSource>,
    memory: &'a dyn MemoryReader,
    unwinder: Unwinder<Vec<u8>>,
    cache: UnwindCache,
    problems: Vec<String>,
}

impl<'a> StackWalker<'a> {
    fn new(layout: AddressSpace<'a>, memory: &'a dyn MemoryReader) -> Self {
        let modules =
            maps::group_by_module(layout.mappings).into_iter().filter_map(MappedModule::new).collect();
        let (unwinder, cache) = (Unwinder::new(), UnwindCache::new());
        Self { modules, open: layout.open, memory, unwinder, cache, problems: Vec::new() }
    }

    /// Reads a module's unwind tables when the first frame in the module is found. Most libraries of a
    /// process appear in no stack.
    fn load_module(&mut self, address: u64) -> bool {
        let Some(module) = self.modules.iter_mut().find(|module| module.range.contains(&address)) else {
            return false;
        };
        if !module.is_load_attempted {
            module.is_load_attempted = true;
            let content = (self.open)(&module.mapping);
            let is_file = matches!(content, Some(ImageSource::File(_)));
            let loaded = content.and_then(|content| {
                let loaded = content.load(&module.range, &module.mapping)?;
                Some((content, loaded))
            });
            if loaded.is_none() && is_file {
                let problem = format!("cannot read the unwind tables of {}", module.path.display());
                if !self.problems.contains(&problem) {
                    self.problems.push(problem);
                }
            }
            if let Some((content, loaded)) = loaded {
                module.image = Some(ModuleImage { content, bias: loaded.bias, build_id: loaded.build_id });
                self.unwinder.add_module(loaded.module);
            }
        }
        true
    }

    /// Returns whether `address` is the signal trampoline. Dumps contain no code, so the program's file is
    /// read instead.
    fn is_trampoline(&mut self, address: u64) -> bool {
        let mut code = [0; TRAMPOLINE.len()];
        if self.memory.read(address, &mut code) {
            return code == TRAMPOLINE;
        }
        self.load_module(address);
        let module = self.modules.iter().find(|module| module.range.contains(&address));
        module.is_some_and(|module| module.read_code(address, &mut code)) && code == TRAMPOLINE
    }

    fn unwind_thread(&mut self, thread: &ThreadRegisters) -> RawThread {
        let mut frames = FrameBuffer::default();
        // The tables come from program files, which may be damaged.
        let walked = catch_unwind(AssertUnwindSafe(|| self.walk(&thread.registers.general, &mut frames)));
        if walked.is_err() {
            self.problems
                .push(format!("the stack of thread {} is incomplete: the unwinder panicked", thread.tid));
            // The panic may have left the unwinder and cache inconsistent.
            (self.unwinder, self.cache) = (Unwinder::new(), UnwindCache::new());
            self.modules.iter_mut().for_each(MappedModule::forget_tables);
        }
        RawThread { tid: thread.tid, name: thread.name.clone(), frames: frames.into_vec() }
    }

    fn walk(&mut self, general: &GeneralRegisterSet, frames: &mut FrameBuffer) {
        let memory = self.memory;
        let mut start = general.unwind_start();
        let mut at = self.first_frame(&mut start, frames);
        while frames.count() < MAX_FRAMES {
            let address = at.address_for_lookup();
            frames.push(RawFrame::Code(address));
            self.load_module(address);
            let mut word = |address| memory.read_u64(address).ok_or(());
            let step = self.unwinder.unwind_frame(at, &mut start.registers, &mut self.cache, &mut word);
            let Ok(Some(caller)) = step else { break };
            if self.is_trampoline(caller) {
                // Few unwinders can follow the tables of trampolines. The frame itself contains the
                // interrupted registers.
                let Some(interrupted) = interrupted_registers(memory, start.registers.sp()) else { break };
                frames.push(RawFrame::Signal);
                start = interrupted;
                at = self.first_frame(&mut start, frames);
                continue;
            }
            let Some(next) = FrameAddress::from_return_address(caller) else { break };
            at = next;
        }
    }

    /// Returns the first frame of a walk. After a call through a null or wild pointer, the first frame is the
    /// caller.
    fn first_frame(&mut self, start: &mut UnwindStart, frames: &mut FrameBuffer) -> FrameAddress {
        let at = FrameAddress::from_instruction_pointer(start.address);
        if self.load_module(start.address) {
            return at;
        }
        let Some(caller) = caller(self.memory, &start.registers) else { return at };
        let next = FrameAddress::from_return_address(caller.address);
        let Some(next) = next.filter(|_| self.load_module(caller.address)) else { return at };
        frames.push(RawFrame::Code(start.address));
        *start = caller;
        next
    }
}

impl MappedModule {
    fn new(mappings: Vec<MemoryMapping>) -> Option<Self> {
        let range = mappings.first()?.range.start..mappings.last()?.range.end;
        let mapping = mappings.into_iter().find(|mapping| mapping.is_executable)?;
        Some(Self {
            path: PathBuf::from(&mapping.path),
            range,
            image: None,
            mapping,
            is_load_attempted: false,
        })
    }

    /// Makes another unwinder read the unwind tables again.
    fn forget_tables(&mut self) {
        self.is_load_attempted = false;
    }

    fn read_code(&self, address: u64, code: &mut [u8]) -> bool {
        let Some(ModuleImage { content: ImageSource::File(file), .. }) = &self.image else { return false };
        let within = address.checked_sub(self.mapping.range.start);
        let Some(offset) = within.and_then(|within| within.checked_add(self.mapping.offset)) else {
            return false;
        };
        file.read_exact_at(code, offset).is_ok()
    }
}

/// Frames of one thread. Only the two ends of a deep stack are kept.
#[derive(Default)]
struct FrameBuffer {
    head: Vec<RawFrame>,
    tail: VecDeque<RawFrame>,
    omitted: usize,
    /// For each period N from 1 on: whether the omitted frames repeat the last N frames of the head.
    repeats: [bool; MAX_PERIOD],
}

impl FrameBuffer {
    fn push(&mut self, frame: RawFrame) {
        if self.head.len() < HEAD_FRAMES {
            self.head.push(frame);
            return;
        }
        if self.tail.len() == TAIL_FRAMES
            && let Some(left_out) = self.tail.pop_front()
        {
            self.omit(left_out);
        }
        self.tail.push_back(frame);
    }

    fn count(&self) -> usize {
        self.head.len() + self.omitted + self.tail.len()
    }

    fn omit(&mut self, frame: RawFrame) {
        if self.omitted == 0 {
            self.repeats = [true; MAX_PERIOD];
        }
        for (period, repeats) in (1..).zip(&mut self.repeats) {
            let earlier = self.head.len().checked_sub(period).map(|start| start + self.omitted % period);
            *repeats &= earlier.and_then(|place| self.head.get(place)) == Some(&frame);
        }
        self.omitted += 1;
    }

    fn into_vec(self) -> Vec<RawFrame> {
        let period = self.repeats.iter().position(|repeats| *repeats).map_or(0, |place| place + 1);
        let mut frames = self.head;
        if self.omitted > 0 {
            frames.push(RawFrame::Omitted(OmittedFrames { count: self.omitted, period }));
        }
        frames.extend(self.tail);
        frames
    }
}
