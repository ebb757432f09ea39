// Behaviour of Heeler as seen by clients on a third-party JSON-RPC library. Each scenario is a test in
// tests/e2e/mtp/node_clients.rs.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { constants } from "node:os";
import { setTimeout } from "node:timers/promises";
import rpc from "vscode-jsonrpc/node";
import { meetingPoint } from "./meet.mjs";
import { ATTACHMENTS, LOG, UPDATES, dialled, overStreams, work } from "./session.mjs";
import { strictly, strictlyInBatches } from "./strict.mjs";

const CANCELLED = -32800;
const DEATHS = ["First.One", "First.Two", "Second.One", "Second.Two", "Third.Spoils", "Third.CrashesWhenSpoilt",
  "Third.Flaky"].map((name) => `deaths::${name}`);
const CRASHES = ["One", "Two"].map((name) => `evidence::Crash.${name}`);
const PLAIN = { debuggerProvider: false };

function withCallback(provider) {
  return { debuggerProvider: false, attachmentsSupport: true, callbackProvider: provider };
}

function all(results, state) {
  for (const node of results.values()) assert.equal(node["execution-state"], state, JSON.stringify(node));
}

export async function discovery_sends_each_test_once_then_completion() {
  const session = await dialled(["deaths"]);
  const { capabilities } = await session.initialize(PLAIN);
  assert.equal(capabilities.testing.supportsDiscovery, true);
  const discovery = session.begin("testing/discoverTests");
  assert.deepEqual(await discovery.answered, { result: {} });
  assert.equal(await session.exit(), 0);
  session.check(discovery, []);
  const changes = session.record.flatMap(({ params }) => params.changes ?? []);
  const tests = changes.map(({ node }) => node).filter((node) => node["node-type"] === "action");
  assert.deepEqual(tests.map((node) => node.uid).sort(), [...DEATHS].sort());
  for (const node of tests) {
    assert.equal(node["execution-state"], "discovered");
    assert.ok(node["display-name"].length > 0 && node["location.file"].endsWith("deaths.cc"), JSON.stringify(node));
  }
}

export async function run_on_one_connection_is_in_order() {
  const session = await dialled(["deaths"]);
  await session.initialize(PLAIN);
  for (const selected of [DEATHS, DEATHS.slice(0, 2), []]) {
    const run = session.run(selected);
    const { result } = await run.answered;
    assert.deepEqual(result.attachments, []);
    all(session.check(run, selected), "passed");
  }
  assert.equal(await session.exit(), 0);
  assert.equal(session.record.filter(({ method }) => method === ATTACHMENTS).length, 0, "nobody asked for attachments");
}

export async function run_on_callback_connections_is_in_order() {
  const session = await dialled(["deaths"]);
  await session.initialize(withCallback(await session.callbackProvider()));
  const run = session.run();
  await run.answered;
  assert.equal(await session.exit(), 0);
  all(session.check(run, DEATHS), "passed");
  assert.ok(session.callbacks >= 2, "a worker and the watchdog have dialled");
  const updates = session.record.filter(({ method }) => method === UPDATES);
  assert.ok(updates.every(({ on }) => on !== "main"), "every update came on a callback connection");
}

export async function slow_handler_has_handled_everything_before_completion() {
  const session = await dialled(["big"]);
  session.workPerChange = 0.3;
  await session.initialize(withCallback(await session.callbackProvider()));
  const run = session.run();
  await run.answered;
  assert.equal(await session.exit(), 0);
  const all_tests = Array.from({ length: Number(process.env.HEELER_FIXTURE_CASES) }, (_, n) => `big::N/Big.Case/${n}`);
  all(session.check(run, all_tests), "passed");
  const updates = session.record.filter(({ method }) => method === UPDATES);
  assert.ok(updates.every(({ on }) => on !== "main"), "every update came on a callback connection");
}

// Longer than the time limit for a client's first answer.
const BUSY = 3000;

/** Runs many tests with a client whose only thread is busy once. Checks that it handles all messages in order. */
async function busy_once(keep_busy) {
  const session = await dialled(["big"]);
  const provider = await session.callbackProvider();
  const initialized = session.initialize(withCallback(provider));
  const run = await keep_busy(session, initialized);
  await run.answered;
  assert.equal(await session.exit(), 0);
  const tests = Array.from({ length: Number(process.env.HEELER_FIXTURE_CASES) }, (_, n) => `big::N/Big.Case/${n}`);
  all(session.check(run, tests), "passed");
  return session;
}

/** Returns the connections that carried test updates. */
function updated_on(session) {
  const updates = session.record.filter(({ method, params }) => method === UPDATES && params.changes?.length > 0);
  return new Set(updates.map(({ on }) => on));
}

export async function client_that_is_busy_at_its_first_update_has_handled_everything_before_completion() {
  const session = await busy_once(async (session, initialized) => {
    await initialized;
    session.workOnce = BUSY;
    return session.run();
  });
  assert.ok(!updated_on(session).has("main"), "every update came on a callback connection");
}

export async function client_that_is_busy_behind_its_request_has_the_whole_limit_for_answers() {
  const session = await busy_once(async (session, initialized) => {
    await initialized;
    const run = session.run();
    // By now the client has answered the requests after `initialize`. It becomes busy before a worker connects.
    await setTimeout(20);
    work(BUSY);
    return run;
  });
  assert.ok(!updated_on(session).has("main"), "every update came on a callback connection");
}

export async function client_that_is_busy_from_the_beginning_has_handled_everything_before_completion() {
  await busy_once(async (session, initialized) => {
    await initialized;
    const run = session.run();
    // Let the library write the request. Then the client is busy and answers nothing.
    await new Promise(process.nextTick);
    work(BUSY);
    return run;
  });
}

export async function connections_closed_behind_the_completion_bring_no_second_one() {
  const session = await dialled(["deaths"]);
  await session.initialize(withCallback(await session.callbackProvider()));
  for (let number = 1; number <= 12; number += 1) {
    const run = session.run(DEATHS);
    await session.until(({ method, params }) =>
      method === UPDATES && params.runId === run.runId && params.changes === null);
    session.callbackSockets.splice(0).forEach((socket) => socket.destroy());
    const begun = performance.now();
    await run.answered;
    assert.ok(performance.now() - begun < 20_000, "the answer waits for no limit");
    // The library may have begun an answer on a connection that this client then destroyed.
    session.faults = session.faults.filter((fault) => !fault.includes("ERR_STREAM_DESTROYED"));
    all(session.check(run, DEATHS), "passed");
    const of_run = session.record.filter(({ method, params }) => method === UPDATES && params.runId === run.runId);
    assert.ok(of_run.every(({ on }) => on !== "main"), `run ${number} uses the callback port`);
  }
  assert.equal(await session.exit(), 0);
}

export async function standard_streams_serve_the_same_run() {
  const session = overStreams(["deaths"]);
  await session.initialize(PLAIN);
  const run = session.run(DEATHS);
  await run.answered;
  assert.equal(await session.exit(), 0);
  all(session.check(run, DEATHS), "passed");
}

export async function requests_pipelined_after_initialize_are_processed() {
  const session = await dialled(["deaths"]);
  const initialized = session.initialize(PLAIN);
  const discovery = session.begin("testing/discoverTests");
  const run = session.run(DEATHS);
  assert.equal((await initialized).serverInfo.name, "heeler");
  assert.deepEqual(await discovery.answered, { result: {} });
  await run.answered;
  all(session.check(run, DEATHS), "passed");
  assert.equal(await session.exit(), 0);
}

export async function concurrent_runs_have_own_completions() {
  const session = await dialled(["deaths"]);
  await session.initialize(withCallback(await session.callbackProvider()));
  const selections = [DEATHS, DEATHS.slice(0, 3), DEATHS.slice(2, 4)];
  const runs = selections.map((selected) => session.run(selected));
  await Promise.all(runs.map((run) => run.answered));
  assert.equal(await session.exit(), 0);
  runs.forEach((run, index) => all(session.check(run, selections[index]), "passed"));
}

async function crash(bind) {
  const session = await dialled(["evidence"], { bind });
  await session.initialize(withCallback(await session.callbackProvider()));
  const run = session.run([...CRASHES, "evidence::Z.IsLast", "evidence::No.Such"]);
  const { result } = await run.answered;
  assert.equal(await session.exit(), 0);
  const results = session.check(run, [...CRASHES, "evidence::Z.IsLast", "evidence::No.Such"]);
  for (const uid of CRASHES) assert.equal(results.get(uid)["execution-state"], "error");
  assert.equal(results.get("evidence::Z.IsLast")["execution-state"], "passed");
  return { session, result };
}

export async function crash_is_sent_in_order_with_attachments() {
  const { session, result } = await crash();
  const streamed = session.record.flatMap(({ method, params }) => (method === ATTACHMENTS && params.attachments) || []);
  assert.ok(streamed.length > 0 && result.attachments.length > 0, "dumps and stacks are attached");
  for (const attachment of [...streamed, ...result.attachments]) {
    assert.ok(attachment.uri.startsWith("file:///"), JSON.stringify(attachment));
    assert.equal(attachment["display-name"], attachment.displayName);
    assert.equal(attachment.type, "file");
    assert.ok(attachment.producer.length > 0);
  }
}

export async function parameters_bind_strictly_by_name_on_every_connection() {
  const { session } = await crash(strictly);
  assert.ok(session.callbacks >= 2);
}

export async function parameters_bind_strictly_by_name_on_one_connection() {
  const session = await dialled(["evidence", "true"], { bind: strictly });
  await session.initialize({ debuggerProvider: false, attachmentsSupport: true });
  const run = session.run([...CRASHES, "true"]);
  await run.answered;
  assert.equal(await session.exit(), 0);
  const results = session.check(run, [...CRASHES, "true"]);
  all(results, "error");
  // A program that is not a test program is also logged.
  const log = session.record.filter(({ method }) => method === LOG);
  assert.ok(log.some(({ params }) => params.message.includes("true")), JSON.stringify(log));
}

export async function batched_log_binds_strictly_and_names_test() {
  const session = await dialled(["kinds"], { bind: strictlyInBatches });
  await session.initialize({ debuggerProvider: false, batchLoggingSupport: true });
  const run = session.run(["kinds::Leak.Child"]);
  await run.answered;
  assert.equal(await session.exit(), 0);
  session.check(run, ["kinds::Leak.Child"]);
  const log = session.record.filter(({ method }) => method === LOG);
  assert.ok(log.length > 0, "a process that is left behind is reported");
  for (const { params } of log) {
    assert.equal(params.runId, run.runId);
    assert.ok(params.messages.every(({ nodeUid }) => nodeUid === "kinds::Leak.Child"), JSON.stringify(params));
  }
}

async function cancelled(testing) {
  const meeting = await meetingPoint();
  const session = await dialled(["meet"]);
  await session.initialize(await testing(session));
  const cases = [0, 1, 2, 3].map((number) => `meet::N/Meet.Case/${number}`);
  const token = new rpc.CancellationTokenSource();
  const run = session.run(cases, token.token);
  (await meeting.next()).letGo();
  const second = await meeting.next();
  token.cancel();
  const { error } = await run.answered;
  assert.equal(error.code, CANCELLED);
  await second.gone();
  const results = session.check(run, cases);
  const states = [...results.values()].map((node) => node["execution-state"]);
  assert.deepEqual(new Set(states), new Set(["passed", "cancelled"]));
  // The session continues.
  const next = session.run([]);
  assert.ok((await next.answered).result);
  assert.equal(await session.exit(), 0);
  meeting.close();
}

export async function cancellation_token_cancels_run() {
  await cancelled(async () => PLAIN);
}

export async function cancellation_token_cancels_run_on_callback_connections() {
  await cancelled(async (session) => withCallback(await session.callbackProvider()));
}

export async function cancellation_token_cancels_discovery() {
  const session = await dialled(["hangs-in-listing"]);
  await session.initialize(PLAIN);
  const token = new rpc.CancellationTokenSource();
  const discovery = session.begin("testing/discoverTests", {}, token.token);
  token.cancel();
  const { error } = await discovery.answered;
  assert.equal(error.code, CANCELLED);
  session.check(discovery, []);
  assert.equal(await session.exit(), 0);
}

/** Waits until a process held by its debugger has been ordered to continue; the order takes effect later. */
async function handedOver(processId) {
  const until = Date.now() + 30_000;
  for (;;) {
    const [, pending] = readFileSync(`/proc/${processId}/status`, "utf8").match(/^SigPnd:\s*(\S+)$/m);
    if (BigInt(`0x${pending}`) & (1n << BigInt(constants.signals.SIGCONT - 1))) return;
    assert.ok(Date.now() < until, `process ${processId} is not handed over`);
    await setTimeout(10);
  }
}

export async function client_debugger_attaches_before_first_instruction() {
  const session = await dialled(["deaths"], { bind: strictly });
  await session.initialize({ debuggerProvider: true });
  const ended = [];
  session.answers.set("client/attachDebugger", ({ processId }) => new Promise((resolve) => {
    // The debugger prints a line once attached, and waits for a command before it continues the test.
    const commands = ["shell echo attached", "shell read word", "break First_Two_Test::TestBody", "continue", "detach"];
    const words = ["-q", "-batch", "-nx", "-p", processId, ...commands.flatMap((command) => ["-ex", command])];
    const gdb = execFile("gdb", words.map(String));
    let said = "";
    gdb.stdout.on("data", (text) => {
      if (!said.includes("attached\n") && `${said}${text}`.includes("attached\n")) {
        resolve({ success: true });
        handedOver(processId).finally(() => gdb.stdin.end("go on\n"));
      }
      said += text;
    });
    ended.push(new Promise((over) => gdb.on("close", () => over(said))));
  }));
  const uids = ["deaths::First.Two", "deaths::Second.One"];
  const run = session.begin("testing/runTests", { tests: uids.map((uid) => ({ uid })), "heeler.debug": true });
  await run.answered;
  const [first, second] = await Promise.all(ended);
  assert.match(first, /Breakpoint 1, .*First_Two_Test::TestBody/);
  assert.doesNotMatch(first, /received signal/);
  assert.doesNotMatch(second, /Breakpoint 1, .*First_Two/);
  assert.equal(await session.exit(), 0);
  all(session.check(run, uids), "passed");
}

export async function launching_debugger_gets_each_test_in_turn() {
  const session = await dialled(["deaths"], { bind: strictly });
  await session.initialize({ debuggerProvider: true });
  const ended = [];
  // The library responds to the other request with "method not found".
  session.answers.set("client/launchDebugger", ({ program, args, workingDirectory, environmentVariables }) => {
    const commands = ["set breakpoint pending on", "break First_Two_Test::TestBody", "run", "continue"];
    const words = ["-q", "-batch", "-nx", ...commands.flatMap((command) => ["-ex", command]), "--args", program];
    const env = { ...process.env, ...environmentVariables };
    const gdb = execFile("gdb", [...words, ...args.split(" ")], { cwd: workingDirectory, env });
    let said = "";
    gdb.stdout.on("data", (text) => (said += text));
    ended.push(new Promise((over) => gdb.on("close", () => over(said))));
    return { success: true };
  });
  const uids = ["deaths::First.Two", "deaths::Second.One"];
  const run = session.begin("testing/runTests", { tests: uids.map((uid) => ({ uid })), "heeler.debug": true });
  await run.answered;
  const [first, second] = await Promise.all(ended);
  assert.match(first, /Breakpoint 1, .*First_Two_Test::TestBody/);
  assert.doesNotMatch(second, /Breakpoint 1, .*First_Two/);
  assert.equal(await session.exit(), 0);
  all(session.check(run, uids), "passed");
}

export async function debugger_request_is_cancelled_with_its_run() {
  const session = await dialled(["deaths"], { bind: strictly });
  await session.initialize({ debuggerProvider: true });
  const withdrawn = new Promise((resolve) => {
    session.answers.set("client/attachDebugger", (_params, token) => new Promise((answer) => {
      token.onCancellationRequested(() => {
        answer({ success: true });
        resolve();
      });
    }));
  });
  const token = new rpc.CancellationTokenSource();
  const tests = [{ uid: "deaths::First.One" }];
  const run = session.begin("testing/runTests", { tests, "heeler.debug": true }, token.token);
  await session.until(({ method }) => method === "client/attachDebugger");
  token.cancel();
  const { error } = await run.answered;
  assert.equal(error.code, CANCELLED);
  await withdrawn;
  assert.equal(await session.exit(), 0);
  all(session.check(run, ["deaths::First.One"]), "cancelled");
}

export async function exit_request_completes_run_and_gets_response() {
  const meeting = await meetingPoint();
  const session = await dialled(["meet"]);
  await session.initialize(PLAIN);
  const run = session.run(["meet::N/Meet.Case/0"]);
  const guest = await meeting.next();
  // The answer is the last message, so the process may exit before the answer is handled.
  const answered = session.main.sendRequest("exit", {});
  guest.letGo();
  const { error } = await run.answered;
  assert.equal(error, undefined);
  await answered;
  assert.equal(await session.left, 0);
  all(session.check(run, ["meet::N/Meet.Case/0"]), "passed");
  meeting.close();
}

export async function client_close_midway_leaves_nothing_behind() {
  const meeting = await meetingPoint();
  const session = await dialled(["meet"]);
  await session.initialize(withCallback(await session.callbackProvider()));
  session.run(["meet::Away.Family"]).answered.catch(() => {});
  const guest = await meeting.next();
  session.main.end();
  await guest.gone();
  assert.equal(await session.left, 3);
  session.listener.close();
  meeting.close();
}

export async function invalid_requests_get_error_codes() {
  const session = await dialled(["deaths"]);
  const refused = async (method, params) => (await session.request(method, params).catch((error) => error)).code;
  assert.equal(await refused("testing/runTests", { runId: "00000000-0000-4000-8000-000000000001" }), -32002);
  await session.initialize(PLAIN);
  assert.equal(await refused("initialize", { capabilities: {} }), -32600);
  assert.equal(await refused("no/such/method", {}), -32601);
  assert.equal(await refused("testing/runTests", { runId: "no GUID" }), -32602);
  await session.main.sendNotification("no/such/notification", { x: 1 });
  await session.main.sendNotification("initialized", {});
  const run = session.run(DEATHS);
  await run.answered;
  all(session.check(run, DEATHS), "passed");
  assert.equal(await session.exit(), 0);
}
