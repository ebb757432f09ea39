//! Tests of the fixtures that rounds run, with their final states.

/// Tests of the libtest fixture with their final states.
pub(crate) const LIBTEST: [(&str, &str); 14] = [
    ("a_adds", "passed"),
    ("b_prints", "passed"),
    ("c_fails", "failed"),
    ("d_is_ignored", "skipped"),
    ("e_panics_as_it_should", "passed"),
    ("f_should_panic_and_does_not", "failed"),
    ("g_returns_an_error", "failed"),
    ("h_aborts", "error"),
    ("i_exits_with_0", "error"),
    ("j_segfaults", "error"),
    ("m_forges_markers", "passed"),
    ("n_meets", "passed"),
    ("deep::down::is_found", "passed"),
    ("z_is_last", "passed"),
];

/// Tests of `tests/fixtures/pytest/test_faults.py` with their final states, except the parameterized cases.
pub(crate) const PYTEST: [(&str, &str); 6] = [
    ("test_faults.py::test_fails", "failed"),
    ("test_faults.py::test_skips", "skipped"),
    ("test_faults.py::test_is_interrupted", "failed"),
    ("test_faults.py::test_segfaults", "error"),
    ("test_faults.py::test_exits", "error"),
    ("test_faults.py::test_is_last", "passed"),
];

/// Number of parameterized cases in the pytest fixture. All of them pass.
pub(crate) const PYTEST_CASES: usize = 12;

/// Quirks of the server in `tests/fixtures/mtp`, each with the final state of the test `t3`. The last test
/// fails; all others pass.
pub(crate) const MTP_QUIRKS: [(&str, &str); 6] = [
    ("plain", "passed"),
    ("both-states", "passed"),
    ("window", "passed"),
    ("dies-in-window", "error"),
    ("dies-in-frame", "error"),
    ("exits-before-response", "error"),
];

/// Tests of the Go fixture with their final states.
pub(crate) const GO: [(&str, &str); 27] = [
    ("TestPasses", "passed"),
    ("TestLogs", "passed"),
    ("TestFails", "failed"),
    ("TestFatal", "failed"),
    ("TestStderr", "passed"),
    ("TestSkips", "skipped"),
    ("TestSkipsNow", "skipped"),
    ("TestSub", "failed"),
    ("TestSubParallel", "passed"),
    ("TestForges", "failed"),
    ("TestPanics", "error"),
    ("TestNilPointer", "error"),
    ("TestSubPanics", "error"),
    ("TestGoroutinePanics", "error"),
    ("TestExits0", "error"),
    ("TestExits3", "error"),
    ("TestExitsRaw", "error"),
    ("TestForgesEnd", "error"),
    ("TestIsKilled", "error"),
    ("TestSegfaults", "error"),
    ("TestLast", "passed"),
    ("TestOutside", "passed"),
    ("FuzzAdd", "failed"),
    ("FuzzPasses", "passed"),
    ("ExampleAdd", "passed"),
    ("ExampleDeref", "failed"),
    ("Example_panics", "error"),
];

/// Tools of the fixture server with their final states.
pub(crate) const MCP: [(&str, &str); 11] = [
    ("mcp.test.capabilities", "passed"),
    ("mcp.test.protocol.basic", "passed"),
    ("mcp.test.fault.a-waits", "passed"),
    ("mcp.test.fault.b-fails", "failed"),
    ("mcp.test.fault.c-crashes", "error"),
    ("mcp.test.fault.d-skips", "skipped"),
    ("mcp.test.fault.e-exits", "error"),
    ("mcp.test.fault.f-writes", "failed"),
    ("mcp.test.fault.g-waits", "passed"),
    ("mcp.test.fault.h-breaks", "failed"),
    ("mcp.test.fault.i-last", "passed"),
];
