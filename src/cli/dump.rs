//! `heeler dump`: prints a minidump as text. `watchdog` interprets the dump; this module only formats it.

use std::{
    fmt::{self, Write as _},
    io::Write as _,
    path::Path,
};

use heeler_crash::dump::{DumpModule, DumpReason, DumpSummary, read};

use super::exit::{CliExitCode, CommandError};

pub(super) fn dump(file: &Path) -> Result<CliExitCode, CommandError> {
    let summary = read(file).map_err(CommandError::Dump)?;
    // A closed pipe (`heeler dump | head`) is not an error.
    let _closed = std::io::stdout().write_all(replace_control_characters(&format_dump(&summary)).as_bytes());
    Ok(CliExitCode::Success)
}

fn format_dump(summary: &DumpSummary) -> String {
    let mut text = String::new();
    append(&mut text, format_args!("{}\n", format_reason(summary)));
    if let Some(process) = summary.process {
        append(&mut text, format_args!("Process {process}: {}\n", summary.command_line));
    }
    let count = summary.threads.len();
    append(&mut text, format_args!("\n{count} {}\n\n", if count == 1 { "thread" } else { "threads" }));
    text.push_str(&summary.stacks.to_text());
    let foreign = summary.modules.iter().filter(|module| !module.is_available).count();
    append(&mut text, format_args!("\n{} programs and libraries", summary.modules.len()));
    if foreign > 0 {
        append(
            &mut text,
            format_args!(", {foreign} missing here or with another build id (*): no function names"),
        );
    }
    text.push('\n');
    for module in &summary.modules {
        append(&mut text, format_args!("{}\n", DumpModuleRow(module)));
    }
    if !summary.soft_errors.is_empty() {
        text.push_str("\nNot captured\n");
        for error in &summary.soft_errors {
            append(&mut text, format_args!("  {error}\n"));
        }
    }
    text
}

fn format_reason(summary: &DumpSummary) -> String {
    let name = |tid| {
        let thread = summary.threads.iter().find(|thread| thread.tid == tid);
        thread.map(|thread| format!(" {:?}", thread.name)).unwrap_or_default()
    };
    match &summary.reason {
        DumpReason::Crash { signal, address, tid } => {
            let at = address.map(|address| format!(" at address {address:#x}")).unwrap_or_default();
            format!("{signal}{at} in thread {tid}{}", name(*tid))
        }
        DumpReason::Requested => "No crash: dump of a running process".to_owned(),
    }
}

/// Formats a program or library as one line.
struct DumpModuleRow<'a>(&'a DumpModule);

impl fmt::Display for DumpModuleRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DumpModule { path, range, build_id, is_available: is_here } = self.0;
        let mark = if *is_here { ' ' } else { '*' };
        let build_id = build_id.as_deref().unwrap_or("no build id");
        write!(f, "{mark} {:#014x}-{:#014x} {build_id:40} {}", range.start, range.end, path.display())
    }
}

/// Replaces control characters. Names in a dump come from the dumped process and must not control the
/// terminal.
fn replace_control_characters(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_control() && letter != '\n' { '\u{fffd}' } else { letter })
        .collect()
}

/// Appends to a string, which never fails.
fn append(text: &mut String, words: fmt::Arguments<'_>) {
    let _never = text.write_fmt(words);
}

#[cfg(test)]
mod tests {
    use heeler_crash::dump::{DumpModule, DumpThread};
    use heeler_crash::stacks::ProcessStacks;

    use super::*;

    fn summary() -> DumpSummary {
        let module = |path: &str, is_here: bool| DumpModule {
            path: path.into(),
            range: 0x1000..0x3000,
            build_id: is_here.then(|| "5f3a".to_owned()),
            is_available: is_here,
        };
        DumpSummary {
            reason: DumpReason::Crash {
                signal: "SIGSEGV / SEGV_MAPERR".to_owned(),
                address: Some(8),
                tid: heeler_sys::process::Pid(41),
            },
            process: Some(heeler_sys::process::Pid(40)),
            command_line: "build/unit_tests --gtest_filter=Pen.Opens".to_owned(),
            threads: vec![DumpThread {
                tid: heeler_sys::process::Pid(41),
                name: "wor\x1b[31mker".to_owned(),
                registers: heeler_crash::stacks::RegisterSet::default(),
            }],
            modules: vec![module("/build/unit_tests", true), module("/lib/libc.so.6", false)],
            stacks: ProcessStacks::default(),
            soft_errors: vec!["\"thread 42 would not stop\"".to_owned()],
        }
    }

    #[test]
    fn dump_text_from_reason_to_capture_errors() {
        insta::assert_snapshot!(format_dump(&summary()));
    }

    #[test]
    fn control_characters_in_names_are_replaced() {
        let text = replace_control_characters(&format!("{}\x1b]0;title\x07", format_dump(&summary())));
        assert!(!text.contains('\x1b') && !text.contains('\x07'), "{text:?}");
        assert!(text.contains('\n'));
    }
}
