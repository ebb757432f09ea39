//! Test programs that attack Heeler's assumptions, and the expected states of their tests.

/// Prefix of the uids of hostile tests.
pub(crate) const SUITE_PREFIX: &str = "hostile::";

/// A fixture of the end-to-end tests, the variable that selects its attack, and the states of its tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HostileProgram {
    /// Name of the source file.
    pub(crate) fixture: &'static str,
    /// Name and value of the variable.
    pub(crate) attack: (&'static str, &'static str),
    tests: HostileTests,
    /// Name prefix and state of the tests that do not pass.
    charged: (&'static str, &'static str),
    /// A program failure is reported as well.
    pub(crate) fails_itself: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostileTests {
    Named(&'static [&'static str]),
    /// Plain tests, and the cases of a parameterized test.
    WithCases(&'static [&'static str], &'static str, usize),
}

const FORGING: HostileTests = HostileTests::Named(&[
    "First.Passes",
    "Fork.ChildReturnsParentCrashes",
    "Fork.ChildReturnsParentExits",
    "Fork.ChildReturnsParentFails",
    "Fork.ChildIsGoneWhenParentCrashes",
    "Fork.ChildRunsOnWhileParentCrashes",
    "Again.StartsProgramAndCrashes",
    "Print.NextMarkersAndFails",
    "Print.EverythingAndExits",
    "Print.HandlerExits",
    "Print.ClosesOutput",
    "Print.TearsMarkers",
    "Last.Passes",
]);
const SUITES: HostileTests =
    HostileTests::WithCases(&["Before.One", "Before.Two", "Zafter.One", "Zafter.Two"], "N/Fixture.Case", 20);
const DIRECTORY: HostileTests =
    HostileTests::WithCases(&["Evidence.Directories", "Evidence.Fails"], "N/Directory.Case", 6);

const fn forging(attack: &'static str, charged: (&'static str, &'static str)) -> HostileProgram {
    HostileProgram {
        fixture: "forging",
        attack: ("HEELER_FIXTURE_ATTACK", attack),
        tests: FORGING,
        charged,
        fails_itself: false,
    }
}

const fn suites(
    end: &'static str,
    charged: (&'static str, &'static str),
    fails_itself: bool,
) -> HostileProgram {
    let attack = ("HEELER_FIXTURE_END", end);
    HostileProgram { fixture: "suites", attack, tests: SUITES, charged, fails_itself }
}

const NONE: (&str, &str) = ("none", "");
/// The attack that ends only by timeout.
pub(crate) const HANGING: &str = "fork, hang both";

/// Every hostile program.
pub(crate) const PROGRAMS: [HostileProgram; 19] = [
    forging("fork, crash", ("Fork.ChildReturnsParentCrashes", "error")),
    forging("fork, fail", ("Fork.ChildReturnsParentFails", "failed")),
    forging("fork, exit 0", ("Fork.ChildReturnsParentExits", "error")),
    forging("fork, exit 1", ("Fork.ChildReturnsParentExits", "error")),
    forging("fork, kill", ("Fork.ChildReturnsParentExits", "error")),
    forging("fork, crash late", ("Fork.ChildIsGoneWhenParentCrashes", "error")),
    forging("fork, crash early", ("Fork.ChildRunsOnWhileParentCrashes", "error")),
    forging(HANGING, ("Fork.ChildRunsOnWhileParentCrashes", "timed-out")),
    forging("again, crash", ("Again.StartsProgramAndCrashes", "error")),
    forging("next, fail", ("Print.NextMarkersAndFails", "failed")),
    forging("everything, exit 0", ("Print.EverythingAndExits", "error")),
    forging("handler, exit 0", ("Print.HandlerExits", "error")),
    forging("close", NONE),
    forging("tear", NONE),
    forging("own printer", NONE),
    suites("set-up, crash", ("N/Fixture", "error"), false),
    suites("set-up, exit", ("N/Fixture", "error"), false),
    suites("tear-down, crash", NONE, true),
    HostileProgram {
        fixture: "tmpdir",
        attack: ("HEELER_FIXTURE_UNUSED", "none"),
        tests: DIRECTORY,
        charged: ("Evidence.Fails", "failed"),
        fails_itself: false,
    },
];

impl HostileProgram {
    /// Returns the test names with the states that they have without faults.
    pub(crate) fn tests(self) -> Vec<(String, &'static str)> {
        let names: Vec<String> = match self.tests {
            HostileTests::Named(names) => names.iter().map(|name| (*name).to_owned()).collect(),
            HostileTests::WithCases(names, case, count) => {
                let cases = (0..count).map(|number| format!("{case}/{number}"));
                names.iter().map(|name| (*name).to_owned()).chain(cases).collect()
            }
        };
        let (charged, state) = self.charged;
        let state_of = |name: &str| if name.starts_with(charged) { state } else { "passed" };
        names.into_iter().map(|name| (name.clone(), state_of(&name))).collect()
    }
}
