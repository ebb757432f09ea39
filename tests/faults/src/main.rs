//! Fault injection harness: ten thousand faults against the real program. Each round draws, from one seed,
//! test programs, a configuration, a client and faults; then it checks Heeler's guarantees. `--seed S
//! --rounds 1` replays the round of a finding.
//!
//! The harness also contains the program under test: a process with the mark of a round runs as `heeler`.
#![expect(clippy::unwrap_used, reason = "a harness that meets the unexpected is to stop there")]
#![expect(
    clippy::disallowed_methods,
    reason = "the harness stands outside: it starts heeler as a user's shell does"
)]

mod client;
mod fault_points;
mod guarantees;
mod injector;
mod leftovers;
mod panic_messages;
#[path = "../../../src/main.rs"]
mod program;
mod random;
mod round;
mod round_plan;
mod run_files;
mod support;
mod system_limits;
mod totals;

use std::{
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use clap::Parser;

/// Plays rounds with injected faults.
#[derive(Debug, Parser)]
#[command(name = "heeler-faults", about)]
struct HarnessArguments {
    /// The seed of the first round; each further round has the next one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of rounds.
    #[arg(long, default_value_t = 100)]
    rounds: u64,
    /// Number of concurrent rounds; they mostly wait.
    #[arg(long, default_value_t = 12)]
    jobs: usize,
    /// Inject one fault at one named point in each round, in turn.
    #[arg(long)]
    points: bool,
    /// Continue after a finding.
    #[arg(long)]
    keep_going: bool,
    /// Print the plan of each round.
    #[arg(long, short)]
    verbose: bool,
}

fn main() -> ExitCode {
    if std::env::var_os(client::MARK).is_some() {
        return program::main();
    }
    let arguments = HarnessArguments::parse();
    panic_messages::capture();
    fault_points::compare();
    // Built before the rounds, which would otherwise wait for each other.
    support::fixtures::gtest("faults");
    support::fixtures::libtest();
    let tally = Mutex::new(totals::RoundTotals::new());
    let next = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for job in 0..arguments.jobs {
            let play = || {
                while !is_over.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= arguments.rounds {
                        return;
                    }
                    let seed = arguments.seed.wrapping_add(number);
                    let plan = if arguments.points {
                        round_plan::RoundPlan::at_point(seed, usize::try_from(seed).expect("seeds are small"))
                    } else {
                        round_plan::RoundPlan::draw(seed)
                    };
                    if arguments.verbose {
                        println!("{plan:#?}\n{}", plan.config());
                    }
                    let played = round::play(&plan);
                    if arguments.verbose {
                        println!("{:#?}\n{}", played.injected, played.errors);
                    }
                    let has_finding = played.finding.is_some();
                    tally.lock().unwrap().add(&plan, played);
                    if has_finding && !arguments.keep_going {
                        is_over.store(true, Ordering::Relaxed);
                    }
                }
            };
            std::thread::Builder::new().name(format!("round {job}")).spawn_scoped(scope, play).unwrap();
        }
    });
    let mut tally = tally.into_inner().unwrap();
    tally.end(leftovers::shared_leftovers());
    println!("{tally}");
    if tally.has_findings() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
