//! Reads a minidump for display: the crash, the crashed thread, the stack traces of all threads, the mapped
//! programs. Stacks are unwound in the memory of the dump, and symbolized with the programs on this machine
//! if their build matches.

use std::{
    fs::File,
    io,
    ops::Range,
    path::{Path, PathBuf},
};

use heeler_sys::process::Pid;
use minidump::{
    Minidump, MinidumpException, MinidumpMemoryList, MinidumpModuleList, MinidumpSystemInfo,
    MinidumpThreadList, MinidumpThreadNames, Module, system_info::Os,
};

use super::{arch, layout};
use crate::stacks::{
    self, AddressSpace, ImageSource, MemoryMapping, MemoryReader, ProcessStacks, RegisterSet,
    ThreadRegisters, to_hex,
};

/// Exception code of a dump that was requested without a crash.
const REQUESTED: u32 = 0xffff_ffff;
/// `si_code` of a signal sent by the kernel without a more specific reason.
const SI_KERNEL: u32 = 0x80;

/// Error while reading a dump.
#[derive(Debug, thiserror::Error)]
pub enum DumpReadError {
    #[error("open {path}")]
    Open { path: PathBuf, source: io::Error },
    /// The file is not a minidump, or is damaged.
    #[error("read {path} as a minidump ({what})")]
    Format {
        path: PathBuf,
        /// The missing or wrong part.
        what: String,
    },
}

/// Contents of a dump.
#[derive(Debug)]
pub struct DumpSummary {
    /// Why the dump was written.
    pub reason: DumpReason,
    /// Dumped process, if recorded.
    pub process: Option<Pid>,
    /// Command line of the process. Empty if not recorded.
    pub command_line: String,
    /// Threads of the process, the blamed one first.
    pub threads: Vec<DumpThread>,
    /// Programs and libraries mapped by the process, by address.
    pub modules: Vec<DumpModule>,
    /// Stack traces, in the order of the threads.
    pub stacks: ProcessStacks,
    /// The writer's soft errors, verbatim.
    pub soft_errors: Vec<String>,
}

/// Why a dump was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DumpReason {
    /// A fatal signal.
    Crash {
        /// Signal and cause, such as `SIGSEGV / SEGV_MAPERR`.
        signal: String,
        /// Address of the failed access. `None` if unknown.
        address: Option<u64>,
        tid: Pid,
    },
    /// A request without a crash.
    Requested,
}

#[derive(Debug, Clone)]
pub struct DumpThread {
    pub tid: Pid,
    /// Thread name. Empty if not recorded.
    pub name: String,
    /// Registers. For the crashed thread, as of the moment of the crash.
    pub registers: RegisterSet,
}

/// A program or library in a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpModule {
    /// Path as seen by the process.
    pub path: PathBuf,
    /// Address range of the mapping.
    pub range: Range<u64>,
    /// Build id in hexadecimal.
    pub build_id: Option<String>,
    /// This machine has the same build, so frames in it can be symbolized.
    pub is_available: bool,
}

/// Reads the dump at `path`.
///
/// # Errors
///
/// If the file cannot be read, or is not a minidump of a Linux process on this kind of processor.
pub fn read(path: &Path) -> Result<DumpSummary, DumpReadError> {
    let bytes =
        std::fs::read(path).map_err(|source| DumpReadError::Open { path: path.to_owned(), source })?;
    parse(&bytes).map_err(|what| DumpReadError::Format { path: path.to_owned(), what })
}

/// Parses the bytes of a dump.
///
/// # Errors
///
/// If the bytes are not a minidump of a Linux process on this kind of processor. The error names the missing
/// or wrong part.
pub fn parse(bytes: &[u8]) -> Result<DumpSummary, String> {
    let dump = Minidump::read(bytes).map_err(|error| error.to_string())?;
    let missing = |what: &'static str| move |error: minidump::Error| format!("no {what}: {error}");
    // Check that the dump fits this system.
    let system: MinidumpSystemInfo = dump.get_stream().map_err(missing("system information"))?;
    if (system.os, system.cpu) != (Os::Linux, arch::CPU) {
        return Err(format!("written by {} on {}; expected Linux on {}", system.os, system.cpu, arch::CPU));
    }
    // Read the crash and the threads. The crashed thread gets the registers of the crash.
    let list: MinidumpThreadList<'_> = dump.get_stream().map_err(missing("threads"))?;
    let exception = dump.get_stream::<MinidumpException<'_>>().ok();
    let (reason, blamed) = reason(exception.as_ref(), &system);
    let names = dump.get_stream::<MinidumpThreadNames>().unwrap_or_default();
    let mut threads: Vec<DumpThread> = Vec::with_capacity(list.threads.len());
    for thread in &list.threads {
        let tid = thread.raw.thread_id;
        let own = || thread.context(&system, None);
        let context = match exception.as_ref().filter(|_| Some(Pid(tid.cast_signed())) == blamed) {
            Some(exception) => exception.context(&system, None).or_else(own),
            None => own(),
        };
        let Some(general) = context.as_deref().and_then(|context| arch::from_dump(&context.raw)) else {
            continue;
        };
        threads.push(DumpThread {
            tid: Pid(tid.cast_signed()),
            name: names.get_name(tid).map(|name| name.into_owned()).unwrap_or_default(),
            registers: RegisterSet { general, floating: None },
        });
    }
    threads.sort_by_key(|thread| Some(thread.tid) != blamed);
    // Unwind the stacks.
    let modules = modules(&dump);
    let stacks = unwind(bytes, &dump, &threads, &modules);
    let text = |kind| layout::stream(bytes, kind).map(String::from_utf8_lossy).unwrap_or_default();
    Ok(DumpSummary {
        reason,
        process: process_id(&text(layout::LINUX_STATUS)),
        command_line: text(layout::LINUX_COMMAND_LINE).trim_end_matches('\0').replace('\0', " "),
        threads,
        modules,
        stacks,
        soft_errors: layout::soft_errors(bytes),
    })
}

fn reason(
    exception: Option<&MinidumpException<'_>>,
    system: &MinidumpSystemInfo,
) -> (DumpReason, Option<Pid>) {
    let Some(exception) = exception else { return (DumpReason::Requested, None) };
    let tid = Pid(exception.get_crashing_thread_id().cast_signed());
    if exception.raw.exception_record.exception_code == REQUESTED {
        return (DumpReason::Requested, Some(tid));
    }
    let signal = exception.get_crash_reason(system.os, system.cpu).to_string();
    // A signal sent by the kernel without a more specific reason has no address.
    let has_address = exception.raw.exception_record.exception_flags != SI_KERNEL;
    let address = has_address.then(|| exception.get_crash_address(system.os, system.cpu));
    (DumpReason::Crash { signal, address, tid }, Some(tid))
}

fn process_id(status: &str) -> Option<Pid> {
    let id = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    id.trim().parse().ok().map(Pid)
}

fn modules<'a>(dump: &'a Minidump<'a, &'a [u8]>) -> Vec<DumpModule> {
    let list = dump.get_stream::<MinidumpModuleList>().unwrap_or_default();
    let module = |module: &minidump::MinidumpModule| {
        let path = PathBuf::from(module.code_file().into_owned());
        let build_id = module.code_identifier().map(|id| id.to_string());
        // A module without an absolute path is the kernel's own, such as the vDSO, and need not exist as a
        // file.
        let is_here = !path.is_absolute() || open_matching_build(&path, build_id.as_deref()).is_some();
        let start = module.base_address();
        DumpModule {
            path,
            range: start..start.saturating_add(module.size()),
            build_id,
            is_available: is_here,
        }
    };
    list.by_addr().map(module).collect()
}

/// Opens the program if its build id matches. Without a build id, any build is accepted.
fn open_matching_build(path: &Path, build_id: Option<&str>) -> Option<ImageSource> {
    let content = ImageSource::File(File::open(path).ok().filter(|file| {
        // A pipe or device at this path must not be read.
        file.metadata().is_ok_and(|metadata| metadata.is_file())
    })?);
    let own = content.build_id().map(|id| to_hex(&id));
    (build_id.is_none() || own.as_deref() == build_id).then_some(content)
}

fn unwind(
    bytes: &[u8],
    dump: &Minidump<'_, &[u8]>,
    threads: &[DumpThread],
    modules: &[DumpModule],
) -> ProcessStacks {
    let maps = layout::stream(bytes, layout::LINUX_MAPS).unwrap_or_default();
    let open = |mapping: &MemoryMapping| {
        let module = modules.iter().find(|module| module.range.contains(&mapping.range.start));
        open_matching_build(Path::new(&mapping.path), module.and_then(|module| module.build_id.as_deref()))
    };
    let memory = DumpMemory(dump.get_stream().unwrap_or_default());
    let threads: Vec<ThreadRegisters> = threads
        .iter()
        .map(|thread| ThreadRegisters {
            tid: thread.tid,
            registers: thread.registers.clone(),
            name: thread.name.clone(),
        })
        .collect();
    let layout = AddressSpace { mappings: stacks::parse_maps(maps), open: &open };
    stacks::symbolize(stacks::unwind_in(layout, &memory, &threads))
}

/// Process memory contained in a dump, mostly stacks.
struct DumpMemory<'a>(MinidumpMemoryList<'a>);

impl MemoryReader for DumpMemory<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        let Some(region) = self.0.memory_at_address(address) else { return false };
        let Ok(offset) = usize::try_from(address - region.base_address) else { return false };
        match region.bytes.get(offset..offset.saturating_add(buffer.len())) {
            Some(bytes) => {
                buffer.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }
}
