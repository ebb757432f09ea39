//! Encodes the updates of one lease's tests for the client. [`UpdateEncoding`] writes their JSON.

use std::{collections::HashMap, sync::Arc};

use heeler_core::{TestId, TestResult, TestStart};
use heeler_protocol::{
    control::{LeasedTest, TestGroup, UpdateEncoding, WorkerId, WorkerLease},
    mtp::{ClientMembers, GroupDescription, NodeDescription},
};

use super::update_batch::UpdateBatch;

#[derive(Debug)]
pub(crate) struct NodeWriter {
    encoding: UpdateEncoding,
    suite: String,
    program: String,
    tests: HashMap<TestId, NodeTest>,
    /// Groups above the tests of the lease.
    groups: Vec<AncestorGroup>,
    /// JSON members that the client added to tests and groups of the lease.
    client_members: ClientMembers,
}

#[derive(Debug)]
struct NodeTest {
    test: Arc<LeasedTest>,
    /// Index of the test's group.
    group: Option<usize>,
    /// Start of the test, in milliseconds since 1970 (UTC). 0 before the start.
    started_ms: u64,
}

/// A group above the tests of the lease.
#[derive(Debug)]
struct AncestorGroup {
    uid: String,
    parent: Option<usize>,
    /// Encoded change that introduces the group.
    change: Vec<u8>,
    is_sent: bool,
}

impl NodeWriter {
    pub(crate) fn new(lease: &WorkerLease) -> Self {
        let mut writer = Self {
            encoding: lease.route.encoding,
            suite: lease.program.suite.clone(),
            program: lease.program.path.to_text().into_owned(),
            tests: HashMap::with_capacity(lease.tests.len()),
            groups: Vec::new(),
            client_members: ClientMembers::default(),
        };
        writer.extend(lease);
        writer
    }

    pub(crate) fn extend(&mut self, lease: &WorkerLease) {
        let first = self.groups.len();
        let added = ancestor_groups(lease).into_iter();
        self.groups.extend(added.map(|group| {
            let parent = group.parent.map(|parent| parent.saturating_add(first));
            AncestorGroup { parent, ..group }
        }));
        self.tests.extend(lease.tests.iter().map(|test| {
            let group = test.group.map(|group| first.saturating_add(group as usize));
            (test.test, NodeTest { test: Arc::clone(test), group, started_ms: 0 })
        }));
        self.client_members.append(lease.client_members.clone());
    }

    pub(crate) fn set_started(&mut self, start: TestStart) {
        if let Some(test) = self.tests.get_mut(&start.test) {
            test.started_ms = start.started_ms;
        }
    }

    /// Adds the ancestor groups of a test that have not been sent yet, outermost first.
    pub(crate) fn add_ancestor_groups(&mut self, test: TestId, updates: &mut UpdateBatch) {
        let mut next = self.tests.get(&test).and_then(|test| test.group);
        let mut unsent = Vec::new();
        while let Some(place) = next
            && let Some(above) = self.groups.get(place)
            && !above.is_sent
        {
            unsent.push(place);
            // Parents must come earlier, so that groups cannot form a cycle.
            next = above.parent.filter(|parent| *parent < place);
        }
        for place in unsent.into_iter().rev() {
            let above = &mut self.groups[place];
            above.is_sent = true;
            updates.add_group(&above.uid, &above.change);
        }
    }

    /// Appends the change for a started test.
    pub(crate) fn write_in_progress(&self, out: &mut Vec<u8>, test: TestId, worker: WorkerId) {
        if let Some(test) = self.tests.get(&test) {
            self.encoding.append_started(out, &self.describe(test), test.started_ms, worker);
        }
    }

    /// Appends the change for a running test, with its latest output.
    pub(crate) fn write_output(&self, out: &mut Vec<u8>, test: TestId, output: &str) {
        if let Some(test) = self.tests.get(&test) {
            self.encoding.append_output(out, &self.describe(test), test.started_ms, output);
        }
    }

    /// Appends the change for a test's final result.
    pub(crate) fn write_terminal(&self, out: &mut Vec<u8>, test: TestId, result: &TestResult) {
        if let Some(test) = self.tests.get(&test) {
            self.encoding.append_finished(out, &self.describe(test), result);
        }
    }

    fn describe<'a>(&'a self, NodeTest { test, group, .. }: &'a NodeTest) -> NodeDescription<'a> {
        let parent = group.and_then(|group| self.groups.get(group));
        NodeDescription {
            uid: &test.uid,
            display_name: test.listed.display.as_deref().unwrap_or(&test.listed.name),
            report_name: test.listed.report_name.as_ref(),
            parent: parent.map(|group| group.uid.as_str()),
            suite: &self.suite,
            program: &self.program,
            framework: "",
            file: test.listed.file.as_deref(),
            line: test.listed.line,
            traits: &test.listed.traits,
            client_members: self.client_members.get(&test.uid),
        }
    }
}

/// Returns the groups of a lease, all unsent.
fn ancestor_groups(lease: &WorkerLease) -> Vec<AncestorGroup> {
    let encoding = lease.route.encoding;
    let group = |group: &TestGroup| {
        let parent = group.parent.map(|place| place as usize);
        let parent_uid = parent.and_then(|place| Some(lease.groups.get(place)?.uid.as_str()));
        let description = GroupDescription {
            uid: &group.uid,
            name: &group.name,
            parent: parent_uid,
            file: group.file.as_deref(),
            line: group.line,
            client_members: lease.client_members.get(&group.uid),
        };
        let mut change = Vec::new();
        encoding.append_group(&mut change, &description);
        AncestorGroup { uid: group.uid.clone(), parent, change, is_sent: false }
    };
    let groups = if encoding.has_groups() { lease.groups.as_slice() } else { &[] };
    groups.iter().map(group).collect()
}

#[cfg(test)]
mod tests {
    use heeler_protocol::mtp::{NodeChange, NodeType};

    use super::*;
    use crate::test_values;

    fn leased() -> Arc<LeasedTest> {
        Arc::new(LeasedTest { uid: "s::A.b".into(), group: Some(1), ..test_values::leased(0) })
    }

    fn writer() -> NodeWriter {
        let group = |uid: &str, name: &str, parent| TestGroup {
            uid: uid.into(),
            name: name.into(),
            parent,
            ..TestGroup::default()
        };
        let groups = vec![group("s::", "s", None), group("s::A.", "A", Some(0))];
        NodeWriter::new(&WorkerLease { groups, tests: vec![leased()], ..test_values::lease(0) })
    }

    #[test]
    fn groups_are_sent_once_before_their_tests() {
        let mut writer = writer();
        let mut updates = UpdateBatch::at_position(0);
        for _ in 0..2 {
            writer.add_ancestor_groups(TestId(0), &mut updates);
            updates.add_started(TestId(0), |out| writer.write_in_progress(out, TestId(0), WorkerId(3)));
        }
        // Another lease of the same run shares the stream.
        let mut updates = updates.take();
        let changes: Vec<NodeChange> = updates
            .chunks()
            .flat_map(|chunk| chunk.changes)
            .map(|change| serde_json::from_slice(change).unwrap())
            .collect();
        let uids: Vec<_> = changes.iter().map(|change| change.node.uid.as_str()).collect();
        assert_eq!(uids, ["s::", "s::A.", "s::A.b", "s::A.b"]);
        assert_eq!(changes[1].parent.as_deref(), Some("s::"));
        assert_eq!((changes[1].node.node_type, changes[1].node.state), (NodeType::Group, None));
        updates = UpdateBatch::at_position(0);
        updates.sent_groups = ["s::".to_owned(), "s::A.".to_owned()].into();
        self::writer().add_ancestor_groups(TestId(0), &mut updates);
        assert!(updates.is_empty());
    }
}
