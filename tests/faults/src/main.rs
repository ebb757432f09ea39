//! Fault injection harness: injects faults into the real program. From one seed, each round draws test
//! programs, a configuration, a client and faults, then checks Heeler's guarantees. `--seed S --rounds 1`
//! replays the round of a finding.
//!
//! The harness also contains the program under test: a process with the mark of a round runs as `heeler`.
#![expect(clippy::unwrap_used, reason = "a harness that meets the unexpected is to stop there")]
#![expect(
    clippy::disallowed_methods,
    reason = "the harness stands outside: it starts heeler as a user's shell does"
)]

mod connect;
mod fault_points;
mod fixture_tests;
mod heeler_process;
mod hostile;
mod injector;
mod leftovers;
mod mcp;
mod mtp;
mod mutation;
mod native_programs;
mod panic_messages;
mod planned_faults;
#[path = "../../../src/main.rs"]
mod program;
mod protocols;
mod random;
mod round;
mod rsp;
mod suites;
mod support;
mod system_limits;
mod test_results;
mod totals;
mod traffic_record;

use std::{
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use clap::Parser;
use mtp::{MtpPlan, SlowClientLoad};
use protocols::{RoundPlan, RoundProtocol};
use totals::RoundTotals;

/// Plays rounds with injected faults.
#[derive(Debug, Parser)]
#[command(name = "heeler-faults", about)]
struct HarnessArguments {
    /// Seed of the first round; each following round adds one
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of rounds (by default 100, or the number of rounds of each load)
    #[arg(long)]
    rounds: Option<u64>,
    /// Number of concurrent rounds, which mostly wait
    #[arg(long, default_value_t = 12)]
    jobs: usize,
    /// Protocol of all rounds (by default, each round draws one)
    #[arg(long, value_enum, conflicts_with_all = ["points", "slow_clients", "hostile", "load"])]
    protocol: Option<RoundProtocol>,
    /// Inject one fault at one named point in each round, in turn
    #[arg(long)]
    points: bool,
    /// Make every client handle or read messages slowly, where possible
    #[arg(long, conflicts_with = "points")]
    slow_clients: bool,
    /// Use a hostile program, or stop a process for good, in each round
    #[arg(long, conflicts_with_all = ["points", "slow_clients"])]
    hostile: bool,
    /// Run the Go program in each round, with the main protocol
    #[arg(long, conflicts_with_all = ["protocol", "points", "slow_clients", "hostile"])]
    go: bool,
    /// Play a fixed load with slow clients and print a table; can be repeated
    #[arg(long, value_enum, conflicts_with_all = ["points", "slow_clients", "hostile"])]
    load: Vec<SlowClientLoad>,
    /// Continue after a finding
    #[arg(long)]
    keep_going: bool,
    /// Print the plan of each round
    #[arg(long, short)]
    verbose: bool,
}

fn main() -> ExitCode {
    // A process with the mark of a round is the program under test.
    if std::env::var_os(heeler_process::MARK).is_some() {
        return program::main();
    }
    let arguments = HarnessArguments::parse();
    panic_messages::capture();
    fault_points::compare();
    // Build the fixtures first; otherwise concurrent rounds would wait for each other's builds.
    support::fixtures::gtest("faults");
    support::fixtures::libtest();
    connect::client_program();
    for program in hostile::PROGRAMS {
        support::fixtures::gtest(program.fixture);
    }
    if !arguments.load.is_empty() {
        return play_loads(&arguments);
    }
    // Draw and play rounds of the selected mode.
    let mode = match () {
        () if arguments.points => "--points",
        () if arguments.slow_clients => "--slow-clients",
        () if arguments.hostile => "--hostile",
        () if arguments.go => "--go",
        () => "",
    };
    let totals = play(&arguments, arguments.rounds.unwrap_or(100), mode, |seed| {
        let plan = if arguments.points {
            MtpPlan::at_point(seed, usize::try_from(seed).expect("seeds are small"))
        } else if arguments.slow_clients {
            MtpPlan::with_slow_client(seed)
        } else if arguments.hostile {
            MtpPlan::with_hostility(seed)
        } else if arguments.go {
            MtpPlan::with_go(seed)
        } else {
            return RoundPlan::draw(seed, arguments.protocol);
        };
        RoundPlan::Mtp(Box::new(plan))
    });
    println!("{totals}");
    if totals.has_findings() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Plays the fixed loads; prints a table.
fn play_loads(arguments: &HarnessArguments) -> ExitCode {
    let mut table =
        String::from("| load | rounds | findings | median round |\n| --- | ---: | ---: | ---: |\n");
    let mut has_findings = false;
    for load in &arguments.load {
        let rounds = arguments.rounds.unwrap_or_else(|| load.rounds());
        let totals = play(arguments, rounds, &format!("--load {}", load.name()), |seed| {
            RoundPlan::Mtp(Box::new(load.plan(seed)))
        });
        has_findings |= totals.has_findings();
        table.push_str(&totals.table_row(load.description()));
    }
    println!("{table}");
    if has_findings { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Plays rounds with consecutive seeds, several at a time. `mode` contains the options that replay them.
fn play(
    arguments: &HarnessArguments,
    rounds: u64,
    mode: &str,
    plan_of: impl Fn(u64) -> RoundPlan + Sync,
) -> RoundTotals {
    let totals = Mutex::new(RoundTotals::new(mode));
    let next = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for job in 0..arguments.jobs {
            let play = || {
                while !is_over.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= rounds {
                        return;
                    }
                    let plan = plan_of(arguments.seed.wrapping_add(number));
                    if arguments.verbose {
                        println!("{plan:#?}\n{}", plan.config());
                    }
                    let played = round::play(&plan);
                    if arguments.verbose {
                        println!("{:#?}\n{}", played.injected, played.errors);
                    }
                    let has_finding = played.finding.is_some();
                    totals.lock().unwrap().add(&plan, played);
                    if has_finding && !arguments.keep_going {
                        is_over.store(true, Ordering::Relaxed);
                    }
                }
            };
            std::thread::Builder::new().name(format!("round {job}")).spawn_scoped(scope, play).unwrap();
        }
    });
    let mut totals = totals.into_inner().unwrap();
    totals.end(leftovers::shared_leftovers());
    totals
}
