//! Uses the history as runs do: from one process, from several at once, and with damaged or foreign files.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use heeler_core::Outcome;

use super::*;

struct HistoryFixture {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

fn history_fixture() -> HistoryFixture {
    let dir = tempfile::tempdir().unwrap();
    HistoryFixture { path: dir.path().join("state").join(FILE_NAME), _dir: dir }
}

fn outcome(uid: &str, outcome: Outcome, ms: u64) -> RecordedOutcome<'_> {
    let suite = uid.rsplit_once("::").unwrap().0;
    RecordedOutcome { uid, suite, outcome, duration: Duration::from_millis(ms), usage: None }
}

#[test]
fn recorded_outcomes_are_loaded_by_the_next_run() {
    let place = history_fixture();
    let mut history = HistoryStore::open(&place.path).unwrap();
    let ended = [outcome("s::a", Outcome::Passed, 100), outcome("s::b", Outcome::Crashed, 5)];
    let programs = [ProgramCost { suite: "s", start: Duration::from_millis(2), peak_kib: None }];
    history.record(&ended, &programs).unwrap();
    drop(history);

    let mut history = HistoryStore::open(&place.path).unwrap();
    let known = history.load(["s::a", "s::b"]).unwrap();
    let expected = TestHistory {
        outcome: Outcome::Passed,
        last: Some(Duration::from_millis(100)),
        mean: Some(Duration::from_millis(100)),
        runs: 1,
        failures: 0,
        crashes: 0,
        peak_kib: None,
    };
    assert_eq!(known["s::a"], expected);
    assert_eq!(
        (known["s::b"].last, known["s::b"].crashes),
        (None, 1),
        "a crash says nothing of the duration"
    );
    assert_eq!(history.load_programs().unwrap()["s"].start, Duration::from_millis(2));

    let later = [outcome("s::a", Outcome::Failed, 200), outcome("s::b", Outcome::Skipped, 0)];
    history
        .record(&later, &[ProgramCost { suite: "s", start: Duration::from_millis(6), peak_kib: None }])
        .unwrap();
    let known = history.load(["s::a", "s::b", "s::c"]).unwrap();
    assert_eq!(known.len(), 2);
    assert_eq!(known["s::a"].mean, Some(Duration::from_millis(125)), "a quarter is the newest");
    assert_eq!((known["s::a"].last, known["s::a"].failures), (Some(Duration::from_millis(200)), 1));
    assert_eq!((known["s::a"].runs, known["s::b"].runs), (2, 1), "a skip is no run");
    assert_eq!(known["s::b"].outcome, Outcome::Skipped);
    assert_eq!(history.load_programs().unwrap()["s"].start, Duration::from_millis(3));
}

#[test]
fn two_runs_record_at_the_same_time() {
    let place = history_fixture();
    let record = |name: &'static str| {
        let path = place.path.clone();
        std::thread::spawn(move || {
            for round in 0..20 {
                let uid = format!("{name}::{round}");
                let mut history = HistoryStore::open(&path).unwrap();
                history.record(&[outcome(&uid, Outcome::Passed, 1)], &[]).unwrap();
            }
        })
    };
    let threads = [record("x"), record("y")];
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let history = HistoryStore::open(&place.path).unwrap();
    let uids: Vec<_> = (0..20).flat_map(|round| [format!("x::{round}"), format!("y::{round}")]).collect();
    assert_eq!(history.load(uids.iter().map(String::as_str)).unwrap().len(), 40);
}

#[test]
fn locked_file_is_a_prompt_soft_error() {
    let place = history_fixture();
    let mut history = HistoryStore::open(&place.path).unwrap();
    let other = rusqlite::Connection::open(&place.path).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let start = Instant::now();
    let error = history.record(&[outcome("s::a", Outcome::Passed, 1)], &[]).unwrap_err();
    assert!(matches!(error, HistoryError::Locked { .. }), "{error:?}");
    assert!(start.elapsed() < Duration::from_secs(5));
    other.execute_batch("ROLLBACK").unwrap();
    history.record(&[outcome("s::a", Outcome::Passed, 1)], &[]).unwrap();
}

#[test]
fn a_damaged_file_is_a_soft_error() {
    let place = history_fixture();
    std::fs::create_dir_all(place.path.parent().unwrap()).unwrap();
    std::fs::write(&place.path, "this is no database, and it is long enough to have a header ".repeat(9))
        .unwrap();
    let error = HistoryStore::open(&place.path).unwrap_err();
    assert!(matches!(error, HistoryError::Damaged { .. }), "{error:?}");
    assert!(error.to_string().contains("delete it to start a new one"));
}

#[test]
fn file_damaged_in_the_middle_is_a_soft_error() {
    let place = history_fixture();
    let uids: Vec<String> = (0..2_000).map(|number| format!("s::{number}")).collect();
    let outcomes: Vec<_> = uids.iter().map(|uid| outcome(uid, Outcome::Passed, 1)).collect();
    HistoryStore::open(&place.path).unwrap().record(&outcomes, &[]).unwrap();
    let mut bytes = std::fs::read(&place.path).unwrap();
    bytes[8_192..].fill(0xa5);
    std::fs::write(&place.path, bytes).unwrap();
    let result =
        HistoryStore::open(&place.path).and_then(|history| history.load(uids.iter().map(String::as_str)));
    assert!(matches!(result, Err(HistoryError::Damaged { .. })), "{result:?}");
}

#[test]
fn foreign_database_is_a_soft_error() {
    let place = history_fixture();
    std::fs::create_dir_all(place.path.parent().unwrap()).unwrap();
    let other = rusqlite::Connection::open(&place.path).unwrap();
    other.execute_batch("CREATE TABLE thing (a); PRAGMA user_version = 1").unwrap();
    let error = HistoryStore::open(&place.path).and_then(|history| history.load(["s::a"])).unwrap_err();
    assert!(matches!(error, HistoryError::Damaged { .. }), "{error:?}");
}

#[test]
fn version_1_file_is_migrated_with_its_rows() {
    let place = history_fixture();
    std::fs::create_dir_all(place.path.parent().unwrap()).unwrap();
    let other = rusqlite::Connection::open(&place.path).unwrap();
    // Tables as written by version 1 of Heeler.
    other
        .execute_batch(
            "CREATE TABLE test (uid TEXT PRIMARY KEY, suite TEXT NOT NULL, outcome TEXT NOT NULL, last_us INTEGER,
                mean_us INTEGER, runs INTEGER NOT NULL, failures INTEGER NOT NULL, crashes INTEGER NOT NULL,
                seen INTEGER NOT NULL) WITHOUT ROWID;
            CREATE TABLE program (suite TEXT PRIMARY KEY, start_us INTEGER NOT NULL, seen INTEGER NOT NULL) WITHOUT ROWID;
            INSERT INTO test VALUES ('s::a', 's', 'passed', 100000, 100000, 3, 0, 0, 5), ('s::b', 's', 'failed', 7, 7, 1, 1, 0, 5);
            INSERT INTO program VALUES ('s', 2000, 5);
            PRAGMA user_version = 1;",
        )
        .unwrap();
    let mut history = HistoryStore::open(&place.path).unwrap();
    let known = history.load(["s::a", "s::b"]).unwrap();
    assert_eq!((known["s::a"].runs, known["s::b"].failures), (3, 1));
    let usage = Some(RecordedUsage { cpu: Duration::from_millis(9), peak_kib: 4096 });
    let ended = [
        RecordedOutcome { usage, ..outcome("s::a", Outcome::Passed, 100) },
        outcome("s::b", Outcome::Passed, 1),
    ];
    let cost = ProgramCost { suite: "s", start: Duration::from_millis(2), peak_kib: Some(5000) };
    history.record(&ended, &[cost]).unwrap();
    // A test that shares its process has no usage to record, so the recorded usage stays.
    history.record(&[outcome("s::a", Outcome::Passed, 100)], &[]).unwrap();
    let row = |sql: &str| other.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)));
    let read: (Option<i64>, Option<i64>) =
        row("SELECT cpu_us, peak_kib FROM test WHERE uid = 's::a'").unwrap();
    assert_eq!(read, (Some(9000), Some(4096)));
    let read: (Option<i64>, Option<i64>) =
        row("SELECT cpu_us, peak_kib FROM test WHERE uid = 's::b'").unwrap();
    assert_eq!(read, (None, None));
    let read: (Option<i64>, Option<i64>) = row("SELECT start_us, peak_kib FROM program").unwrap();
    assert_eq!(read, (Some(2000), Some(5000)));
    let history = HistoryStore::open(&place.path).unwrap();
    let test = history.load(["s::a"]).unwrap()["s::a"];
    assert_eq!((test.runs, test.peak_kib), (5, Some(4096)));
    assert_eq!(history.load_programs().unwrap()["s"].peak_kib, Some(5000));
}

#[test]
fn newer_file_is_not_modified() {
    let place = history_fixture();
    drop(HistoryStore::open(&place.path).unwrap());
    let other = rusqlite::Connection::open(&place.path).unwrap();
    other.execute_batch("PRAGMA user_version = 9").unwrap();
    let error = HistoryStore::open(&place.path).unwrap_err();
    assert!(matches!(error, HistoryError::OtherVersion { found: 9, .. }), "{error:?}");
}

#[test]
fn directory_error_is_a_soft_error() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let error = HistoryStore::open(&dir.path().join("file").join(FILE_NAME)).unwrap_err();
    assert!(matches!(error, HistoryError::Directory(_)), "{error:?}");
}

#[test]
fn names_and_durations_of_any_size_are_kept() {
    let place = history_fixture();
    let mut history = HistoryStore::open(&place.path).unwrap();
    let uid = format!("s::{}\n\"';*ü", "x".repeat(1 << 20));
    for _ in 0..3 {
        let huge = RecordedOutcome {
            uid: &uid,
            suite: "s",
            outcome: Outcome::Passed,
            duration: Duration::MAX,
            usage: None,
        };
        history.record(&[huge], &[]).unwrap();
    }
    assert_eq!(history.load([uid.as_str()]).unwrap()[&uid].runs, 3);
}

#[test]
fn no_other_file_remains_beside_the_history() {
    let place = history_fixture();
    let mut history = HistoryStore::open(&place.path).unwrap();
    history.record(&[outcome("s::a", Outcome::Passed, 1)], &[]).unwrap();
    let beside = std::fs::read_dir(place.path.parent().unwrap()).unwrap();
    assert_eq!(beside.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>(), [FILE_NAME]);
}

/// `--nocapture` shows the durations.
#[test]
fn large_history_is_recorded_and_loaded() {
    let place = history_fixture();
    let mut history = HistoryStore::open(&place.path).unwrap();
    let uids: Vec<String> = (0..20_000).map(|number| format!("suite::Group.case_{number}")).collect();
    let all: Vec<_> = uids.iter().map(|uid| outcome(uid, Outcome::Passed, 1)).collect();
    history.record(&all, &[]).unwrap();
    let start = Instant::now();
    history.record(&all[..2_000], &[]).unwrap();
    let record = start.elapsed();
    let start = Instant::now();
    assert_eq!(history.load(uids.iter().map(String::as_str)).unwrap().len(), 20_000);
    let load = start.elapsed();
    eprintln!("record 2,000: {record:?}; load 20,000: {load:?}");
}

#[test]
fn history_of_others_is_read_without_a_change() {
    use std::os::unix::fs::PermissionsExt as _;

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.sqlite");
    drop(HistoryStore::open(&path).unwrap());
    let before = std::fs::read(&path).unwrap();
    let open_to_all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(dir.path(), open_to_all).unwrap();
    HistoryStore::open_read_only(&path).unwrap();
    assert_eq!(std::fs::metadata(dir.path()).unwrap().permissions().mode() & 0o777, 0o777);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert!(HistoryStore::open_read_only(&dir.path().join("none")).is_err());
}

#[test]
fn exported_history_is_taken_over_once_and_never_for_newer_rows() {
    let dir = tempfile::tempdir().unwrap();
    let [ours, theirs, file] = ["ours", "theirs", "file"].map(|name| dir.path().join(name));
    let set_seen = |path: &Path, uid: &str, seen: i64| {
        let other = rusqlite::Connection::open(path).unwrap();
        other.execute("UPDATE test SET seen = ?2 WHERE uid = ?1", (uid, seen)).unwrap();
    };
    let mut history = HistoryStore::open(&theirs).unwrap();
    let outcomes = [("s::a", 10), ("s::b", 20)].map(|(uid, ms)| RecordedOutcome {
        uid,
        suite: "s",
        outcome: Outcome::Passed,
        duration: Duration::from_millis(ms),
        usage: None,
    });
    history.record(&outcomes, &[]).unwrap();
    assert_eq!(history.export(&file).unwrap(), 2);
    let mut own = HistoryStore::open(&ours).unwrap();
    own.record(&[RecordedOutcome { duration: Duration::from_millis(99), ..outcomes[1] }], &[]).unwrap();
    set_seen(&ours, "s::b", i64::MAX / 2);
    assert_eq!(own.import(&file).unwrap(), (2, 1));
    assert_eq!(own.import(&file).unwrap(), (2, 0));
    let known = own.load(["s::a", "s::b"]).unwrap();
    let last = |uid: &str| known[uid].last.unwrap().as_millis();
    assert_eq!((last("s::a"), last("s::b")), (10, 99));
    set_seen(&ours, "s::b", 0);
    assert_eq!(own.import(&file).unwrap(), (2, 1));
}

#[test]
fn damaged_file_is_not_imported_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let [ours, file] = ["ours", "file"].map(|name| dir.path().join(name));
    let mut own = HistoryStore::open(&ours).unwrap();
    std::fs::write(&file, b"no database at all, but long enough to be looked at").unwrap();
    assert!(matches!(own.import(&file), Err(HistoryError::Damaged { .. })));
    std::fs::remove_file(&file).unwrap();
    own.export(&file).unwrap();
    let other = rusqlite::Connection::open(&file).unwrap();
    let row = "INSERT INTO test VALUES ('u', 's', 'no such word', 1, 1, 1, 0, 0, 1, NULL, NULL)";
    other.execute(row, []).unwrap();
    drop(other);
    assert!(matches!(own.import(&file), Err(HistoryError::Damaged { .. })));
    assert!(own.load(["u"]).unwrap().is_empty());
}

#[test]
fn views_and_triggers_of_a_foreign_file_do_not_run() {
    let place = history_fixture();
    drop(HistoryStore::open(&place.path).unwrap());
    let file = place.path.with_file_name("foreign.sqlite");
    let foreign = rusqlite::Connection::open(&file).unwrap();
    // Without our settings, the query of this view would not end.
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
        SELECT '' || i AS uid, 's' AS suite, 'passed' AS outcome, 1 AS last_us, 1 AS mean_us, 1 AS runs,
            0 AS failures, 0 AS crashes, 9 AS seen, NULL AS cpu_us, NULL AS peak_kib FROM n";
    foreign
        .execute_batch(&format!(
            "CREATE VIEW test AS {endless};
             CREATE TABLE program (suite TEXT PRIMARY KEY, start_us INTEGER, seen INTEGER, peak_kib INTEGER);
             PRAGMA user_version = 2;"
        ))
        .unwrap();
    drop(foreign);
    let mut own = HistoryStore::open(&place.path).unwrap();
    assert!(own.import(&file).is_err());

    let connection = rusqlite::Connection::open(&place.path).unwrap();
    connection
        .execute_batch(
            "CREATE TRIGGER t AFTER INSERT ON test BEGIN INSERT INTO program VALUES ('x', 1, 1, 1); END;",
        )
        .unwrap();
    drop(connection);
    drop(own);
    let mut own = HistoryStore::open(&place.path).unwrap();
    own.record(&[outcome("s::a", Outcome::Passed, 1)], &[]).unwrap();
    assert!(own.load_programs().unwrap().is_empty());
}

#[test]
fn journal_that_names_another_file_is_refused_and_the_file_kept() {
    let place = history_fixture();
    let mut history = HistoryStore::open(&place.path).unwrap();
    history.record(&[outcome("s::a", Outcome::Passed, 1)], &[]).unwrap();
    drop(history);
    let victim = place.path.with_file_name("victim");
    std::fs::write(&victim, "mine").unwrap();
    let pages = u32::try_from(std::fs::metadata(&place.path).unwrap().len() / 4096).unwrap();
    // Journal of an interrupted transaction in several files, as documented by SQLite.
    let magic = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
    let mut journal = magic.to_vec();
    for number in [0, 1, pages, 512, 4096_u32] {
        journal.extend(number.to_be_bytes());
    }
    journal.resize(512, 0);
    let name = victim.to_str().unwrap().as_bytes();
    let sum = name.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    journal.extend(((1_u32 << 30) / 4096 + 1).to_be_bytes());
    journal.extend(name);
    journal.extend(u32::try_from(name.len()).unwrap().to_be_bytes());
    journal.extend(sum.to_be_bytes());
    journal.extend(magic);
    std::fs::write(place.path.with_file_name(format!("{FILE_NAME}-journal")), journal).unwrap();

    let error = HistoryStore::open(&place.path).and_then(|history| history.load(["s::a"])).unwrap_err();
    assert!(matches!(error, HistoryError::Foreign { .. }), "{error:?}");
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "mine");
}

#[test]
fn history_behind_a_link_is_refused_unless_the_user_names_it() {
    let place = history_fixture();
    drop(HistoryStore::open(&place.path).unwrap());
    let link = place.path.with_file_name("link.sqlite");
    std::os::unix::fs::symlink(&place.path, &link).unwrap();
    assert!(matches!(HistoryStore::open(&link), Err(HistoryError::Foreign { .. })));
    assert!(HistoryStore::open_read_only(&link).is_ok());
}
