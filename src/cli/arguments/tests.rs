//! Tests of command lines as users and editors write them.

use std::{ffi::OsString, num::NonZeroU32, path::Path, time::Duration};

use super::{parse::ParseArgumentsError, *};
use heeler_config::{CaptureStrategy, CommandLineSettings, FailFast, FlakyResult, StatusLevel};
use heeler_core::RetryPolicy;

fn words(line: &str) -> Vec<OsString> {
    ["heeler"].into_iter().chain(line.split_whitespace()).map(OsString::from).collect()
}

#[track_caller]
fn run(line: &str) -> RunArguments {
    match parse(words(&format!("run {line}"))).unwrap() {
        CliCommand::Run(run) => *run,
        other => panic!("{other:?}"),
    }
}

/// Returns the error message of an invalid command line, without the usage text.
#[track_caller]
fn parse_error(line: &str) -> String {
    let refusal = parse(words(line)).unwrap_err();
    assert_eq!(refusal.exit_code(), 5, "{refusal}");
    match refusal {
        ParseArgumentsError::Editor { source } => source.to_string(),
        left_out @ ParseArgumentsError::LeftOut { .. } => left_out.to_string(),
        ParseArgumentsError::Arguments(error) => {
            error.to_string().lines().next().unwrap_or_default().to_owned()
        }
    }
}

#[track_caller]
fn check_normalised(line: &str, expected: &str) {
    let normalised = normalise(words(line)).unwrap();
    let joined: Vec<_> = normalised.iter().map(|word| word.to_str().unwrap()).collect();
    assert_eq!(joined.join(" "), format!("heeler {expected}"));
}

fn help(line: &str) -> String {
    let refusal = parse(words(line)).unwrap_err();
    assert_eq!(refusal.exit_code(), 0);
    refusal.to_string()
}

#[test]
fn help_fits_eighty_columns() {
    // Without a terminal, clap does not limit the width. The snapshots show the help as on a terminal.
    for (name, command) in [("heeler", None), ("run", Some("run")), ("serve", Some("serve"))] {
        let mut parser = <CommandLineArguments as clap::CommandFactory>::command().term_width(80);
        let line = ["heeler"].into_iter().chain(command).chain(["--help"]);
        let text = parser.try_get_matches_from_mut(line).unwrap_err().to_string();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        insta::assert_snapshot!(format!("help_{name}"), text);
    }
}

#[test]
fn command_line_definition_is_consistent() {
    <CommandLineArguments as clap::CommandFactory>::command().debug_assert();
}

#[test]
fn run_without_options_overrides_nothing() {
    assert_eq!(run("").command_line(), CommandLineSettings::default());
}

#[test]
fn run_options_reach_the_settings() {
    let line = "a b --framework gtest -E x -E y* --partition hash:2/3 -j 4 --isolate --shuffle 9 --retries 2 \
                --timeout 1m30s --slow-timeout 5s --max-fail 3 --no-capture --status-level retry --junit j.xml \
                -P ci --state-dir st --no-history --repeat 5";
    let run = run(line);
    assert_eq!(run.programs.programs, [Path::new("a"), Path::new("b")]);
    let said = run.command_line();
    assert_eq!(said.profile.as_deref(), Some("ci"));
    assert_eq!(said.state_dir.as_deref(), Some(Path::new("st")));
    assert_eq!(said.framework.as_deref(), Some("gtest"));
    assert_eq!(said.filters.iter().map(ToString::to_string).collect::<Vec<_>>(), ["x", "y*"]);
    assert_eq!(said.partition.unwrap().to_string(), "hash:2/3");
    assert_eq!(said.run.jobs, Some(JobCount::Count(4.try_into().unwrap())));
    assert_eq!(said.run.shuffle, Some(ShuffleMode::Seed(9)));
    assert_eq!(said.run.max_fail, Some(3.try_into().unwrap()));
    assert_eq!(said.run.capture, Some(CaptureStrategy::Shown));
    assert_eq!(said.run.status_level, Some(StatusLevel::Retry));
    let reports = said.run.reports.unwrap();
    assert_eq!((reports[0].format.name, reports[0].file.as_path()), ("junit", Path::new("j.xml")));
    assert_eq!(said.run.is_history_kept, Some(false));
    assert_eq!(said.tests.timeout, Some(TimeLimit::After(Duration::from_secs(90))));
    assert_eq!(said.tests.slow_timeout.unwrap().period, Duration::from_secs(5));
    assert_eq!(said.repeat, NonZeroU32::new(5));
    assert_eq!((said.tests.retries, said.tests.is_isolated), (Some(RetryPolicy::immediate(2)), Some(true)));
}

#[test]
fn option_aliases_and_negations_are_parsed() {
    assert_eq!(run("--fail-fast").command_line().run.fail_fast, Some(FailFast::Wait));
    assert_eq!(run("--fail-fast=immediate").command_line().run.fail_fast, Some(FailFast::Immediate));
    assert_eq!(run("--no-fail-fast").command_line().run.fail_fast, Some(FailFast::Off));
    assert_eq!(run("--timeout none").command_line().tests.timeout, Some(TimeLimit::Unlimited));
    assert_eq!(run("-j num-cpus").command_line().run.jobs, Some(JobCount::Cpus));
    assert_eq!(run("--test-threads 2").running.jobs, Some(JobCount::Count(2.try_into().unwrap())));
    assert_eq!(run("--stress-count 2").command_line().repeat, NonZeroU32::new(2));
    assert_eq!(run("--repeat until-fail:7").command_line().repeat, NonZeroU32::new(7));
    let minute = Some(Duration::from_secs(60));
    assert_eq!(run("--stress-duration 1m").command_line().stress_duration, minute);
    assert_eq!(run("--stress-count infinite").command_line().stress_duration, Some(Duration::MAX));
    let delayed = run("--retries count=3,delay=1s").command_line().tests.retries.unwrap();
    assert_eq!((delayed.count, delayed.delay.first), (3, Duration::from_secs(1)));
    assert_eq!(run("--flaky-result fail").command_line().tests.flaky_result, Some(FlakyResult::Fail));
    assert_eq!(run("--cargo").programs.cargo.as_deref(), Some(Path::new(".")));
    assert_eq!(run("--cargo sub --cargo-arg=--release").programs.cargo_args, ["--release"]);
}

#[test]
fn options_of_cargo_are_passed_on_as_cargo_has_them() {
    let passed = |line: &str| run(line).programs.cargo_options().join(" ");
    assert_eq!(passed(""), "");
    assert_eq!(
        passed(
            "-p a --package b --workspace --exclude c --release --features x,y --no-default-features --all-features"
        ),
        "--package a --package b --workspace --exclude c --release --features x,y --all-features --no-default-features"
    );
    assert_eq!(
        passed("--lib --bins --bin one --test two --tests --cargo-profile fast --cargo-arg=--locked"),
        "--lib --bins --bin one --test two --tests --profile fast --locked"
    );
}

#[test]
fn shuffle_consumes_a_seed_but_no_program() {
    let shuffled = |line: &str| (run(line).running.shuffle, run(line).programs.programs.len());
    assert_eq!(shuffled("--shuffle 7 a"), (Some(ShuffleMode::Seed(7)), 1));
    assert_eq!(shuffled("--shuffle=7"), (Some(ShuffleMode::Seed(7)), 0));
    assert_eq!(shuffled("--shuffle a"), (Some(ShuffleMode::Random), 1));
    assert_eq!(shuffled("a --shuffle"), (Some(ShuffleMode::Random), 1));
    assert_eq!(shuffled("-- --shuffle a"), (None, 0));
}

#[test]
fn words_behind_two_dashes_are_for_the_programs() {
    let found = run("a --jobs 2 -- --jobs 3 b").programs;
    assert_eq!(found.program_args, ["--jobs", "3", "b"]);
    assert_eq!(found.programs, [Path::new("a")]);
}

#[test]
fn patterns_of_gtest_are_a_filter() {
    let filter = |word: &str| {
        let words = ["heeler".into(), "run".into(), OsString::from(format!("--filter={word}"))];
        let Ok(CliCommand::Run(run)) = parse(words.to_vec()) else { panic!("{word}") };
        run.command_line().filters[0].to_string()
    };
    assert_eq!(filter("A.*:B.c-A.slow?:*.x"), "(test(#A.*) | test(#B.c)) - (test(#A.slow?) | test(#*.x))");
    assert_eq!(filter("-A.*"), "(all()) - (test(#A.*))");
    assert_eq!(filter("N/A.*:*"), "test(#N/A.*) | test(#*)");
    for other in ["a::b", "A.*", "some-name", "v1.2-beta", "test(x) - test(y)"] {
        assert_eq!(filter(other), other.parse::<heeler_config::filter::Filter>().unwrap().to_string());
    }
}

#[test]
fn ignored_tests_run_on_request() {
    assert_eq!(run("").command_line().run_ignored, RunIgnored::Default);
    assert_eq!(run("--run-ignored only").command_line().run_ignored, RunIgnored::Only);
    assert_eq!(run("--run-ignored all").command_line().run_ignored, RunIgnored::All);
}

#[test]
fn invalid_arguments_are_rejected_with_a_reason() {
    for (line, message) in [
        (
            "run --partition hash:5/4",
            "error: invalid value 'hash:5/4' for '--partition <PARTITION>': partition 5 of 4 does not exist; partitions are numbered from 1 to 4",
        ),
        (
            "run --timeout 60",
            "error: invalid value '60' for '--timeout <TIME>': \"60\" has no unit; the units are ms, s, m, h and d",
        ),
        (
            "run --slow-timeout 0s",
            "error: invalid value '0s' for '--slow-timeout <TIME>': the duration must be longer than zero",
        ),
        (
            "run -j 0",
            "error: invalid value '0' for '--jobs <N>': expected a number of at least 1, or num-cpus",
        ),
        (
            "run -E tset(x)",
            "error: invalid value 'tset(x)' for '--filter <FILTER>': unknown function \"tset\"; did you mean \"test\"?",
        ),
        (
            "run --format json --debugger gdb",
            "error: the argument '--format <FORMAT>' cannot be used with '--debugger <COMMAND>'",
        ),
        (
            "run --fail-fast --max-fail 2",
            "error: the argument '--fail-fast[=<MODE>]' cannot be used with '--max-fail <N>'",
        ),
        (
            "run --shuffle=x",
            "error: invalid value 'x' for '--shuffle [<SEED>]': expected a number as the seed; name programs before --shuffle, or use --shuffle=random",
        ),
        ("run --retry 2", "error: unexpected argument '--retry' found"),
        ("serve", "error: the following required arguments were not provided:"),
        (
            "serve --listen 4711",
            "error: invalid value '4711' for '--listen <ADDR>': expected an address and a port, such as 127.0.0.1:4711 or [::1]:0",
        ),
        ("./prog", "error: unrecognized subcommand './prog'"),
        (
            "a --server",
            "--server requires --client-port, the port on which the client listens; for other transports, see heeler serve --help",
        ),
        ("a --server --client-port", "option --client-port requires a value"),
        ("a --server pipes --client-port 1 --server=lsp", "unknown server mode \"lsp\"; expected jsonrpc"),
        (
            "a --server --client-port 70000",
            "error: invalid value '70000' for '--client-port <CLIENT_PORT>': 70000 is not in 0..=65535",
        ),
    ] {
        assert_eq!(parse_error(line), message, "{line}");
    }
}

#[test]
fn wrapped_server_keeps_its_options() {
    let line = "mcp filter -- node server.js --server --help -- x";
    let Ok(CliCommand::Mcp(McpArguments { command: McpCommand::Filter { command, .. } })) =
        parse(words(line))
    else {
        panic!("{line}")
    };
    assert_eq!(command, ["node", "server.js", "--server", "--help", "--", "x"]);
    for line in ["mcp", "mcp filter", "mcp filter --", "mcp filter node server.js"] {
        assert_eq!(parse(words(line)).unwrap_err().exit_code(), 5, "{line}");
    }
}

#[test]
fn filter_takes_a_port_and_an_address_together() {
    let line = "mcp filter --port 0 http://127.0.0.1:3000/mcp";
    let Ok(CliCommand::Mcp(McpArguments { command: McpCommand::Filter { port, url, command } })) =
        parse(words(line))
    else {
        panic!("{line}")
    };
    assert_eq!((port, url.unwrap().to_string().as_str()), (Some(0), "http://127.0.0.1:3000/mcp"));
    assert!(command.is_empty());
    for line in [
        "mcp filter --port 0",
        "mcp filter http://127.0.0.1:3000/mcp",
        "mcp filter --port 0 -- node server.js",
        "mcp filter --port 0 http://127.0.0.1:3000/mcp -- node server.js",
        "mcp filter --port 0 http://example.com/mcp",
    ] {
        assert_eq!(parse(words(line)).unwrap_err().exit_code(), 5, "{line}");
    }
}

#[test]
fn agents_are_served_without_a_transport() {
    let serve = |line: &str| match parse(words(&format!("serve {line}"))) {
        Ok(CliCommand::Serve(serve)) => *serve,
        other => panic!("{other:?}"),
    };
    let agent = serve("mcp a b -j 2 --timeout 3s -- x");
    assert_eq!((agent.protocol.as_deref(), agent.is_stdio, agent.port), (Some("mcp"), true, None));
    assert_eq!(agent.served.programs.programs, [Path::new("a"), Path::new("b")]);
    assert_eq!(agent.served.programs.program_args, ["x"]);
    assert!(serve("mcp --stdio").is_stdio && !serve("mcp --port 7").is_stdio);
    // After a transport, the argument is a program.
    assert_eq!(serve("--stdio mcp").protocol, None);
}

#[test]
fn serve_requires_exactly_one_transport() {
    let serve = |line: &str| match parse(words(&format!("serve {line}"))) {
        Ok(CliCommand::Serve(serve)) => *serve,
        other => panic!("{other:?}"),
    };
    assert!(serve("--stdio").is_stdio);
    assert_eq!(serve("--listen [::1]:0 prog -j 2").listen.as_deref(), Some("[::1]:0"));
    assert_eq!(serve("--pipe /run/x").pipe.as_deref(), Some(Path::new("/run/x")));
    assert_eq!(serve("--port 0").port, Some(0));
    assert!(parse(words("serve --stdio --pipe x")).is_err());
    assert!(parse(words("serve --port 1 --listen 127.0.0.1:1")).is_err());
}

#[test]
fn protocol_may_be_the_first_word_of_serve() {
    let serve = |line: &str| match parse(words(&format!("serve {line}"))) {
        Ok(CliCommand::Serve(serve)) => *serve,
        other => panic!("{other:?}"),
    };
    for (line, protocol, port) in [
        ("rsp", Some("rsp"), Some(0)),
        ("rsp prog --port 7", Some("rsp"), Some(7)),
        ("rsp --port=7 prog -- --stdio", Some("rsp"), Some(7)),
        ("rsp prog -- --stdio", Some("rsp"), Some(0)),
        ("mtp --stdio prog", Some("mtp"), None),
        ("rsp --listen=[::1]:0", Some("rsp"), None),
        ("--stdio rsp", None, None),
        ("--port 7 --protocol rsp", Some("rsp"), Some(7)),
    ] {
        let serve = serve(line);
        assert_eq!((serve.protocol.as_deref(), serve.port), (protocol, port), "{line}");
    }
    assert!(parse(words("serve rsp --port 70000")).is_err());
}

#[test]
fn help_and_version_exit_with_zero() {
    assert!(help("--version").starts_with("heeler 0."));
    assert!(help("help run").contains("--partition"));
    assert!(!help("--help").contains("__editor"));
}

#[test]
fn editor_command_lines_are_translated() {
    for (line, expected) in [
        ("prog --server --client-port 5", "__editor --client-port=5 prog"),
        (
            "--server jsonrpc --client-port 5 --exit-on-process-exit 77",
            "__editor --client-port=5 --exit-on-process-exit=77",
        ),
        (
            "--server --client-host localhost --client-port 5 --diagnostic --diagnostic-verbosity trace",
            "__editor --client-host=localhost --client-port=5 --diagnostic --diagnostic-verbosity=trace",
        ),
        ("a b -server:jsonrpc -client-port:5 -no-banner", "__editor --client-port=5 --no-banner a b"),
        ("a --SERVER=jsonrpc --Client-Port=5 --no-ansi b", "__editor --client-port=5 --no-ansi a b"),
        ("--server --client-port 5 a", "__editor --client-port=5 a"),
        ("--server a --client-port 5", "__editor --client-port=5 a"),
        ("--server --client-port 5 --client-host ::1", "__editor --client-port=5 --client-host=::1"),
        (
            "--server --client-port 5 --config-file my/heeler.toml a",
            "__editor --client-port=5 --config-file my/heeler.toml a",
        ),
        (
            "--server --client-port 5 --config-file t.json a",
            "__editor --client-port=5 --ignored=--config-file t.json a",
        ),
        (
            "--server --client-port 5 --settings x.runsettings",
            "__editor --client-port=5 --ignored=--settings x.runsettings",
        ),
        (
            "a --server --client-port 5 --crashdump --results-directory x y --retry=3 b",
            "__editor --client-port=5 --ignored=--crashdump --ignored=--results-directory x y --ignored=--retry=3 a b",
        ),
        ("--server --client-port 5 -- -odd", "__editor --client-port=5 -- -odd"),
        ("a --list-tests", "list a"),
        ("a --list-tests json --no-banner", "list a"),
        ("a --server --help", "--help"),
    ] {
        check_normalised(line, expected);
        assert!(
            !matches!(parse(words(line)), Err(ParseArgumentsError::Arguments(error)) if error.use_stderr()),
            "{line}"
        );
    }
}

#[test]
fn own_commands_are_not_translated() {
    for line in
        ["run --server", "serve --stdio", "list a --list-tests", "help", "a --client-port 5", "--help"]
    {
        check_normalised(line, line);
    }
}

#[test]
fn response_file_is_expanded() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.rsp");
    std::fs::write(&file, "# how we start\n--server jsonrpc\n  --client-port   \"5\"\n\n\"my prog\" \"\"\n")
        .unwrap();
    let line = format!("@{}", file.display());
    let normalised = normalise(words(&line)).unwrap();
    let expected = ["heeler", "__editor", "--client-port=5", "my prog", ""].map(OsString::from);
    assert_eq!(normalised, expected);
    let missing = parse_error("--server @/nowhere/x.rsp");
    assert!(missing.starts_with("can't read response file /nowhere/x.rsp: No such file"), "{missing}");
}

#[test]
fn editor_options_reach_the_command() {
    let line = "a --server --client-port 5 --exit-on-process-exit 77 --no-banner --telemetry off";
    let CliCommand::Editor(editor) = parse(words(line)).unwrap() else { panic!("another command") };
    assert_eq!((editor.client_host.as_str(), editor.client_port), ("localhost", 5));
    assert_eq!(editor.exit_on_process_exit, Some(77));
    assert_eq!(editor.ignored, ["--telemetry off"]);
    assert_eq!(editor.served.programs.programs, [Path::new("a")]);
    assert!(editor.is_banner_off && !editor.is_ansi_off);
}

#[test]
fn editor_form_takes_the_options_of_serve() {
    let line = "a --server --client-port 5 --jobs 3 --retries=2 --isolate -P ci --timeout:9s --junit r.xml b -j4 \
                --state-dir s --shuffle c --stdio --nonsense x -- --flag";
    let line = line.replace("-j4 ", "");
    let CliCommand::Editor(editor) = parse(words(&line)).unwrap() else { panic!("another command") };
    let settings = editor.served.command_line();
    assert_eq!(editor.served.programs.programs, ["a", "b", "c"].map(Path::new));
    assert_eq!(editor.served.programs.program_args, ["--flag"]);
    assert_eq!(settings.run.jobs.unwrap().slots().get(), 3);
    assert_eq!(settings.tests.retries.unwrap().count, 2);
    assert_eq!(settings.profile.as_deref(), Some("ci"));
    assert_eq!(settings.state_dir.as_deref(), Some(Path::new("s")));
    assert_eq!(settings.run.reports.unwrap().len(), 1);
    // The editor chooses the transport itself.
    assert_eq!(editor.ignored, ["--stdio", "--nonsense x"]);
    let joined = normalise(words("--server --client-port 5 -j4 -- -x")).unwrap();
    assert_eq!(joined[3..], ["-j4", "--", "-x"].map(OsString::from));
    assert!(parse_error("--server --client-port 5 --jobs many").contains("many"));
}

#[test]
fn program_names_may_be_invalid_utf8() {
    use std::os::unix::ffi::OsStringExt;
    let odd = OsString::from_vec(b"a\xff".to_vec());
    let mut line = words("--server --client-port 5");
    line.push(odd.clone());
    let CliCommand::Editor(editor) = parse(line).unwrap() else { panic!("another command") };
    assert_eq!(editor.served.programs.programs, [Path::new(&odd)]);
}

#[test]
fn every_command_has_a_manual_page() {
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("man1");
    write_manual_pages(&pages).unwrap();
    for page in ["heeler.1", "heeler-run.1", "heeler-report.1", "heeler-man.1"] {
        let text = std::fs::read_to_string(pages.join(page)).unwrap();
        for section in ["SYNOPSIS", "\"EXIT STATUS\"\n.TP\n\\fB0\\fR\n", "FILES", "\"SEE ALSO\"\n\\fBheeler"]
        {
            assert!(text.contains(&format!(".SH {section}")), "{page} {section}: {text}");
        }
    }
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(write_manual_pages(&file).is_err());
}

#[test]
fn command_lines_of_every_command_are_not_translated() {
    for command in ["run", "list", "runs", "report", "serve", "dump", "doctor", "completions", "man", "help"]
    {
        let words = ["heeler", command, "--server", "--client-port", "1"].map(std::ffi::OsString::from);
        assert_eq!(normalise(words.to_vec()).unwrap(), words, "{command}");
    }
}
