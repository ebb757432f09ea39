//! The adapter of commands.

use std::path::Path;

use heeler_core::Failure;
use heeler_core::batching::ProcessTraits;
use heeler_protocol::control::{CommandTest, ListedTest, TestProgram};

use super::{expression::Expression, parser::CommandParser};
use crate::{
    Adapter, AdapterInvocation, AdapterListing, AdapterTraits, BatchSelection, ClaimConfidence,
    CommandLineError, DiscoveryTarget, FrameworkVerdict, InvocationChannel, ListingError, ListingOutput,
    OwnCommand, TranscriptParser, libtest, shell, tap::TapParser,
};

/// Frameworks of commands, by what decides their result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandFramework {
    /// The exit code and the rules of the command.
    ExitCode,
    /// The test points that the command reports in the Test Anything Protocol, and the exit code.
    Tap,
}

const fn traits(name: &'static str, label: &'static str) -> AdapterTraits {
    let new = AdapterTraits::new(name, label);
    AdapterTraits { process: ProcessTraits { is_one_test: true, ..new.process }, ..new }
}

static EXIT_CODE: AdapterTraits =
    AdapterTraits { details_from_stderr: Some(add_panic), ..traits("command", "command") };
static TAP: AdapterTraits = AdapterTraits { has_parts: true, ..traits("tap", "TAP") };

/// Failure message of a Rust program that panicked.
const PANICKED: &str = "exited with code 101";

/// Adds the panic message of a Rust program.
fn add_panic(verdict: &mut FrameworkVerdict, _name: &str, stderr: &str) {
    let [failure] = verdict.failures.as_mut_slice() else { return };
    if failure.message.as_deref() == Some(PANICKED) {
        let panic = libtest::read_panic_of(stderr);
        if panic.message.is_some() {
            // The location may be in code that a tool such as rustdoc generated.
            *failure = Failure { file: None, line: None, ..panic };
        }
    }
}

impl Adapter for CommandFramework {
    fn traits(&self) -> &'static AdapterTraits {
        match self {
            Self::ExitCode => &EXIT_CODE,
            Self::Tap => &TAP,
        }
    }

    fn claims(&self, _target: &DiscoveryTarget<'_>) -> ClaimConfidence {
        // Any program can be a command; only the user knows whether it is a test.
        ClaimConfidence::Unclaimed
    }

    fn next_listing(
        &self,
        _program: &TestProgram,
        _outputs: &[ListingOutput],
        _scratch: &Path,
    ) -> Option<AdapterInvocation> {
        None
    }

    fn read_listing(
        &self,
        program: &TestProgram,
        _outputs: &[ListingOutput],
    ) -> Result<AdapterListing, ListingError> {
        let tests = if program.entries.is_empty() {
            let path = program.path.as_path();
            let file_name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
            // Cargo adds a hash to the file name of a test program, so its name is the last part of the
            // suite.
            let target = program.suite.rsplit(['/', ':']).next().filter(|_| !program.tool_env.is_empty());
            let name = target.map_or_else(|| file_name.into_owned(), str::to_owned);
            // A test of Cargo has no code for a skip.
            let is_plain = *self == Self::ExitCode && target.is_none();
            let command = CommandTest { path: program.path.clone(), ..CommandTest::default() };
            let selector = is_plain.then(|| command.with_skip_code().to_selector());
            vec![ListedTest { name, selector, ..ListedTest::default() }]
        } else {
            program.entries.clone()
        };
        Ok(AdapterListing {
            framework: self.traits().name,
            tests,
            failure: None,
            warnings: Vec::new(),
            depends_on: Vec::new(),
        })
    }

    fn selectable_together(&self, tests: &[&ListedTest]) -> usize {
        tests.len().min(1)
    }

    fn run_command(
        &self,
        program: &TestProgram,
        selection: &BatchSelection<'_>,
        _scratch: &Path,
    ) -> Result<AdapterInvocation, CommandLineError> {
        let unselectable = |place, reason: String| CommandLineError::Unselectable { place, reason };
        let [test] = selection.tests else {
            return Err(unselectable(0, "a process runs one command".to_owned()));
        };
        let Some(command) = command_of(program, test) else {
            return Err(unselectable(0, "its selector is not a valid command".to_owned()));
        };
        let rules = command.rules;
        let judged = [&rules.pass_expressions, &rules.fail_expressions, &rules.skip_expressions];
        let timed = rules.timeout_after_match.as_ref().map(|rule| &rule.expressions);
        let mut expressions = judged.into_iter().chain(timed).flatten().peekable();
        // As in CTest, expressions match standard output and standard error.
        let channel = match expressions.peek() {
            Some(_) => InvocationChannel::CombinedOutput,
            None => InvocationChannel::StandardOutput,
        };
        for text in expressions {
            Expression::parse(text).map_err(|error| unselectable(0, error.to_string()))?;
        }
        let own_command = OwnCommand {
            path: command.path,
            args: command.args,
            cwd: command.cwd.unwrap_or_else(|| program.cwd.clone()),
            required_files: rules.required_files,
            attached_files: rules.attached_files,
            attached_files_on_failure: rules.attached_files_on_failure,
        };
        Ok(AdapterInvocation {
            env: command.env,
            channel,
            own_command: Some(own_command),
            ..AdapterInvocation::default()
        })
    }

    fn transcript_parser(&self, tests: &[&ListedTest]) -> Box<dyn TranscriptParser + Send> {
        match self {
            Self::Tap => Box::new(TapParser::new(tests.len())),
            Self::ExitCode => {
                let selector = tests.first().and_then(|test| test.selector.as_deref());
                let command = selector.and_then(CommandTest::from_selector);
                Box::new(CommandParser::new(tests.len(), command.unwrap_or_default().rules))
            }
        }
    }

    fn reproduce_command(&self, program: &TestProgram, test: &ListedTest) -> String {
        let command = command_of(program, test).unwrap_or_default();
        let mut env = program.env.clone();
        env.extend(command.env);
        let program = TestProgram {
            path: command.path,
            args: command.args,
            env,
            cwd: command.cwd.unwrap_or_else(|| program.cwd.clone()),
            ..TestProgram::default()
        };
        format!("(cd {} && {})", shell::quote(program.cwd.as_bytes()), shell::program_words(&program))
    }
}

/// Returns the command of a test: from its selector, or otherwise the program itself. The program's own
/// arguments come last.
fn command_of(program: &TestProgram, test: &ListedTest) -> Option<CommandTest> {
    let mut command = match &test.selector {
        Some(selector) => CommandTest::from_selector(selector)?,
        None => CommandTest { path: program.path.clone(), ..CommandTest::default() },
    };
    command.args.extend(program.args.iter().cloned());
    Some(command)
}

#[cfg(test)]
mod tests {
    use heeler_protocol::control::CommandRules;

    use super::*;
    use crate::{FrameworkResult, SelectionScope};

    fn program() -> TestProgram {
        TestProgram {
            path: "/w/check.sh".into(),
            args: vec!["--all".into()],
            cwd: "/w".into(),
            ..TestProgram::default()
        }
    }

    fn run(test: &ListedTest) -> Result<AdapterInvocation, CommandLineError> {
        let selection = BatchSelection {
            tests: &[test],
            scope: SelectionScope::WholeProgram,
            runs_ignored: false,
            follows_unclear_death: false,
        };
        CommandFramework::ExitCode.run_command(&program(), &selection, Path::new("/s"))
    }

    #[test]
    fn program_without_entries_is_one_test() {
        let listing = CommandFramework::Tap.read_listing(&program(), &[]).unwrap();
        let [test] = &listing.tests[..] else { panic!("{listing:?}") };
        assert_eq!((test.name.as_str(), listing.framework), ("check.sh", "tap"));
        let own = run(test).unwrap().own_command.unwrap();
        assert_eq!((own.path, own.args, own.cwd), ("/w/check.sh".into(), vec!["--all".into()], "/w".into()));
        let again = CommandFramework::Tap.reproduce_command(&program(), test);
        assert_eq!(again, "(cd /w && ./check.sh --all)");
    }

    #[test]
    fn exit_code_77_skips_a_program_that_is_no_test_of_cargo() {
        let skip_code = |program: &TestProgram| {
            let mut listing = CommandFramework::ExitCode.read_listing(program, &[]).unwrap();
            let selector = listing.tests.remove(0).selector;
            selector.and_then(|text| CommandTest::from_selector(&text)).and_then(|test| test.rules.skip_code)
        };
        assert_eq!(skip_code(&program()), Some(77));
        let built = TestProgram { tool_env: vec![("CARGO".into(), "/bin/cargo".into())], ..program() };
        assert_eq!(skip_code(&built), None);
    }

    #[test]
    fn entry_is_a_command_with_its_rules() {
        let rules = CommandRules { fail_expressions: vec!["b.d".into()], ..CommandRules::default() };
        let command = CommandTest {
            path: "/bin/sh".into(),
            args: vec!["-c".into(), "true".into()],
            env: vec![("A".into(), Some("b c".into()))],
            cwd: Some("/".into()),
            rules,
        };
        let test = ListedTest { selector: Some(command.to_selector()), ..ListedTest::default() };
        let invocation = run(&test).unwrap();
        assert_eq!((invocation.channel, invocation.env), (InvocationChannel::CombinedOutput, command.env));
        assert_eq!(invocation.own_command.unwrap().args, ["-c".into(), "true".into(), "--all".into()]);
        let again = CommandFramework::ExitCode.reproduce_command(&program(), &test);
        assert_eq!(again, "(cd / && A='b c' ./bin/sh -c true --all)");
    }

    #[test]
    fn panic_of_a_program_in_rust_is_its_message() {
        let failed = |message: &str| {
            let mut verdict = FrameworkVerdict::new(FrameworkResult::Failed, None);
            verdict.push_failure(Failure { message: Some(message.to_owned()), ..Failure::default() });
            let stderr = "thread 'main' (15) panicked at src/lib.rs:6:1:\nindex out of bounds\nnote: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n";
            add_panic(&mut verdict, "a", stderr);
            verdict.failures.remove(0)
        };
        let panicked = failed(PANICKED);
        assert_eq!((panicked.message.as_deref(), panicked.file), (Some("index out of bounds"), None));
        assert_eq!(failed("exited with code 1").message.as_deref(), Some("exited with code 1"));
    }

    #[test]
    fn command_that_cannot_be_judged_is_refused() {
        let rules = CommandRules { pass_expressions: vec!["a(".into()], ..CommandRules::default() };
        let unjudged = CommandTest { rules, ..CommandTest::default() }.to_selector();
        for (selector, expected) in [(unjudged.as_str(), "a("), ("3", "not a valid command")] {
            let test = ListedTest { selector: Some(selector.to_owned()), ..ListedTest::default() };
            let error = run(&test).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
