//! Writes guards around the pieces of a source.

use super::{EmittedArm, EmittedSource};
use crate::{
    guard::{Guard, GuardForm},
    source::{MutatedSource, SourceGuards},
};
use heeler_mutant_model::Language;
use std::{collections::BTreeSet, fmt::Write as _, ops::Range};

/// Which mutants to write, and their numbers.
#[derive(Clone, Copy)]
pub(super) struct NumberedMutants<'a> {
    /// Number of the source's first mutant.
    pub(super) first: u32,
    pub(super) left_out: &'a BTreeSet<usize>,
}

/// Writes the guarded source without the mutants that are left out.
pub(super) fn write(
    source: &MutatedSource,
    found: &SourceGuards,
    mutants: NumberedMutants<'_>,
) -> EmittedSource {
    let text = &*source.file.text;
    // Find the first mutant of each guard.
    let mut begins = Vec::with_capacity(found.guards.len());
    let mut next = 0;
    for guard in &found.guards {
        begins.push(next);
        next += guard.arms.len();
    }
    let emitted = EmittedSource {
        text: String::with_capacity(text.len() * 2),
        arms: Vec::new(),
        withdrawn: BTreeSet::new(),
        entries: Vec::new(),
        pieces: Vec::new(),
        guards: Vec::new(),
    };
    let NumberedMutants { first, left_out } = mutants;
    // Functions that keep a mutant can't stay `const`.
    let written = found.guards.iter().zip(&begins).filter(|(guard, begin)| {
        (**begin..**begin + guard.arms.len()).any(|mutant| !left_out.contains(&mutant))
    });
    let mutated: BTreeSet<usize> = written.map(|(guard, _)| guard.function).collect();
    let mut writer = GuardWriter {
        source,
        found,
        first,
        left_out,
        mutated,
        begins,
        next_guard: 0,
        owed_lines: 0,
        emitted,
    };
    writer.range(0..text.len());
    let mut emitted = writer.emitted;
    emitted.text.shrink_to_fit();
    emitted.arms.shrink_to_fit();
    emitted.pieces.shrink_to_fit();
    emitted.guards.shrink_to_fit();
    emitted
}

pub(super) struct GuardWriter<'a> {
    pub(super) source: &'a MutatedSource,
    pub(super) found: &'a SourceGuards,
    first: u32,
    pub(super) left_out: &'a BTreeSet<usize>,
    /// Functions with at least one written mutant.
    mutated: BTreeSet<usize>,
    /// Index of each guard's first mutant.
    pub(super) begins: Vec<usize>,
    next_guard: usize,
    /// Number of added lines to make up for by dropping lines without code.
    pub(super) owed_lines: usize,
    emitted: EmittedSource,
}

/// The written mutants of a guard: index, and number within the guard from 1.
pub(super) type WrittenArms = Vec<(usize, usize)>;

impl GuardWriter<'_> {
    pub(super) fn push(&mut self, text: &str) {
        self.emitted.text.push_str(text);
    }

    /// Writes a piece of the original, and drops lines without code for added lines.
    fn piece(&mut self, mut bytes: Range<usize>) {
        let empty = &self.found.empty_lines;
        let mut next = empty.partition_point(|line| line.start < bytes.start);
        while self.owed_lines > 0 && empty.get(next).is_some_and(|line| line.end <= bytes.end) {
            self.unbroken_piece(bytes.start..empty[next].start);
            bytes.start = empty[next].end;
            self.owed_lines -= 1;
            next += 1;
        }
        self.unbroken_piece(bytes);
    }

    fn unbroken_piece(&mut self, bytes: Range<usize>) {
        if !bytes.is_empty() {
            self.emitted.pieces.push((self.emitted.text.len(), bytes.start));
            self.emitted.text.push_str(&self.source.file.text[bytes]);
        }
    }

    /// Writes a range of the original, with the guards inside.
    pub(super) fn range(&mut self, bytes: Range<usize>) {
        let mut at = bytes.start;
        while let Some(guard) = self.found.guards.get(self.next_guard) {
            let begin = if guard.form.is_around() { guard.bytes.start } else { guard.insert_at };
            if begin >= bytes.end {
                break;
            }
            let index = self.next_guard;
            self.next_guard += 1;
            self.piece(at..begin);
            at = self.guard(guard, index, begin);
        }
        self.piece(at..bytes.end);
    }

    /// Writes a guard; returns where the original continues.
    fn guard(&mut self, guard: &Guard, index: usize, begin: usize) -> usize {
        let first = self.begins[index];
        let written: WrittenArms = (0..guard.arms.len())
            .map(|offset| (first + offset, offset + 1))
            .filter(|(mutant, _)| !self.left_out.contains(mutant))
            .collect();
        let start = self.emitted.text.len();
        let base = self.first as usize + first;
        // Guards without mutants count calls and iterations, or are dropped.
        match (guard.form, written.is_empty()) {
            (GuardForm::Constant, _) => {
                if self.stays_constant(guard.function) {
                    self.piece(guard.bytes.clone());
                }
                return guard.bytes.end;
            }
            (GuardForm::Loop, _) => {
                let is_counted = !self.mutated.is_empty() && !self.stays_constant(guard.function);
                match self.source.file.language {
                    Language::Rust if is_counted => self.push(" heeler_guard::at(0,0); "),
                    Language::Python if is_counted => self.python_round(guard, index),
                    Language::Rust
                    | Language::C
                    | Language::Cpp
                    | Language::Python
                    | Language::JavaScript
                    | Language::TypeScript => {}
                }
                return begin;
            }
            (GuardForm::Body, true) => {
                self.entry(guard.function);
                return begin;
            }
            (GuardForm::Arm | GuardForm::Jump, true) => return begin,
            (
                GuardForm::Statement | GuardForm::Assignment | GuardForm::Condition | GuardForm::Expression,
                true,
            ) => self.range(guard.bytes.clone()),
            (_, false) => match self.source.file.language {
                Language::Rust => self.rust(guard, base, &written),
                Language::C => self.c(guard, base, &written),
                Language::Cpp => self.cpp(guard, base, &written),
                Language::Python => self.python(guard, base, &written),
                Language::JavaScript | Language::TypeScript => {
                    unreachable!("sources of these languages are not searched here")
                }
            },
        }
        let end = self.emitted.text.len();
        self.emitted.guards.push((start..end, first..first + guard.arms.len()));
        if guard.form.is_around() { guard.bytes.end } else { begin }
    }

    /// Returns whether a function stays `const`: without mutants, it does not call the runtime.
    fn stays_constant(&self, function: usize) -> bool {
        self.source.functions()[function].is_constant && !self.mutated.contains(&function)
    }

    /// Counts calls of a function whose body has no mutant at its beginning.
    fn entry(&mut self, function: usize) {
        if self.mutated.is_empty() || self.stays_constant(function) {
            return;
        }
        let number = self.first as usize + self.source.mutants().len() + function;
        match self.source.file.language {
            Language::Rust => self.format(format_args!(" heeler_guard::at({number},0); ")),
            Language::C => self.format(format_args!(" __hg({number},0); ")),
            Language::Cpp | Language::Python | Language::JavaScript | Language::TypeScript => return,
        }
        self.emitted.entries.push(function);
    }

    /// Writes a mutant's code and records its place.
    pub(super) fn arm(&mut self, mutant: usize, code: &str) {
        let start = self.emitted.text.len();
        self.push(code);
        self.emitted.arms.push(EmittedArm { mutant, bytes: start..self.emitted.text.len() });
    }

    pub(super) fn format(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string can't fail.
        let _written = self.emitted.text.write_fmt(text);
    }

    fn rust(&mut self, guard: &Guard, base: usize, written: &WrittenArms) {
        let count = guard.arms.len();
        match guard.form {
            GuardForm::Statement => {
                self.push("if ");
                self.arm(written[0].0, &format!("heeler_guard::at({base},{count})==0"));
                self.push(" { ");
                self.range(guard.bytes.clone());
                self.push(" }");
            }
            GuardForm::Expression | GuardForm::Condition => {
                self.format(format_args!("(match heeler_guard::at({base},{count}) {{ "));
                // Match arms and blocks begin like statements. Without the parentheses, `unsafe { a } == b`
                // would parse as a statement followed by a syntax error.
                for &(mutant, number) in written {
                    self.format(format_args!("{number} => {{ "));
                    self.arm(mutant, &format!("({})", guard.arms[number - 1].code));
                    self.push(" } ");
                }
                self.push("_ => { (");
                self.range(guard.bytes.clone());
                self.push(") } })");
            }
            GuardForm::Body => {
                self.format(format_args!(" match heeler_guard::at({base},{count}) {{ "));
                for &(mutant, number) in written {
                    self.format(format_args!("{number} => "));
                    self.arm(mutant, format!("return {}", guard.arms[number - 1].code).trim_end());
                    self.push(", ");
                }
                self.push("_ => {} } ");
            }
            GuardForm::Arm => {
                self.push(" if ");
                self.arm(written[0].0, &format!("heeler_guard::at({base},{count})==0"));
            }
            // Written by the caller, or used only by other languages.
            GuardForm::Jump | GuardForm::Constant | GuardForm::Loop | GuardForm::Assignment => {}
        }
    }

    fn c(&mut self, guard: &Guard, base: usize, written: &WrittenArms) {
        let count = guard.arms.len();
        match guard.form {
            GuardForm::Statement => {
                self.push("if (");
                self.arm(written[0].0, &format!("__hg({base},{count})==0"));
                self.push(") { ");
                self.range(guard.bytes.clone());
                self.push(" }");
            }
            GuardForm::Expression | GuardForm::Condition => {
                self.push("(");
                for (place, &(mutant, number)) in written.iter().enumerate() {
                    // Call the runtime once per evaluation, because calls count towards the hit limit.
                    match place {
                        0 => self.format(format_args!("__hg({base},{count})=={number} ? (")),
                        _ => self.format(format_args!("__hg_on=={} ? (", base + number - 1)),
                    }
                    self.arm(mutant, &guard.arms[number - 1].code);
                    self.push(") : ");
                }
                self.push("(");
                self.range(guard.bytes.clone());
                self.push("))");
            }
            GuardForm::Body => {
                self.format(format_args!(" switch (__hg({base},{count})) {{ "));
                for &(mutant, number) in written {
                    self.format(format_args!("case {number}: "));
                    self.arm(
                        mutant,
                        &format!("{};", format!("return {}", guard.arms[number - 1].code).trim_end()),
                    );
                    self.push(" ");
                }
                self.push("} ");
            }
            GuardForm::Jump => {
                self.format(format_args!("if (__hg({base},{count})==1) {{ "));
                self.arm(written[0].0, &guard.arms[0].code);
                self.push(" } else ");
            }
            // Written by the caller, or used only by other languages.
            GuardForm::Arm | GuardForm::Constant | GuardForm::Loop | GuardForm::Assignment => {}
        }
    }

    /// As in C, except for expressions. The compiler may evaluate `__hg` and `__hg_is`, so constant
    /// expressions still compile. `__hg_at` only works at run time, which keeps the compiler from evaluating
    /// the guard.
    fn cpp(&mut self, guard: &Guard, base: usize, written: &WrittenArms) {
        if !matches!(guard.form, GuardForm::Expression | GuardForm::Condition) {
            return self.c(guard, base, written);
        }
        let count = guard.arms.len();
        let is_condition = guard.form == GuardForm::Condition;
        self.push("(");
        for (place, &(mutant, number)) in written.iter().enumerate() {
            match place {
                0 if guard.is_run => self.format(format_args!("__hg_at({base},{count})=={number} ? (")),
                0 => self.format(format_args!("__hg({base},{count})=={number} ? (")),
                _ => self.format(format_args!("__hg_is({}) ? (", base + number - 1)),
            }
            match guard.arms[number - 1].code.as_str() {
                // C code that includes the header may not know `true` and `false`.
                "true" if is_condition => self.arm(mutant, "1"),
                "false" if is_condition => self.arm(mutant, "0"),
                code => self.arm(mutant, code),
            }
            self.push(") : ");
        }
        // Conditions can have any type; `!!` gives both branches the same type.
        self.push(if is_condition { "!!(" } else { "(" });
        self.range(guard.bytes.clone());
        self.push("))");
    }
}
