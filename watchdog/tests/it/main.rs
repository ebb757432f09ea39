//! Tests of watchdog and guard with real processes. Like the real program, this program re-executes itself in
//! their roles. It runs its tests itself, one after the other on the main thread, because children die with
//! the thread that started them. Arguments select tests by part of their name.
#![expect(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod blocked_program;
mod coordinator;
mod crashes;
mod damage;
mod debug;
mod dumps;
mod finishes;
mod fork_server;
mod guards;
mod sessions;
mod stacks;
mod support;
mod untraced;

use std::{panic::catch_unwind, process::ExitCode, time::Instant};

type NamedTest = (&'static str, fn());

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("__guard") => return heeler_guard::main(),
        Some("__fork-server") => return heeler_guard::fork_server::main(),
        Some("__watchdog") => return heeler_watchdog::main(std::path::Path::new(&args[1])),
        Some("__worker") => return sessions::play_worker(),
        Some("__dump_into_small_files") => {
            return dumps::dump_into_small_files(std::path::Path::new(&args[1]));
        }
        Some("measure_stacks") => return blocked_program::measure(args.get(1)),
        Some("measure") => return guards::measure(),
        Some("watch") => return crashes::print_reports(&args[1..]),
        Some("damage") => return damage::try_damage(&args[1..]),
        Some("symbolizer") => return damage::try_symbolizer(),
        _ => {}
    }
    // A runner that lists tests should run this program as one test.
    if args.iter().any(|arg| arg == "--list") {
        eprintln!("the tests of this program run one after the other in one process, and are not listed");
        return ExitCode::from(2);
    }
    let words: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let is_chosen = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    let groups = [
        guards::TESTS,
        fork_server::TESTS,
        crashes::TESTS,
        damage::TESTS,
        untraced::TESTS,
        debug::TESTS,
        sessions::TESTS,
        finishes::TESTS,
        stacks::TESTS,
        dumps::TESTS,
    ];
    let all = groups.concat();
    let tests: Vec<NamedTest> = all.into_iter().filter(|(name, _)| is_chosen(name)).collect();
    println!("running {} tests", tests.len());
    let mut failed = Vec::new();
    for (name, test) in tests {
        let started = Instant::now();
        let is_ok = catch_unwind(test).is_ok();
        println!("test {name} ... {} ({:.0?})", if is_ok { "ok" } else { "FAILED" }, started.elapsed());
        if !is_ok {
            failed.push(name);
        }
    }
    if failed.is_empty() {
        println!("test result: ok");
        return ExitCode::SUCCESS;
    }
    println!("test result: FAILED: {}", failed.join(", "));
    ExitCode::FAILURE
}

/// Lists tests by their names in the source.
#[macro_export]
macro_rules! tests {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), $name as fn())),*] };
}
