//! The finish of a run whose coordinator has died: the manifest tells what was to run, the journals what became of it.
//! What is due then is decided by [`model::finish::settle_alone`].

use std::{collections::BTreeMap, fs, path::Path};

use model::{
    TestId,
    finish::{Said, Unsettled, settle_alone},
};

use wire::{
    control::{Attempt, Finish, OsBytes, Resend, WorkerId, worker_of_journal},
    journal::{self, Record},
    manifest::{self, Manifest, ManifestTest},
    mtp::{Attachment, ExecutionState, RawChange, TestNode, attachments_of, group_node, key},
};

/// A run that has begun and is not finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenRun {
    pub(crate) run: String,
    pub(crate) run_dir: OsBytes,
    pub(crate) has_attachments_stream: bool,
}

/// What the journals tell, beside who said it.
#[derive(Debug, Default)]
struct Known {
    /// The last attempt of each test that was held back.
    held: BTreeMap<TestId, Attempt>,
    /// The files that settled results name.
    attachments: Vec<Attachment>,
}

/// Returns what is to be sent: all journalled results again, because nobody knows what the client has, and a result for
/// every other test.
pub(crate) fn finish(open: OpenRun) -> Finish {
    let run_dir = open.run_dir.as_path();
    let mut known = Known::default();
    let journals: Vec<_> = workers(run_dir)
        .into_iter()
        .map(|worker| (model::WorkerId(worker.0), take_in(&mut known, run_dir, worker)))
        .collect();
    let Manifest { tests, groups, .. } = read_manifest(run_dir).unwrap_or_else(|error| {
        tracing::error!(error, "tests without a result can't be told");
        Manifest { version: manifest::VERSION, run: open.run.clone(), tests: Vec::new(), groups: Vec::new() }
    });
    let said = journals.iter().map(|(worker, said)| (*worker, said.as_slice()));
    let due = settle_alone(tests.len(), said);
    let group_uid = |place: Option<u32>| Some(groups.get(place? as usize)?.uid.as_str());
    let change = |(index, why): &(TestId, Unsettled)| {
        let test = &tests[index.index()];
        let attempt = known.held.get(index);
        RawChange::new(group_uid(test.group), &node(test, *why, attempt), test.foreign.as_deref())
    };
    let told: Vec<RawChange> = due.told.iter().map(change).collect();
    let resend = due.resend.into_iter().map(|(worker, proven)| Resend {
        worker: WorkerId(worker.0),
        proven,
        known: Vec::new(),
    });
    Finish {
        resend: resend.collect(),
        groups: groups
            .iter()
            .map(|group| {
                let node = group_node(&group.uid, &group.name);
                RawChange::new(group_uid(group.parent), &node, group.foreign.as_deref())
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

/// The workers that have journals, in order.
fn workers(run_dir: &Path) -> Vec<WorkerId> {
    let Ok(entries) = fs::read_dir(run_dir) else { return Vec::new() };
    let mut workers: Vec<_> =
        entries.filter_map(|entry| worker_of_journal(entry.ok()?.file_name().to_str()?)).collect();
    workers.sort_unstable();
    workers
}

fn take_in(known: &mut Known, run_dir: &Path, worker: WorkerId) -> Vec<(TestId, Said)> {
    // Damage is told when the journal is sent.
    let Ok(bytes) = fs::read(run_dir.join(wire::control::journal_name(worker))) else { return Vec::new() };
    let records = journal::read(&bytes).0.into_iter();
    records
        .map(|record| match record {
            Record::Started(test) => (TestId(test.0), Said::Started),
            Record::Settled { result, change } => {
                known.attachments.extend(attachments_of(&change));
                (TestId(result.test.0), Said::Settled)
            }
            Record::Held { test, attempt } => {
                known.held.insert(TestId(test.0), attempt);
                (TestId(test.0), Said::Held)
            }
        })
        .collect()
}

fn read_manifest(run_dir: &Path) -> Result<Manifest, String> {
    let path = run_dir.join(manifest::FILE_NAME);
    let bytes = fs::read(&path).map_err(|error| format!("read {}: {error}", path.display()))?;
    let manifest: Manifest =
        serde_json::from_slice(&bytes).map_err(|error| format!("read {}: {error}", path.display()))?;
    if manifest.version != manifest::VERSION {
        return Err(format!("{} has version {}", path.display(), manifest.version));
    }
    Ok(manifest)
}

fn node(test: &ManifestTest, why: Unsettled, attempt: Option<&Attempt>) -> TestNode {
    let mut node = TestNode::test(&test.uid, &test.display_name, ExecutionState::Error);
    let died = "Heeler's coordinator died";
    match (why, attempt) {
        (Unsettled::Held, Some(attempt)) => {
            node.state = Some(attempt.state);
            node.error_message =
                Some(format!("{}\n({died} before it could be tried again)", attempt.message));
            node.standard_output = Some(attempt.stdout.clone()).filter(|text| !text.is_empty());
            node.standard_error = Some(attempt.stderr.clone()).filter(|text| !text.is_empty());
            if let Some(evidence) = &attempt.evidence {
                node.error_stacktrace = Some(evidence.stack.clone()).filter(|stack| !stack.is_empty());
                node.attach(&evidence.files);
            }
        }
        (Unsettled::Interrupted | Unsettled::Held, _) => {
            node.outcome_kind = Some("interrupted".to_owned());
            node.error_message = Some(format!("it was running when {died}"));
        }
        (Unsettled::NotRun, _) => {
            node.outcome_kind = Some("not-run".to_owned());
            node.error_message = Some(format!("not run: {died}"));
        }
    }
    node.other.insert(key::SUITE.to_owned(), test.suite.clone().into());
    node
}

#[cfg(test)]
mod tests {
    use wire::{
        control::{Group, JournalledResult, TestIndex},
        mtp::Change,
    };

    use super::*;

    #[test]
    fn every_test_of_the_manifest_gets_one_result_from_journals_or_by_word() {
        let dir = tempfile::tempdir().unwrap();
        let tests = ["a", "b", "c", "d"].map(|name| ManifestTest {
            uid: format!("s::{name}"),
            display_name: name.into(),
            suite: "s".into(),
            group: Some(0),
            foreign: Some("\"x.y\":1".into()),
        });
        let groups = vec![Group { uid: "s::".into(), name: "s".into(), parent: None, foreign: None }];
        let manifest =
            Manifest { version: manifest::VERSION, run: "r".into(), tests: tests.to_vec(), groups };
        fs::write(dir.path().join(manifest::FILE_NAME), serde_json::to_vec(&manifest).unwrap()).unwrap();
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
        let open =
            OpenRun { run: "r".into(), run_dir: OsBytes::from(dir.path()), has_attachments_stream: true };
        let finish = finish(open);
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
