//! Slots that all runs of a user share on a machine.

use std::num::NonZeroUsize;

/// The number of slots that all runs of a user share on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineSlots {
    Count(NonZeroUsize),
    /// Runs do not wait for each other.
    Off,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{CommandLineSettings, Config, JobCount, ResolvedSettings, RunLayer};

    fn count(number: usize) -> NonZeroUsize {
        number.try_into().unwrap()
    }

    fn limits(file: &str, command_line: Option<MachineSlots>, jobs: usize) -> Option<(usize, usize)> {
        let config = Config::parse(Path::new("heeler.toml"), file).unwrap();
        let run = RunLayer { jobs: Some(JobCount::Count(count(jobs))), ..RunLayer::default() };
        let command_line =
            CommandLineSettings { machine_slots: command_line, run, ..CommandLineSettings::default() };
        let settings = ResolvedSettings::resolve(&config, command_line).unwrap();
        settings.machine.map(|machine| (machine.shared.get(), machine.alone.get()))
    }

    #[test]
    fn command_line_overrides_the_file() {
        let file = "[machine]\nslots = 3\n";
        assert_eq!(limits(file, None, 1), Some((3, 3)));
        assert_eq!(limits(file, Some(MachineSlots::Count(count(5))), 1), Some((5, 5)));
        assert_eq!(limits(file, Some(MachineSlots::Off), 1), None);
        assert_eq!(limits("[machine]\nslots = \"off\"\n", None, 1), None);
    }

    #[test]
    fn more_jobs_than_processors_are_for_a_run_alone() {
        let processors = JobCount::Cpus.slots().get();
        assert_eq!(limits("", None, processors + 6), Some((processors, processors + 6)));
        assert_eq!(limits("", None, 1), Some((processors, processors)));
        let chosen = Some(MachineSlots::Count(count(2)));
        assert_eq!(limits("", chosen, 8), Some((2, 2)), "a chosen number is never exceeded");
    }

    #[test]
    fn wrong_slots_are_reported() {
        let error = Config::parse(Path::new("heeler.toml"), "[machine]\nslots = \"on\"\ncores = 2\n");
        let expected = "heeler.toml has 2 errors:
heeler.toml:2:9: expected a positive integer or \"off\" for \"slots\" in [machine], found the string \"on\"
heeler.toml:3:1: unknown key \"cores\" in [machine] (available: slots)";
        assert_eq!(error.unwrap_err().to_string(), expected);
    }
}
