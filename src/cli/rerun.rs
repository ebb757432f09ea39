//! `heeler run --rerun`: resolves the earlier run, the tests to rerun and their programs.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use wire::{
    control::OsBytes,
    manifest::{Left, NamedPrograms, Origin},
    mtp::{LogLevel, TestNode, key},
};

use super::{
    arguments::{ProgramArguments, RunArguments},
    exit::CommandError,
    watch::Watch,
};
use crate::{
    config::Settings,
    runs::{self, Provenance, Wanted},
};

/// Maximum number of names listed of tests that no longer exist.
const NAMED: usize = 5;

/// An earlier run whose tests are rerun.
pub(super) struct Rerun {
    wanted: Wanted,
    run: String,
    programs: NamedPrograms,
    left: Left,
}

impl Rerun {
    /// Resolves `--rerun`; returns `None` without it.
    pub(super) fn find(arguments: &RunArguments, settings: &Settings) -> Result<Option<Self>, CommandError> {
        let Some(wanted) = arguments.rerun.clone() else { return Ok(None) };
        let all = runs::list(&settings.state_dir);
        let dir = settings.state_dir.join(runs::DIR_NAME).display().to_string();
        let run = runs::choose(&all, wanted.run(), &dir).map_err(CommandError::Choose)?;
        let story = runs::read(run).map_err(CommandError::Story)?;
        for loss in &story.losses {
            eprintln!("warning: {loss}");
        }
        let left = runs::left(&story);
        if wanted.of(&left).is_empty() {
            return Err(CommandError::NothingLeft { what: nothing_left(&wanted, &left, &run.name) });
        }
        let head = story.manifest.head;
        Ok(Some(Self { wanted, run: head.run, programs: head.origin.programs, left }))
    }

    /// Returns the programs to run: those of the command line, otherwise those of the earlier run's command
    /// line.
    pub(super) fn programs(&self, said: &ProgramArguments) -> ProgramArguments {
        if !said.programs.is_empty() || said.cargo.is_some() {
            return said.clone();
        }
        let path = |bytes: &OsBytes| bytes.as_path().to_owned();
        ProgramArguments {
            programs: self.programs.paths.iter().map(path).collect(),
            cargo: self.programs.cargo.as_ref().map(path),
            cargo_args: self.programs.cargo_args.clone(),
            framework: said.framework.clone().or_else(|| self.programs.framework.clone()),
        }
    }

    /// Keeps the nodes of tests to rerun, and logs those that no longer exist. The node of a program that
    /// could not be listed represents all its tests.
    ///
    /// # Errors
    /// None of the tests exists any more; the message is complete.
    pub(super) fn choose(&self, nodes: Vec<TestNode>, watch: &mut Watch) -> Result<Vec<TestNode>, String> {
        let wanted = self.wanted.of(&self.left);
        let mut found: HashSet<&str> = HashSet::new();
        let mut chosen = Vec::new();
        for node in nodes {
            let suite = node.text(key::SUITE).unwrap_or_default();
            let by = wanted.get(node.uid.as_str()).or_else(|| wanted.get(suite)).copied();
            if let Some(by) = by {
                found.insert(by);
                chosen.push(node);
            }
        }
        let mut gone: Vec<&str> = wanted.difference(&found).copied().collect();
        gone.sort_unstable();
        if chosen.is_empty() {
            let names = named(&gone);
            return Err(match gone.len() {
                1 => format!("the test that is left of that run exists no more: {names}"),
                count => {
                    format!("none of the {count} tests that are left of that run exists any more: {names}")
                }
            });
        }
        if !gone.is_empty() {
            let text = match gone.len() {
                1 => format!("a test of that run exists no more and is left out: {}", named(&gone)),
                count => {
                    format!("{count} tests of that run exist no more and are left out: {}", named(&gone))
                }
            };
            watch.display.log(LogLevel::Warning, &text);
        }
        Ok(chosen)
    }

    /// Returns the note printed when the run begins.
    pub(super) fn note(&self) -> String {
        let run: String = self.run.chars().take(8).collect();
        match self.wanted {
            Wanted::Failed => format!("what failed in run {run}"),
            Wanted::NotRun => format!("what got no result in run {run}"),
            Wanted::Of(_) => format!("what is left of run {run}"),
        }
    }
}

fn named(uids: &[&str]) -> String {
    let names: Vec<_> = uids.iter().take(NAMED).map(|uid| crate::report::text::one_line(uid)).collect();
    let more = if uids.len() > NAMED { ", …" } else { "" };
    format!("{}{more}", names.join(", "))
}

fn nothing_left(wanted: &Wanted, left: &Left, run: &str) -> String {
    match wanted {
        Wanted::Failed if !left.not_run.is_empty() => {
            format!("no test failed in run {run}, but {} got no result: --rerun not-run", left.not_run.len())
        }
        Wanted::NotRun if !left.failed.is_empty() => {
            format!("every test got a result in run {run}, but {} failed: --rerun failed", left.failed.len())
        }
        Wanted::Failed | Wanted::NotRun | Wanted::Of(_) => {
            format!("every test of run {run} passed or was skipped")
        }
    }
}

/// Returns the provenance of a session's runs.
pub(super) fn provenance(programs: &ProgramArguments, rerun: Option<&Rerun>) -> Provenance {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let bytes = |path: PathBuf| OsBytes::from(path.as_path());
    let origin = Origin {
        command: std::env::args_os().map(|word| OsBytes::from(word.as_os_str())).collect(),
        // When the directory no longer exists, the path stays empty.
        cwd: bytes(std::env::current_dir().unwrap_or_default()),
        programs: NamedPrograms {
            paths: programs.programs.iter().map(|path| bytes(absolute(path))).collect(),
            cargo: programs.cargo.as_deref().map(absolute).map(bytes),
            cargo_args: programs.cargo_args.clone(),
            framework: programs.framework.clone(),
        },
        continues: rerun.map(|rerun| rerun.run.clone()),
    };
    Provenance { origin, left_before: rerun.map(|rerun| rerun.left.clone()).unwrap_or_default() }
}
