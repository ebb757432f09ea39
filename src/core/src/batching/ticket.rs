//! The ticket against starvation. Tests that need much are passed over as long as tests that need less keep
//! the slots busy. Tests passed over once per slot get the ticket: until they start, nothing starts that
//! takes something they lack.

use std::collections::BTreeMap;

use crate::{ProgramId, Slots};

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Ticket {
    holder: Option<ProgramId>,
    /// How often each program has been passed over.
    passed_over: BTreeMap<ProgramId, usize>,
}

impl Ticket {
    pub(super) fn holder(&self) -> Option<ProgramId> {
        self.holder
    }

    /// Records that a batch has started which takes something that this program lacks.
    pub(super) fn pass_over(&mut self, program: ProgramId, slots: Slots) {
        let times = self.passed_over.entry(program).or_default();
        *times += 1;
        if *times >= slots.0 && self.holder.is_none() {
            self.holder = Some(program);
        }
    }

    /// Records that a batch of this program has started.
    pub(super) fn on_start(&mut self, program: ProgramId) {
        self.passed_over.remove(&program);
        self.take_from(program);
    }

    /// Takes the ticket from a program that has no more tests.
    pub(super) fn take_from(&mut self, program: ProgramId) {
        if self.holder == Some(program) {
            self.holder = None;
        }
    }
}
