//! Which processes are followed: only the test process, through scripts to the programs that they start, or
//! all.

use std::{
    io,
    path::{Path, PathBuf},
};

use heeler_sys::{
    process::{self, Pid},
    trace::{self, TraceOptions, TraceStop},
};

use super::{
    trace_conflict::{ConflictSearch, TraceConflict},
    tracer::{ProcessTracer, TracedProcess, TracedThread, detach, resume},
};

/// Interpreters of scripts: the programs that they start are the ones of interest.
const SHELLS: [&str; 9] = ["sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "busybox", "fish"];

/// What helps a program whose privileges are lost.
const KEEPS_THEM: &str = "crash-capture = \"off\" keeps them";

/// The scope of tracing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TraceScope {
    /// Only the test process.
    Root,
    /// Through shells and scripts to the programs that they start, and no further.
    Programs,
    /// All processes that the test process starts.
    Tree,
}

impl TraceScope {
    /// Returns the scope for a program when only the test process was requested.
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

/// Returns whether a program only executes the interpreter that it is asked for (`#!/usr/bin/env sh`).
fn is_interpreter_search(program: &Path) -> bool {
    program.file_name().is_some_and(|name| name == "env")
}

/// Returns the path by which the program of a process can be read.
fn image_path(process: Pid) -> PathBuf {
    PathBuf::from(format!("/proc/{process}/exe"))
}

impl ProcessTracer {
    /// Records a thread that the kernel traces automatically because its creator is traced; returns whether
    /// it is followed. Its own first stop and the event of its creation arrive in any order, and both before
    /// its first instruction.
    pub(super) fn track_thread(&mut self, tid: Pid) -> bool {
        if self.threads.contains_key(&tid) {
            return true;
        }
        let Some(process) = self.followed_process(tid) else { return false };
        self.threads.insert(tid, TracedThread::of_process(process));
        self.processes.entry(process).or_insert_with(|| TracedProcess::new(self.scope.options()));
        true
    }

    /// Returns the process of a new thread; `None` if it is not followed. The kernel also traces a new
    /// process whose exit raises another signal than SIGCHLD, as if it were a thread.
    fn followed_process(&self, tid: Pid) -> Option<Pid> {
        if self.scope == TraceScope::Root {
            return trace::is_thread_of(self.root, tid).then_some(self.root);
        }
        let process = trace::process_of_thread(tid).unwrap_or(tid);
        let parent = process::stat(process).and_then(|stat| self.processes.get(&stat.parent));
        let is_followed = self.processes.contains_key(&process)
            || parent.is_none_or(|parent| parent.options.has_new_processes());
        is_followed.then_some(process)
    }

    /// Records whether the program of the root is to execute the interpreter of a script.
    pub(super) fn note_interpreter(&mut self, root: Pid) {
        let is_search = std::fs::read_link(image_path(root)).is_ok_and(|image| is_interpreter_search(&image));
        self.awaits_interpreter &= is_search;
    }

    /// Decides how a process is traced that has just executed a program.
    pub(super) fn follow_program(&mut self, process: Pid) {
        let image = image_path(process);
        let whose = if process == self.root { "it" } else { "a program that it starts" };
        if trace::loses_privileges_when_traced(&image) {
            return self.release_privileged(process, whose);
        }
        if std::fs::metadata(&image).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
            return self.release_unreadable(process, whose);
        }
        let search = match self.scope {
            TraceScope::Tree => ConflictSearch::LeakSanitizers,
            TraceScope::Root | TraceScope::Programs if self.plan.is_tracer_read_by_framework => {
                ConflictSearch::ExceptTracerReads
            }
            TraceScope::Root | TraceScope::Programs => ConflictSearch::All,
        };
        match TraceConflict::find(&image, search) {
            None => {}
            Some(conflict @ (TraceConflict::LeakSanitizer | TraceConflict::ReadsTracer)) => {
                self.record_untraced(format!("{whose} {}", conflict.description()));
                self.remove_process(process);
                return detach(process, TraceStop::Exec);
            }
            Some(conflict @ TraceConflict::Tracer) => {
                self.record_untraced(format!("{whose} {}", conflict.description()));
                return self.release_all(process);
            }
        }
        let narrows = self.reaches_program(process, &image);
        let narrowed = self.with_root_exits(process, TraceOptions::PROCESS);
        let is_tree = self.scope == TraceScope::Tree;
        if let Some(traced) = self.processes.get_mut(&process) {
            traced.is_executed = true;
            let command = process::command_line(process);
            traced.is_crash_expected =
                is_tree && self.plan.expected_crash_markers.iter().any(|word| command.contains(word));
            if narrows && trace::set_options(process, narrowed).is_ok() {
                traced.options = narrowed;
            }
        }
        resume(process, None);
    }

    /// Returns whether a process has executed the program behind a script: its own processes are not
    /// followed.
    fn reaches_program(&mut self, process: Pid, image: &Path) -> bool {
        if self.scope != TraceScope::Programs {
            return false;
        }
        if process == self.root && self.awaits_interpreter {
            self.note_interpreter(process);
            return false;
        }
        !std::fs::read_link(image).is_ok_and(|image| is_shell(&image))
    }

    /// Releases a process that has executed a program whose file gives it privileges, which it did not get.
    /// It executes it again.
    fn release_privileged(&mut self, process: Pid, whose: &str) {
        let what = match trace::repeat_exec_untraced(process) {
            Ok(()) => "executes a file that gives it privileges, which tracing would take away".to_owned(),
            Err(error) => {
                detach(process, TraceStop::Exec);
                format!(
                    "executes a file that gives it privileges, which tracing has taken away ({error}); {KEEPS_THEM}"
                )
            }
        };
        self.record_untraced(format!("{whose} {what}"));
        self.remove_process(process);
    }

    /// Releases a process that has executed a program whose file its user may not read: the kernel shows
    /// nothing of it.
    fn release_unreadable(&mut self, process: Pid, whose: &str) {
        self.record_untraced(format!(
            "{whose} executes a file that its user may not read, so that privileges of the file are lost when traced; \
             {KEEPS_THEM}"
        ));
        self.remove_process(process);
        detach(process, TraceStop::Exec);
    }

    /// Releases all processes for good, because one of them, which has just executed its program, may trace
    /// the others.
    fn release_all(&mut self, tracer: Pid) {
        self.is_released = true;
        let processes: Vec<Pid> =
            self.processes.keys().copied().filter(|process| *process != tracer).collect();
        for process in processes {
            let stopped = self.stop_threads(process, None);
            for (tid, stop) in &stopped.threads {
                detach(*tid, *stop);
            }
            self.release_later(&stopped.stuck);
            self.remove_process(process);
        }
        self.remove_process(tracer);
        detach(tracer, TraceStop::Exec);
    }
}
