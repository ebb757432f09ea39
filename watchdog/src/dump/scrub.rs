//! Takes the environment out of a dump. It is there twice: as a stream, and at the top of the first thread's stack.

use std::ops::Range;

use host::process::Pid;

use super::layout;

/// Returns where a process keeps the environment that it was started with.
pub(super) fn environment_of(pid: Pid) -> Option<Range<u64>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything; the numbers after it begin with field 3.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(field(50)?..field(51)?).filter(|range| range.start < range.end)
}

/// Zeroes the environment stream, and `environment` in every range of memory.
pub(super) fn scrub(dump: &mut [u8], environment: Option<&Range<u64>>) {
    for stream in layout::streams(dump) {
        match stream.kind {
            layout::LINUX_ENVIRON => {
                dump[stream.at..stream.at + stream.size].fill(0);
                // An empty stream says "no variables", one of zeroes would say "one without a name".
                dump[stream.entry + 4..stream.entry + 8].fill(0);
            }
            layout::MEMORY_LIST => {
                let Some(environment) = environment else { continue };
                for index in 0..layout::number(dump, stream.at).unwrap_or(0) {
                    scrub_range(dump, stream.at + 4 + 16 * index, environment);
                }
            }
            _ => {}
        }
    }
}

/// One descriptor: a 64-bit address, a 32-bit size and where in the dump the bytes are.
fn scrub_range(dump: &mut [u8], descriptor: usize, environment: &Range<u64>) {
    let Some(start) = layout::long_number(dump, descriptor) else { return };
    let (Some(size), Some(at)) =
        (layout::number(dump, descriptor + 8), layout::number(dump, descriptor + 12))
    else {
        return;
    };
    let from = start.max(environment.start);
    let to = start.saturating_add(size as u64).min(environment.end);
    if from >= to {
        return;
    }
    let place = |address: u64| usize::try_from(address - start).ok()?.checked_add(at);
    let (Some(from), Some(to)) = (place(from), place(to)) else { return };
    if let Some(bytes) = dump.get_mut(from..to) {
        bytes.fill(0);
    }
}
