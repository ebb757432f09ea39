//! The scripts that shells load: the parser's own script, which is asked only if the hidden role has no
//! values.

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::arguments::CommandLineArguments;

/// Asks the program that is being completed first. `bash` passes the program's name, the fragment and the
/// previous word.
const BASH: &str = r#"
_heeler_values() {
    local values
    if values=$("$1" __complete bash "$2" "${COMP_LINE:0:COMP_POINT}" 2>/dev/null); then
        COMPREPLY=()
        [[ -z "$values" ]] || mapfile -t COMPREPLY <<< "$values"
        compopt +o default +o bashdefault 2>/dev/null
    else
        _heeler "$@"
    fi
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _heeler_values -o nosort -o bashdefault -o default heeler
fi
"#;

/// Name of the parser's function for `zsh`, and its name here.
const ZSH_FUNCTION: &str = "\n_heeler() {\n";
const ZSH_RENAMED: &str = "\n_heeler_options() {\n";

/// The function `_heeler`, before the lines that register it.
const ZSH: &str = r#"
_heeler() {
    local values
    if values="$("${(Q)words[1]}" __complete zsh "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)"; then
        [[ -z "$values" ]] || compadd -- "${(@f)values}"
    else
        _heeler_options "$@"
    fi
}
"#;
const ZSH_REGISTRATION: &str = "\nif [ \"$funcstack[1]\" = \"_heeler\" ]; then";

/// Candidates for options, and for the run of `heeler report`.
const FISH: &str = r#"
function __fish_heeler_values
    set -l words (commandline -opc)
    $words[1] __complete fish $words[2..-1] (commandline -ct) 2>/dev/null
end

complete -c heeler -n "__fish_heeler_using_subcommand report; and __fish_heeler_values >/dev/null" -f -k -a "(__fish_heeler_values)"
"#;
/// Options with candidates: the names of `complete`.
const FISH_OPTIONS: [&str; 5] = ["-l suite", "-s P -l profile", "-l framework", "-l rerun", "-s E -l filter"];

/// Returns the completion script for a shell.
#[must_use]
pub(crate) fn completion_script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut CommandLineArguments::command(), "heeler", &mut script);
    match shell {
        Shell::Bash => script.extend(BASH.as_bytes()),
        Shell::Zsh => {
            let text = String::from_utf8(script).expect("the help is text");
            let text = text.replacen(ZSH_FUNCTION, ZSH_RENAMED, 1);
            return text.replacen(ZSH_REGISTRATION, &format!("{ZSH}{ZSH_REGISTRATION}"), 1).into_bytes();
        }
        Shell::Fish => {
            script.extend(FISH.as_bytes());
            for option in FISH_OPTIONS {
                let condition = "not __fish_heeler_needs_command; and __fish_heeler_values >/dev/null";
                let line = format!(
                    "complete -c heeler -n \"{condition}\" {option} -x -k -a \"(__fish_heeler_values)\"\n"
                );
                script.extend(line.as_bytes());
            }
        }
        // Other shells complete options only.
        _ => {}
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_have_options_and_values() {
        for (shell, function) in [
            (Shell::Bash, "complete -F _heeler_values "),
            (Shell::Zsh, "_heeler_options \"$@\""),
            (Shell::Fish, "-l suite -x -k"),
        ] {
            let script = String::from_utf8(completion_script(shell)).unwrap();
            assert!(script.contains("partition") && script.contains(function), "{shell}");
        }
        let zsh = String::from_utf8(completion_script(Shell::Zsh)).unwrap();
        assert_eq!(zsh.matches("\n_heeler() {\n").count(), 1);
        assert_eq!(zsh.matches(ZSH_RENAMED).count(), 1);
    }
}
