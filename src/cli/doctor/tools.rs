//! Tools that build or run tests: version and path of each, or what does not work without it.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use heeler_cargo::{BuildSupervision, read_quiet_output};
use heeler_core::error_chain;
use heeler_report::sanitise;
use heeler_sys::program_search::search_path;
use tokio::task::JoinSet;

use super::{DoctorFinding, FindingRating};
use crate::cli::sources::find_interpreter;

/// Time limit of each tool. Tools are started at the same time, and only a hanging one needs longer.
const TOOL_LIMIT: Duration = Duration::from_secs(10);

/// A tool that Heeler or its users start.
struct TestTool {
    name: &'static str,
    find: fn() -> Option<PathBuf>,
    /// Arguments that print the version.
    arguments: &'static [&'static str],
    /// Features of Heeler that need the tool.
    purpose: &'static str,
}

/// All tools, in the order of the output.
static TOOLS: [TestTool; 7] = [
    TestTool { name: "python", find: find_python, arguments: &["--version"], purpose: "pytest" },
    TestTool {
        name: "pytest",
        find: find_python,
        arguments: &["-m", "pytest", "--version"],
        purpose: "--pytest; install it with: python3 -m pip install pytest",
    },
    TestTool { name: "go", find: || search_path("go".as_ref()), arguments: &["version"], purpose: "--go" },
    TestTool {
        name: "dotnet",
        find: || search_path("dotnet".as_ref()),
        arguments: &["--version"],
        purpose: "building .NET tests, and applications that are started with dotnet",
    },
    TestTool {
        name: "cargo",
        find: || search_path("cargo".as_ref()),
        arguments: &["--version"],
        purpose: "--cargo, and heeler run in a Rust package",
    },
    TestTool {
        name: "ctest",
        find: || search_path("ctest".as_ref()),
        arguments: &["--version"],
        purpose: "--ctest",
    },
    TestTool {
        name: "node",
        find: || search_path("node".as_ref()),
        arguments: &["--version"],
        purpose: "MCP servers in JavaScript, and mutation testing of JavaScript and TypeScript",
    },
];

/// Returns the interpreter that `--pytest .` would use.
fn find_python() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    find_interpreter(None, &here, &[]).ok()
}

/// Returns a line for each tool. A missing tool limits only its own tests, so the machine is not limited.
///
/// Cancel safe: yes, because the processes of the tools end with this process.
pub(super) async fn check_tools() -> Vec<DoctorFinding> {
    let mut checks = JoinSet::new();
    for (place, tool) in TOOLS.iter().enumerate() {
        checks.spawn_blocking(move || (place, describe_tool(tool)));
    }
    let mut findings = checks.join_all().await;
    findings.sort_by_key(|(place, _)| *place);
    let info = |(_, finding)| finding;
    findings.into_iter().map(info).collect()
}

fn describe_tool(tool: &TestTool) -> DoctorFinding {
    let text = match (tool.find)() {
        None => format!("not found in PATH; needed for {}", tool.purpose),
        Some(path) => match read_version(&path, tool.arguments) {
            Ok(version) => format!("{version} ({})", path.display()),
            Err(problem) => format!("{problem} ({}); needed for {}", path.display(), tool.purpose),
        },
    };
    DoctorFinding {
        rating: FindingRating::Info,
        subject: tool.name,
        text: sanitise::one_line(&text).into_owned(),
    }
}

/// Returns the first line of a tool's output.
fn read_version(program: &Path, arguments: &[&str]) -> Result<String, String> {
    let limit = Some(Instant::now() + TOOL_LIMIT);
    let supervision = BuildSupervision { limit, ..BuildSupervision::default() };
    let arguments = arguments.iter().map(OsString::from).collect();
    let output = read_quiet_output(program, arguments, Path::new(""), supervision)
        .map_err(|error| error_chain(&error))?;
    let text = String::from_utf8_lossy(&output);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    line.map(sanitise::headline).ok_or_else(|| "prints no version".to_owned())
}
