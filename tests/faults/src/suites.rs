//! The test programs of a round and their settings, all drawn at random.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    fixture_tests::{GO, LIBTEST, MCP, MTP_QUIRKS, PYTEST, PYTEST_CASES},
    hostile::HostileProgram,
    native_programs::NativeProgram,
    random::SeededRandom,
    support::fixtures,
};

/// The tests of one program.
#[derive(Debug, Clone)]
pub(crate) struct PlannedSuite {
    pub(crate) name: String,
    pub(crate) program: PlannedProgram,
}

#[derive(Debug, Clone)]
pub(crate) enum PlannedProgram {
    /// GoogleTest, with one letter for each case; `faults.cc` defines the letters.
    Gtest(String),
    Libtest,
    /// A Go program; drawn only if Go is installed.
    Go,
    /// The fixture server of the Model Context Protocol.
    Mcp,
    Native(NativeProgram),
    /// The fixture server of Microsoft Testing Platform, with a quirk and the state of the test that the
    /// quirk affects.
    Mtp(&'static str, &'static str),
    /// The fixture suite of pytest, run by this interpreter.
    Pytest(PathBuf),
    Hostile(HostileProgram),
}

#[derive(Debug, Clone)]
pub(crate) struct PlannedSettings {
    pub(crate) jobs: usize,
    pub(crate) is_isolated: bool,
    pub(crate) retries: usize,
    pub(crate) timeout: Option<Duration>,
    pub(crate) is_history_kept: bool,
    pub(crate) has_memory_limit: bool,
    /// Whether some tests take resources or several slots, or have a priority.
    pub(crate) has_needs: bool,
    pub(crate) stall: Duration,
    pub(crate) drain: Duration,
}

/// Needs of the tests whose names contain a digit, in programs of every kind.
const NEEDS: &str = "[[resource]]\nname = \"shared\"\ncapacity = 2\n\
    [[profile.default.override]]\nfilter = \"*1*\"\nuses = [\"shared\"]\npriority = 3\n\
    [[profile.default.override]]\nfilter = \"*2*\"\nuses = [\"shared:read\"]\n\
    [[profile.default.override]]\nfilter = \"*3*\"\nweight = 9\n";

/// The package of the Go fixtures that rounds use.
const GO_PACKAGE: &str = "kinds";

/// Letters of cases that time out.
const HANGING: [char; 3] = ['h', 'd', 'H'];

impl PlannedSuite {
    pub(crate) fn has_hang(&self) -> bool {
        match &self.program {
            PlannedProgram::Gtest(script) => script.contains(HANGING),
            PlannedProgram::Libtest
            | PlannedProgram::Go
            | PlannedProgram::Mcp
            | PlannedProgram::Native(_)
            | PlannedProgram::Mtp(..)
            | PlannedProgram::Pytest(_)
            | PlannedProgram::Hostile(_) => false,
        }
    }

    /// Returns whether the program has tests that [`Self::tests`] omits. A round must then select its tests.
    pub(crate) fn has_other_tests(&self) -> bool {
        matches!(self.program, PlannedProgram::Libtest | PlannedProgram::Go)
    }

    pub(crate) fn tests(&self) -> Vec<(String, &'static str)> {
        let uid = |test: &str| format!("{}::{test}", self.name);
        match &self.program {
            PlannedProgram::Gtest(script) => script
                .chars()
                .enumerate()
                .map(|(number, letter)| (uid(&format!("N/Fault.Case/{number}")), state_of(letter)))
                .collect(),
            // The two omitted tests overflow the stack or hang.
            PlannedProgram::Libtest => LIBTEST.iter().map(|(test, state)| (uid(test), *state)).collect(),
            // The omitted tests hang or take long to overflow the stack.
            PlannedProgram::Go => GO.iter().map(|(test, state)| (uid(test), *state)).collect(),
            PlannedProgram::Mcp => MCP.iter().map(|(test, state)| (uid(test), *state)).collect(),
            PlannedProgram::Native(native) => {
                native.tests().into_iter().map(|(test, state)| (uid(&test), state)).collect()
            }
            PlannedProgram::Mtp(_, fourth) => ["passed", "passed", "passed", fourth, "passed", "failed"]
                .into_iter()
                .enumerate()
                .map(|(number, state)| (uid(&format!("Space.Class.t{number}")), state))
                .collect(),
            PlannedProgram::Pytest(_) => (0..PYTEST_CASES)
                .map(|number| (uid(&format!("test_faults.py::test_waits[{number}]")), "passed"))
                .chain(PYTEST.iter().map(|(test, state)| (uid(test), *state)))
                .collect(),
            PlannedProgram::Hostile(hostile) => {
                hostile.tests().into_iter().map(|(test, state)| (uid(&test), state)).collect()
            }
        }
    }
}

/// Writes a round's programs and configuration, and creates the directories in its environment variables.
pub(crate) fn prepare(dir: &Path, suites: &[PlannedSuite], settings: &PlannedSettings) {
    for name in ["tmp", "run", "home", "points"] {
        fs::create_dir(dir.join(name)).unwrap();
    }
    for suite in suites {
        let program = match &suite.program {
            PlannedProgram::Gtest(_) => fixtures::gtest("faults"),
            PlannedProgram::Libtest => fixtures::libtest(),
            PlannedProgram::Go => fixtures::go(GO_PACKAGE).expect("it was drawn, so Go is there"),
            PlannedProgram::Mcp => fixtures::mcp_server(),
            PlannedProgram::Native(native) => {
                native.prepare(dir);
                continue;
            }
            PlannedProgram::Mtp(..) => fixtures::fixtures().join("mtp/application.py"),
            PlannedProgram::Pytest(_) => {
                let directory = dir.join(&suite.name);
                fs::create_dir(&directory).unwrap();
                fs::write(directory.join("pytest.ini"), "[pytest]\naddopts = -p no:cacheprovider\n").unwrap();
                let name = "test_faults.py";
                fs::copy(fixtures::fixtures().join("pytest").join(name), directory.join(name)).unwrap();
                continue;
            }
            PlannedProgram::Hostile(hostile) => fixtures::gtest(hostile.fixture),
        };
        symlink(program, dir.join(&suite.name)).unwrap();
    }
    fs::write(dir.join("heeler.toml"), config_of(suites, settings)).unwrap();
}

/// Returns the configuration file of a round.
pub(crate) fn config_of(suites: &[PlannedSuite], settings: &PlannedSettings) -> String {
    let PlannedSettings { jobs, is_isolated, retries, is_history_kept, .. } = *settings;
    let milliseconds = |duration: Duration| format!("\"{}ms\"", duration.as_millis());
    let timeout = settings.timeout.map_or("false".to_owned(), milliseconds);
    let (stall, drain) = (milliseconds(settings.stall), milliseconds(settings.drain));
    let memory = if settings.has_memory_limit { "max-memory = \"1GiB\"\n" } else { "" };
    let mut text = format!(
        "[profile.default]\njobs = {jobs}\nisolate = {is_isolated}\nretries = {retries}\n\
             history = {is_history_kept}\ntimeout = {timeout}\ngrace-period = \"100ms\"\n\
             client-stall-timeout = {stall}\ndrain-timeout = {drain}\nconnect-timeout = \"2s\"\n\
             startup-timeout = \"10s\"\nlist-timeout = \"30s\"\n{memory}"
    );
    if settings.has_needs {
        text += NEEDS;
    }
    // One suite per program, with the settings that this program needs.
    for PlannedSuite { name, program } in suites {
        text += &format!("[[suite]]\nname = \"{name}\"\n");
        if let PlannedProgram::Native(native) = program {
            text += &native.config();
            continue;
        }
        if let PlannedProgram::Pytest(python) = program {
            text += &format!("pytest = \"{name}\"\npython = {:?}\n", python.display().to_string());
            text += "env = { PYTHONDONTWRITEBYTECODE = \"1\" }\n";
            continue;
        }
        text += &format!("programs = [\"{name}\"]\n");
        let (variable, value) = match program {
            PlannedProgram::Gtest(script) => ("HEELER_FIXTURE_SCRIPT", script.as_str()),
            PlannedProgram::Hostile(hostile) => hostile.attack,
            PlannedProgram::Libtest
            | PlannedProgram::Go
            | PlannedProgram::Native(_)
            | PlannedProgram::Pytest(_) => continue,
            PlannedProgram::Mtp(quirk, _) => {
                text += &format!("framework = \"mtp\"\nargs = [\"{quirk}\"]\n");
                continue;
            }
            PlannedProgram::Mcp => {
                text += "framework = \"mcp\"\nargs = [\"faults\"]\n";
                continue;
            }
        };
        text += &format!("env = {{ {variable} = \"{value}\" }}\n");
    }
    text
}

/// Returns the final state of the cases with this letter.
fn state_of(letter: char) -> &'static str {
    match letter {
        's' => "skipped",
        'f' | 'M' | 'T' => "failed",
        'c' | 'a' | 'k' | 'e' | 'q' | 'E' => "error",
        'h' | 'd' | 'H' => "timed-out",
        _ => "passed",
    }
}

/// Returns the suite with the Go program, which requires Go.
pub(crate) fn go_suite() -> PlannedSuite {
    PlannedSuite { name: "go".to_owned(), program: PlannedProgram::Go }
}

pub(crate) fn draw_suites(draws: &mut SeededRandom) -> Vec<PlannedSuite> {
    let count = draws.pick_weighted(&[(60, 1), (30, 2), (10, 3)]);
    let mut suites: Vec<_> = (0..count)
        .map(|number| PlannedSuite {
            name: format!("faults-{number}"),
            program: PlannedProgram::Gtest(draw_script(draws)),
        })
        .collect();
    if draws.with_probability(30) {
        suites[0] = PlannedSuite { name: "libtest".to_owned(), program: PlannedProgram::Libtest };
    } else if draws.with_probability(15) {
        suites[0] = PlannedSuite { name: "mcp".to_owned(), program: PlannedProgram::Mcp };
    } else if draws.with_probability(20) && fixtures::go(GO_PACKAGE).is_some() {
        suites[0] = go_suite();
    } else if draws.with_probability(35) {
        let native = NativeProgram::draw(draws);
        suites[0] = PlannedSuite { name: native.suite().to_owned(), program: PlannedProgram::Native(native) };
    }
    // Drawn in addition to the other programs, because it affects only its own leases.
    if draws.with_probability(12) {
        let (quirk, state) = draws.pick(&MTP_QUIRKS);
        let program = PlannedProgram::Mtp(quirk, state);
        suites.push(PlannedSuite { name: "platform".to_owned(), program });
    }
    if draws.with_probability(8)
        && let Some(python) = python_with_pytest()
    {
        suites.push(PlannedSuite { name: "python".to_owned(), program: PlannedProgram::Pytest(python) });
    }
    suites
}

/// Returns the Python interpreter that has the pytest installed by `scripts/test`, if present.
fn python_with_pytest() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let environments = own.ancestors().map(|directory| directory.join("tmp/pytest"));
    let found = environments.into_iter().find(|environment| environment.join("installed").exists())?;
    Some(found.join("bin/python"))
}

/// Draws suites and settings for a round with many runs. Few of these rounds have a test that times out,
/// because every run would wait for the timeout.
pub(crate) fn draw_suites_of_many_runs(draws: &mut SeededRandom) -> (Vec<PlannedSuite>, PlannedSettings) {
    let mut suites = draw_suites(draws);
    if draws.with_probability(80) {
        for suite in &mut suites {
            if let PlannedProgram::Gtest(script) = &mut suite.program {
                *script = script.replace(HANGING, "w");
            }
        }
    }
    let has_hang = suites.iter().any(PlannedSuite::has_hang);
    let mut settings = draw_settings(draws, has_hang);
    if has_hang {
        settings.retries = 0;
    }
    (suites, settings)
}

/// Draws the behaviour of a program's cases: most pass, a few misbehave.
fn draw_script(draws: &mut SeededRandom) -> String {
    let length = draws.between(4, 24);
    let bad = draws.pick_weighted(&[(40, 0), (40, 8), (20, 20)]);
    let mut hangs = 1;
    let mut crashes = 3;
    let letter = |_| {
        if draws.with_probability(bad) {
            let letter = draws.pick(&[
                'f', 'f', 's', 'T', 'c', 'a', 'k', 'e', 'q', 'E', 'h', 'd', 'H', 'l', 'g', 'G', 'F', 'm',
                'j', 'M', 'D',
            ]);
            match letter {
                'h' | 'd' | 'H' if hangs == 0 => 'p',
                'c' | 'a' | 'k' | 'e' | 'q' | 'E' if crashes == 0 => 'p',
                'h' | 'd' | 'H' => {
                    hangs -= 1;
                    letter
                }
                'c' | 'a' | 'k' | 'e' | 'q' | 'E' => {
                    crashes -= 1;
                    letter
                }
                other => other,
            }
        } else {
            draws.pick_weighted(&[(45, 'p'), (40, 'w'), (15, 'W')])
        }
    };
    (0..length).map(letter).collect()
}

pub(crate) fn draw_settings(draws: &mut SeededRandom, has_hang: bool) -> PlannedSettings {
    PlannedSettings {
        jobs: draws.between(1, 3),
        is_isolated: draws.with_probability(15),
        retries: draws.pick_weighted(&[(85, 0), (15, 1)]),
        // Long enough that a test does not time out on a busy machine.
        timeout: has_hang.then(|| Duration::from_millis(draws.between(2000, 4000) as u64)),
        is_history_kept: draws.with_probability(40),
        has_memory_limit: draws.with_probability(10),
        has_needs: draws.with_probability(30),
        stall: Duration::from_millis(draws.between(1200, 2500) as u64),
        drain: Duration::from_millis(draws.between(300, 800) as u64),
    }
}

/// Returns the filter that selects these tests.
pub(crate) fn filter_of(uids: &[String]) -> String {
    if uids.is_empty() {
        return "none()".to_owned();
    }
    let all: Vec<_> = uids.iter().map(|uid| format!("test(={uid})")).collect();
    all.join(" | ")
}

/// Returns the tests selected by a filter that `filter_of` returned.
pub(crate) fn uids_of_filter(filter: &str) -> Vec<String> {
    let names = filter.split(" | ").filter_map(|one| one.strip_prefix("test(=")?.strip_suffix(')'));
    names.map(str::to_owned).collect()
}
