//! Exit codes and their meanings.

/// Defines the exit codes with their meanings, which the help and `docs/reference/exit-codes.md` repeat.
macro_rules! exit_codes {
    ($($name:ident = $code:literal, $meaning:literal;)+) => {
        /// Exit code of the process.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum CliExitCode {
            $(#[doc = $meaning] $name = $code,)+
        }

        impl CliExitCode {
            /// Every exit code with its meaning.
            pub(super) const MEANINGS: &[(u8, &str)] = &[$(($code, $meaning)),+];
        }
    };
}

exit_codes! {
    Success = 0, "all tests passed, or the command succeeded";
    TestsFailed = 2, "tests failed";
    Aborted = 3, "aborted by the user";
    Setup = 4, "a requirement is missing: a program, a directory, a readable journal";
    CommandLine = 5, "invalid command line or configuration";
    ZeroTests = 8, "no tests to run";
    Internal = 10, "internal error of Heeler";
    ParentExited = 11, "the watched client process has exited (--exit-on-process-exit)";
    MaxFailures = 13, "the failure limit was reached (--fail-fast, --max-fail)";
    TimeLimit = 14, "the time limit of the run was reached (--run-timeout)";
}
