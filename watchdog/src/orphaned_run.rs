//! The finish of an orphaned run: the manifest lists the tests of the run, and the journals contain their
//! results. [`heeler_core::delivery::settle_orphaned_run`] decides which updates are still due.

use std::{collections::BTreeMap, fs, path::Path};

use heeler_core::{OsText, TestResult, WorkerId, error_chain};
use heeler_protocol::{
    control::{ClientRoute, DueResult, FinishRequest, JournalResend, RunKey},
    manifest::{self, Manifest, ManifestPlan},
    mtp::{Attachment, ClientMembers},
};
use heeler_recovery::{RunJournals, unfinished_result};

/// A run that has begun but not finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnfinishedRun {
    pub(crate) run: RunKey,
    pub(crate) route: ClientRoute,
    pub(crate) run_dir: OsText,
    pub(crate) has_attachments_stream: bool,
    /// Tests of the run, if the manifest could not be written.
    pub(crate) plan: Option<ManifestPlan>,
    /// Members that the client added to tests and groups.
    pub(crate) client_members: ClientMembers,
    /// Number of each dead worker's results that the client has handled, as reported by the coordinator.
    pub(crate) handled: BTreeMap<WorkerId, u64>,
}

/// Returns the finish to send: for each worker, the journalled results after those that the client is proven
/// to have, with their files; and a synthesized result for every other test.
pub(crate) fn finish(open: UnfinishedRun, proven: impl Fn(WorkerId) -> u64) -> FinishRequest {
    let run_dir = open.run_dir.as_path();
    // Damage is reported when a journal is sent.
    let mut journals = RunJournals::read(run_dir).unwrap_or_default();
    journals.files.retain(|file| file.worker.is_some());
    let plan = open.plan.map_or_else(|| read_manifest(run_dir), Ok).unwrap_or_else(|error| {
        tracing::error!(
            error,
            "cannot read the manifest of the run; tests without a result are not reported"
        );
        ManifestPlan::default()
    });
    // Synthesize results for unfinished tests.
    let due = journals.settle(plan.tests.len());
    let attempts = journals.last_attempts();
    let synthesized: Vec<_> = due
        .unfinished
        .into_iter()
        .map(|(test, unfinished)| DueResult {
            test,
            result: unfinished_result(unfinished, attempts.get(&test).copied(), "Heeler's coordinator died"),
        })
        .collect();
    // Collect the files of all results that are still due.
    let of_journals = journals.files.iter().flat_map(|journal| {
        let sent = journal.worker.map_or(0, &proven);
        journal.finished().skip(usize::try_from(sent).unwrap_or(usize::MAX)).map(|(_, result)| result)
    });
    let results = synthesized.iter().map(|due| &due.result).chain(of_journals);
    let attachments = results
        .flat_map(TestResult::files)
        .map(|file| Attachment::file(&file.path, &file.description))
        .collect();
    let resend = due.resend.into_iter().map(|(worker, position)| JournalResend {
        worker,
        proven: position.max(proven(worker)),
        known: Vec::new(),
    });
    FinishRequest {
        resend: resend.collect(),
        descriptions: plan.into_descriptions(),
        client_members: open.client_members,
        attachments,
        synthesized,
        program_failures: Vec::new(),
        has_attachments_stream: open.has_attachments_stream,
        is_relayed: false,
        relayed_workers: Vec::new(),
        sent_frames: 0,
        relayed_frames: 0,
        run: open.run,
        route: open.route,
        run_dir: open.run_dir,
    }
}

/// Returns the unsent rest of a relayed finish, after the coordinator died before writing all of it to the
/// client's main connection. `written`: number of its frames known to be written. `None` if even earlier
/// frames on that connection may be unwritten.
pub(crate) fn unwritten_finish(
    finish: FinishRequest,
    written: Option<u64>,
    proven: impl Fn(WorkerId) -> u64,
) -> FinishRequest {
    let mut finish = FinishRequest { is_relayed: false, relayed_frames: 0, ..finish };
    if let Some(frames) = written {
        finish.sent_frames = finish.sent_frames.max(frames);
        return finish;
    }
    let relayed = std::mem::take(&mut finish.relayed_workers);
    if relayed.is_empty() {
        return finish;
    }
    match read_manifest(finish.run_dir.as_path()) {
        Ok(plan) => finish.descriptions = plan.into_descriptions(),
        Err(error) => {
            tracing::error!(
                error,
                "cannot read the manifest of the run; results that may be lost are not sent again"
            );
            return finish;
        }
    }
    // The results are divided into frames differently this time, so start again from the first frame.
    finish.sent_frames = 0;
    for worker in relayed {
        let proven = proven(worker);
        match finish.resend.iter_mut().find(|resend| resend.worker == worker) {
            Some(resend) => resend.proven = resend.proven.min(proven),
            None => finish.resend.push(JournalResend { worker, proven, known: Vec::new() }),
        }
    }
    finish
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
    use heeler_core::{Attempt, NextRun, NotRunReason, Outcome, RunRecord, TestId, TestStart};
    use heeler_protocol::{
        control::{ClientId, TestGroup},
        journal,
        manifest::{ManifestHead, ManifestTest, RunOrigin},
        mtp::{ExecutionState, NodeChange},
    };
    use heeler_recovery::finish::{group_changes, synthesized_changes};

    use super::*;

    #[test]
    fn results_that_may_not_be_written_are_sent_again_from_the_proven_position() {
        let dir = tempfile::tempdir().unwrap();
        let test = ManifestTest { uid: "s::t".into(), ..ManifestTest::default() };
        let plan = ManifestPlan { tests: vec![test.clone()], ..ManifestPlan::default() };
        let head = ManifestHead { tests: 1, ..ManifestHead::new("r", RunOrigin::default()) };
        let manifest = Manifest { head, plan };
        fs::write(dir.path().join(manifest::MANIFEST_FILE_NAME), manifest.to_bytes()).unwrap();
        let resend = |worker, proven| JournalResend { worker: WorkerId(worker), proven, known: Vec::new() };
        let finish = FinishRequest {
            run_dir: OsText::from(dir.path()),
            is_relayed: true,
            relayed_workers: vec![WorkerId(1), WorkerId(2)],
            resend: vec![resend(1, 9), resend(3, 9)],
            sent_frames: 1,
            relayed_frames: 1,
            ..FinishRequest::default()
        };
        let proven = |worker| if worker == WorkerId(1) { 4 } else { 0 };
        let known = unwritten_finish(finish.clone(), Some(2), proven);
        assert_eq!((known.is_relayed, known.sent_frames, known.relayed_frames), (false, 2, 0));
        assert_eq!(known.resend, finish.resend, "what went before the frames is written");
        let unknown = unwritten_finish(finish, None, proven);
        assert_eq!((unknown.is_relayed, unknown.sent_frames, unknown.relayed_frames), (false, 0, 0));
        assert_eq!(unknown.resend, [resend(1, 4), resend(3, 9), resend(2, 0)]);
        assert_eq!(unknown.descriptions.tests[&TestId(0)], test);
    }

    fn started(test: u32) -> RunRecord {
        RunRecord::Started(TestStart { test: TestId(test), started_ms: 1, is_again: false })
    }

    #[test]
    fn every_manifest_test_gets_exactly_one_result() {
        let dir = tempfile::tempdir().unwrap();
        let tests = ["a", "b", "c", "d"].map(|name| ManifestTest {
            uid: format!("s::{name}"),
            display_name: name.into(),
            group: Some(0),
            ..ManifestTest::default()
        });
        let groups = vec![TestGroup { uid: "s::".into(), name: "s".into(), ..TestGroup::default() }];
        let mut client_members = ClientMembers::default();
        for test in &tests {
            client_members.insert(test.uid.clone(), "\"x.y\":1".to_owned());
        }
        let head = ManifestHead { tests: tests.len(), ..ManifestHead::new("r", RunOrigin::default()) };
        let manifest = Manifest {
            head,
            plan: ManifestPlan { tests: tests.to_vec(), groups, ..ManifestPlan::default() },
        };
        fs::write(dir.path().join(manifest::MANIFEST_FILE_NAME), manifest.to_bytes()).unwrap();
        let mut journal = journal::MAGIC.to_vec();
        let attempt = Attempt::new(Outcome::Failed, "m");
        for record in [
            started(0),
            RunRecord::Finished { test: TestId(0), result: TestResult::new(Outcome::Passed) },
            started(1),
            RunRecord::Provisional { test: TestId(1), attempt, next: NextRun::Retry },
            started(2),
        ] {
            journal::write(&mut journal, &record);
        }
        fs::write(dir.path().join("worker-7.journal"), &journal).unwrap();
        let open = |plan| UnfinishedRun {
            run: RunKey::new(ClientId(1), "r"),
            route: ClientRoute::default(),
            run_dir: OsText::from(dir.path()),
            has_attachments_stream: true,
            plan,
            handled: BTreeMap::new(),
            client_members: client_members.clone(),
        };
        let finished = finish(open(None), |_| 0);
        // If the plan could not be written to the manifest, it arrives with the begin of the run.
        fs::remove_file(dir.path().join(manifest::MANIFEST_FILE_NAME)).unwrap();
        assert_eq!(finish(open(Some(manifest.plan)), |_| 0), finished);
        let finish = finished;
        assert_eq!(finish.resend, [JournalResend { worker: WorkerId(7), proven: 0, known: Vec::new() }]);
        let outcomes: Vec<_> =
            finish.synthesized.iter().map(|due| (due.test.0, due.result.outcome)).collect();
        let not_run = Outcome::NotRun(NotRunReason::RunInterrupted);
        assert_eq!(outcomes, [(1, Outcome::Failed), (2, Outcome::Interrupted), (3, not_run)]);
        assert_eq!(group_changes(&finish).len(), 1);
        let changes: Vec<NodeChange> = synthesized_changes(&finish)
            .iter()
            .map(|change| serde_json::from_slice(change).unwrap())
            .collect();
        let nodes: Vec<_> = changes
            .iter()
            .map(|NodeChange { parent, node }| {
                assert_eq!((parent.as_deref(), &node.members["x.y"]), (Some("s::"), &1.into()));
                (node.uid.as_str(), node.state.unwrap(), node.outcome_kind.as_deref())
            })
            .collect();
        assert_eq!(
            nodes,
            [
                ("s::b", ExecutionState::Failed, None),
                ("s::c", ExecutionState::Error, Some("interrupted")),
                ("s::d", ExecutionState::Error, Some("not-run")),
            ]
        );
    }
}
