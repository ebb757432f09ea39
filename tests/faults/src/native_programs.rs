//! Programs of Catch2, doctest and Boost.Test, and scripts, with the final states of their tests. Each
//! program has tests that end in every way except by hanging.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
};

use crate::{
    random::SeededRandom,
    support::fixtures::{self, Catch2Version},
};

/// Kinds of native programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NativeProgram {
    Catch2Version2,
    Catch2Version3,
    Doctest,
    Boost,
    /// Scripts judged by their exit codes.
    Commands,
    /// Scripts that report in the Test Anything Protocol.
    Tap,
}

/// Cases of the Catch2 and doctest fixtures. One name differs between the two.
const CATCH2: [(&str, &str); 13] = [
    ("a passes", "passed"),
    ("b waits", "passed"),
    ("c fails", "failed"),
    ("d is hidden", "skipped"),
    ("e segfaults", "error"),
    ("f has parts", "passed"),
    ("g exits", "error"),
    ("h leaves", "error"),
    ("i prints", "passed"),
    ("j is killed", "error"),
    ("k throws", "failed"),
    ("l waits", "passed"),
    ("z is last", "passed"),
];

const BOOST: [(&str, &str); 14] = [
    ("faults/a_passes", "passed"),
    ("faults/b_waits", "passed"),
    ("faults/c_fails", "failed"),
    ("faults/d_is_off", "skipped"),
    ("faults/e_segfaults", "error"),
    ("faults/f_depends", "passed"),
    ("faults/g_exits", "error"),
    ("faults/h_leaves", "error"),
    ("faults/i_prints", "passed"),
    ("faults/j_is_killed", "error"),
    ("faults/k_throws", "failed"),
    ("faults/l_waits", "passed"),
    ("not_here/m_is_skipped", "skipped"),
    ("z_is_last", "passed"),
];

/// Name, command and final state of each script.
const COMMANDS: [(&str, &str, &str); 7] = [
    ("a", "exit 0", "passed"),
    ("b", "sleep 0.02; echo waited", "passed"),
    ("c", "echo wrong >&2; exit 1", "failed"),
    ("e", "kill -SEGV $$", "error"),
    ("i", "seq 2000", "passed"),
    ("j", "kill -KILL $$", "error"),
    ("z", "true", "passed"),
];

const TAP: [(&str, &str, &str); 8] = [
    ("a", "echo 1..1; echo ok 1", "passed"),
    ("b", "echo 1..2; echo ok 1; sleep 0.02; echo ok 2 - after a while", "passed"),
    ("c", "echo 1..1; echo not ok 1; exit 1", "failed"),
    ("d", "echo '1..0 # SKIP not here'", "skipped"),
    ("e", "echo 1..2; echo ok 1; kill -SEGV $$", "error"),
    ("g", "echo 1..2; echo ok 1; exit 0", "failed"),
    ("i", "echo 'Bail out! no disk'", "failed"),
    ("z", "echo ok 1; echo 1..1", "passed"),
];

impl NativeProgram {
    /// Draws a kind of program. Catch2 3 is drawn only if installed.
    pub(crate) fn draw(draws: &mut SeededRandom) -> Self {
        let catch2 = match std::env::var_os("HEELER_CATCH2_V3") {
            Some(_) => Self::Catch2Version3,
            None => Self::Catch2Version2,
        };
        let all = [catch2, Self::Catch2Version2, Self::Doctest, Self::Boost, Self::Commands, Self::Tap];
        draws.pick(&all)
    }

    /// Returns the suite name.
    pub(crate) fn suite(self) -> &'static str {
        match self {
            Self::Catch2Version2 => "catch2-v2",
            Self::Catch2Version3 => "catch2",
            Self::Doctest => "doctest",
            Self::Boost => "boost",
            Self::Commands => "commands",
            Self::Tap => "tap",
        }
    }

    /// Returns the test names with the states that they have without faults.
    pub(crate) fn tests(self) -> Vec<(String, &'static str)> {
        let owned = |tests: &[(&str, &'static str)]| {
            tests.iter().map(|(name, state)| ((*name).to_owned(), *state)).collect()
        };
        let of_scripts = |scripts: &[(&str, &str, &'static str)]| {
            let path = |name: &str| format!("{}.d/{name}", self.suite());
            scripts.iter().map(|(name, _, state)| (path(name), *state)).collect()
        };
        match self {
            Self::Catch2Version2 | Self::Catch2Version3 => owned(&CATCH2),
            Self::Doctest => owned(&CATCH2.map(|(name, state)| match name {
                "d is hidden" => ("d is off", state),
                name => (name, state),
            })),
            Self::Boost => owned(&BOOST),
            Self::Commands => of_scripts(&COMMANDS),
            Self::Tap => of_scripts(&TAP),
        }
    }

    /// Puts the program into a round's directory.
    pub(crate) fn prepare(self, dir: &Path) {
        let program = match self {
            Self::Catch2Version2 => fixtures::catch2("faults", Catch2Version::Two).unwrap(),
            Self::Catch2Version3 => fixtures::catch2("faults", Catch2Version::Three).unwrap(),
            Self::Doctest => fixtures::doctest("faults"),
            Self::Boost => fixtures::boost("faults"),
            Self::Commands => return self.write_scripts(dir, &COMMANDS),
            Self::Tap => return self.write_scripts(dir, &TAP),
        };
        symlink(program, dir.join(self.suite())).unwrap();
    }

    fn write_scripts(self, dir: &Path, scripts: &[(&str, &str, &str)]) {
        let scripts_dir = dir.join(format!("{}.d", self.suite()));
        fs::create_dir(&scripts_dir).unwrap();
        for (name, script, _) in scripts {
            let path = scripts_dir.join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    /// Returns the suite's configuration lines after its name.
    pub(crate) fn config(self) -> String {
        let name = self.suite();
        match self {
            Self::Commands => format!("pattern = [\"{name}.d/*\"]\n"),
            Self::Tap => format!("pattern = [\"{name}.d/*\"]\nframework = \"tap\"\n"),
            Self::Catch2Version2 | Self::Catch2Version3 | Self::Doctest | Self::Boost => {
                format!("programs = [\"{name}\"]\n")
            }
        }
    }
}
