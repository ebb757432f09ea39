//! `heeler dump`: prints a minidump as text. The dump is interpreted in `watchdog`; this module only formats
//! it.

use std::{
    fmt::{self, Write as _},
    io::Write as _,
    path::Path,
};

use watchdog::dump::{DumpModule, DumpReason, DumpSummary, read};

use super::exit::{CommandError, Exit};

/// Prints the dump to standard output.
pub(super) fn dump(file: &Path) -> Result<Exit, CommandError> {
    let summary = read(file).map_err(CommandError::Dump)?;
    // A closed pipe (`heeler dump | head`) is no error.
    let _closed = std::io::stdout().write_all(printable(&text(&summary)).as_bytes());
    Ok(Exit::Success)
}

fn text(summary: &DumpSummary) -> String {
    let mut text = String::new();
    put(&mut text, format_args!("{}\n", reason(summary)));
    if let Some(process) = summary.process {
        put(&mut text, format_args!("Process {process}: {}\n", summary.command_line));
    }
    let count = summary.threads.len();
    put(&mut text, format_args!("\n{count} {}\n\n", if count == 1 { "thread" } else { "threads" }));
    text.push_str(&summary.stacks.text());
    let foreign = summary.modules.iter().filter(|module| !module.is_here).count();
    put(&mut text, format_args!("\n{} programs and libraries", summary.modules.len()));
    if foreign > 0 {
        put(&mut text, format_args!(", {foreign} not here in this build (*): their functions have no names"));
    }
    text.push('\n');
    for module in &summary.modules {
        put(&mut text, format_args!("{}\n", Row(module)));
    }
    if !summary.soft_errors.is_empty() {
        text.push_str("\nWhat could not be captured\n");
        for error in &summary.soft_errors {
            put(&mut text, format_args!("  {error}\n"));
        }
    }
    text
}

fn reason(summary: &DumpSummary) -> String {
    let name = |tid| {
        let thread = summary.threads.iter().find(|thread| thread.tid == tid);
        thread.map(|thread| format!(" {:?}", thread.name)).unwrap_or_default()
    };
    match &summary.reason {
        DumpReason::Crash { signal, address, tid } => {
            format!("{signal} at address {address:#x} in thread {tid}{}", name(*tid))
        }
        DumpReason::Requested => "No crash: the process was dumped as it was".to_owned(),
    }
}

/// Formats a program or library as one line.
struct Row<'a>(&'a DumpModule);

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DumpModule { path, range, build_id, is_here } = self.0;
        let mark = if *is_here { ' ' } else { '*' };
        let build_id = build_id.as_deref().unwrap_or("no build id");
        write!(f, "{mark} {:#014x}-{:#014x} {build_id:40} {}", range.start, range.end, path.display())
    }
}

/// Replaces control characters: the names in a dump come from the process, and must not control the terminal.
fn printable(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_control() && letter != '\n' { '\u{fffd}' } else { letter })
        .collect()
}

/// Appends to a string, which cannot fail.
fn put(text: &mut String, words: fmt::Arguments<'_>) {
    let _never = text.write_fmt(words);
}

#[cfg(test)]
mod tests {
    use watchdog::{
        dump::{DumpModule, DumpThread},
        stacks::Stacks,
    };

    use super::*;

    fn summary() -> DumpSummary {
        let module = |path: &str, is_here: bool| DumpModule {
            path: path.into(),
            range: 0x1000..0x3000,
            build_id: is_here.then(|| "5f3a".to_owned()),
            is_here,
        };
        DumpSummary {
            reason: DumpReason::Crash {
                signal: "SIGSEGV / SEGV_MAPERR".to_owned(),
                address: 8,
                tid: host::process::Pid(41),
            },
            process: Some(host::process::Pid(40)),
            command_line: "build/unit_tests --gtest_filter=Pen.Opens".to_owned(),
            threads: vec![DumpThread {
                tid: host::process::Pid(41),
                name: "wor\x1b[31mker".to_owned(),
                registers: watchdog::stacks::Registers::default(),
            }],
            modules: vec![module("/build/unit_tests", true), module("/lib/libc.so.6", false)],
            stacks: Stacks::default(),
            soft_errors: vec!["\"thread 42 would not stop\"".to_owned()],
        }
    }

    #[test]
    fn a_dump_is_laid_out_from_its_reason_to_what_is_missing() {
        insta::assert_snapshot!(text(&summary()));
    }

    #[test]
    fn a_name_cannot_paint_the_terminal() {
        let text = printable(&format!("{}\x1b]0;title\x07", text(&summary())));
        assert!(!text.contains('\x1b') && !text.contains('\x07'), "{text:?}");
        assert!(text.contains('\n'));
    }
}
