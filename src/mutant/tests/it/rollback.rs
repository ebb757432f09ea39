//! The search for mutants that do not compile.

use heeler_mutant::{
    Rollback, RollbackStep,
    compiler::{Blame, MutantKey, UnexplainedError},
};
use proptest::prelude::*;
use std::collections::BTreeSet;

const fn key(mutant: usize) -> MutantKey {
    MutantKey { source: 0, mutant }
}

/// Simulates a compiler of one source whose functions have ten mutants each: reports the guilty mutants that
/// are not left out.
fn compile(left_out: &BTreeSet<usize>, guilty: &BTreeSet<usize>, is_vague: bool) -> Blame {
    let mut blame = Blame::default();
    for &mutant in guilty.difference(left_out) {
        if is_vague {
            let error =
                UnexplainedError { source: 0, function: Some(mutant / 10), summary: "vague".to_owned() };
            blame.unexplained.push(error);
        } else {
            blame.mutants.insert(key(mutant), "clear".to_owned());
        }
    }
    blame
}

proptest! {
    #[test]
    fn exactly_the_guilty_are_withdrawn(guilty in prop::collection::btree_set(0usize..40, 0..12), is_vague: bool) {
        let mut rollback = Rollback::new((0..40).map(|mutant| (key(mutant), mutant / 10)));
        let mut step = RollbackStep::Check;
        while step == RollbackStep::Check {
            step = rollback.next(&compile(&rollback.left_out(0), &guilty, is_vague));
            prop_assert!(rollback.rounds() < 200);
        }
        prop_assert_eq!(step, RollbackStep::Done);
        let withdrawn: BTreeSet<_> = rollback.withdrawn().keys().map(|key| key.mutant).collect();
        prop_assert_eq!(&withdrawn, &guilty);
        prop_assert_eq!(rollback.left_out(0), guilty);
    }
}

#[test]
fn sources_that_do_not_compile_by_themselves_are_broken() {
    let error = |function| {
        let error = UnexplainedError { source: 0, function, summary: "error: x".to_owned() };
        Blame { unexplained: vec![error], ..Blame::default() }
    };
    let broken = RollbackStep::Broken(vec!["error: x".to_owned()]);
    let begin = || Rollback::new((0..4).map(|mutant| (key(mutant), 0)));
    let mut rollback = begin();
    assert_eq!(rollback.next(&error(Some(0))), RollbackStep::Check);
    assert_eq!(rollback.next(&error(Some(0))), broken);
    assert_eq!(begin().next(&error(Some(7))), broken, "a function without mutants");
    assert_eq!(begin().next(&error(None)), broken);
    let foreign = Blame { foreign: vec!["error: x".to_owned()], ..Blame::default() };
    assert_eq!(begin().next(&foreign), broken);
    assert_eq!(begin().next(&Blame::default()), RollbackStep::Done);
}
