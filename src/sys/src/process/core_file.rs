//! Locates core files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::Pid;

/// Returns the path of the core file of a process that has exited, according to the kernel's `core_pattern`.
/// `None` if the pattern pipes core files into a program, or needs values that are no longer known.
#[must_use]
pub fn core_file(process: Pid, working_directory: &Path) -> Option<PathBuf> {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    let name =
        expand_core_pattern(read("core_pattern").trim_end(), process, read("core_uses_pid").trim() == "1")?;
    Some(working_directory.join(name)).filter(|path| path.is_file())
}

fn expand_core_pattern(pattern: &str, process: Pid, has_suffix: bool) -> Option<String> {
    if pattern.is_empty() || pattern.starts_with('|') {
        return None;
    }
    let (mut name, mut has_number) = (String::new(), false);
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '%' => match letters.next()? {
                '%' => name.push('%'),
                'p' => {
                    has_number = true;
                    name.push_str(&process.to_string());
                }
                _ => return None,
            },
            _ => name.push(letter),
        }
    }
    if has_suffix && !has_number {
        name.push_str(&format!(".{process}"));
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_pattern_expands_only_known_specifiers() {
        let name = |pattern, has_suffix| expand_core_pattern(pattern, Pid(7), has_suffix);
        assert_eq!(name("core", false).as_deref(), Some("core"));
        assert_eq!(name("core", true).as_deref(), Some("core.7"));
        assert_eq!(name("/var/cores/%p-100%%", true).as_deref(), Some("/var/cores/7-100%"));
        for unknown in ["", "|/usr/lib/systemd/systemd-coredump %p", "core.%e.%t", "core%"] {
            assert_eq!(name(unknown, true), None, "{unknown}");
        }
    }
}
