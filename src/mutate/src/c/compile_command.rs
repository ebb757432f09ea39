//! Parses C and C++ compiler arguments as far as the compiler shims need.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use heeler_mutant_model::Language;

/// Options that take the next argument as their value, which could look like a source or an output.
const WITH_VALUE: [&str; 16] = [
    "-o",
    "-x",
    "-I",
    "-D",
    "-U",
    "-L",
    "-include",
    "-imacros",
    "-isystem",
    "-iquote",
    "-idirafter",
    "-MF",
    "-MT",
    "-MQ",
    "-Xlinker",
    "-T",
];
/// Options that make the compiler stop before compilation.
const WITHOUT_COMPILATION: [&str; 4] = ["-E", "-M", "-MM", "-###"];
/// Dependency and output options, and whether each takes a value. Preprocessing drops them.
const OUTPUTS: [(&str, bool); 9] = [
    ("-c", false),
    ("-S", false),
    ("-MD", false),
    ("-MMD", false),
    ("-MP", false),
    ("-MF", true),
    ("-MT", true),
    ("-MQ", true),
    ("-o", true),
];
/// Mutants may trigger warnings that the project turns into errors.
const PERMISSIONS: [&str; 4] = ["-w", "-Wno-error", "-Wno-fatal-errors", "-fmax-errors=0"];
/// Text diagnostics for C++: JSON diagnostics do not say which template instantiation they concern.
const CPP_DIAGNOSTICS: [&str; 6] = [
    "-Wno-narrowing",
    "-fno-diagnostics-show-caret",
    "-fno-diagnostics-show-option",
    "-fdiagnostics-color=never",
    "-fdiagnostics-column-unit=byte",
    "-ftemplate-backtrace-limit=0",
];
/// A mutated function without its last statement can end without returning a value. The trap then ends the
/// process; without the trap, an optimising compiler could remove the branch that turns the mutant on.
const TRAPS: [&str; 2] = ["-fsanitize=return", "-fsanitize-undefined-trap-on-error"];

/// Returns the language that a command compiles; `None` if it compiles no C or C++ source.
pub(super) fn compiled_language(compiler: &str, args: &[OsString]) -> Option<Language> {
    if args.iter().any(|word| WITHOUT_COMPILATION.iter().any(|option| word == option)) {
        return None;
    }
    let of_source = |word: &&OsStr| match Path::new(word).extension()?.to_str()? {
        "c" => Some(Language::C),
        "cc" | "cpp" | "cxx" | "c++" | "C" | "cp" | "CPP" => Some(Language::Cpp),
        _ => None,
    };
    let mut found = sources(args).filter_map(|word| of_source(&word)).collect::<Vec<_>>();
    let is_cpp = compiler.ends_with("++") || has_language(args, "c++");
    if is_cpp && let Some(first) = found.first_mut() {
        *first = Language::Cpp;
    }
    found.iter().copied().max()
}

/// Returns the arguments that are neither options nor option values.
fn sources(args: &[OsString]) -> impl Iterator<Item = &OsStr> {
    let is_value = |at: usize| at > 0 && WITH_VALUE.iter().any(|option| args[at - 1] == *option);
    let is_option = |word: &OsStr| word.as_encoded_bytes().starts_with(b"-");
    let words = args.iter().enumerate();
    words.filter(move |(at, word)| !is_option(word) && !is_value(*at)).map(|(_, word)| word.as_os_str())
}

fn has_language(args: &[OsString], language: &str) -> bool {
    let joined = format!("-x{language}");
    args.iter().any(|word| *word == *joined)
        || args.windows(2).any(|words| words[0] == "-x" && words[1] == language)
}

/// Adds the runtime header and the diagnostic options to a compiler's arguments.
pub(super) fn with_runtime(mut args: Vec<OsString>, header: &Path, language: Language) -> Vec<OsString> {
    let is_sanitized = args.iter().any(|word| word.as_encoded_bytes().starts_with(b"-fsanitize"));
    let mut all: Vec<OsString> = vec!["-include".into(), header.as_os_str().to_owned()];
    all.append(&mut args);
    all.extend(PERMISSIONS.map(OsString::from));
    if language == Language::Cpp {
        all.extend(CPP_DIAGNOSTICS.map(OsString::from));
        if !is_sanitized {
            all.extend(TRAPS.map(OsString::from));
        }
    } else {
        all.push("-fdiagnostics-format=json".into());
    }
    all
}

/// Returns the compiler's output file.
pub(super) fn output(args: &[OsString]) -> PathBuf {
    let named = args.windows(2).find(|words| words[0] == "-o").map(|words| PathBuf::from(&words[1]));
    let joined =
        args.iter().filter_map(|word| word.to_str()?.strip_prefix("-o").filter(|name| !name.is_empty()));
    named.or_else(|| joined.map(PathBuf::from).next()).unwrap_or_else(|| {
        let source = sources(args).next().filter(|_| args.iter().any(|word| word == "-c"));
        source.map_or_else(
            || PathBuf::from("a.out"),
            |source| Path::new(Path::new(source).file_name().unwrap_or(source)).with_extension("o"),
        )
    })
}

/// Turns compile arguments into arguments that only write the preprocessed text to standard output.
pub(super) fn preprocessing(args: &[OsString]) -> Vec<OsString> {
    let mut kept = Vec::with_capacity(args.len() + 1);
    let mut is_value = false;
    for word in args {
        if std::mem::take(&mut is_value) {
            continue;
        }
        match OUTPUTS.iter().find(|(option, _)| word == option) {
            Some((_, has_value)) => is_value = *has_value,
            None if word.as_encoded_bytes().starts_with(b"-Wp,-M") => {}
            None => kept.push(word.clone()),
        }
    }
    kept.push("-E".into());
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn language_is_that_of_the_sources_or_of_the_compiler() {
        for (compiler, line, expected) in [
            ("cc", "-c a.c", Some(Language::C)),
            ("cc", "-c a.cc -o a.o", Some(Language::Cpp)),
            ("g++", "-c a.c", Some(Language::Cpp)),
            ("gcc", "-x c++ -c a.c", Some(Language::Cpp)),
            ("cc", "a.o -o a", None),
            ("cc", "a.o -o a.c", None),
            ("cc", "-MM a.c", None),
            ("c++", "-E a.cpp", None),
            ("c++", "--version", None),
            ("cc", "-include a.c b.o", None),
        ] {
            assert_eq!(compiled_language(compiler, &words(line)), expected, "{compiler} {line}");
        }
    }

    #[test]
    fn runtime_is_before_what_the_build_includes() {
        let all = with_runtime(words("-c a.c -Werror"), Path::new("/r/guard.h"), Language::C);
        let expected = "-include /r/guard.h -c a.c -Werror -w -Wno-error -Wno-fatal-errors -fmax-errors=0 \
                        -fdiagnostics-format=json";
        assert_eq!(all, words(expected));
        let cpp = |line: &str| with_runtime(words(line), Path::new("/r/guard.h"), Language::Cpp);
        assert!(cpp("-c a.cc").contains(&OsString::from("-fsanitize=return")));
        assert!(!cpp("-c a.cc -fsanitize=address").contains(&OsString::from("-fsanitize=return")));
    }

    #[test]
    fn outputs_are_known_and_left_out_of_preprocessing() {
        for (line, expected) in
            [("-c a.c -o x/a.o", "x/a.o"), ("-c ../a.c", "a.o"), ("a.c", "a.out"), ("a.c -ob", "b")]
        {
            assert_eq!(output(&words(line)), Path::new(expected), "{line}");
        }
        let line = "-DA -MD -MT x -MF a.d -o a.o -c a.cc -Wp,-MMD,a.d -O2";
        assert_eq!(preprocessing(&words(line)), words("-DA a.cc -O2 -E"));
    }
}
