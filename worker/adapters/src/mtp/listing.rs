//! The dialogue that lists the tests of an application.

use std::collections::HashSet;

use heeler_protocol::{
    control::{ListedTest, ReportName, TraitPair},
    mtp::{TestNode, method},
    rpc::RpcError,
};

use super::{
    adapter::NAME,
    names::{Selector, names},
    session::{ApplicationEvent, FIRST_ID, MtpSession, exit, tests_request},
    transcript::MtpParser,
};
use crate::{
    AdapterListing, ConnectionInput, ListingDialogue, ListingError, ListingOutput, TranscriptParser, scan,
};

/// Trait that NUnit sets on tests that run only when selected individually.
const EXPLICIT_TRAIT: &str = "Explicit";

#[derive(Default)]
pub(super) struct MtpListing {
    session: MtpSession,
    state: ListingProgress,
}

#[derive(Default)]
struct ListingProgress {
    nodes: Vec<TestNode>,
    uids: HashSet<String>,
    /// Number of nodes whose uid was already used.
    repeated: usize,
    answer: Option<Result<(), RpcError>>,
    /// The application stays alive after listing its tests.
    stays: bool,
}

impl ListingProgress {
    fn on_event(&mut self, event: ApplicationEvent) -> Vec<u8> {
        match event {
            ApplicationEvent::Ready => return tests_request(FIRST_ID, method::DISCOVER, None),
            ApplicationEvent::Changes(nodes) => {
                // Groups have no state, so they are not tests.
                for node in nodes.into_iter().flatten().filter(|node| node.state.is_some()) {
                    if self.uids.insert(node.uid.clone()) {
                        self.nodes.push(node);
                    } else {
                        self.repeated += 1;
                    }
                }
            }
            ApplicationEvent::Response(FIRST_ID, answer) if self.answer.is_none() => {
                let is_waiting = self.stays && answer.is_ok();
                self.answer = Some(answer);
                return if is_waiting { Vec::new() } else { exit() };
            }
            ApplicationEvent::Response(..) | ApplicationEvent::ErrorLog(_) => {}
        }
        Vec::new()
    }

    fn tests(&self) -> Vec<ListedTest> {
        let names = names(&self.nodes);
        names.into_iter().zip(&self.nodes).map(|(name, node)| listed_test(name, node)).collect()
    }
}

fn listed_test(name: String, node: &TestNode) -> ListedTest {
    // Some frameworks write other text into the file member.
    let file = node.location_file.clone().filter(|file| file.starts_with('/') && !file.contains('\n'));
    let line = node.location_line_start.filter(|line| file.is_some() && *line > 0);
    let is_explicit = node.traits.iter().any(|one| one.name == EXPLICIT_TRAIT);
    let report_name = node.location_type.as_ref().map(|class| ReportName {
        class: class.clone(),
        name: name.strip_prefix(&format!("{class}.")).unwrap_or(&name).to_owned(),
    });
    ListedTest {
        name,
        report_name,
        file,
        line,
        skip: is_explicit.then(|| "explicit".to_owned()),
        traits: node
            .traits
            .iter()
            .map(|one| TraitPair { name: one.name.clone(), value: one.value.clone() })
            .collect(),
        selector: Some(Selector::of(node).to_text()),
        ..ListedTest::default()
    }
}

impl ListingDialogue for MtpListing {
    fn opening_request(&mut self) -> Vec<u8> {
        Vec::new()
    }

    fn on_reply(&mut self, _chunk: &[u8]) -> Vec<u8> {
        Vec::new()
    }

    fn on_connection(&mut self, connection: usize, input: ConnectionInput<'_>) -> Vec<u8> {
        let state = &mut self.state;
        self.session.on_input(connection, input, &mut |event| state.on_event(event))
    }

    fn awaited_reply(&self) -> Option<&'static str> {
        if self.state.answer.is_some() || self.session.fault().is_some() {
            return None;
        }
        self.session.awaited_opening().or(Some(method::DISCOVER))
    }

    fn finish(&mut self, output: &ListingOutput) -> Result<AdapterListing, ListingError> {
        let damaged = |reason: String| ListingError::Damaged { framework: NAME, reason };
        if let Some(fault) = self.session.fault() {
            return Err(damaged(fault.to_owned()));
        }
        let is_well = output.code == Some(0) && output.signal.is_none();
        match &self.state.answer {
            Some(Err(error)) => {
                let error = scan::truncated(&error.to_string(), 2000).to_owned();
                return Err(damaged(format!("{} failed: {error}", method::DISCOVER)));
            }
            Some(Ok(())) => {}
            None if self.session.awaited_opening().is_some() && is_well => {
                let reason = "it exited without connecting to Heeler".to_owned();
                return Err(ListingError::NotThisFramework { framework: NAME, reason });
            }
            None if self.session.awaited_opening().is_some() => return Err(ListingError::of_exit(output)),
            None if is_well => {
                return Err(damaged(format!("it exited with code 0 before answering {}", method::DISCOVER)));
            }
            None => return Err(ListingError::of_recognized_exit(output)),
        }
        let mut warnings = Vec::new();
        if self.state.repeated > 0 {
            let repeated = self.state.repeated;
            warnings.push(format!(
                "lists {repeated} tests with the uid of another test; they run together as one test"
            ));
        }
        Ok(AdapterListing {
            framework: NAME,
            tests: self.state.tests(),
            failure: (!is_well).then(|| ListingError::of_recognized_exit(output)),
            warnings,
            depends_on: Vec::new(),
        })
    }

    fn stay(&mut self) {
        self.state.stays = true;
    }

    fn is_waiting(&self) -> bool {
        self.state.stays && self.session.fault().is_none() && matches!(self.state.answer, Some(Ok(())))
    }

    fn closing_request(&mut self) -> Vec<u8> {
        exit()
    }

    fn continue_with(self: Box<Self>, tests: &[&ListedTest]) -> Option<Box<dyn TranscriptParser + Send>> {
        let is_waiting = self.is_waiting();
        is_waiting.then(|| Box::new(MtpParser::continuing(self.session, tests)) as _)
    }
}
