//! The finish of an orphaned run: the manifest holds the tests of the run, the journals hold their results.
//! Which updates are still due is decided by [`heeler_core::finish::settle_alone`].

use std::{collections::BTreeMap, fs, path::Path};

use heeler_core::{
    TestId,
    delivery::{JournalMark, UnfinishedTest, settle_orphaned_run},
};

use heeler_protocol::{
    control::{
        Attempt, ClientRoute, FinishRequest, JournalResend, OsText, RunKey, TestIndex, WorkerId,
        worker_of_journal,
    },
    journal::{self, JournalRecord},
    manifest::{self, Manifest, ManifestPlan},
    mtp::{Attachment, EncodedChange, attachments_of, group_node},
    unfinished_tests::{self, UnfinishedReason, group_uid},
};

use heeler_core::error_chain;

/// A run that is open: begun and not finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenRun {
    pub(crate) run: RunKey,
    pub(crate) route: ClientRoute,
    pub(crate) run_dir: OsText,
    pub(crate) has_attachments_stream: bool,
    /// The tests of the run, if the manifest could not be written.
    pub(crate) plan: Option<ManifestPlan>,
}

/// Contents of the journals that do not depend on which worker wrote them.
#[derive(Debug, Default)]
struct OrphanRecords {
    /// The last attempt of each test whose result is provisional.
    provisional: BTreeMap<TestId, Attempt>,
    /// The attachments of the settled results.
    attachments: Vec<Attachment>,
}

/// Returns the finish to send: all journalled results again, because it is unknown which of them the client
/// has received, and a synthesized result for every other test.
pub(crate) fn finish(open: OpenRun) -> FinishRequest {
    let run_dir = open.run_dir.as_path();
    let mut known = OrphanRecords::default();
    let journals: Vec<_> = journalled_workers(run_dir)
        .into_iter()
        .map(|worker| (heeler_core::WorkerId(worker.0), read_journal(&mut known, run_dir, worker)))
        .collect();
    let plan = open.plan.map_or_else(|| read_manifest(run_dir), Ok).unwrap_or_else(|error| {
        tracing::error!(error, "tests without a result can't be told");
        ManifestPlan::default()
    });
    let said = journals.iter().map(|(worker, said)| (*worker, said.as_slice()));
    let due = settle_orphaned_run(plan.tests.len(), said);
    let died = "Heeler's coordinator died";
    let change = |(test, why): &(TestId, UnfinishedTest)| {
        let missing = match (why, known.provisional.get(test)) {
            (UnfinishedTest::Provisional, Some(attempt)) => UnfinishedReason::Provisional(attempt, died),
            (UnfinishedTest::Interrupted | UnfinishedTest::Provisional, _) => {
                UnfinishedReason::Interrupted(died)
            }
            (UnfinishedTest::NotRun, _) => UnfinishedReason::NotRun(died),
        };
        unfinished_tests::synthesized_change(&plan, TestIndex(test.0), missing)
    };
    let told: Vec<EncodedChange> = due.unfinished.iter().filter_map(change).collect();
    let resend = due.resend.into_iter().map(|(worker, proven)| JournalResend {
        worker: WorkerId(worker.0),
        proven,
        known: Vec::new(),
    });
    FinishRequest {
        resend: resend.collect(),
        groups: plan
            .groups
            .iter()
            .map(|group| {
                let node = group_node(&group.uid, &group.name);
                EncodedChange::new(group_uid(&plan, group.parent), &node, group.client_members.as_deref())
            })
            .collect(),
        attachments: told
            .iter()
            .flat_map(|change| attachments_of(change.as_bytes()))
            .chain(known.attachments)
            .collect(),
        synthesized: told,
        has_attachments_stream: open.has_attachments_stream,
        run: open.run,
        route: open.route,
        run_dir: open.run_dir,
    }
}

/// Returns the workers that have journals, sorted by id.
fn journalled_workers(run_dir: &Path) -> Vec<WorkerId> {
    let Ok(entries) = fs::read_dir(run_dir) else { return Vec::new() };
    let mut workers: Vec<_> =
        entries.filter_map(|entry| worker_of_journal(entry.ok()?.file_name().to_str()?)).collect();
    workers.sort_unstable();
    workers
}

fn read_journal(known: &mut OrphanRecords, run_dir: &Path, worker: WorkerId) -> Vec<(TestId, JournalMark)> {
    // Damage is reported when the journal is sent.
    let Ok(bytes) = fs::read(run_dir.join(heeler_protocol::control::journal_name(worker))) else {
        return Vec::new();
    };
    let records = journal::read(&bytes).records.into_iter();
    let said = records.filter_map(|record| match record {
        JournalRecord::Started(test) => Some((TestId(test.0), JournalMark::Started)),
        JournalRecord::Settled { result, change } => {
            known.attachments.extend(attachments_of(&change));
            Some((TestId(result.test.0), JournalMark::Settled))
        }
        JournalRecord::Provisional { test, attempt } => {
            known.provisional.insert(TestId(test.0), attempt);
            Some((TestId(test.0), JournalMark::Provisional))
        }
        JournalRecord::ProgramFailure { .. } | JournalRecord::Ended(_) => None,
    });
    said.collect()
}

fn read_manifest(run_dir: &Path) -> Result<ManifestPlan, String> {
    let path = run_dir.join(manifest::MANIFEST_FILE_NAME);
    let bytes = fs::read(&path).map_err(|error| format!("read {}: {error}", path.display()))?;
    let manifest = Manifest::read(&bytes)
        .map_err(|error| format!("read {}: {}", path.display(), error_chain(&error)))?;
    Ok(manifest.plan)
}

#[cfg(test)]
mod tests {
    use heeler_protocol::{
        control::{ClientId, DeliveryLimits, JournalledResult, TestGroup},
        manifest::{ManifestHead, ManifestTest, RunOrigin},
        mtp::{ExecutionState, NodeChange},
    };

    use super::*;

    #[test]
    fn every_manifest_test_gets_exactly_one_result() {
        let dir = tempfile::tempdir().unwrap();
        let tests = ["a", "b", "c", "d"].map(|name| ManifestTest {
            uid: format!("s::{name}"),
            display_name: name.into(),
            suite: "s".into(),
            group: Some(0),
            client_members: Some("\"x.y\":1".into()),
        });
        let groups =
            vec![TestGroup { uid: "s::".into(), name: "s".into(), parent: None, client_members: None }];
        let head = ManifestHead { tests: tests.len(), ..ManifestHead::new("r", RunOrigin::default()) };
        let manifest = Manifest {
            head,
            plan: ManifestPlan { tests: tests.to_vec(), groups, ..ManifestPlan::default() },
        };
        fs::write(dir.path().join(manifest::MANIFEST_FILE_NAME), manifest.to_bytes()).unwrap();
        let mut journal = journal::MAGIC.to_vec();
        let result = JournalledResult { test: TestIndex(0), state: ExecutionState::Passed, duration_us: 1 };
        let attempt = Attempt {
            state: ExecutionState::Failed,
            message: "m".into(),
            exit_reason: None,
            stdout: String::new(),
            stderr: String::new(),
            diagnostics: None,
            duration_us: 1,
        };
        for record in [
            JournalRecord::Started(TestIndex(0)),
            JournalRecord::Settled { result, change: b"{}".to_vec() },
            JournalRecord::Started(TestIndex(1)),
            JournalRecord::Provisional { test: TestIndex(1), attempt },
            JournalRecord::Started(TestIndex(2)),
        ] {
            journal::write(&mut journal, &record);
        }
        fs::write(dir.path().join("worker-7.journal"), &journal).unwrap();
        let open = |plan| OpenRun {
            run: RunKey::new(ClientId(1), "r"),
            route: ClientRoute {
                callback: None,
                limits: DeliveryLimits { connect_ms: 1, stall_ms: 1, drain_ms: 1 },
            },
            run_dir: OsText::from(dir.path()),
            has_attachments_stream: true,
            plan,
        };
        let finished = finish(open(None));
        // A plan that could not be written to the manifest arrives with the begin of the run.
        fs::remove_file(dir.path().join(manifest::MANIFEST_FILE_NAME)).unwrap();
        assert_eq!(finish(open(Some(manifest.plan))), finished);
        let finish = finished;
        assert_eq!(finish.resend, [JournalResend { worker: WorkerId(7), proven: 0, known: Vec::new() }]);
        let told: Vec<_> = finish
            .synthesized
            .iter()
            .map(|raw| {
                let change: NodeChange = serde_json::from_slice(raw.as_bytes()).unwrap();
                assert_eq!((change.parent.as_deref(), &change.node.members["x.y"]), (Some("s::"), &1.into()));
                (change.node.uid, change.node.state.unwrap(), change.node.outcome_kind)
            })
            .collect();
        let told: Vec<_> =
            told.iter().map(|(uid, state, kind)| (uid.as_str(), *state, kind.as_deref())).collect();
        assert_eq!(finish.groups, [EncodedChange::group(None, "s::", "s")]);
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
