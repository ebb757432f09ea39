//! Runs each fuzz target's seeds through its check, so that fixed findings stay fixed.

#[path = "../fuzz/checks/mod.rs"]
#[expect(unreachable_pub, reason = "the fuzz targets' own crate shares these files")]
mod checks;

use std::{fs, path::Path};

/// A check of arbitrary bytes.
type FuzzCheck = fn(&[u8]);

/// The check of each target. Every target must have seeds, and every seed directory a target.
const CHECKS: [(&str, FuzzCheck); 43] = [
    ("boost_listing", checks::boost_listing),
    ("boost_transcript", checks::boost_transcript),
    ("catch2_listing", checks::catch2_listing),
    ("catch2_transcript", checks::catch2_transcript),
    ("command_transcript", checks::command_transcript),
    ("config", checks::config),
    ("connect_client", checks::connect_client),
    ("ctest_listing", checks::ctest_listing),
    ("doctest_listing", checks::doctest_listing),
    ("doctest_transcript", checks::doctest_transcript),
    ("envelope", checks::envelope),
    ("filter", checks::filter),
    ("foreign_mutants", checks::foreign_mutants),
    ("frame", checks::frame),
    ("go_listing", checks::go_listing),
    ("go_transcript", checks::go_transcript),
    ("graph_query", checks::graph_query),
    ("gtest_listing", checks::gtest_listing),
    ("gtest_transcript", checks::gtest_transcript),
    ("guarded_source", checks::guarded_source),
    ("journal", checks::journal),
    ("json_lines_listing", checks::json_lines_listing),
    ("json_lines_transcript", checks::json_lines_transcript),
    ("judge_report", checks::judge_report),
    ("libtest_listing", checks::libtest_listing),
    ("libtest_transcript", checks::libtest_transcript),
    ("manifest", checks::manifest),
    ("mcp_filter", checks::mcp_filter),
    ("mcp_http", checks::mcp_http),
    ("mcp_listing", checks::mcp_listing),
    ("mcp_message", checks::mcp_message),
    ("mcp_transcript", checks::mcp_transcript),
    ("message", checks::message),
    ("minidump", checks::minidump),
    ("mtp_listing", checks::mtp_listing),
    ("mtp_transcript", checks::mtp_transcript),
    ("mutation_message", checks::mutation_message),
    ("packet", checks::packet),
    ("program", checks::program),
    ("pytest_listing", checks::pytest_listing),
    ("pytest_transcript", checks::pytest_transcript),
    ("rsp_message", checks::rsp_message),
    ("tap_transcript", checks::tap_transcript),
];

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn every_fuzz_seed_passes_its_check() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz");
    let targets = CHECKS.map(|(target, _)| target);
    assert_eq!(names(&fuzz.join("seeds")), targets);
    assert_eq!(names(&fuzz.join("targets")), targets.map(|target| format!("{target}.rs")));
    for (target, check) in CHECKS {
        let seeds = names(&fuzz.join("seeds").join(target));
        assert!(!seeds.is_empty(), "{target}");
        for seed in seeds {
            let bytes = fs::read(fuzz.join("seeds").join(target).join(&seed)).unwrap();
            assert!(bytes.len() < 1 << 14, "{target}/{seed} is no small seed");
            // Names the seed; printed only if the test fails.
            eprintln!("{target}/{seed}");
            check(&bytes);
            if target == "message" && seed.starts_with("control_") {
                assert!(checks::is_control_message(&bytes), "{target}/{seed} is not a message of today");
            }
        }
    }
}
