//! The runtime of guarded sources: turns a mutant on in this process, counts how often places are reached,
//! and enforces the limits. It is compiled once, with optimisation, and linked to every crate with guards.
//! It has no unsafe code and no dependencies.
//!
//! - `HEELER_MUTANT`: the number of the mutant that is on; none by default.
//! - `HEELER_MUTANT_HITS`: how often its place may be reached before the process exits with [`EXIT_CODE`].
//! - `HEELER_MUTANT_STEPS`: how often all places together may be reached before the process exits with
//!   [`STEPS_EXIT_CODE`].
//! - `HEELER_MUTANT_COVERAGE`: a file of 32-bit little-endian counts, one per mutant, preceded by one for
//!   all places together. A count is written whenever it reaches a power of two, so it survives any end of
//!   the process.
//!
//! A process with neither the first nor the last variable uses the variables of its nearest ancestor that
//! has one.

use std::{
    cell::Cell,
    ffi::OsString,
    fs::File,
    os::unix::{ffi::OsStringExt, fs::FileExt},
    sync::{
        OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

/// Exit code of a process that reached its mutant too often.
pub const EXIT_CODE: i32 = 87;
/// Exit code of a process that reached too many places.
pub const STEPS_EXIT_CODE: i32 = 88;

/// The environment has not been read yet. No mutant has this number.
const UNREAD: u32 = u32::MAX;
/// No mutant is on; places are counted.
const COUNTING: u32 = u32::MAX - 1;
/// No mutant is on.
const OFF: u32 = u32::MAX - 2;
/// Maximum number of ancestor processes whose environment is searched.
const ANCESTORS: usize = 16;

static ACTIVE: AtomicU32 = AtomicU32::new(UNREAD);
static HITS: AtomicU64 = AtomicU64::new(0);
static LIMIT: AtomicU64 = AtomicU64::new(u64::MAX);
static STEPS: AtomicU64 = AtomicU64::new(0);
static STEP_LIMIT: AtomicU64 = AtomicU64::new(u64::MAX);
static COVERAGE: OnceLock<Option<Coverage>> = OnceLock::new();

thread_local! {
    /// Whether this thread is inside the runtime, whose own work may reach places, for example in a mutated
    /// allocator.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

struct Coverage {
    file: File,
    /// By the number of a place's first mutant; index 0 is for all places together.
    counts: Box<[AtomicU32]>,
}

/// Returns which mutant of a place is on, from 1; 0 for the original. The place's mutants are numbered from
/// `base`. A place without mutants is a function call or, with `at(0, 0)`, a loop iteration.
#[inline(never)]
pub fn at(base: u32, count: u32) -> u32 {
    let active = ACTIVE.load(Relaxed);
    let offset = active.wrapping_sub(base);
    if offset < count && active < OFF {
        return hit(offset);
    }
    if active >= OFF {
        return if active == OFF { 0 } else { rare(active, base, count) };
    }
    // Racing threads may lose counts. An endless loop produces more than enough.
    let steps = STEPS.load(Relaxed) + 1;
    STEPS.store(steps, Relaxed);
    if steps > STEP_LIMIT.load(Relaxed) {
        end(STEPS_EXIT_CODE);
    }
    0
}

/// Exits the process. Returns only if called again while the process is exiting, by an exit handler that
/// reaches a place.
#[cold]
fn end(code: i32) {
    if !IS_INSIDE.replace(true) {
        std::process::exit(code)
    }
}

fn hit(offset: u32) -> u32 {
    if HITS.fetch_add(1, Relaxed) >= LIMIT.load(Relaxed) {
        end(EXIT_CODE);
    }
    offset + 1
}

#[cold]
fn rare(active: u32, base: u32, count: u32) -> u32 {
    if IS_INSIDE.replace(true) {
        return 0;
    }
    if active == UNREAD {
        read_environment();
    } else if let Some(Some(coverage)) = COVERAGE.get() {
        coverage.reach(base, count);
    }
    IS_INSIDE.set(false);
    if active == UNREAD { at(base, count) } else { 0 }
}

impl Coverage {
    fn open(path: OsString) -> Option<Self> {
        let file = File::options().read(true).write(true).open(path).ok()?;
        let numbers = usize::try_from(file.metadata().ok()?.len() / 4).ok()?;
        Some(Self { file, counts: (0..numbers).map(|_| AtomicU32::new(0)).collect() })
    }

    fn reach(&self, base: u32, count: u32) {
        let Some(counter) = self.counts.get(base as usize) else { return };
        let reached = if base > 0 { counter.fetch_add(1, Relaxed).saturating_add(1) } else { 0 };
        let steps = self.counts[0].fetch_add(1, Relaxed).saturating_add(1);
        if steps.is_power_of_two() {
            self.note(0, steps);
        }
        if reached.is_power_of_two() {
            (base..base + count.max(1)).for_each(|number| self.note(number, reached));
        }
    }

    fn note(&self, number: u32, reached: u32) {
        let place = u64::from(number) * 4;
        // Another process may share the file and have a higher count.
        let mut noted = [0; 4];
        let _read = self.file.read_exact_at(&mut noted, place);
        if u32::from_le_bytes(noted) < reached {
            // If the write fails, the place counts as not reached. The baseline then shows a test that
            // reaches nothing.
            let _written = self.file.write_all_at(&reached.to_le_bytes(), place);
        }
    }
}

fn read_environment() {
    let variables = Variables::of_this_process();
    let number = |name: &str| variables.value(name).and_then(|value| value.to_str()?.parse::<u64>().ok());
    let coverage = variables.value("HEELER_MUTANT_COVERAGE").and_then(Coverage::open);
    let is_counting = coverage.is_some();
    let _first = COVERAGE.set(coverage);
    LIMIT.store(number("HEELER_MUTANT_HITS").unwrap_or(u64::MAX), Relaxed);
    STEP_LIMIT.store(number("HEELER_MUTANT_STEPS").unwrap_or(u64::MAX), Relaxed);
    let active = number("HEELER_MUTANT").and_then(|number| u32::try_from(number).ok());
    let active = active.filter(|&active| active < OFF && active > 0);
    ACTIVE.store(active.unwrap_or(if is_counting { COUNTING } else { OFF }), Relaxed);
}

/// Source of the environment variables.
enum Variables {
    Own,
    /// The environment of a process, as read from `/proc`.
    OfAncestor(Vec<u8>),
}

impl Variables {
    /// Returns this process's variables, or else its nearest ancestor's: tests can start programs with a
    /// clean environment.
    fn of_this_process() -> Self {
        let names = ["HEELER_MUTANT", "HEELER_MUTANT_COVERAGE"];
        if names.iter().any(|name| std::env::var_os(name).is_some()) {
            return Self::Own;
        }
        let mut pid = std::os::unix::process::parent_id();
        for _ in 0..ANCESTORS {
            let Ok(environment) = std::fs::read(format!("/proc/{pid}/environ")) else { break };
            let found = Self::OfAncestor(environment);
            if names.iter().any(|name| found.value(name).is_some()) {
                return found;
            }
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok());
            match parent {
                Some(parent) if parent > 0 => pid = parent,
                _ => break,
            }
        }
        Self::Own
    }

    fn value(&self, name: &str) -> Option<OsString> {
        let Self::OfAncestor(environment) = self else { return std::env::var_os(name) };
        let value = |entry: &[u8]| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec);
        environment.split(|&byte| byte == 0).find_map(value).map(OsString::from_vec)
    }
}
