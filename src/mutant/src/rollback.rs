//! Withdraws mutants until the rest compiles. After each round of the compiler:
//!
//! - Errors point at mutants: these are withdrawn for good.
//! - Errors point at functions that must stay `const`: all their mutants are left out for good.
//! - Errors point at other functions: all their mutants are left out, then added back by halves.
//! - No errors, and nothing to add back: done.
//! - Errors although everything is left out: the sources themselves do not compile.

use crate::compiler::{Blame, FunctionKey, MutantKey};
use std::collections::{BTreeMap, BTreeSet};

/// Number of rounds before functions with blamed mutants are bisected. Compilers report one borrow error per
/// function at a time, so withdrawing one mutant per round could take very long.
const ROUNDS: u32 = 10;

/// The next action after a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RollbackStep {
    /// Compile again, without the withdrawn mutants.
    Check,
    /// Done: the sources compile.
    Done,
    /// The sources do not compile, regardless of the withdrawn mutants.
    Broken(Vec<String>),
}

/// The mutants of a function that are added back by halves, to find those that do not compile.
#[derive(Debug, Default)]
struct Bisection {
    /// Mutants in the current round, which may not compile.
    trying: Vec<MutantKey>,
    /// Groups of mutants that are still left out.
    waiting: Vec<Vec<MutantKey>>,
    summary: String,
}

/// The state of the search.
#[derive(Debug)]
pub struct Rollback {
    /// All mutants that may be tested, with their functions.
    mutants: BTreeMap<MutantKey, FunctionKey>,
    withdrawn: BTreeMap<MutantKey, String>,
    /// Mutants of functions that must stay `const`.
    constant: BTreeSet<MutantKey>,
    bisections: BTreeMap<FunctionKey, Bisection>,
    rounds: u32,
}

impl Rollback {
    /// Starts with all mutants that may be tested, each with the index of its function in the same source.
    pub fn new(mutants: impl IntoIterator<Item = (MutantKey, usize)>) -> Self {
        let mutants =
            mutants.into_iter().map(|(key, function)| (key, FunctionKey { source: key.source, function }));
        let mutants = mutants.collect();
        Self {
            mutants,
            withdrawn: BTreeMap::new(),
            constant: BTreeSet::new(),
            bisections: BTreeMap::new(),
            rounds: 0,
        }
    }

    /// Withdraws a mutant for a reason other than a compiler error.
    pub fn withdraw(&mut self, mutant: MutantKey, reason: String) {
        self.withdrawn.entry(mutant).or_insert(reason);
    }

    /// Leaves out the mutants of a function that must stay `const`.
    pub fn keep_constant(&mut self, function: FunctionKey) {
        let of_function = self.mutants.iter().filter(|(_, one)| **one == function);
        self.constant.extend(of_function.map(|(key, _)| *key));
    }

    /// Returns the mutants that do not compile, with the compiler message.
    pub fn withdrawn(&self) -> &BTreeMap<MutantKey, String> {
        &self.withdrawn
    }

    /// Returns the mutants of functions that must stay `const`.
    pub fn constant(&self) -> &BTreeSet<MutantKey> {
        &self.constant
    }

    /// Returns the number of rounds so far.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Returns the mutants of a source that the next round leaves out.
    pub fn left_out(&self, source: usize) -> BTreeSet<usize> {
        let waiting = self.bisections.values().flat_map(|one| one.waiting.iter().flatten());
        let keys =
            self.withdrawn.keys().chain(&self.constant).chain(waiting).filter(|key| key.source == source);
        keys.map(|key| key.mutant).collect()
    }

    /// Processes the errors of a round.
    pub fn next(&mut self, blame: &Blame) -> RollbackStep {
        self.rounds += 1;
        let points_at_no_mutant = blame.mutants.is_empty() && blame.unexplained.is_empty();
        // Leave out the mutants of functions that must stay `const`.
        if !blame.constant.is_empty() {
            let known = self.constant.len();
            for function in blame.constant.keys() {
                self.keep_constant(*function);
            }
            if points_at_no_mutant && self.constant.len() == known {
                return RollbackStep::Broken(blame.constant.values().cloned().collect());
            }
        } else if !blame.foreign.is_empty() && points_at_no_mutant {
            return RollbackStep::Broken(blame.foreign.clone());
        }
        // Withdraw the blamed mutants; after many rounds, bisect their functions instead.
        let mut failed: BTreeMap<FunctionKey, String> = BTreeMap::new();
        for (key, words) in &blame.mutants {
            match self.mutants.get(key) {
                Some(function) if self.rounds > ROUNDS => {
                    failed.entry(*function).or_insert_with(|| words.clone());
                }
                _ => self.withdraw(*key, words.clone()),
            }
        }
        // While errors point at mutants, the remaining errors may be consequences.
        if (blame.mutants.is_empty() && blame.constant.is_empty()) || self.rounds > ROUNDS {
            for error in &blame.unexplained {
                let Some(function) = error.function else {
                    return RollbackStep::Broken(vec![error.summary.clone()]);
                };
                let key = FunctionKey { source: error.source, function };
                failed.entry(key).or_insert_with(|| error.summary.clone());
            }
        }
        // Bisect the functions with other errors. After a round without errors, add mutants back.
        for (function, words) in &failed {
            if !self.halve(*function, words) {
                return RollbackStep::Broken(vec![words.clone()]);
            }
        }
        let has_errors = !points_at_no_mutant || !blame.constant.is_empty();
        if !has_errors {
            self.let_in();
        }
        if has_errors || !self.bisections.is_empty() { RollbackStep::Check } else { RollbackStep::Done }
    }

    /// Leaves out the suspects in a function. Returns whether there was anything to leave out.
    fn halve(&mut self, function: FunctionKey, words: &str) -> bool {
        let (withdrawn, constant) = (&self.withdrawn, &self.constant);
        let is_out = |key: &MutantKey| withdrawn.contains_key(key) || constant.contains(key);
        if let Some(bisection) = self.bisections.get_mut(&function) {
            let tried = std::mem::take(&mut bisection.trying);
            let tried: Vec<_> = tried.into_iter().filter(|key| !is_out(key)).collect();
            return match tried.as_slice() {
                [] => false,
                [one] => {
                    self.withdrawn.insert(*one, bisection.summary.clone());
                    bisection.trying = bisection.waiting.pop().unwrap_or_default();
                    true
                }
                several => {
                    // The function compiled without any of them; do not try that again.
                    let (first, second) = several.split_at(several.len() / 2);
                    bisection.waiting.push(second.to_vec());
                    bisection.trying = first.to_vec();
                    true
                }
            };
        }
        let of_function = self.mutants.iter().filter(|(_, one)| **one == function).map(|(key, _)| *key);
        let group: Vec<_> = of_function.filter(|key| !is_out(key)).collect();
        if group.is_empty() {
            return false;
        }
        // Start without any of them, to confirm that they cause the error.
        let (first, second) = group.split_at(group.len() / 2);
        let waiting =
            [second, first].into_iter().filter(|half| !half.is_empty()).map(<[_]>::to_vec).collect();
        self.bisections
            .insert(function, Bisection { trying: Vec::new(), waiting, summary: words.to_owned() });
        true
    }

    /// After a round without errors, adds back the next group of each function.
    fn let_in(&mut self) {
        for bisection in self.bisections.values_mut() {
            bisection.trying.clear();
            bisection.trying = bisection.waiting.pop().unwrap_or_default();
        }
        self.bisections.retain(|_, one| !one.trying.is_empty() || !one.waiting.is_empty());
    }
}
