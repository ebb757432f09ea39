//! Tests of watchdog and guard with real processes. This program re-executes itself in their roles, as the
//! real one does, and therefore runs its tests itself: one after the other on the main thread, because
//! children die with the thread that started them. Arguments select tests by a part of their name, or with
//! `--exact` by the whole; `--list` lists them as Rust's tests are.
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
    let has_option = |name: &str| args.iter().any(|arg| arg == name);
    // These two options of Rust's tests have a value.
    let is_value = |place: usize| place > 0 && ["--format", "-Z"].contains(&args[place - 1].as_str());
    let words = args.iter().enumerate().filter(|(place, arg)| !arg.starts_with('-') && !is_value(*place));
    let words: Vec<&String> = words.map(|(_, arg)| arg).collect();
    let is_named =
        |name: &str, word: &str| if has_option("--exact") { name == word } else { name.contains(word) };
    let is_chosen = |name: &str| {
        !has_option("--ignored") && (words.is_empty() || words.iter().any(|word| is_named(name, word)))
    };
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
    if has_option("--list") {
        tests.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    println!("running {} tests", tests.len());
    let started = Instant::now();
    let (mut passed, mut failed) = (0, Vec::new());
    for (name, test) in tests {
        let is_ok = catch_unwind(test).is_ok();
        println!("test {name} ... {}", if is_ok { "ok" } else { "FAILED" });
        if is_ok { passed += 1 } else { failed.push(name) }
    }
    if !failed.is_empty() {
        println!("failures:\n    {}", failed.join("\n    "));
    }
    let word = if failed.is_empty() { "ok" } else { "FAILED" };
    let seconds = started.elapsed().as_secs_f64();
    println!("test result: {word}. {passed} passed; {} failed; finished in {seconds:.2}s", failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Lists tests with their names as written in the source.
#[macro_export]
macro_rules! tests {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), $name as fn())),*] };
}
