//! Crashes of programs with damaged symbols and unwind tables. The kernel and the loader read neither, so the
//! programs still run. Whatever their files contain, the crash must be reported with its signal, and with a
//! stack trace or the reason why there is none.

use std::{
    collections::BTreeMap,
    ops::Range,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use heeler_crash::stacks::StackTexts;
use heeler_guard::symbolizer::{SymbolizerError, in_own_process};
use heeler_protocol::control::TraceMode;
use heeler_sys::{
    process::Signal,
    spawn::{SpawnOptions, spawn},
};

use crate::{
    NamedTest,
    crashes::{GuardedOutcome, command, crash_program, run_traced},
    tests,
};

pub(crate) const TESTS: &[NamedTest] =
    tests![crash_of_damaged_program_is_reported, symbolizer_that_fails_is_survived,];

/// Number of damaged programs per test run. Run `damage COUNT SEED` to try more.
const COUNT: u64 = 24;

/// Parts that a program does not need to run.
const PARTS: [&str; 12] = [
    ".debug_info",
    ".debug_abbrev",
    ".debug_line",
    ".debug_line_str",
    ".debug_str",
    ".debug_aranges",
    ".debug_rnglists",
    ".eh_frame",
    ".eh_frame_hdr",
    ".symtab",
    ".strtab",
    ".shstrtab",
];

/// Random numbers, the same for the same seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        // xorshift64*. Any distribution will do.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap()
    }
}

fn number(bytes: &[u8], at: usize, length: usize) -> usize {
    let mut whole = [0; 8];
    whole[..length].copy_from_slice(&bytes[at..at + length]);
    usize::try_from(u64::from_le_bytes(whole)).unwrap()
}

/// Returns where the parts of a program, including its section headers, are in its file.
fn parts(bytes: &[u8]) -> BTreeMap<String, Range<usize>> {
    let (table, count, names) = (number(bytes, 40, 8), number(bytes, 60, 2), number(bytes, 62, 2));
    let header = |place: usize| table + 64 * place;
    let range = |place: usize| {
        let start = number(bytes, header(place) + 24, 8);
        start..start + number(bytes, header(place) + 32, 8)
    };
    let names = &bytes[range(names)];
    let mut found = BTreeMap::from([("section headers".to_owned(), table..table + 64 * count)]);
    for place in 0..count {
        let name = &names[number(bytes, header(place), 4)..];
        let name = String::from_utf8_lossy(name.split(|byte| *byte == 0).next().unwrap()).into_owned();
        if PARTS.contains(&name.as_str()) {
            found.insert(name, range(place));
        }
    }
    found
}

/// Damages one part of a program. Describes the damage.
fn damage(bytes: &mut [u8], numbers: &mut Numbers) -> String {
    let parts: Vec<_> = parts(bytes).into_iter().collect();
    let (name, range) = &parts[numbers.below(parts.len())];
    let part = &mut bytes[range.clone()];
    let length = part.len();
    let what = match numbers.below(5) {
        0 => {
            let times = 1 + numbers.below(64);
            for _ in 0..times {
                part[numbers.below(length)] = numbers.next().to_le_bytes()[0];
            }
            format!("{times} bytes")
        }
        kind @ (1 | 2) => {
            let byte = if kind == 1 { 0 } else { 0xff };
            let from = numbers.below(length);
            let to = from + 1 + numbers.below((length - from).min(4096));
            part[from..to.min(length)].fill(byte);
            format!("{from}..{to} filled with {byte:#x}")
        }
        3 => {
            let at = numbers.below(length / 8) * 8;
            let end = length.min(at + 8);
            part[at..end].fill(0xff);
            part[end - 1] = 0x7f;
            format!("a large number at {at}")
        }
        _ => {
            let by = 1 + numbers.below(16.min(length - 1));
            part.rotate_left(by);
            format!("shifted by {by}")
        }
    };
    format!("{name}: {what}")
}

/// Runs a crashing program, with the damage determined by this seed.
fn run_damaged(program: &Path, directory: &Path, seed: u64) -> (String, GuardedOutcome) {
    let mut bytes = std::fs::read(program).unwrap();
    let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let what = damage(&mut bytes, &mut numbers);
    let path: PathBuf = directory.join(format!("damaged-{seed}"));
    std::fs::write(&path, bytes).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let outcome = run_traced(command(&path, &["segv"]), TraceMode::Root);
    std::fs::remove_file(&path).unwrap();
    (what, outcome)
}

/// Returns what is wrong with the report, if anything.
fn fault(outcome: &GuardedOutcome) -> Option<String> {
    let is_reported = outcome.crashes.len() == 1
        && outcome.end.signal == Some(Signal::SEGV.0)
        && outcome.crashes[0].signal == Signal::SEGV.0
        && outcome.crashes[0].stack.contains("#0")
        && outcome.crashes[0].dump.is_some();
    (!is_reported).then(|| format!("{:?} {:?} {:?}", outcome.ending(), outcome.untraced, outcome.crashes))
}

fn crash_of_damaged_program_is_reported() {
    let program = crash_program();
    let directory = tempfile::tempdir().unwrap();
    for seed in 1..=COUNT {
        let (what, outcome) = run_damaged(program, directory.path(), seed);
        assert_eq!(fault(&outcome), None, "seed {seed}, {what}");
    }
}

/// Runs in a separate process: only a single-threaded process can fork, and this one has had other threads.
fn symbolizer_that_fails_is_survived() {
    let options = SpawnOptions { args: vec!["symbolizer".into()], ..SpawnOptions::new("/proc/self/exe") };
    assert_eq!(spawn(options).unwrap().wait().unwrap().code, Some(0));
}

/// Reads symbols in processes that fail: `cargo test -p heeler-watchdog --test it -- symbolizer`.
pub(crate) fn try_symbolizer() -> ExitCode {
    let run = |limit, work: fn() -> Vec<StackTexts>| in_own_process(1, limit, work);
    let failed = |what: &str| Err(SymbolizerError::Failed(what.to_owned()));
    let long = Duration::from_secs(60);
    let texts = || vec![StackTexts { all: "all".to_owned(), ..StackTexts::default() }];
    assert_eq!(run(long, texts), Ok(texts()));
    let endless = run(Duration::from_millis(100), || {
        loop {
            std::hint::spin_loop();
        }
    });
    assert_eq!(endless, failed("timed out after 0.1 s"));
    let greedy =
        run(long, || vec![StackTexts { all: String::with_capacity(5 << 30), ..StackTexts::default() }]);
    assert_eq!(greedy, failed("the symbolizer was killed by SIGABRT"));
    let incomplete = run(long, Vec::new);
    assert_eq!(incomplete, failed("the symbolizer returned incomplete text"));
    ExitCode::SUCCESS
}

/// Tests more damaged programs: `cargo test -p heeler-watchdog --test it -- damage COUNT SEED`.
pub(crate) fn try_damage(words: &[String]) -> ExitCode {
    let program = crash_program();
    let directory = tempfile::tempdir().unwrap();
    let number = |place: usize| words.get(place).map_or(1, |word| word.parse().unwrap());
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    let mut code = ExitCode::SUCCESS;
    for seed in number(1)..number(1) + number(0) {
        let (what, outcome) = run_damaged(program, directory.path(), seed);
        let kind = match fault(&outcome) {
            Some(fault) => {
                println!("seed {seed}, {what}: {fault}");
                code = ExitCode::FAILURE;
                "lost".to_owned()
            }
            None => {
                let crash = &outcome.crashes[0];
                let lines = crash.stack.lines().filter(|line| line.trim_start().starts_with('#')).count();
                let notes =
                    crash.stack.lines().filter(|line| line.contains("cannot read") || line.contains("panic"));
                let notes: Vec<_> = notes.chain(crash.soft_errors.iter().map(String::as_str)).collect();
                let about = notes.join(" ").replace(&format!("damaged-{seed}"), "it");
                let about =
                    about.split("/tmp/").map(|part| part.split_once("/it").map_or(part, |(_, rest)| rest));
                format!("{} frames, {}", lines.min(3), about.collect::<String>())
            }
        };
        *kinds.entry(kind).or_default() += 1;
    }
    kinds.iter().for_each(|(kind, count)| println!("{count:5}  {kind}"));
    code
}
