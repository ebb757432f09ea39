//! From code addresses to functions, inlined functions, files and lines, by the programs' files; their processes may
//! be gone.

use std::{
    collections::{BTreeSet, HashMap},
    path::PathBuf,
    sync::Arc,
};

use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolizer, source};
use host::process::Pid;

use super::{
    image::hexadecimal,
    unwind::{Module, RawFrame, RawStacks},
};

/// The stacks of a process, the thread that people ask about first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stacks {
    /// All its threads.
    pub threads: Vec<ThreadStack>,
}

/// The stack of one thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadStack {
    /// Its id.
    pub tid: Pid,
    /// Its name as the system knows it.
    pub name: String,
    /// Innermost first.
    pub frames: Vec<Frame>,
}

/// One line of a stack: a function, or an inlined one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frame {
    /// The function, demangled; `<signal handler called>` where the system called a handler; `None` if unknown.
    pub function: Option<String>,
    /// The source file, as the compiler wrote it down.
    pub file: Option<PathBuf>,
    /// The line in it, from 1.
    pub line: Option<u32>,
    /// The program or library; `None` if the address is in none.
    pub module: Option<PathBuf>,
    /// The module's build id in hexadecimal, where it has one.
    pub build_id: Option<Arc<str>>,
    /// The address as the module's file counts it; without a module, as the process did. `addr2line` takes it.
    pub offset: u64,
    /// Whether the function was inlined into the next frame.
    pub is_inline: bool,
    /// How many frames are left out here; then nothing else is set.
    pub omitted: usize,
}

/// What stands in [`Frame::function`] where the system called a handler.
pub(super) const SIGNAL_HANDLER: &str = "<signal handler called>";

/// Names all frames of `raw`. Never fails: what has no name keeps its module and offset.
#[must_use]
pub fn name(raw: RawStacks) -> Stacks {
    name_all(vec![raw]).pop().expect("one in, one out")
}

/// Names the frames of several processes, in their order. What they share, such as the C library, is read once.
///
/// On one thread: of four programs with 10 MB of debug information each, most of the time went to what they share, and
/// where tests are running there is no core to spare.
#[must_use]
pub fn name_all(raws: Vec<RawStacks>) -> Vec<Stacks> {
    let symbolizer = Symbolizer::builder().enable_auto_reload(false).build();
    // All of them first: an image that has lost its path is found by its descriptor, which must not become another's.
    let named: Vec<_> = raws.iter().map(|raw| name_addresses(&symbolizer, raw)).collect();
    raws.into_iter().zip(&named).map(|(raw, named)| put_together(raw, named)).collect()
}

/// The frames at each code address of a process.
type Named = HashMap<u64, Vec<Frame>>;

fn name_addresses(symbolizer: &Symbolizer, raw: &RawStacks) -> Named {
    let mut addresses: BTreeSet<u64> = BTreeSet::new();
    for frame in raw.threads.iter().flat_map(|thread| &thread.frames) {
        if let RawFrame::Code(address) = frame {
            addresses.insert(*address);
        }
    }
    let mut named = Named::new();
    for module in &raw.modules {
        let within: Vec<u64> = addresses.range(module.range.clone()).copied().collect();
        if !within.is_empty() {
            name_module(symbolizer, module, &within, &mut named);
        }
    }
    named
}

fn put_together(raw: RawStacks, named: &Named) -> Stacks {
    let frames = |frame: RawFrame| match frame {
        RawFrame::Code(address) => named
            .get(&address)
            .cloned()
            .unwrap_or_else(|| vec![Frame { offset: address, ..Frame::default() }]),
        RawFrame::Signal => {
            vec![Frame { function: Some(SIGNAL_HANDLER.to_owned()), ..Frame::default() }]
        }
        RawFrame::Omitted(omitted) => vec![Frame { omitted, ..Frame::default() }],
    };
    let threads = raw.threads.into_iter().map(|thread| ThreadStack {
        tid: thread.tid,
        name: thread.name,
        frames: thread.frames.into_iter().flat_map(frames).collect(),
    });
    Stacks { threads: threads.collect() }
}

fn name_module(symbolizer: &Symbolizer, module: &Module, addresses: &[u64], named: &mut Named) {
    let Some(image) = &module.image else {
        for address in addresses {
            let offset = address - module.range.start;
            let frame = Frame { module: Some(module.path.clone()), offset, ..Frame::default() };
            named.insert(*address, vec![frame]);
        }
        return;
    };
    let build_id: Option<Arc<str>> = image.build_id.as_deref().map(|id| hexadecimal(id).into());
    let offsets: Vec<u64> = addresses.iter().map(|address| address.wrapping_sub(image.bias)).collect();
    let path = image.content.path(&module.path);
    let look_up = |path: &PathBuf, debug_syms: bool| {
        let mut elf = source::Elf::new(path);
        elf.debug_syms = debug_syms;
        symbolizer.symbolize(&source::Source::Elf(elf), Input::VirtOffset(&offsets)).ok()
    };
    // Debug information that cannot be read must not cost the names of functions.
    let symbols = path.and_then(|path| look_up(&path, true).or_else(|| look_up(&path, false)));
    for (index, (address, offset)) in addresses.iter().zip(&offsets).enumerate() {
        let base = Frame {
            module: Some(module.path.clone()),
            build_id: build_id.clone(),
            offset: *offset,
            ..Frame::default()
        };
        let symbol = symbols.as_ref().and_then(|symbols| symbols.get(index)?.as_sym());
        let frames = match symbol {
            Some(symbol) => name_frame(symbol, &base),
            None => vec![Frame { function: image.content.exported_name(*offset), ..base }],
        };
        named.insert(*address, frames);
    }
}

/// One address can be in several functions, each inlined into the next.
fn name_frame(symbol: &Sym<'_>, base: &Frame) -> Vec<Frame> {
    let frame = |name: &str, code: Option<&CodeInfo<'_>>, is_inline| Frame {
        function: Some(name.to_owned()),
        file: code.map(|code| code.to_path().into_owned()),
        line: code.and_then(|code| code.line),
        is_inline,
        ..base.clone()
    };
    let inlined = symbol.inlined.iter().rev();
    let mut frames: Vec<Frame> =
        inlined.map(|inlined| frame(&inlined.name, inlined.code_info.as_ref(), true)).collect();
    frames.push(frame(&symbol.name, symbol.code_info.as_deref(), false));
    frames
}
