//! State of a worker that all its jobs share: its scratch directory, and how it builds the commands that
//! guards execute.

use std::{
    collections::{BTreeMap, HashSet},
    fmt::Display,
    fs, io,
    os::unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use heeler_protocol::control::{OsText, TestCommand, TestProgram, WorkerId};

use super::{
    guard_spawner::GuardSpawner,
    test_directory::{TestDirectory, TestDirectoryVariables},
};
use heeler_adapters::AdapterInvocation;

/// State that does not change while a worker runs.
#[derive(Debug)]
pub(crate) struct WorkerContext {
    pub(crate) worker: WorkerId,
    /// Starts the guards of the test processes.
    pub(crate) guards: GuardSpawner,
    /// Private directory for files that pass test names to frameworks.
    pub(crate) scratch: PathBuf,
    /// Private parent of the test processes' temporary directories.
    pub(crate) test_directories: PathBuf,
    /// Programs that have had a process die in an unknown test.
    pub(crate) unclear_deaths: UnclearDeaths,
}

/// Programs that have had a process die in an unknown test.
#[derive(Debug, Default)]
pub(crate) struct UnclearDeaths(Mutex<HashSet<OsText>>);

impl UnclearDeaths {
    /// Records a death in an unknown test.
    pub(crate) fn record(&self, program: &TestProgram) {
        self.programs().insert(program.path.clone());
    }

    /// Returns whether a process of the program has died in an unknown test.
    pub(crate) fn contains(&self, program: &TestProgram) -> bool {
        self.programs().contains(&program.path)
    }

    fn programs(&self) -> MutexGuard<'_, HashSet<OsText>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Facts about a job in the environment of its process.
#[derive(Debug, Clone, Default)]
pub(crate) struct JobVariables {
    /// Id of the run that the process works for.
    pub(crate) run: Option<String>,
    /// Slot of the lease that the process is started for; `None` if it is started before its lease.
    pub(crate) slot: Option<u32>,
    /// Variables about the units of resources that the lease holds.
    pub(crate) units: Vec<(OsText, OsText)>,
}

/// Why a command could not be prepared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrepareError {
    #[error("create the scratch directory")]
    Scratch(#[source] heeler_sys::dirs::DirError),
    #[error("write {}", path.display())]
    File { path: PathBuf, source: io::Error },
}

impl WorkerContext {
    /// Writes the files of an invocation and returns the command for the guard.
    pub(crate) fn prepare_command(
        &self,
        program: &TestProgram,
        invocation: &AdapterInvocation,
        job: &JobVariables,
        test_directory: Option<&TestDirectory>,
    ) -> Result<TestCommand, PrepareError> {
        for path in &invocation.directories {
            heeler_sys::dirs::private_dir_in_existing(path).map_err(PrepareError::Scratch)?;
        }
        for (path, content) in &invocation.files {
            create_private_file(path, content)
                .map_err(|source| PrepareError::File { path: path.clone(), source })?;
        }
        let own = invocation.own_command.as_ref();
        let (path, args, cwd) =
            own.map_or((&program.path, &program.args, &program.cwd), |own| (&own.path, &own.args, &own.cwd));
        Ok(TestCommand {
            program: path.clone(),
            args: args.iter().chain(&invocation.args).cloned().collect(),
            env: self.environment(program, invocation, job, test_directory),
            cwd: cwd.clone(),
            trace: None,
            memory_bytes: None,
            is_stopped_at_start: false,
            is_channel_standard_input: invocation.channel.is_on_standard_streams(),
        })
    }

    /// Empties the scratch directory, or creates it if it is missing.
    pub(crate) fn clean_scratch(&self) -> Result<&Path, PrepareError> {
        match remove_contents(&self.scratch) {
            Ok(()) => return Ok(&self.scratch),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::debug!(%error, "could not empty the scratch directory"),
        }
        heeler_sys::dirs::private_dir_in_existing(&self.scratch).map_err(PrepareError::Scratch)?;
        Ok(&self.scratch)
    }

    /// Creates the temporary directory of a process, named after the job that starts it.
    pub(crate) fn create_test_directory(
        &self,
        job: impl Display,
        variables: TestDirectoryVariables,
    ) -> Result<TestDirectory, PrepareError> {
        let path = self.test_directories.join(format!("t{}-{job}", self.worker));
        TestDirectory::create(path, variables).map_err(PrepareError::Scratch)
    }

    /// Merges the environments. Later ones win: the worker's own, the test directory, the program's, the
    /// framework's, Heeler's.
    fn environment(
        &self,
        program: &TestProgram,
        invocation: &AdapterInvocation,
        job: &JobVariables,
        test_directory: Option<&TestDirectory>,
    ) -> Vec<(OsText, OsText)> {
        let mut all: BTreeMap<Vec<u8>, OsText> = std::env::vars_os()
            .filter(|(name, _)| !heeler_sys::fail::is_fault_variable(name))
            .map(|(name, value)| (name.as_bytes().to_vec(), OsText::from(value.as_os_str())))
            .collect();
        let tool = program.tool_env.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.clone()));
        all.extend(tool);
        if let Some(directory) = test_directory {
            let names = directory.variables().names().iter();
            all.extend(names.map(|name| (name.as_bytes().to_vec(), OsText::from(directory.path()))));
        }
        let ours = [
            ("HEELER", Some("1".to_owned())),
            ("HEELER_WORKER", Some(self.worker.to_string())),
            ("HEELER_RUN_ID", job.run.clone()),
            ("HEELER_SLOT", job.slot.map(|slot| slot.to_string())),
        ];
        let ours = ours.map(|(name, value)| (OsText::from(name), value.map(OsText::from)));
        let units = job.units.iter().map(|(name, value)| (name.clone(), Some(value.clone())));
        let units: Vec<_> = units.collect();
        for (name, value) in program.env.iter().chain(&invocation.env).chain(&units).chain(&ours) {
            match value {
                Some(value) => all.insert(name.as_bytes().to_vec(), value.clone()),
                None => all.remove(name.as_bytes()),
            };
        }
        all.into_iter().map(|(name, value)| (OsText::from(name), value)).collect()
    }
}

impl Drop for WorkerContext {
    fn drop(&mut self) {
        // Ignore errors: the coordinator removes the session's directory, which contains this one.
        drop(fs::remove_dir_all(&self.scratch));
    }
}

/// Removes the contents of a directory, but not the directory itself. Creating a directory would cost more
/// than everything else in a small lease.
fn remove_contents(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn create_private_file(path: &Path, content: &[u8]) -> io::Result<()> {
    use io::Write as _;
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_values::program;

    fn pair(name: &str, value: Option<&str>) -> (OsText, Option<OsText>) {
        (name.into(), value.map(Into::into))
    }

    #[test]
    fn later_environments_override_and_unset() {
        let dir = tempfile::tempdir().unwrap();
        let context = WorkerContext {
            worker: WorkerId(4),
            guards: GuardSpawner::for_executable("/x".into()),
            scratch: dir.path().join("scratch"),
            test_directories: dir.path().to_owned(),
            unclear_deaths: UnclearDeaths::default(),
        };
        context.clean_scratch().unwrap();
        let mut program = program();
        program.args = vec!["first".into()];
        program.env = vec![pair("A", Some("program")), pair("B", Some("program")), pair("PATH", None)];
        let file = context.scratch.join("names");
        let invocation = AdapterInvocation {
            args: vec!["second".into()],
            env: vec![pair("A", Some("framework")), pair("B", None)],
            files: vec![(file.clone(), b"A.b".to_vec())],
            ..AdapterInvocation::default()
        };
        let directory =
            |variables| context.create_test_directory(8, variables).expect("the directory is new");
        let of_tests = directory(TestDirectoryVariables::TestTmpdir);
        let units = vec![(OsText::from("C"), OsText::from("unit"))];
        program.env.push(pair("C", Some("program")));
        program.env.push(pair("HEELER_SLOT", Some("program")));
        let job = JobVariables { run: Some("run".to_owned()), slot: Some(3), units };
        let command = context.prepare_command(&program, &invocation, &job, Some(&of_tests)).unwrap();
        let path = dir.path().join("t4-8").to_str().unwrap().to_owned();
        let value = |name: &str| {
            let name = OsText::from(name);
            command.env.iter().find(|one| one.0 == name).map(|one| one.1.to_text().into_owned())
        };
        assert_eq!(value("A").as_deref(), Some("framework"));
        assert_eq!((value("B"), value("PATH")), (None, None));
        assert_eq!(value("HEELER").as_deref(), Some("1"));
        assert_eq!(value("TEST_TMPDIR").as_deref(), Some(path.as_str()));
        assert_ne!(value("TMPDIR").as_deref(), Some(path.as_str()));
        assert_eq!(value("HEELER_WORKER").as_deref(), Some("4"));
        assert_eq!(value("HEELER_RUN_ID").as_deref(), Some("run"));
        assert_eq!((value("HEELER_SLOT").as_deref(), value("C").as_deref()), (Some("3"), Some("unit")));
        assert_eq!(command.args, ["first".into(), "second".into()]);
        assert_eq!(fs::read(&file).unwrap(), b"A.b");
        context.clean_scratch().unwrap();
        assert!(!file.exists());
        drop(of_tests);
        let of_tests = directory(TestDirectoryVariables::TestTmpdirAndTmpdir);
        let job = JobVariables::default();
        let command = context.prepare_command(&program, &invocation, &job, Some(&of_tests)).unwrap();
        let has_slot = command.env.iter().any(|(name, _)| name.to_text() == "HEELER_SLOT");
        assert!(!has_slot, "a process without a lease has no slot, even if Heeler runs in a test");
        let names = ["TEST_TMPDIR", "TMPDIR"].map(OsText::from);
        let set = command.env.iter().filter(|(name, value)| names.contains(name) && value.to_text() == path);
        assert_eq!(set.count(), 2);
    }
}
