//! The finish of an orphaned run: the manifest holds the tests of the run, the journals hold their results.
//! Which updates are still due is decided by [`model::finish::settle_alone`].

use std::{collections::BTreeMap, fs, path::Path};

use model::{
    TestId,
    finish::{Said, Unsettled, settle_alone},
};

use wire::{
    control::{Attempt, Finish, OsBytes, Resend, TestIndex, WorkerId, worker_of_journal},
    journal::{self, Record},
    manifest::{self, Manifest, Plan},
    mtp::{Attachment, RawChange, attachments_of, group_node},
    recovery::{self, Missing, group_uid},
};

use crate::errors::chain;

/// A run that is open: begun and not finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenRun {
    pub(crate) run: String,
    pub(crate) run_dir: OsBytes,
    pub(crate) has_attachments_stream: bool,
    /// The tests of the run, if the manifest could not be written.
    pub(crate) plan: Option<Plan>,
}

/// Contents of the journals that do not depend on which worker wrote them.
#[derive(Debug, Default)]
struct Known {
    /// The last attempt of each test whose result is provisional.
    held: BTreeMap<TestId, Attempt>,
    /// The attachments of the settled results.
    attachments: Vec<Attachment>,
}

/// Returns the finish to send: all journalled results again, because it is unknown which of them the client
/// has received, and a synthesized result for every other test.
pub(crate) fn finish(open: OpenRun) -> Finish {
    let run_dir = open.run_dir.as_path();
    let mut known = Known::default();
    let journals: Vec<_> = workers(run_dir)
        .into_iter()
        .map(|worker| (model::WorkerId(worker.0), take_in(&mut known, run_dir, worker)))
        .collect();
    let plan = open.plan.map_or_else(|| read_manifest(run_dir), Ok).unwrap_or_else(|error| {
        tracing::error!(error, "tests without a result can't be told");
        Plan::default()
    });
    let said = journals.iter().map(|(worker, said)| (*worker, said.as_slice()));
    let due = settle_alone(plan.tests.len(), said);
    let died = "Heeler's coordinator died";
    let change = |(test, why): &(TestId, Unsettled)| {
        let missing = match (why, known.held.get(test)) {
            (Unsettled::Held, Some(attempt)) => Missing::Held(attempt, died),
            (Unsettled::Interrupted | Unsettled::Held, _) => Missing::Interrupted(died),
            (Unsettled::NotRun, _) => Missing::NotRun(died),
        };
        recovery::told(&plan, TestIndex(test.0), missing)
    };
    let told: Vec<RawChange> = due.told.iter().filter_map(change).collect();
    let resend = due.resend.into_iter().map(|(worker, proven)| Resend {
        worker: WorkerId(worker.0),
        proven,
        known: Vec::new(),
    });
    Finish {
        resend: resend.collect(),
        groups: plan
            .groups
            .iter()
            .map(|group| {
                let node = group_node(&group.uid, &group.name);
                RawChange::new(group_uid(&plan, group.parent), &node, group.foreign.as_deref())
            })
            .collect(),
        attachments: told
            .iter()
            .flat_map(|change| attachments_of(change.as_bytes()))
            .chain(known.attachments)
            .collect(),
        told,
        has_attachments_stream: open.has_attachments_stream,
        run: open.run,
        run_dir: open.run_dir,
    }
}

/// Returns the workers that have journals, sorted by id.
fn workers(run_dir: &Path) -> Vec<WorkerId> {
    let Ok(entries) = fs::read_dir(run_dir) else { return Vec::new() };
    let mut workers: Vec<_> =
        entries.filter_map(|entry| worker_of_journal(entry.ok()?.file_name().to_str()?)).collect();
    workers.sort_unstable();
    workers
}

fn take_in(known: &mut Known, run_dir: &Path, worker: WorkerId) -> Vec<(TestId, Said)> {
    // Damage is reported when the journal is sent.
    let Ok(bytes) = fs::read(run_dir.join(wire::control::journal_name(worker))) else { return Vec::new() };
    let records = journal::read(&bytes).records.into_iter();
    let said = records.filter_map(|record| match record {
        Record::Started(test) => Some((TestId(test.0), Said::Started)),
        Record::Settled { result, change } => {
            known.attachments.extend(attachments_of(&change));
            Some((TestId(result.test.0), Said::Settled))
        }
        Record::Held { test, attempt } => {
            known.held.insert(TestId(test.0), attempt);
            Some((TestId(test.0), Said::Held))
        }
        Record::Charged { .. } | Record::Ended(_) => None,
    });
    said.collect()
}

fn read_manifest(run_dir: &Path) -> Result<Plan, String> {
    let path = run_dir.join(manifest::FILE_NAME);
    let bytes = fs::read(&path).map_err(|error| format!("read {}: {error}", path.display()))?;
    let manifest =
        Manifest::read(&bytes).map_err(|error| format!("read {}: {}", path.display(), chain(&error)))?;
    Ok(manifest.plan)
}

#[cfg(test)]
mod tests {
    use wire::{
        control::{Group, JournalledResult},
        manifest::{Head, Origin, PlannedTest},
        mtp::{Change, ExecutionState},
    };

    use super::*;

    #[test]
    fn every_test_of_the_manifest_gets_one_result_from_journals_or_by_word() {
        let dir = tempfile::tempdir().unwrap();
        let tests = ["a", "b", "c", "d"].map(|name| PlannedTest {
            uid: format!("s::{name}"),
            display_name: name.into(),
            suite: "s".into(),
            group: Some(0),
            foreign: Some("\"x.y\":1".into()),
        });
        let groups = vec![Group { uid: "s::".into(), name: "s".into(), parent: None, foreign: None }];
        let head = Head { tests: tests.len(), ..Head::new("r", Origin::default()) };
        let manifest = Manifest { head, plan: Plan { tests: tests.to_vec(), groups, ..Plan::default() } };
        fs::write(dir.path().join(manifest::FILE_NAME), manifest.to_bytes()).unwrap();
        let mut journal = journal::MAGIC.to_vec();
        let result = JournalledResult { test: TestIndex(0), state: ExecutionState::Passed, duration_us: 1 };
        let attempt = Attempt {
            state: ExecutionState::Failed,
            message: "m".into(),
            death: None,
            stdout: String::new(),
            stderr: String::new(),
            evidence: None,
            duration_us: 1,
        };
        for record in [
            Record::Started(TestIndex(0)),
            Record::Settled { result, change: b"{}".to_vec() },
            Record::Started(TestIndex(1)),
            Record::Held { test: TestIndex(1), attempt },
            Record::Started(TestIndex(2)),
        ] {
            journal::write(&mut journal, &record);
        }
        fs::write(dir.path().join("worker-7.journal"), &journal).unwrap();
        let open = |plan| OpenRun {
            run: "r".into(),
            run_dir: OsBytes::from(dir.path()),
            has_attachments_stream: true,
            plan,
        };
        let finished = finish(open(None));
        // A plan that could not be written to the manifest arrives with the begin of the run.
        fs::remove_file(dir.path().join(manifest::FILE_NAME)).unwrap();
        assert_eq!(finish(open(Some(manifest.plan))), finished);
        let finish = finished;
        assert_eq!(finish.resend, [Resend { worker: WorkerId(7), proven: 0, known: Vec::new() }]);
        let told: Vec<_> = finish
            .told
            .iter()
            .map(|raw| {
                let change: Change = serde_json::from_slice(raw.as_bytes()).unwrap();
                assert_eq!((change.parent.as_deref(), &change.node.other["x.y"]), (Some("s::"), &1.into()));
                (change.node.uid, change.node.state.unwrap(), change.node.outcome_kind)
            })
            .collect();
        let told: Vec<_> =
            told.iter().map(|(uid, state, kind)| (uid.as_str(), *state, kind.as_deref())).collect();
        assert_eq!(finish.groups, [RawChange::group(None, "s::", "s")]);
        assert_eq!(
            told,
            [
                ("s::b", ExecutionState::Failed, None),
                ("s::c", ExecutionState::Error, Some("interrupted")),
                ("s::d", ExecutionState::Error, Some("not-run")),
            ]
        );
    }
}
