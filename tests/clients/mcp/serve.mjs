// Scenarios of `heeler serve mcp`: the official clients use each tool, with progress and cancels. Each
// scenario is a test in tests/e2e/mcp/node_clients.rs.
import assert from "node:assert/strict";
import { connected } from "./clients.mjs";

const TOOLS = ["list_tests", "run_tests", "get_failures", "get_output", "cancel_run", "mcp.test.capabilities", "mcp.test.protocol"];

/** Returns the answer of a call, which must not be an error. */
async function answer(session, name, args, options) {
  const result = await session.call(name, args, options);
  assert.notEqual(result.isError, true, JSON.stringify(result));
  return JSON.parse(result.content[0].text);
}

async function uses_each_tool(kind) {
  const session = await connected(kind, process.env.HEELER, ["serve", "mcp", "kinds"]);
  assert.deepEqual((await session.tools()).map(({ name }) => name), TOOLS);

  const listed = await answer(session, "list_tests", { filter: "Math." });
  assert.equal(listed.total, 5);
  assert.ok(listed.tests.every(({ test, file, line }) => test.startsWith("kinds::Math.") && file.endsWith("kinds.cc") && line > 0));
  const all = [];
  let cursor;
  do {
    const page = await answer(session, "list_tests", cursor === undefined ? {} : { cursor });
    all.push(...page.tests.map(({ test }) => test));
    assert.ok(page.total >= all.length);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  assert.equal(new Set(all).size, all.length);

  const progress = [];
  const options = { onprogress: (state) => progress.push(state), resetTimeoutOnProgress: true };
  const run = await answer(session, "run_tests", { filter: "test(Math) | test(Segv)" }, options);
  assert.equal(run.state, "completed");
  assert.deepEqual(run.counts, { selected: 6, passed: 1, failed: 2, crashed: 1, skipped: 2 });
  const failed = Object.fromEntries(run.failures.map((failure) => [failure.test, failure]));
  assert.deepEqual(Object.keys(failed).sort(), ["kinds::Crash.Segv", "kinds::Math.Fail", "kinds::Math.Throws"]);
  assert.ok(failed["kinds::Math.Fail"].file.endsWith("kinds.cc"));
  assert.equal(failed["kinds::Math.Fail"].line, 13);
  assert.match(failed["kinds::Math.Fail"].message, /msg <with> "quotes" & ü/);
  assert.ok(progress.length > 0, "the run has reported progress");
  progress.forEach((state, place) => assert.ok(place === 0 || state.progress > progress[place - 1].progress));

  const failures = await answer(session, "get_failures", { run: run.run.slice(0, 8) });
  assert.deepEqual(failures.failures, run.failures);
  const output = await answer(session, "get_output", { run: "latest", test: "Crash.Segv" });
  assert.match(output.text, /SIGSEGV[^]*last words/);
  assert.equal(output.test, "kinds::Crash.Segv");
  const rest = await answer(session, "get_output", { run: run.run, test: output.test, from: 10 });
  assert.equal(rest.text, output.text.slice(10));

  const again = await answer(session, "run_tests", { rerun: "failed", repeat: 2, timeout_ms: 20_000 });
  assert.deepEqual(again.failures.map(({ test }) => test).sort(), Object.keys(failed).sort());

  for (const name of ["mcp.test.capabilities", "mcp.test.protocol"]) {
    const { structuredContent: result } = await session.call(name, {});
    assert.equal(result.success, true, JSON.stringify(result));
    assert.ok(result.details.passed.length > 10 && result.details.skipped.length === 0, JSON.stringify(result));
  }
  for (const [name, args, text] of [
    ["run_tests", { filter: "test(" }, /invalid filter: column 6/],
    ["run_tests", { filter: "nothing" }, /no test matches the filter/],
    ["run_tests", { repeat: 0 }, /invalid arguments of run_tests/],
    ["get_failures", { run: "zzz" }, /no run ID starts with "zzz"/],
    ["get_output", { run: "latest", test: "None" }, /has no result of test "None"/],
    ["cancel_run", { run: "zzz" }, /this server has no run in progress/],
  ]) {
    const result = await session.call(name, args);
    assert.equal(result.isError, true, name);
    assert.match(result.content[0].text, text);
  }
  await assert.rejects(session.call("no_such_tool"), { code: -32602 });
  await session.close();
}

export const v1_client_uses_each_tool = () => uses_each_tool("v1");
export const v2_client_uses_each_tool = () => uses_each_tool("v2-legacy");
export const modern_client_uses_each_tool = () => uses_each_tool("v2-modern");

async function cancels(kind) {
  const session = await connected(kind, process.env.HEELER, ["serve", "mcp", "kinds"]);
  const forever = { filter: "test(Hang.Forever) | test(Math.Add)" };
  // Cancel by the run id in the first progress message: the call is answered.
  let named;
  const id = new Promise((resolve) => (named = resolve));
  const running = answer(session, "run_tests", forever, { onprogress: ({ message }) => message.startsWith("run ") && named(message.split(/[ :]/)[1]) });
  const run = await id;
  const cancel = await session.call("cancel_run", { run: run.slice(0, 13) });
  assert.notEqual(cancel.isError, true, JSON.stringify(cancel));
  const ended = await running;
  assert.deepEqual([ended.run, ended.state], [run, "cancelled"]);
  // Cancel through the protocol: the client gets no answer, and the run ends.
  const controller = new AbortController();
  let second;
  const aborted = session.call("run_tests", forever, {
    signal: controller.signal,
    onprogress: ({ message }) => {
      // A slow listing reports progress before the run has an id.
      if (!message.startsWith("run ")) return;
      second = message.split(/[ :]/)[1];
      controller.abort("enough");
    },
  });
  await assert.rejects(aborted);
  for (;;) {
    const { state } = await answer(session, "get_failures", { run: second });
    if (state === "cancelled") break;
    assert.equal(state, "running");
  }
  await session.close();
}

export const v1_client_cancels_runs = () => cancels("v1");
export const v2_client_cancels_runs = () => cancels("v2-legacy");
export const modern_client_cancels_runs = () => cancels("v2-modern");
