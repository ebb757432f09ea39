//! Executes the commands in the documentation and compares each output with the output shown on the page.
//!
//! A command block runs in a directory with the files that the page tells the reader to create. A comment
//! above the block can change this:
//!
//! - `<!-- executed in: PROJECT, … -->`: runs the block in a separate directory, which all blocks of the page
//!   with the same comment share. A project is either a directory of this repository, which is copied, or a
//!   name that [`Project::add`] knows.
//! - `<!-- not executed: REASON -->`: skips the block.
//!
//! `pages_are_executed` in `tests/repo` checks that every page with commands is executed here.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    page_blocks::{Block, blocks},
    support::{
        cache, fixtures, requirement,
        world::{FinishedCommand, TestWorld, copy_program, run_with_separate_outputs},
    },
};

/// Returns each command with the output that the page shows below it.
fn commands(block: &Block<'_>) -> Vec<(String, String)> {
    let mut commands: Vec<(String, Vec<&str>)> = Vec::new();
    let mut is_continued = false;
    for line in &block.lines {
        if let Some(command) = line.strip_prefix("$ ") {
            commands.push((command.to_owned(), Vec::new()));
        } else {
            let (command, shown) = commands.last_mut().expect("a block begins with a command");
            if is_continued {
                command.push('\n');
                command.push_str(line);
            } else {
                shown.push(line);
                continue;
            }
        }
        is_continued = line.ends_with(['\\', '|']);
    }
    commands.into_iter().map(|(command, shown)| (command, shown.join("\n"))).collect()
}

/// Returns whether an output matches the shown output. `…` matches any text; on a separate line it matches
/// any number of lines.
fn is_shown(shown: &str, output: &str) -> bool {
    let mut rest = output;
    let mut parts = shown.split('…');
    let Some(first) = parts.next() else { return true };
    let Some(behind) = rest.strip_prefix(first) else { return false };
    rest = behind;
    for part in parts {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    rest.is_empty() || shown.ends_with('…')
}

/// A directory where a page's commands run.
struct Project {
    dir: PathBuf,
    variables: Vec<(&'static str, PathBuf)>,
}

impl Project {
    /// Creates a directory with these projects; `None` if the machine lacks a required tool.
    fn new(world: &TestWorld, name: &str, projects: &str) -> Option<Self> {
        let dir = world.path(name);
        fs::create_dir(&dir).unwrap();
        let mut project = Self { dir, variables: Vec::new() };
        for word in projects.split(", ").filter(|word| !word.is_empty()) {
            project.add(world, word)?;
        }
        Some(project)
    }

    fn add(&mut self, world: &TestWorld, word: &str) -> Option<()> {
        let link = |target: &Path, name: &str| {
            std::os::unix::fs::symlink(target, self.dir.join(name)).unwrap();
        };
        match word {
            "programs" => {
                fs::create_dir(self.dir.join("build")).unwrap();
                // Directory searches do not follow symbolic links, so the programs are copied.
                for name in ["unit_tests", "net_tests", "slow_test"] {
                    copy_program(&fixtures::gtest("suites"), &self.dir.join("build").join(name));
                }
            }
            "doctest program" => {
                fs::create_dir(self.dir.join("build")).unwrap();
                link(&fixtures::doctest("names"), "build/unit_tests");
            }
            "sample suite" => {
                fs::copy(repository().join("heeler.toml"), self.dir.join("heeler.toml")).unwrap();
                copy_sources("samples", &self.dir.join("samples"));
            }
            "CMake project" => link(&fixtures::ctest_project(), "build"),
            // The `main` branch lacks the sources that have `net` in their names.
            "git" => {
                let commit = "git init -q -b main && git add . ':!*net*' && \
                              git -c user.name=a -c user.email=a@example.org commit -q -m first";
                self.run(world, commit).assert_code(0);
            }
            "pytest" => {
                link(crate::frameworks::pytest::python()?.parent()?.parent()?, "venv");
                self.variables.push(("VIRTUAL_ENV", self.dir.join("venv")));
                self.variables.push(("PYTHONDONTWRITEBYTECODE", "1".into()));
            }
            "go" => {
                requirement::directory_of_program("go", "Go 1.20 or newer must be in PATH")?;
                // A shared cache lets Go compile its library once for all tests.
                self.variables.push(("GOCACHE", cache().with_file_name("go")));
                self.variables.push(("GOTOOLCHAIN", "local".into()));
                self.variables.push(("GOFLAGS", PathBuf::new()));
            }
            "jq" => {
                requirement::directory_of_program("jq", "scripts/test installs it")?;
            }
            directory => copy_sources(directory, &self.dir),
        }
        Some(())
    }

    /// Executes a shell command line. Both outputs go to standard output, in the order a terminal shows them.
    fn run(&self, world: &TestWorld, line: &str) -> FinishedCommand {
        let heeler = Path::new(env!("CARGO_BIN_EXE_heeler")).parent().unwrap().display();
        let mut shell = world.shell(&format!("exec 2>&1; PATH={heeler}:$PATH; {line}"));
        shell.current_dir(&self.dir);
        shell.envs(self.variables.iter().map(|(name, value)| (name, value)));
        run_with_separate_outputs(shell)
    }

    /// Executes a page's command and compares its output with the page. If the page shows no output, the
    /// command must succeed.
    #[track_caller]
    fn check(&self, world: &TestWorld, page: &str, command: &str, shown: &str) {
        let ran = self.run(world, command);
        let output = ran.stdout.trim_end();
        if shown.is_empty() {
            assert_eq!(ran.code, Some(0), "{page}: $ {command}\nprinted:\n{output}");
        } else {
            let shown = shown.trim_end();
            assert!(is_shown(shown, output), "{page}: $ {command}\nshown:\n{shown}\nprinted:\n{output}");
        }
    }
}

/// Copies a directory of this repository without build products. A child process does the copying: if this
/// process wrote a program, a process started by another test could inherit the open file and make its
/// execution fail.
fn copy_sources(name: &str, to: &Path) {
    fs::create_dir_all(to).unwrap();
    let copy = r#"set -o pipefail; tar --exclude=target -C "$0" -c . | tar -C "$1" -x"#;
    let mut shell = Command::new("bash");
    shell.args(["-c", copy]).arg(repository().join(name)).arg(to);
    assert!(shell.status().unwrap().success(), "{name} is not a directory");
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Follows a page's instructions: creates the files that it shows and executes its terminal blocks.
#[track_caller]
fn follow(page: &str) {
    let text = fs::read_to_string(repository().join(page)).unwrap();
    let world = TestWorld::new();
    let mut projects: BTreeMap<&str, Option<Project>> = BTreeMap::new();
    let mut count = 0;
    for block in blocks(&text) {
        let file = block.fence.split_once(' ').map(|(_, name)| name);
        let (true, Some(named)) = (block.is_console() || file.is_some(), block.projects()) else {
            continue;
        };
        let name = format!("page{}", projects.len());
        let made = projects.entry(named).or_insert_with(|| Project::new(&world, &name, named));
        // Count blocks even if the machine cannot run them.
        count += block.lines.len();
        let Some(project) = made else { continue };
        if let Some(file) = file {
            fs::write(project.dir.join(file), format!("{}\n", block.lines.join("\n"))).unwrap();
            continue;
        }
        for (command, shown) in commands(&block) {
            project.check(&world, &format!("{page}:{}", block.number), &command, &shown);
        }
    }
    assert!(count > 0, "{page} has commands that can be executed");
}

macro_rules! followed {
    ($($test:ident: $page:literal;)+) => {
        $(
            #[test]
            fn $test() {
                follow($page);
            }
        )+
    };
}

followed! {
    readme_can_be_followed: "README.md";
    tutorial_can_be_followed: "docs/tutorial.md";
    page_on_agents_can_be_followed: "docs/editors/mcp.md";
    page_on_ctest_can_be_followed: "docs/frameworks/ctest.md";
    page_on_go_can_be_followed: "docs/frameworks/go.md";
    page_on_json_lines_can_be_followed: "docs/frameworks/json-lines.md";
    page_on_microsoft_testing_platform_can_be_followed: "docs/frameworks/mtp.md";
    page_on_pytest_can_be_followed: "docs/frameworks/pytest.md";
    page_on_recognition_can_be_followed: "docs/frameworks/recognition.md";
    page_on_ci_can_be_followed: "docs/guide/ci.md";
    page_on_crashes_can_be_followed: "docs/guide/crashes.md";
    page_on_filters_can_be_followed: "docs/guide/filters.md";
    page_on_scripts_with_debuggers_can_be_followed: "docs/guide/gdb-in-ci.md";
    page_on_mcp_can_be_followed: "docs/guide/mcp.md";
    page_on_the_mcp_filter_can_be_followed: "docs/guide/mcp-filter.md";
    page_on_reruns_can_be_followed: "docs/guide/reruns.md";
    page_on_results_can_be_followed: "docs/guide/results.md";
    page_on_running_can_be_followed: "docs/guide/running.md";
    page_on_run_events_can_be_followed: "docs/reference/run-events.md";
}

#[cfg(feature = "mutation")]
followed! {
    page_on_mutation_can_be_followed: "docs/guide/mutation.md";
}

#[test]
fn shown_outputs_are_compared() {
    for (shown, output, expected) in [
        ("a\nb", "a\nb", true),
        ("a\nb", "a\nc", false),
        ("a … c", "a b c", true),
        ("…\nc", "a\nb\nc", true),
        ("…\nc", "a\nb", false),
        ("a\n…", "a\nb\nc", true),
        ("a", "a\nb", false),
        ("", "", true),
        ("", "a", false),
    ] {
        assert_eq!(is_shown(shown, output), expected, "{shown:?} {output:?}");
    }
}

#[test]
fn blocks_name_their_projects_and_commands_go_on_in_the_next_line() {
    let page = "<!-- executed in: samples, go -->\n```console\n$ a |\n    b\nshown\n$ c\n```\n\
                <!-- not executed: it takes an hour -->\n```console\n$ d\n```\n";
    let blocks = blocks(page);
    assert_eq!(blocks[0].projects(), Some("samples, go"));
    let expected = [("a |\n    b", "shown"), ("c", "")].map(|(a, b)| (a.to_owned(), b.to_owned()));
    assert_eq!(commands(&blocks[0]), expected);
    assert_eq!(blocks[1].projects(), None);
}
