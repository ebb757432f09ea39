//! The test programs of a cargo package or workspace: `--cargo DIR`, or `cargo = "DIR"`.

use std::{ffi::OsStr, path::Path};

use heeler_core::SourceRequest;
use heeler_protocol::control::{OsText, TestProgram};

use super::{
    super::arguments::ProgramArguments,
    PhaseDisplay, SourceContext, SourcesError, TestSource, absolute_text,
    detect::{FoundProject, Sighting, Site},
    test_source::WordUse,
};
use heeler_cargo::{
    BuildSupervision, CargoBuild, CargoError, CargoProgram, DiagnosticsTarget,
    doctests::{DoctestRecording, FRAMEWORK},
};

/// Arguments: cargo's working directory, then arguments for cargo.
pub(super) struct CargoSource;

impl TestSource for CargoSource {
    fn name(&self) -> &'static str {
        "cargo"
    }

    fn command_line_arguments(&self, command_line: &ProgramArguments) -> Option<Vec<OsText>> {
        let options = command_line.cargo_options();
        let dir = match command_line.cargo.as_deref() {
            Some(dir) => dir,
            None if !options.is_empty() => Path::new("."),
            None => return None,
        };
        let args = options.iter().map(|word| OsText::from(word.as_str()));
        Some([absolute_text(dir)].into_iter().chain(args).collect())
    }

    fn take_word(&self, word: &Path, arguments: &mut ProgramArguments) -> WordUse {
        if !word.join(MANIFEST).is_file() {
            return WordUse::Other;
        }
        if arguments.cargo.is_none() {
            arguments.cargo = Some(word.to_owned());
            return WordUse::Taken;
        }
        let options = arguments.cargo_options();
        let options = options.iter().map(|option| OsText::from(option.as_str()));
        WordUse::Request(SourceRequest::new(self.name(), [absolute_text(word)].into_iter().chain(options)))
    }

    fn project_in(&self, site: Site<'_>) -> Option<Sighting> {
        // Cargo itself looks for the manifest in the directories above.
        let is_inside = site.is_below(MANIFEST);
        if !site.has(MANIFEST) && !is_inside {
            return None;
        }
        let text = std::fs::read_to_string(site.dir.join(MANIFEST)).unwrap_or_default();
        let kind =
            if text.lines().any(|line| line.trim() == "[workspace]") { "workspace" } else { "package" };
        Some(Sighting::Project(Box::new(FoundProject {
            request: SourceRequest::new(self.name(), [OsText::from(site.dir)]),
            title: format!("Cargo {kind}{}", site.place()),
            reason: if is_inside {
                "Cargo.toml above".into()
            } else {
                site.relative(&site.dir.join(MANIFEST))
            },
            suite: "rust".to_owned(),
            keys: vec![("cargo", site.name())],
        })))
    }

    fn resolve(
        &self,
        arguments: &[OsText],
        context: &SourceContext<'_>,
        display: PhaseDisplay<'_>,
    ) -> Result<Vec<TestProgram>, SourcesError> {
        let (dir, args) = match arguments {
            [dir, args @ ..] => (dir.as_path(), args),
            [] => (Path::new("."), arguments),
        };
        match context.suite {
            Some(suite) => display("Building", &format!("the suite {} with cargo", suite.name)),
            None => display("Building", &format!("the tests of {}", dir.display())),
        }
        let args: Vec<_> = args.iter().map(OsText::as_os_str).collect();
        let built = build_tests(dir, &args, context.supervision).map_err(SourcesError::Cargo)?;
        let program = |built: CargoProgram| {
            let options = doctest_options(&built, &args);
            let mut program = built.into_test_program();
            program.reproduction.options = options;
            program
        };
        Ok(built.into_iter().map(program).collect())
    }
}

/// Returns the options with which `heeler run --doc`, in the directory of a library's documentation tests,
/// builds this library in the same way. Other programs are not built again to be reproduced.
fn doctest_options(program: &CargoProgram, args: &[&OsStr]) -> Vec<OsText> {
    if program.framework != Some(FRAMEWORK) {
        return Vec::new();
    }
    let variable = |name: &str| program.env.iter().find(|(known, _)| known == name).map(|(_, value)| value);
    let mut options = Vec::new();
    // rustdoc runs in the directory of the workspace, which may have several packages.
    let is_package_dir = variable("CARGO_MANIFEST_DIR").is_none_or(|dir| Path::new(dir) == program.cwd);
    if let (false, Some(name)) = (is_package_dir, variable("CARGO_PKG_NAME")) {
        options.extend([OsText::from("-p"), OsText::from(name.as_os_str())]);
    }
    let mut words = args.iter().map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        let name = word.split('=').next().unwrap_or_default();
        match name {
            "--doc" | "--no-doc" | "--workspace" | "--all" => {}
            "-p" | "--package" | "--exclude" if name.len() == word.len() => drop(words.next()),
            "-p" | "--package" | "--exclude" => {}
            "--release" | "--all-features" | "--no-default-features" => options.push(OsText::from(&*word)),
            "--features" => {
                options.push(OsText::from(&*word));
                if name.len() == word.len() {
                    options.extend(words.next().map(|value| OsText::from(&*value)));
                }
            }
            _ => options.push(OsText::from(format!("--cargo-arg={word}"))),
        }
    }
    options
}

const MANIFEST: &str = "Cargo.toml";

/// Cargo options that select targets. As with `cargo test`, such a selection excludes documentation tests.
const TARGET_OPTIONS: [&str; 10] = [
    "--lib",
    "--bins",
    "--bin",
    "--examples",
    "--example",
    "--tests",
    "--test",
    "--benches",
    "--bench",
    "--all-targets",
];

/// Builds the tests selected by these arguments: cargo's own options, `--doc` and `--no-doc`.
fn build_tests(
    dir: &Path,
    args: &[&OsStr],
    supervision: BuildSupervision<'_>,
) -> Result<Vec<CargoProgram>, CargoError> {
    let is_own = |word: &&OsStr| *word == "--doc" || *word == "--no-doc";
    let (own, args): (Vec<_>, Vec<_>) = args.iter().copied().partition(is_own);
    let doctests = |toolchain_rustdoc, left_out| DoctestRecording {
        dir,
        args: &args,
        variables: &[],
        left_out,
        toolchain_rustdoc,
        diagnostics: DiagnosticsTarget::Shown,
        supervision,
    };
    if own.iter().any(|word| *word == "--doc") {
        return doctests(None, &[]).build(|_line| {});
    }
    let built = CargoBuild::start(dir, &args, supervision).and_then(CargoBuild::finish)?;
    let mut programs = built.programs;
    if built.has_doctests && own.is_empty() && !args.iter().any(|word| selects_targets(word)) {
        programs.extend(doctests(built.rustdoc, &built.without_doctests).build(|_line| {})?);
    }
    Ok(programs)
}

fn selects_targets(word: &OsStr) -> bool {
    let word = word.to_string_lossy();
    TARGET_OPTIONS.contains(&word.split('=').next().unwrap_or(&word))
}
