//! Tests of Go packages: `--go PACKAGES`, or `go = "PACKAGES"`. Builds with `go test -c` in go's own build
//! cache, and runs each program in its package's directory, like `go test`.

mod packages;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use heeler_core::SourceRequest;
use heeler_protocol::control::{OsText, TestProgram};

use super::{
    super::arguments::ProgramArguments,
    DebugData, PhaseDisplay, SourceContext, SourcesError, TestSource, absolute_text,
    detect::{FoundProject, Sighting, Site, names_in},
    test_source::WordUse,
};
use heeler_cargo::{BuildOutput, BuildSupervision, CargoError, read_tool_output, try_build_command};
use packages::{GoPackage, PackageLocation, UnreadablePackages, build_groups, listing_arguments};

/// Name of the framework of these programs, and of the source.
const FRAMEWORK: &str = "go";
/// The go tool.
const GO: &str = "go";
/// File of a module.
const MODULE: &str = "go.mod";
/// All packages of the working directory's module.
const ALL_PACKAGES: &str = "./...";
/// Separates packages from arguments for go in a request's arguments.
const ARGUMENTS_FOLLOW: &str = "--";
/// First minor version of Go whose `go test -c` can build several packages at once.
const FIRST_VERSION_FOR_SEVERAL: u32 = 21;
/// Go options that need go's own linking: linker flags, and coverage.
const OWN_LINKING: [&str; 5] = ["ldflags", "cover", "covermode", "coverpkg", "coverprofile"];
/// Maximum number of packages without tests named in messages.
const NAMED_PACKAGES: usize = 5;

/// Arguments: go's working directory, the packages, then `--`, then arguments for go.
pub(super) struct GoSource;

impl TestSource for GoSource {
    fn name(&self) -> &'static str {
        FRAMEWORK
    }

    fn command_line_arguments(&self, command_line: &ProgramArguments) -> Option<Vec<OsText>> {
        let named = &command_line.go;
        let texts =
            |texts: &[String]| texts.iter().map(|text| OsText::from(text.as_str())).collect::<Vec<_>>();
        let mut words = vec![absolute_text(Path::new("."))];
        let is_implied = named.packages.is_empty() && !named.arguments.is_empty();
        words.extend(if is_implied { vec![ALL_PACKAGES.into()] } else { texts(&named.packages) });
        words.push(ARGUMENTS_FOLLOW.into());
        words.extend(texts(&named.arguments));
        (is_implied || !named.packages.is_empty()).then_some(words)
    }

    fn take_word(&self, word: &Path, arguments: &mut ProgramArguments) -> WordUse {
        let text = word.to_string_lossy();
        let path = match word.has_root() || text.starts_with('.') {
            true => text.trim_end_matches('/').to_owned(),
            false => format!("./{}", text.trim_end_matches('/')),
        };
        let has_tests = || names_in(word).iter().any(|name| name.ends_with("_test.go"));
        let package = match text.ends_with("...") {
            true => text.into_owned(),
            false if word.join(MODULE).is_file() => format!("{path}/..."),
            false if has_tests() => path,
            false => return WordUse::Other,
        };
        arguments.go.packages.push(package);
        WordUse::Taken
    }

    fn project_in(&self, site: Site<'_>) -> Option<Sighting> {
        // Below the directory of the module, the directory's own packages are meant.
        let is_source = || site.names().iter().any(|name| name.ends_with(".go"));
        let is_inside = !site.has(MODULE) && site.is_below(MODULE) && is_source();
        if !site.has(MODULE) && !is_inside {
            return None;
        }
        let reason = if is_inside { "go.mod above".into() } else { site.relative(&site.dir.join(MODULE)) };
        if heeler_sys::program_search::search_path(GO.as_ref()).is_none() {
            return Some(Sighting::Unusable(format!("{reason}: go is not installed")));
        }
        let packages = match site.dir == site.top {
            true => ALL_PACKAGES.to_owned(),
            false => format!("./{}/...", site.name()),
        };
        Some(Sighting::Project(Box::new(FoundProject {
            request: SourceRequest::new(
                self.name(),
                [OsText::from(site.top), packages.as_str().into(), ARGUMENTS_FOLLOW.into()],
            ),
            title: format!("Go module{}", site.place()),
            reason,
            suite: FRAMEWORK.to_owned(),
            keys: vec![("go", packages)],
        })))
    }

    fn resolve(
        &self,
        arguments: &[OsText],
        context: &SourceContext<'_>,
        display: PhaseDisplay<'_>,
    ) -> Result<Vec<TestProgram>, SourcesError> {
        // Separate the packages from the arguments for go.
        let [dir, words @ ..] = arguments else { return Ok(Vec::new()) };
        let words: Vec<String> = words.iter().map(|word| word.to_text().into_owned()).collect();
        let border = words.iter().position(|word| word == ARGUMENTS_FOLLOW).unwrap_or(words.len());
        let (patterns, args) = (&words[..border], words.get(border + 1..).unwrap_or_default());
        display("Building", &format!("the Go tests of {}", patterns.join(" ")));
        let failed = |source| SourcesError::Go { packages: patterns.join(" "), source };
        // List and build the packages of each location.
        let mut programs: Vec<TestProgram> = Vec::new();
        let mut untested = Vec::new();
        for location in PackageLocation::all_of(dir.as_path(), patterns) {
            let toolchain = Toolchain::read(&location.dir, context.supervision).map_err(failed)?;
            let found = list(&location, args, context.supervision).map_err(failed)?;
            let (tested, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|package| package.has_tests);
            untested.extend(others.into_iter().map(|package| package.import_path));
            let args = &toolchain.build_arguments(args, context.debug_data);
            let state_dir = &context.config.state_dir;
            let built = build_directory(state_dir, &location.dir, args);
            let built = std::path::absolute(&built)
                .map_err(|source| SourcesError::Path { path: built.clone(), source })?;
            std::fs::create_dir_all(&built)
                .map_err(|source| SourcesError::Path { path: built.clone(), source })?;
            heeler_run_store::exclude_from_git(state_dir);
            let build = GoBuild { location: &location, args, directory: &built, toolchain: &toolchain };
            for program in build.run(&tested, context.supervision).map_err(failed)? {
                if !programs.iter().any(|known| known.suite == program.suite) {
                    programs.push(program);
                }
            }
        }
        if !untested.is_empty() {
            display("Skipping", &untested_text(&untested));
        }
        if programs.is_empty() {
            return Err(SourcesError::NoGoTests { packages: patterns.join(" ") });
        }
        Ok(programs)
    }
}

fn untested_text(untested: &[String]) -> String {
    let named = untested.iter().take(NAMED_PACKAGES).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = match untested.len().saturating_sub(NAMED_PACKAGES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let packages = if untested.len() == 1 { "package" } else { "packages" };
    format!("{} {packages} without tests: {named}{more}", untested.len())
}

/// Returns the build directory of these programs. Each combination of source directory and arguments has its
/// own.
fn build_directory(state_dir: &Path, dir: &Path, args: &[String]) -> PathBuf {
    let words = args.iter().map(String::as_bytes);
    let parts: Vec<&[u8]> = [dir.as_os_str().as_encoded_bytes()].into_iter().chain(words).collect();
    state_dir.join("go").join(heeler_run_store::unpredictable_name(&parts))
}

/// The installed Go toolchain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Toolchain {
    minor_version: u32,
    root: String,
    /// Flags from `GOFLAGS`; flags on the command line override them.
    flags: String,
}

impl Toolchain {
    fn read(dir: &Path, supervision: BuildSupervision<'_>) -> Result<Self, CargoError> {
        let words = ["env", "GOVERSION", "GOROOT", "GOFLAGS"].map(OsString::from).to_vec();
        let output = read_tool_output("go", words, dir, supervision)?;
        Ok(Self::parse(&String::from_utf8_lossy(&output)))
    }

    fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let version = lines.next().unwrap_or_default();
        let minor = version.split("go1.").nth(1).unwrap_or_default();
        let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
        Self {
            minor_version: digits.parse().unwrap_or(u32::MAX),
            root: lines.next().unwrap_or_default().to_owned(),
            flags: lines.next().unwrap_or_default().to_owned(),
        }
    }

    /// Returns the arguments of `go test -c`. Omits debug data, as `go test` does: it takes a third of the
    /// linker's time, and stack traces have names and lines without it.
    fn build_arguments(&self, args: &[String], debug_data: DebugData) -> Vec<String> {
        let is_named = |name: &str| {
            let flags = args.iter().map(String::as_str).chain(self.flags.split_whitespace());
            flags.into_iter().any(|flag| {
                flag.starts_with('-') && flag.trim_start_matches('-').split('=').next() == Some(name)
            })
        };
        let is_omitted = debug_data == DebugData::Omitted && !OWN_LINKING.iter().any(|name| is_named(name));
        let omitting = is_omitted.then(|| "-ldflags=-w".to_owned());
        omitting.into_iter().chain(args.iter().cloned()).collect()
    }
}

fn list(
    location: &PackageLocation,
    args: &[String],
    supervision: BuildSupervision<'_>,
) -> Result<Vec<GoPackage>, CargoError> {
    let read = |unreadable| {
        let words = listing_arguments(args, &location.patterns, unreadable);
        let output = read_tool_output("go", words, &location.dir, supervision)?;
        Ok(GoPackage::read_all(&String::from_utf8_lossy(&output)))
    };
    match read(UnreadablePackages::Refused) {
        // The error has already been shown. Build and run the other packages, if there are any.
        Err(error @ CargoError::Failed { .. }) => match read(UnreadablePackages::Listed) {
            Ok(packages) if packages.iter().any(|package| package.dir.is_dir()) => Ok(packages),
            Ok(_) | Err(_) => Err(error),
        },
        listed => listed,
    }
}

struct GoBuild<'a> {
    location: &'a PackageLocation,
    args: &'a [String],
    directory: &'a Path,
    toolchain: &'a Toolchain,
}

/// A package that does not compile, with the compiler's message.
struct BrokenPackage {
    import_path: String,
    words: String,
}

impl GoBuild<'_> {
    /// Builds the packages. A package that does not compile becomes a program with the error message.
    fn run(
        &self,
        packages: &[GoPackage],
        supervision: BuildSupervision<'_>,
    ) -> Result<Vec<TestProgram>, CargoError> {
        let mut programs = Vec::new();
        for (number, group) in build_groups(packages).into_iter().enumerate() {
            let directory = self.directory.join(number.to_string());
            let together = self.toolchain.minor_version >= FIRST_VERSION_FOR_SEVERAL;
            let size = if together { group.len().max(1) } else { 1 };
            let mut broken = Vec::new();
            for packages in group.chunks(size) {
                self.build(&directory, packages, BuildOutput::Shown, supervision, &mut broken)?;
            }
            programs.extend(group.iter().map(|package| {
                let mut program = self.program(package, &directory);
                let failure = broken.iter().find(|broken| broken.import_path == package.import_path);
                program.unbuilt = failure.map(|broken| broken.words.clone());
                program
            }));
        }
        Ok(programs)
    }

    /// Builds packages together. If that fails, builds each half separately, and so on; go reuses compiled
    /// packages from its cache.
    fn build(
        &self,
        directory: &Path,
        packages: &[&GoPackage],
        output: BuildOutput,
        supervision: BuildSupervision<'_>,
        broken: &mut Vec<BrokenPackage>,
    ) -> Result<(), CargoError> {
        let target = match packages {
            [package] => directory.join(package.program_name()),
            // A trailing slash makes go treat the path as a directory.
            _ => directory.join(""),
        };
        let mut words: Vec<String> = ["go", "test", "-c", "-o"].map(str::to_owned).to_vec();
        words.push(target.to_string_lossy().into_owned());
        words.extend(self.args.iter().cloned());
        words.extend(packages.iter().map(|package| package.import_path.clone()));
        match (try_build_command(&words, &self.location.dir, output, supervision)?, packages) {
            (Ok(()), _) => {}
            (Err(words), [package]) => {
                broken.push(BrokenPackage { import_path: package.import_path.clone(), words });
            }
            (Err(_), packages) => {
                let (first, second) = packages.split_at(packages.len() / 2);
                // The error has already been shown.
                for half in [first, second] {
                    self.build(directory, half, BuildOutput::Hidden, supervision, broken)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the program, with the variables that `go test` sets.
    fn program(&self, package: &GoPackage, directory: &Path) -> TestProgram {
        let path = directory.join(package.program_name());
        let mut program = TestProgram::new(package.import_path.clone(), &path, &package.dir);
        program.framework = Some(FRAMEWORK.to_owned());
        program.tool_env.push(("PWD".into(), OsText::from(package.dir.as_path())));
        if !self.toolchain.root.is_empty() {
            let root = Path::new(&self.toolchain.root);
            let known = std::env::var_os("PATH").unwrap_or_default();
            let all = [root.join("bin")].into_iter().chain(std::env::split_paths(&known));
            program.tool_env.push(("GOROOT".into(), OsText::from(root)));
            if let Ok(path) = std::env::join_paths(all) {
                program.tool_env.push(("PATH".into(), path.as_os_str().into()));
            }
        }
        program
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_and_root_are_read() {
        let read = |text| (Toolchain::parse(text).minor_version, Toolchain::parse(text).root);
        assert_eq!(read("go1.19.8\n/usr/lib/go-1.19\n"), (19, "/usr/lib/go-1.19".to_owned()));
        assert_eq!(read("devel go1.27-abc\n/go\n"), (27, "/go".to_owned()));
        assert_eq!(read(""), (u32::MAX, String::new()));
    }

    #[test]
    fn programs_are_linked_without_debug_data_unless_somebody_decides_otherwise() {
        let build = |flags: &str, args: &[&str], debug_data| {
            let toolchain = Toolchain { flags: flags.to_owned(), ..Toolchain::default() };
            let args: Vec<String> = args.iter().map(|word| (*word).to_owned()).collect();
            toolchain.build_arguments(&args, debug_data).join(" ")
        };
        assert_eq!(build("", &[], DebugData::Omitted), "-ldflags=-w");
        assert_eq!(build("-mod=vendor", &["-race"], DebugData::Omitted), "-ldflags=-w -race");
        assert_eq!(build("", &["-race"], DebugData::Kept), "-race");
        for own in ["-ldflags=-X=a.b=c", "-cover", "--coverprofile=x", "-covermode=atomic"] {
            assert_eq!(build("", &[own], DebugData::Omitted), own);
            assert_eq!(build(own, &[], DebugData::Omitted), "");
        }
    }

    #[test]
    fn packages_without_tests_are_counted_and_some_named() {
        let names: Vec<String> = (0..7).map(|number| format!("m/p{number}")).collect();
        assert_eq!(untested_text(&names[..1]), "1 package without tests: m/p0");
        assert_eq!(
            untested_text(&names),
            "7 packages without tests: m/p0, m/p1, m/p2, m/p3, m/p4 and 2 more"
        );
    }

    #[test]
    fn program_runs_in_its_package_with_the_variables_of_go_test() {
        let toolchain = Toolchain { minor_version: 26, root: "/go".to_owned(), flags: String::new() };
        let location = PackageLocation { dir: "/w".into(), patterns: Vec::new() };
        let build =
            GoBuild { location: &location, args: &[], directory: Path::new("/s"), toolchain: &toolchain };
        let package = GoPackage { import_path: "m/p".into(), dir: "/w/p".into(), has_tests: true };
        let program = build.program(&package, Path::new("/s/0"));
        assert_eq!(program.path.as_path(), Path::new("/s/0/p.test"));
        assert_eq!((program.suite.as_str(), program.cwd.as_path()), ("m/p", Path::new("/w/p")));
        let names: Vec<_> = program.tool_env.iter().map(|(name, _)| name.to_text().into_owned()).collect();
        assert_eq!(names, ["PWD", "GOROOT", "PATH"]);
        assert!(program.tool_env[2].1.to_text().starts_with("/go/bin:"));
    }
}
