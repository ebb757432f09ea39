//! `heeler-fake`: a test program with behaviours that real frameworks cannot produce. The name it is started
//! by selects its role. The program contains `gtest_list_tests` and prints output like GoogleTest's, so
//! Heeler detects it as GoogleTest.

mod connect;
mod gtest;
mod json_lines;
mod other_user;
mod roles;
mod wait;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args();
    let program = words.next().unwrap_or_default();
    let role = program.rsplit('/').next().unwrap_or_default();
    if role == "intruder" {
        return ExitCode::from(other_user::execute_commands());
    }
    note_start(&program);
    if role == "connect-bridge" {
        return ExitCode::from(connect::bridge());
    }
    if role == "connect-client" {
        return ExitCode::from(connect::serve());
    }
    if role.starts_with("json-lines") {
        return ExitCode::from(json_lines::serve(role));
    }
    // Abseil has its own flag file and ignores GoogleTest's.
    let flag_file_name = if role == "abseil-flags" { "--flagfile=" } else { "--gtest_flagfile=" };
    let asked = gtest::FakeInvocation::parse(words, flag_file_name);
    let code = match &asked {
        gtest::FakeInvocation::List { xml } => roles::list(role, xml.as_deref()),
        gtest::FakeInvocation::Run { filter } => roles::run(role, filter),
        gtest::FakeInvocation::Other => {
            println!("hello");
            0
        }
    };
    ExitCode::from(code)
}

/// Appends the process id and the command line to `$HEELER_FIXTURE_STARTS`, as all fixtures do.
fn note_start(program: &str) {
    use std::io::Write;
    let Some(path) = std::env::var_os("HEELER_FIXTURE_STARTS") else { return };
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let line = format!("{} {program} {}\n", std::process::id(), arguments.join(" "));
    let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the list of starts can be written");
}
