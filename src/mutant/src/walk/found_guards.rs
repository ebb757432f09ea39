//! The guards that were found in a source, each place once.

use crate::{
    guard::{Arm, Guard, GuardForm},
    syntax::Gate,
};
use std::{cmp::Reverse, collections::HashMap, ops::Range, sync::Arc};
use tree_sitter::Node;

/// Context of a node.
#[derive(Clone)]
pub(super) struct Scope {
    /// Name of the item around it.
    pub(super) item: Arc<str>,
    /// Index of the function around it; none at the top of a file.
    pub(super) function: Option<usize>,
    pub(super) gate: Gate,
    /// The compiler must not evaluate the value at compile time.
    pub(super) is_run: bool,
}

/// Where a guard is.
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

/// The guards of a source.
pub(super) struct FoundGuards<'a> {
    text: &'a str,
    guards: Vec<Guard>,
    by_place: HashMap<(GuardForm, usize, usize), usize>,
}

impl<'a> FoundGuards<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, guards: Vec::new(), by_place: HashMap::new() }
    }

    /// Notes a place without mutants: nothing else has a guard of its form there.
    pub(super) fn add_place(&mut self, place: Place, function: usize) {
        self.guards.push(place.guard(function, false));
    }

    /// Records the beginning of a function body, so that coverage counts functions without mutants too.
    pub(super) fn add_entry(&mut self, place: Place, function: usize, scope: &Scope) {
        if scope.gate != Gate::Closed {
            self.guard_at(place, function, false);
        }
    }

    /// Notes a mutant of a place, beside those that the place has already.
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

    /// Returns the guards in the order of their places, the outer ones first.
    pub(super) fn into_sorted(self) -> Vec<Guard> {
        let mut guards = self.guards;
        guards.sort_by_key(|guard| (guard.bytes.start, Reverse(guard.bytes.end), guard.form));
        guards
    }
}
