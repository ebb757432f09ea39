//! Writes Python guards.
//!
//! ```text
//! a < b        ((a < b) if not __hg__(7,2) else ((a) <= (b)) if __hg__.on == 7 else ((a) >= (b)))
//! f(x)         if not __hg__(9,1): f(x)
//! x += 1       x = __hg__.name(10,1,"+","-")(x, (1))
//! o.a += 1     __hg__.attribute(11,1,"+","-",o,"a")((1))
//! o[k] += 1    __hg__.item(12,1,"+","-",o,k)((1))
//! def f():     def f():
//!     body         if __hg__(1,2): return 0 if __hg__.on == 1 else 1
//!                  body
//! for x in y:  for x in y:
//!     body         __hg__(0,0); body
//! ```
//!
//! While tests run, `__hg__` is a builtin: sources need no import, and classes do not mangle the name. An
//! augmented assignment is not an expression, and a conditional statement can't follow another statement on
//! its line, so a function computes the assigned value with either operator. For every added line, the next
//! line without code is dropped, which keeps line numbers.

use super::writer::{GuardWriter, WrittenArms};
use crate::guard::{AssignmentTarget, Guard, GuardForm};

impl GuardWriter<'_> {
    pub(super) fn python(&mut self, guard: &Guard, base: usize, written: &WrittenArms) {
        let count = guard.arms.len();
        match guard.form {
            GuardForm::Statement => {
                self.push("if not ");
                self.arm(written[0].0, &format!("__hg__({base},{count})"));
                self.push(": ");
                self.range(guard.bytes.clone());
            }
            GuardForm::Expression | GuardForm::Condition => {
                self.push("((");
                self.range(guard.bytes.clone());
                self.format(format_args!(") if not __hg__({base},{count}) else "));
                self.choice(guard, base, written, |code| format!("({code})"));
                self.push(")");
            }
            GuardForm::Body => {
                self.format(format_args!("if __hg__({base},{count}): "));
                match *written.as_slice() {
                    [(mutant, number)] => {
                        let code = format!("return {}", guard.arms[number - 1].code);
                        self.arm(mutant, code.trim_end());
                    }
                    _ => {
                        self.push("return ");
                        self.choice(guard, base, written, str::to_owned);
                    }
                }
                self.new_line(guard.insert_at);
            }
            GuardForm::Arm => {
                self.push(" if not ");
                self.arm(written[0].0, &format!("__hg__({base},{count})"));
            }
            GuardForm::Jump => {
                self.format(format_args!("if __hg__({base},{count}): "));
                self.arm(written[0].0, &guard.arms[0].code);
                self.new_line(guard.insert_at);
            }
            GuardForm::Assignment => self.assignment(guard, base, written),
            // `Constant` is not used in Python, and the caller writes `Loop`.
            GuardForm::Constant | GuardForm::Loop => {}
        }
    }

    /// Writes the mutants after the test of a guard; one of them is enabled.
    fn choice(&mut self, guard: &Guard, base: usize, written: &WrittenArms, shown: fn(&str) -> String) {
        let last = written.len() - 1;
        for (place, &(mutant, number)) in written.iter().enumerate() {
            let code = shown(&guard.arms[number - 1].code);
            self.owed_lines += code.matches('\n').count();
            self.arm(mutant, &code);
            if place < last {
                self.format(format_args!(" if __hg__.on == {} else ", base + number - 1));
            }
        }
    }

    fn assignment(&mut self, guard: &Guard, base: usize, written: &WrittenArms) {
        let source = self.source;
        let parts = &self.found.assignments[&guard.bytes.start];
        let (mutant, number) = written[0];
        let operators = |writer: &mut Self, form: &str| {
            writer.format(format_args!("__hg__.{form}({base},1,\"{}\",", parts.operator));
            writer.arm(mutant, &guard.arms[number - 1].code);
        };
        match &parts.target {
            AssignmentTarget::Name(name) => {
                let name = &source.file.text[name.clone()];
                self.format(format_args!("{name} = "));
                operators(self, "name");
                self.format(format_args!(")({name}, ("));
            }
            AssignmentTarget::Attribute { object, name } => {
                operators(self, "attribute");
                self.push(",(");
                self.range(object.clone());
                self.format(format_args!("),\"{name}\")(("));
            }
            AssignmentTarget::Item { object, key } => {
                operators(self, "item");
                self.push(",(");
                self.range(object.clone());
                self.push("),(");
                self.range(key.clone());
                self.push("))((");
            }
        }
        self.range(parts.right.clone());
        self.push("))");
    }

    /// Counts a loop's iterations, unless the guard of the first statement does.
    pub(super) fn python_round(&mut self, guard: &Guard, index: usize) {
        let source = self.source;
        let next = self.found.guards.get(index + 1).filter(|next| next.bytes.start == guard.insert_at);
        let first = self.begins[index] + guard.arms.len();
        let is_written =
            |next: &Guard| (0..next.arms.len()).any(|arm| !self.left_out.contains(&(first + arm)));
        if next.is_some_and(|next| next.form == GuardForm::Statement && is_written(next)) {
            return;
        }
        if is_compound(&source.file.text[guard.insert_at..]) {
            self.push("__hg__(0,0)");
            self.new_line(guard.insert_at);
        } else {
            self.push("__hg__(0,0); ");
        }
    }

    /// Begins a line with the indentation of a statement's line.
    fn new_line(&mut self, statement: usize) {
        let text = &self.source.file.text;
        let line_start = text[..statement].rfind('\n').map_or(0, |at| at + 1);
        let indentation = text[line_start..statement].to_owned();
        self.push("\n");
        self.push(&indentation);
        self.owed_lines += 1;
    }
}

/// Returns whether a statement has, or may have, a block.
fn is_compound(statement: &str) -> bool {
    let words = ["if", "for", "while", "try", "with", "def", "class", "async", "match"];
    let end =
        statement.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(statement.len());
    statement.starts_with('@') || words.contains(&&statement[..end])
}
