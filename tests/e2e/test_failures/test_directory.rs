//! The temporary directory of each test process.

use std::fs;

use crate::support::{server::TestServer, uids, world::TestWorld};

#[test]
fn processes_have_directories_of_their_own_and_failures_keep_them() {
    let world = TestWorld::with_gtest("tmpdir");
    world.write("heeler.toml", "[profile.default]\njobs = 2\nisolate = true\n");
    let cases: Vec<String> = (0..6).map(|number| format!("N/Directory.Case/{number}")).collect();
    let mut selected = uids("tmpdir", cases.iter().map(String::as_str));
    selected.extend(uids("tmpdir", ["Evidence.Directories", "Evidence.Fails"]));
    let mut server = TestServer::initialized(&world, &["tmpdir"]);
    let run = server.run(None);
    let checked_run = server.finish(&run, &selected);
    for uid in &selected {
        let expected = if uid.contains("Fails") { "failed" } else { "passed" };
        assert_eq!(checked_run.state(uid), expected, "{checked_run:#?}");
    }
    assert_eq!(server.exit(), Some(0));
    let runs = fs::read_dir(world.path(".heeler/runs")).unwrap().flatten();
    let kept: Vec<_> = runs
        .flat_map(|run| fs::read_dir(run.path().join("evidence")).into_iter().flatten().flatten())
        .filter(|entry| entry.path().extension().is_some_and(|ending| ending == "tmp"))
        .collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!(fs::read_to_string(kept[0].path().join("evidence")).unwrap(), "what was there");
    let name = kept[0].file_name().into_string().unwrap();
    assert!(checked_run.log.iter().any(|line| line.contains(&name)), "{:?}", checked_run.log);
}

#[test]
fn directory_is_in_the_temporary_directory_and_names_tmpdir_on_request() {
    for (settings, is_private) in [("", false), ("private-tmpdir = true\n", true)] {
        let world = TestWorld::with_gtest("tmpdir");
        world.write("heeler.toml", &format!("[profile.default]\njobs = 1\n{settings}"));
        let temporary = world.path("tmp");
        let mut server = TestServer::initialized(&world, &["tmpdir"]);
        let selected = uids("tmpdir", ["Evidence.Directories"]);
        let run = server.run(Some(&[&selected[0]]));
        let checked_run = server.finish(&run, &selected);
        assert_eq!(server.exit(), Some(0));
        let output = checked_run.test(&selected[0])["standardOutput"].as_str().unwrap();
        let (of_tests, tmpdir) = output.trim_end().split_once('\n').unwrap();
        assert!(of_tests.starts_with(&format!("{}/heeler-", temporary.display())), "{of_tests}");
        let expected = if is_private { of_tests.trim_end_matches('/') } else { temporary.to_str().unwrap() };
        assert_eq!(tmpdir, expected);
        world.check_tidy();
    }
}
