//! The single source of expected results: how each test of `kinds.cc` and of the libtest crate ends. The
//! output of the command line, the JUnit report and the protocol's messages are all checked against it.

/// The expected result of a test.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpectedResult {
    /// The part of the uid after the suite.
    pub(crate) name: &'static str,
    /// The execution state in the protocol.
    pub(crate) state: &'static str,
    /// The outcome kind in the protocol; empty where there is none.
    pub(crate) kind: &'static str,
    /// The label in the first column of the display.
    pub(crate) label: &'static str,
    /// A text that the message contains; empty for any message.
    pub(crate) message: &'static str,
    /// A text that the test's standard output contains.
    pub(crate) stdout: &'static str,
}

const fn plain(name: &'static str, state: &'static str, label: &'static str) -> ExpectedResult {
    ExpectedResult { name, state, kind: "", label, message: "", stdout: "" }
}

const fn passed(name: &'static str) -> ExpectedResult {
    plain(name, "passed", "PASS")
}

const fn skipped(name: &'static str, message: &'static str) -> ExpectedResult {
    ExpectedResult { message, ..plain(name, "skipped", "SKIP") }
}

const fn failed(name: &'static str, message: &'static str) -> ExpectedResult {
    ExpectedResult { message, ..plain(name, "failed", "FAIL") }
}

const fn timed_out(name: &'static str) -> ExpectedResult {
    ExpectedResult { message: "timed out after", ..plain(name, "timed-out", "TIMEOUT") }
}

/// Returns a test that dies from a signal, also in isolation.
const fn crashed(name: &'static str, signal: &'static str, message: &'static str) -> ExpectedResult {
    ExpectedResult { kind: "crashed", message, ..plain(name, "error", signal) }
}

/// Returns a test that exits with code 0 before it ends.
const fn exited(name: &'static str) -> ExpectedResult {
    let message = "the process exited with code 0 before the test ended";
    ExpectedResult { kind: "exited-early", message, ..plain(name, "error", "EXIT 0") }
}

const fn saying(stdout: &'static str, expected: ExpectedResult) -> ExpectedResult {
    ExpectedResult { stdout, ..expected }
}

/// Tests of `tests/fixtures/gtest/kinds.cc`, in the order of its listing.
pub(crate) const GTEST: &[ExpectedResult] = &[
    passed("Math.Add"),
    failed("Math.Fail", "Which is: 2"),
    skipped("Math.DISABLED_Off", "disabled"),
    skipped("Math.Skip", "no device"),
    failed("Math.Throws", "thrown by the test"),
    saying("partial line without newline", passed("Noise.NoNewline")),
    saying("[ RUN      ] Ghost.Test", passed("Noise.FakeMarker")),
    failed("Noise.ForgesItsOwnEnd", "and yet it fails"),
    passed("Noise.Errors"),
    saying("last words", crashed("Crash.Segv", "SIGSEGV", "crashed with SIGSEGV")),
    crashed("Crash.Abort", "SIGABRT", "crashed with SIGABRT"),
    crashed("Crash.Killed", "SIGKILL", "killed by SIGKILL"),
    exited("Crash.Exit0"),
    exited("Crash.QuickExit0"),
    crashed("Crash.ForgesItsEndAndDies", "SIGSEGV", "crashed with SIGSEGV"),
    timed_out("Hang.Forever"),
    passed("Slow.Sleeps300Milliseconds"),
    passed("Leak.Child"),
    passed("ADeathTest.Dies"),
    failed("BadSetUp.NeverGetsThere", "set-up failed"),
    passed("Typed/0.Default"),
    passed("Typed/1.Default"),
    passed("Inst/P.Works/0"),
    passed("Inst/P.Works/1"),
    passed("Inst/P.Works/2"),
    passed("Inst/P.FailsForX/0"),
    passed("Inst/P.FailsForX/1"),
    passed("Inst/P.FailsForX/2"),
    passed("Named/P.Works/x"),
    passed("Named/P.Works/y"),
    failed("Named/P.FailsForX/x", "\"x\""),
    passed("Named/P.FailsForX/y"),
];

/// Tests of `tests/fixtures/libtest`, in the order of its listing.
pub(crate) const LIBTEST: &[ExpectedResult] = &[
    passed("a_adds"),
    // libtest prints the output of failed tests only.
    passed("b_prints"),
    saying("said before the failure", failed("c_fails", "the sum is wrong")),
    skipped("d_is_ignored", "needs the net"),
    passed("deep::down::is_found"),
    passed("e_panics_as_it_should"),
    failed("f_should_panic_and_does_not", "did not panic"),
    failed("g_returns_an_error", "no luck"),
    crashed("h_aborts", "SIGABRT", "crashed with SIGABRT"),
    exited("i_exits_with_0"),
    crashed("j_segfaults", "SIGSEGV", "crashed with SIGSEGV"),
    crashed("k_overflows_its_stack", "SIGABRT", "crashed with SIGABRT"),
    timed_out("l_hangs"),
    passed("m_forges_markers"),
    passed("n_meets"),
    passed("z_is_last"),
];
