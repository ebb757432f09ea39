//! Decides which processes are followed: only the test process, scripts up to the programs they start, or
//! all. Also decides how to trace a program that a followed process has executed.

use std::{
    io,
    path::{Path, PathBuf},
};

use heeler_protocol::control::TracePlan;
use heeler_sys::{
    process::{self, Pid},
    trace::{self, TraceOptions},
};

use super::trace_conflict::{ConflictSearch, TraceConflict};

/// Script interpreters. The guard follows them to trace the programs that they start.
const SHELLS: [&str; 9] = ["sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "busybox", "fish"];

/// Advice for a program that has lost its privileges.
const KEEPS_THEM: &str = "crash-capture = \"off\" keeps its privileges";

/// Which processes the guard traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TraceScope {
    /// Only the test process.
    Root,
    /// Through shells and scripts up to the programs they start.
    Programs,
    /// All processes started by the test process.
    Tree,
}

impl TraceScope {
    /// Returns the scope for a program if only the test process should be traced.
    pub(super) fn for_program(program: &Path) -> Self {
        if is_shell(program) || is_script(program) { Self::Programs } else { Self::Root }
    }

    pub(super) fn options(self) -> TraceOptions {
        match self {
            Self::Root => TraceOptions::PROCESS,
            Self::Programs | Self::Tree => TraceOptions::TREE,
        }
    }
}

fn is_shell(program: &Path) -> bool {
    let name = program.file_name().unwrap_or_default();
    SHELLS.iter().any(|shell| name == *shell)
}

fn is_script(program: &Path) -> bool {
    let mut mark = [0; 2];
    std::fs::File::open(program).and_then(|mut file| io::Read::read_exact(&mut file, &mut mark)).is_ok()
        && &mark == b"#!"
}

/// Returns whether a program only executes the interpreter named in its arguments (`#!/usr/bin/env sh`).
fn is_interpreter_search(program: &Path) -> bool {
    program.file_name().is_some_and(|name| name == "env")
}

/// Returns a path to read a process's program.
fn image_path(process: Pid) -> PathBuf {
    PathBuf::from(format!("/proc/{process}/exe"))
}

/// Decides how to trace the processes of a test, based on the programs they execute.
pub(super) struct TracePolicy {
    root: Pid,
    scope: TraceScope,
    /// The root's next program is the interpreter of a script, regardless of its name.
    awaits_interpreter: bool,
    expected_crash_markers: Vec<String>,
    is_tracer_read_by_framework: bool,
}

/// How to trace a program that was just executed.
pub(super) enum ProgramTracing {
    /// Trace the program as before. If `is_narrowed`, the program's child processes are not traced.
    Followed { is_narrowed: bool, is_crash_expected: bool },
    /// Do not trace the program: its file should give it privileges, which a traced process does not get.
    /// Execute it again, untraced.
    Privileged,
    /// Do not trace the program, for this reason.
    Untraced(String),
    /// Trace neither the program nor any other process, for this reason.
    AllUntraced(String),
}

impl TracePolicy {
    /// Creates the policy for a root that is not traced yet.
    pub(super) fn new(root: Pid, plan: &TracePlan) -> Self {
        Self {
            root,
            scope: TraceScope::Root,
            awaits_interpreter: true,
            expected_crash_markers: plan.expected_crash_markers.clone(),
            is_tracer_read_by_framework: plan.is_tracer_read_by_framework,
        }
    }

    pub(super) fn scope(&self) -> TraceScope {
        self.scope
    }

    /// Begins with a root that has not executed its program yet.
    pub(super) fn begin(&mut self, scope: TraceScope) {
        self.scope = scope;
    }

    /// Begins with a root that is stopped in its program.
    pub(super) fn begin_in_program(&mut self, scope: TraceScope) {
        self.scope = scope;
        self.note_interpreter();
    }

    /// Records whether the root's program will execute a script interpreter.
    fn note_interpreter(&mut self) {
        let image = std::fs::read_link(image_path(self.root));
        self.awaits_interpreter &= image.is_ok_and(|image| is_interpreter_search(&image));
    }

    /// Decides how to trace a process that has just executed a program.
    pub(super) fn on_program(&mut self, process: Pid) -> ProgramTracing {
        let image = image_path(process);
        if trace::loses_privileges_when_traced(&image) {
            return ProgramTracing::Privileged;
        }
        // The kernel hides programs whose file the user may not read.
        if std::fs::metadata(&image).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
            return ProgramTracing::Untraced(self.reason(
                process,
                &format!(
                    "executes a program that its user may not read, so setuid and capabilities have no effect under \
                     ptrace; {KEEPS_THEM}"
                ),
            ));
        }
        match TraceConflict::find(&image, self.conflict_search()) {
            None => {}
            Some(conflict @ (TraceConflict::LeakSanitizer | TraceConflict::ReadsTracer)) => {
                return ProgramTracing::Untraced(self.reason(process, conflict.description()));
            }
            Some(conflict @ TraceConflict::Tracer) => {
                return ProgramTracing::AllUntraced(self.reason(process, conflict.description()));
            }
        }
        ProgramTracing::Followed {
            is_narrowed: self.reaches_program(process, &image),
            is_crash_expected: self.is_crash_expected(process),
        }
    }

    fn conflict_search(&self) -> ConflictSearch {
        match self.scope {
            TraceScope::Tree => ConflictSearch::LeakSanitizers,
            TraceScope::Root | TraceScope::Programs if self.is_tracer_read_by_framework => {
                ConflictSearch::ExceptTracerReads
            }
            TraceScope::Root | TraceScope::Programs => ConflictSearch::All,
        }
    }

    fn is_crash_expected(&self, process: Pid) -> bool {
        if self.scope != TraceScope::Tree || self.expected_crash_markers.is_empty() {
            return false;
        }
        let command = process::command_line(process);
        self.expected_crash_markers.iter().any(|word| command.contains(word))
    }

    /// Returns whether a process has executed the program that a script starts. Child processes of that
    /// program are not followed.
    fn reaches_program(&mut self, process: Pid, image: &Path) -> bool {
        if self.scope != TraceScope::Programs {
            return false;
        }
        if process == self.root && self.awaits_interpreter {
            self.note_interpreter();
            return false;
        }
        !std::fs::read_link(image).is_ok_and(|image| is_shell(&image))
    }

    /// Returns why a privileged process runs untraced. `repeated`: whether it could execute its program
    /// again.
    pub(super) fn privileged_reason(&self, process: Pid, repeated: io::Result<()>) -> String {
        match repeated {
            Ok(()) => self.reason(
                process,
                "executes a program that is setuid or has capabilities, which have no effect under ptrace",
            ),
            Err(error) => {
                let what = format!(
                    "executes a program that is setuid or has capabilities, which it has lost under ptrace \
                     ({error}); {KEEPS_THEM}"
                );
                self.reason(process, &what)
            }
        }
    }

    fn reason(&self, process: Pid, what: &str) -> String {
        let whose = if process == self.root { "it" } else { "a program that it starts" };
        format!("{whose} {what}")
    }
}
