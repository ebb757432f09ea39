//! Speedup from the thread pool: reads the record of a run with 200,000 results from its journals, compared
//! with a single thread.
//!
//! `cargo bench -p heeler-run-store --bench parallel`

#![expect(clippy::unwrap_used, reason = "a bench that fails may panic")]
#![expect(clippy::disallowed_methods, reason = "each configuration is measured in a process of its own")]

use std::{fs, io::Write as _, path::Path, time::Instant};

use heeler_core::{OsText, Outcome, TestId, TestResult};
use heeler_protocol::{
    journal,
    manifest::{
        MANIFEST_FILE_NAME, Manifest, ManifestHead, ManifestPlan, ManifestProgram, ManifestTest, RunOrigin,
    },
};
use heeler_report::{ReportContent, find_report_format};
use heeler_run_store::{EarlierRun, EarlierRunState, RecordedDetails, RunOwnership, read_recorded_run};

const TESTS: u32 = 200_000;
const JOURNALS: u32 = 8;
const ROUNDS: usize = 5;

/// Environment variable with a run directory. If it is set, this program measures one configuration there.
const MEASURE_IN: &str = "HEELER_BENCH_PARALLEL_DIR";

fn main() {
    if let Some(dir) = std::env::var_os(MEASURE_IN) {
        return measure(Path::new(&dir));
    }
    let dir = tempfile::tempdir().unwrap();
    write_run(dir.path());
    println!("{TESTS} results in {JOURNALS} journals, best of {ROUNDS}:");
    for threads in [Some("1"), None] {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.env(MEASURE_IN, dir.path());
        match threads {
            Some(number) => command.env("RAYON_NUM_THREADS", number),
            None => command.env_remove("RAYON_NUM_THREADS"),
        };
        print!("{:>9}: ", if threads.is_some() { "in turn" } else { "the pool" });
        std::io::stdout().flush().unwrap();
        assert!(command.status().unwrap().success());
    }
}

/// Prints the times for reading the run, its summary and its report.
fn measure(dir: &Path) {
    let mut best = [f64::INFINITY; 3];
    for _ in 0..ROUNDS {
        let run = EarlierRun {
            name: "run".to_owned(),
            dir: dir.to_owned(),
            head: None,
            ownership: RunOwnership::Copied,
            state: EarlierRunState::Interrupted { settled: 0 },
            problems: Vec::new(),
        };
        let start = Instant::now();
        let recorded = read_recorded_run(&run).unwrap();
        let read = start.elapsed();
        let summary = recorded.summarise();
        let summarised = start.elapsed();
        assert_eq!(summary.counts().passed(), TESTS as usize);
        let format = find_report_format("ctrf").unwrap();
        let details = RecordedDetails::new([&recorded]);
        let content = ReportContent { summary: &summary, info: recorded.report_info(), details: &details };
        (format.write)(&content, &mut std::io::sink()).unwrap();
        let written = start.elapsed();
        for (best, took) in best.iter_mut().zip([read, summarised - read, written - summarised]) {
            *best = best.min(took.as_secs_f64());
        }
    }
    let [read, summarised, written] = best;
    println!("read {read:.3} s, summary {summarised:.3} s, CTRF {written:.3} s");
}

/// Writes a run directory like a real run: the manifest, and the journals of the workers.
fn write_run(dir: &Path) {
    // The manifest: one program with all tests.
    let uid = |number: u32| format!("suite::Group{}.Case{number}", number / 100);
    let test = |number: u32| ManifestTest {
        report_name: None,
        uid: uid(number),
        display_name: format!("Case{number}"),
        program: 0,
        group: None,
        file: Some("/home/user/project/tests/suite_test.cc".to_owned()),
        line: Some(number + 1),
        traits: Vec::new(),
    };
    let program = ManifestProgram { suite: "suite".to_owned(), path: OsText::from("/suite") };
    let plan = ManifestPlan {
        programs: vec![program],
        tests: (0..TESTS).map(test).collect(),
        ..ManifestPlan::default()
    };
    let head = ManifestHead { tests: plan.tests.len(), ..ManifestHead::new("run", RunOrigin::default()) };
    let manifest = Manifest { head, plan };
    fs::write(dir.join(MANIFEST_FILE_NAME), manifest.to_bytes()).unwrap();
    // The journals: each worker has run every n-th test.
    for worker in 0..JOURNALS {
        let mut bytes = journal::MAGIC.to_vec();
        for number in (worker..TESTS).step_by(JOURNALS as usize) {
            let test = TestId(number);
            journal::write(
                &mut bytes,
                &heeler_core::RunRecord::Started(heeler_core::TestStart {
                    test,
                    started_ms: 1,
                    is_again: false,
                }),
            );
            let result = TestResult {
                started_ms: Some(1_772_330_401_500),
                duration_us: Some(250),
                ..TestResult::new(Outcome::Passed)
            };
            journal::write_finished(&mut bytes, test, &result);
        }
        fs::write(dir.join(format!("worker-{}.journal", worker + 1)), bytes).unwrap();
    }
}
