//! Chooses which suites of the configuration are built and listed: the suites of `--suite`, then those that
//! the filters may select.

use std::path::PathBuf;

use heeler_config::{Config, ResolvedSettings, closest_match};

use super::{arguments::ProgramArguments, sources::NamedSources};

/// Error in a choice of suites. The messages are whole sentences.
#[derive(Debug, thiserror::Error)]
pub(super) enum SuiteChoiceError {
    /// No suite has this name.
    #[error("unknown suite \"{name}\" in {}; {known}", file.display())]
    Unknown {
        name: String,
        /// The configuration file.
        file: PathBuf,
        /// A hint with the closest name, and all names.
        known: String,
    },
    /// No configuration file is found.
    #[error(
        "no suite \"{name}\": there is no heeler.toml in this directory or above; create one with a [[suite]] section, \
         or name the file with --config-file"
    )]
    NoConfiguration { name: String },
    /// The configuration defines no suite.
    #[error("no suite \"{name}\": {} has no [[suite]] section", file.display())]
    NoSuites { name: String, file: PathBuf },
    /// The command line names sources, which replace the suites.
    #[error(
        "--suite can't be combined with tests named on the command line ({named}): they replace the suites of \
         heeler.toml; omit --suite to run them, or omit them to run the suite"
    )]
    WithSources {
        /// The sources as on the command line, or their kinds.
        named: String,
    },
}

/// Returns the configuration with only the suites that `--suite` names and the filters may select. If they
/// may select no suite, all named suites are kept, so that the run reports which filters match no test.
///
/// # Errors
/// A name is unknown, or the command line names other tests as well.
pub(super) fn with_chosen_suites(
    mut config: Config,
    arguments: &ProgramArguments,
    settings: &ResolvedSettings,
) -> Result<Config, SuiteChoiceError> {
    let names = &arguments.suites.names;
    if !names.is_empty() {
        check_sources(arguments)?;
    }
    for name in names {
        check_name(&config, name)?;
    }
    config.suites.retain(|suite| names.is_empty() || names.contains(&suite.name));
    if config.suites.iter().any(|suite| settings.may_select_suite(&suite.name)) {
        config.suites.retain(|suite| settings.may_select_suite(&suite.name));
    }
    Ok(config)
}

fn check_sources(arguments: &ProgramArguments) -> Result<(), SuiteChoiceError> {
    let programs = arguments.programs.iter().map(|path| path.display().to_string());
    let mut named: Vec<String> = programs.collect();
    // Programs and CTest's build folders are already named by their paths.
    let others = ProgramArguments { programs: Vec::new(), ..arguments.clone() };
    let requests = NamedSources::from_arguments(&others).requests;
    named.extend(requests.into_iter().map(|request| format!("--{}", request.source)));
    if named.is_empty() { Ok(()) } else { Err(SuiteChoiceError::WithSources { named: named.join(", ") }) }
}

fn check_name(config: &Config, name: &str) -> Result<(), SuiteChoiceError> {
    let name = name.to_owned();
    let Some(file) = config.file.clone() else { return Err(SuiteChoiceError::NoConfiguration { name }) };
    let known: Vec<&str> = config.suites.iter().map(|suite| suite.name.as_str()).collect();
    if known.is_empty() {
        return Err(SuiteChoiceError::NoSuites { name, file });
    }
    if known.contains(&name.as_str()) {
        return Ok(());
    }
    let all = format!("available: {}", known.join(", "));
    let known = match closest_match(&name, known) {
        Some(near) => format!("did you mean \"{near}\"? ({all})"),
        None => all,
    };
    Err(SuiteChoiceError::Unknown { name, file, known })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::cli::arguments::{CliCommand, parse};

    const SUITES: &str = "[[suite]]\nname = \"unit\"\nprograms = [\"build/*_test\"]\n\
        [[suite]]\nname = \"net\"\ncargo = \"net\"\n[[suite]]\nname = \"net-go\"\ngo = \"./...\"\n";

    /// Returns the names of the suites that `heeler run` with these arguments builds, or the error.
    fn chosen(config: Config, words: &[&str]) -> Result<Vec<String>, String> {
        let words = ["heeler", "run"].iter().chain(words).map(std::ffi::OsString::from).collect();
        let CliCommand::Run(arguments) = parse(words).unwrap() else { panic!("another command") };
        let settings = ResolvedSettings::resolve(&config, arguments.command_line()).unwrap();
        let config = with_chosen_suites(config, &arguments.programs, &settings);
        let config = config.map_err(|error| error.to_string())?;
        Ok(config.suites.into_iter().map(|suite| suite.name).collect())
    }

    fn configured() -> Config {
        Config::parse(Path::new("/w/heeler.toml"), SUITES).unwrap()
    }

    #[test]
    fn names_and_filters_choose_suites() {
        let all = &["unit", "net", "net-go"][..];
        for (words, expected) in [
            (&[][..], all),
            (&["--suite", "net-go", "--suite", "unit"], &["unit", "net-go"]),
            (&["-E", "suite(unit)"], &["unit"]),
            (&["-E", "suite(net*) & not test(/slow$/)"], &["net", "net-go"]),
            (&["-E", "not suite(unit)"], &["net", "net-go"]),
            (&["-E", "suite(=unit)", "-E", "suite(net)"], &["unit", "net"]),
            // These conditions may match tests of any suite.
            (&["-E", "suite(unit) | test(a)"], all),
            (&["-E", "suite(unit)", "-E", "a"], all),
            (&["-E", "suite(parser_test)"], all),
            (&["-E", "suite(~unit)"], all),
            (&["-E", "suite(unit) & suite(net)"], all),
            (&["--suite", "net", "-E", "suite(unit)"], &["net"]),
            (&["--suite", "net", "--suite", "unit", "-E", "suite(unit)"], &["unit"]),
        ] {
            assert_eq!(chosen(configured(), words).unwrap(), expected, "{words:?}");
        }
    }

    #[test]
    fn wrong_choices_are_explained() {
        let error = |words: &[&str]| chosen(configured(), words).unwrap_err();
        assert_eq!(
            error(&["--suite", "unti"]),
            "unknown suite \"unti\" in /w/heeler.toml; did you mean \"unit\"? (available: unit, net, net-go)"
        );
        assert_eq!(
            error(&["--suite", "x"]),
            "unknown suite \"x\" in /w/heeler.toml; available: unit, net, net-go"
        );
        let with = error(&["build/a", "--cargo", "--pytest", "t", "--suite", "unit"]);
        assert!(with.contains("on the command line (build/a, --cargo, --pytest): they replace"), "{with}");
        let without = chosen(Config::without_file(Path::new("/w")), &["--suite", "unit"]).unwrap_err();
        assert!(without.starts_with("no suite \"unit\": there is no heeler.toml"), "{without}");
        let empty = Config::parse(Path::new("/w/heeler.toml"), "").unwrap();
        let empty = chosen(empty, &["--suite", "unit"]).unwrap_err();
        assert_eq!(empty, "no suite \"unit\": /w/heeler.toml has no [[suite]] section");
    }
}
