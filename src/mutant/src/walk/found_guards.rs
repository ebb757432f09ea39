//! Collects the guards of a source, one per place and form.

use crate::{
    guard::{Arm, Guard, GuardForm},
    syntax::Gate,
};
use std::{cmp::Reverse, collections::HashMap, ops::Range, sync::Arc};
use tree_sitter::Node;

/// The context of a node.
#[derive(Clone)]
pub(super) struct Scope {
    /// Name of the surrounding item.
    pub(super) item: Arc<str>,
    /// Index of the surrounding function; `None` at the top of a file.
    pub(super) function: Option<usize>,
    pub(super) gate: Gate,
    /// Whether to prevent the compiler from evaluating the value.
    pub(super) is_run: bool,
}

/// The place of a guard.
pub(super) struct Place {
    pub(super) form: GuardForm,
    pub(super) bytes: Range<usize>,
    pub(super) insert_at: usize,
}

impl Place {
    pub(super) fn around(form: GuardForm, node: Node<'_>) -> Self {
        Self { form, bytes: node.byte_range(), insert_at: node.start_byte() }
    }

    fn guard(self, function: usize, is_run: bool) -> Guard {
        let Self { form, bytes, insert_at } = self;
        Guard { form, bytes, insert_at, arms: Vec::new(), function, is_run }
    }
}

pub(super) struct FoundGuards<'a> {
    text: &'a str,
    guards: Vec<Guard>,
    by_place: HashMap<(GuardForm, usize, usize), usize>,
}

impl<'a> FoundGuards<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, guards: Vec::new(), by_place: HashMap::new() }
    }

    /// Adds a guard without mutants. No other guard has the same form and place.
    pub(super) fn add_place(&mut self, place: Place, function: usize) {
        self.guards.push(place.guard(function, false));
    }

    /// Adds the beginning of a function body, so coverage counts functions without mutants too.
    pub(super) fn add_entry(&mut self, place: Place, function: usize, scope: &Scope) {
        if scope.gate != Gate::Closed {
            self.guard_at(place, function, false);
        }
    }

    /// Adds a mutant to a place, unless the place has the same mutant already.
    pub(super) fn add(&mut self, place: Place, scope: &Scope, mut arm: Arm) {
        let Some(function) = scope.function else { return };
        match &scope.gate {
            Gate::Closed => return,
            Gate::Open => {}
            Gate::Ignored(reason) => arm.ignored = Some(reason.clone()),
        }
        let text = self.text;
        let guard = self.guard_at(place, function, scope.is_run);
        let replacement = |arm: &Arm| arm.change.applied(text, &guard.bytes).trim().to_owned();
        let is_known = |one: &Arm| one.mutator == arm.mutator && replacement(one) == replacement(&arm);
        if !guard.arms.iter().any(is_known) {
            guard.arms.push(arm);
        }
    }

    fn guard_at(&mut self, place: Place, function: usize, is_run: bool) -> &mut Guard {
        let key = (place.form, place.bytes.start, place.bytes.end);
        let index = *self.by_place.entry(key).or_insert_with(|| {
            self.guards.push(place.guard(function, is_run));
            self.guards.len() - 1
        });
        &mut self.guards[index]
    }

    /// Returns the guards ordered by position, outer guards first.
    pub(super) fn into_sorted(self) -> Vec<Guard> {
        let mut guards = self.guards;
        guards.sort_by_key(|guard| (guard.bytes.start, Reverse(guard.bytes.end), guard.form));
        guards
    }
}
