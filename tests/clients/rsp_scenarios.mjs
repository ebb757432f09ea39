// Behaviour of `heeler serve rsp` as seen by rsp-client, the client that editors use, and by clients on vscode-jsonrpc.
// Each scenario is a test in tests/e2e/rsp.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import Module, { createRequire } from "node:module";
import { dirname } from "node:path";
import { cwd } from "node:process";
import { setTimeout } from "node:timers/promises";
import rpc from "vscode-jsonrpc/node";
import { meetingPoint } from "./meet.mjs";
import { STARTED, STARTING, STOPPED, STOPPING, SUITE, UNKNOWN, editor, handle, peer, raw, served, soon } from "./rsp_server.mjs";

const [OK, ERROR, CANCEL] = [0, 4, 8];

function launch(id, attributes = {}) {
  return { mode: "run", params: { serverType: SUITE.id, id, attributes } };
}

function outputOf(record, stream) {
  const texts = record.heard.filter(({ event, streamType }) => event === "output" && streamType === stream);
  return texts.map(({ text }) => text).join("");
}

/** Checks that all events of a run arrived once and in order; returns the status of the run's job. */
function checkRun(heard, id) {
  const place = (name, fits = () => true) => {
    const found = heard.flatMap((entry, index) => (entry.event === name && fits(entry) ? [index] : []));
    assert.equal(found.length, 1, `${name} is there once: ${JSON.stringify(heard)}`);
    return found[0];
  };
  const of = ({ server }) => server.id === id;
  const state = (wanted) => place("state", ({ server, state }) => server.id === id && state === wanted);
  const order = [state(STARTING), place("created", of), place("added"), state(STARTED)];
  const ends = [place("removed"), place("terminated", of), state(STOPPED)];
  assert.deepEqual([...order, ...ends], [...order, ...ends].sort((one, other) => one - other), JSON.stringify(heard));
  assert.equal(ends[2], heard.length - 1, "nothing of a run follows its last state");
  const [job, process] = [heard[order[2]], heard[order[1]]];
  assert.equal(process.processId, job.id);
  const isOutput = ({ event }) => event === "output" || event === "changed";
  heard.forEach((entry, index) => {
    if (isOutput(entry)) assert.ok(index > order[2] && index < ends[0], JSON.stringify(entry));
    if (entry.event === "output") assert.equal(entry.processId, job.id);
    if (entry.event === "changed") assert.equal(entry.id, job.id);
  });
  const percents = heard.filter(({ event }) => event === "changed").map(({ percent }) => percent);
  assert.deepEqual(percents, [...percents].sort((one, other) => one - other), "progress only grows");
  const { status } = heard[ends[0]];
  // Server views show the publish state next to the state: Synchronized, Publish Required, Unknown.
  const shown = { [OK]: 1, [ERROR]: 2, [CANCEL]: 6 }[status.severity];
  assert.equal(heard[ends[2]].publishState, shown, JSON.stringify(status));
  return status;
}

export async function editor_starts_stops_and_reconnects() {
  const meeting = await meetingPoint();
  const server = await served(["deaths", "meet"]);
  let { client, record, ask, sync } = await editor(server.port);
  const registered = await ask.registerClientCapabilities(client.getCapabilities());
  assert.equal(registered.clientRegistrationStatus.severity, OK);
  assert.equal(registered.serverCapabilities["protocol.version"], "0.22.0");
  assert.deepEqual(await ask.getServerTypes(), [SUITE]);
  assert.deepEqual(await ask.getServerHandles(), [handle("deaths"), handle("meet")]);
  assert.equal((await ask.getServerState(handle("deaths"))).state, STOPPED);
  assert.equal((await ask.getServerState(handle("none"))).state, UNKNOWN);
  assert.deepEqual((await ask.getLaunchModes(SUITE)).map(({ mode }) => mode), ["run"]);
  const { attributes } = await ask.getOptionalLaunchAttributes({ serverTypeId: SUITE.id, mode: "run" });
  assert.deepEqual(Object.keys(attributes).sort(), ["filter", "jobs", "rerun"]);
  assert.deepEqual(await ask.getRequiredLaunchAttributes({ serverTypeId: SUITE.id, mode: "run" }), { attributes: {} });

  // A complete run.
  const { status, details } = await ask.startServerAsync(launch("deaths"));
  assert.deepEqual([status.severity, status.ok, details], [OK, true, null]);
  await record.until(({ event, state }) => event === "state" && state === STOPPED, "the end of the run");
  const ended = checkRun(record.heard, "deaths");
  assert.deepEqual([ended.severity, ended.message], [OK, "deaths: 7 tests: 7 passed"]);
  assert.equal(outputOf(record, 2).match(/^passed .* deaths::/gm).length, 7);
  assert.match(outputOf(record, 3), /^7 tests: 7 passed \(\d+\.\d{3} s\)\n$/);
  assert.ok(record.heard.some(({ event }) => event === "changed"), "there is progress");
  assert.deepEqual(await ask.getJobs(), []);

  // A run cancelled through its job.
  record.heard = [];
  const started = await sync.startServerSync(launch("meet", { filter: "test(Case)" }));
  assert.equal(started.state, STARTED);
  const guest = await soon(meeting.next(), "the first test");
  assert.equal((await ask.getServerState(handle("meet"))).state, STARTED);
  const [{ percent, handle: job }] = await ask.getJobs();
  assert.deepEqual([percent, job.id], [0, record.heard.find(({ event }) => event === "added").id]);
  assert.equal((await ask.cancelJob({ name: "x", id: "no such job" })).severity, ERROR);
  assert.equal((await ask.cancelJob(job)).severity, OK);
  await record.until(({ event, state }) => event === "state" && state === STOPPED, "the end of the run");
  await soon(guest.gone(), "the end of the test");
  assert.equal(checkRun(record.heard, "meet").severity, CANCEL);
  assert.deepEqual(record.states("meet"), [STARTING, STARTED, STOPPING, STOPPED]);

  // A run stopped as a server.
  record.heard = [];
  await sync.startServerSync(launch("meet", { filter: "test(Case)", jobs: 1 }));
  await soon(meeting.next(), "the first test");
  const stopped = await sync.stopServerSync({ id: "meet", force: true });
  assert.equal(stopped.state, STOPPED);
  assert.equal(checkRun(record.heard, "meet").severity, CANCEL);

  // The client reconnects and shuts the server down.
  client.disconnect();
  ({ client, record, ask } = await editor(server.port));
  assert.deepEqual(await ask.getServerHandles(), [handle("deaths"), handle("meet")]);
  ask.disconnectClient();
  await soon(new Promise((resolve) => client.onConnectionClosed(resolve)), "the end of the connection");
  ({ client, ask } = await editor(server.port));
  // The server ignores a client that disconnects before it is accepted, because the client's user is then unknown.
  assert.deepEqual(await ask.getJobs(), []);
  client.shutdownServer();
  assert.equal(await soon(server.left, "the end of the server"), 0);
  meeting.close();
}

export async function failures_are_shown_and_counted() {
  const server = await served(["kinds"]);
  const { client, record, ask } = await editor(server.port);
  await ask.startServerAsync(launch("kinds", { filter: "not test(=Hang.Forever)" }));
  await record.until(({ event, state }) => event === "state" && state === STOPPED, "the end of the run");
  const status = checkRun(record.heard, "kinds");
  assert.deepEqual([status.severity, status.ok, status.plugin], [ERROR, false, "heeler"]);
  assert.match(status.message, /\d+ tests: .*failed/);
  assert.match(outputOf(record, 2), /^failed .* kinds::/m);
  assert.match(outputOf(record, 1), /^at .*kinds\.cc:\d+$/m);
  assert.match(outputOf(record, 3), /^run again: /m);
  // A failed run is never shown as synchronized, not even in later queries.
  assert.equal((await ask.getServerState(handle("kinds"))).publishState, 2);
  // Rerun only the failed tests, and none of another suite.
  const failed = outputOf(record, 2).match(/^(failed|crashed|timed out|exited early) .*$/gm).length;
  record.heard = [];
  assert.equal((await ask.startServerAsync(launch("kinds", { rerun: "failed" }))).status.severity, OK);
  await record.until(({ event, state }) => event === "state" && state === STOPPED, "the end of the rerun");
  assert.match(checkRun(record.heard, "kinds").message, new RegExp(`^kinds: ${failed} tests?: `));
  client.shutdownServer();
  assert.equal(await soon(server.left, "the end of the server"), 0);
}

export async function refused_starts_say_why_and_send_a_state() {
  const meeting = await meetingPoint();
  const server = await served(["meet"]);
  const { client, record, ask } = await editor(server.port);
  const refused = async (params, state, text) => {
    record.heard = [];
    const { status, details } = await ask.startServerAsync(params);
    assert.deepEqual([status.severity, status.ok, details], [ERROR, false, null]);
    assert.match(status.message, text);
    const { server } = await record.until(({ event, state: found }) => event === "state" && found === state, "a state");
    assert.equal(server.id, params.params.id);
    assert.equal(record.heard.length, 1, "nothing else is sent");
  };
  await refused(launch("none"), STOPPED, /^unknown suite "none"$/);
  await refused(launch("meet", { filter: "test(~a) &" }), STOPPED, /^invalid filter: column 11: /);
  await refused(launch("meet", { jobs: 0 }), STOPPED, /^jobs must be an integer of at least 1, got 0$/);
  await refused(launch("meet", { unknown: "x" }), STOPPED, /^unknown attribute "unknown"/);
  await refused({ ...launch("meet"), mode: "debug" }, STOPPED, /^unknown mode "debug"; expected "run"$/);
  record.heard = [];
  await ask.startServerAsync(launch("meet"));
  const guest = await soon(meeting.next(), "the first test");
  await record.until(({ event, state }) => event === "state" && state === STARTED, "the start");
  const before = record.heard;
  await refused(launch("meet"), STARTED, /^meet is already running$/);
  record.heard = [...before];
  assert.equal((await ask.stopServerAsync({ id: "none", force: false })).severity, ERROR);
  assert.equal((await ask.stopServerAsync({ id: "meet", force: false })).severity, OK);
  await record.until(({ event, state }) => event === "state" && state === STOPPED, "the end of the run");
  await soon(guest.gone(), "the end of the test");
  assert.equal(checkRun(record.heard, "meet").severity, CANCEL);
  // A start that selects no tests still passes through all states.
  for (const [attributes, text] of [[{ filter: "none()" }, /^meet: no test ran: no test matches the filter/],
    [{ filter: "test(Deaf)", rerun: "failed" }, /^meet: no test ran: run .* left none of the selected tests to rerun/]]) {
    record.heard = [];
    assert.equal((await ask.startServerAsync(launch("meet", attributes))).status.severity, OK);
    await record.until(({ event, state }) => event === "state" && state === STOPPED, "the end of the run");
    const status = checkRun(record.heard, "meet");
    assert.equal(status.severity, ERROR);
    assert.match(status.message, text);
  }
  // Stopping an idle suite is not an error. Its state is sent again for clients that wait for it.
  record.heard = [];
  assert.equal((await ask.stopServerAsync({ id: "meet", force: false })).severity, OK);
  await record.until(({ event, state }) => event === "state" && state === STOPPED, "the state");
  client.shutdownServer();
  assert.equal(await soon(server.left, "the end of the server"), 0);
  meeting.close();
}

export async function every_request_of_the_editor_is_answered_without_error() {
  const server = await served(["deaths"]);
  const { client, ask } = await editor(server.port);
  const unit = handle("deaths");
  const statusOf = (result) => result.status ?? result.validation?.status ?? result;
  const refused = {
    addDeployable: { server: unit, deployableReference: { label: "x", path: "/x" } },
    addDiscoveryPath: { filepath: "/x" },
    createServer: { serverType: SUITE.id, id: "x", attributes: {} },
    createServerWorkflow: { requestId: 3, serverTypeId: SUITE.id, data: {} },
    deleteServer: unit,
    downloadRuntime: { requestId: 4, downloadRuntimeId: "x", data: {} },
    executeServerAction: { requestId: 5, actionId: "x", serverId: "deaths", data: {} },
    getServerAsJson: unit,
    listDeploymentOptions: unit,
    publish: { server: unit, kind: 1 },
    publishAsync: { server: unit, kind: 1 },
    removeDeployable: { server: unit, deployableReference: { label: "x", path: "/x" } },
    removeDiscoveryPath: { filepath: "/x" },
    serverStartedByClient: launch("deaths"),
    serverStartingByClient: { initiatePolling: false, request: launch("deaths") },
    updateServer: { handle: unit, serverJson: "{}" },
  };
  for (const [name, params] of Object.entries(refused)) {
    const status = statusOf(await ask[name](params));
    assert.deepEqual([status.severity, status.message], [ERROR, "not supported by Heeler"], name);
  }
  const empty = {
    listDownloadableRuntimes: [undefined, { runtimes: [] }],
    getDeployables: [unit, (result) => assert.deepEqual([result.states, result.status.severity], [[], OK])],
    listServerActions: [unit, (result) => assert.deepEqual([result.workflows, result.status.severity], [[], OK])],
    getDiscoveryPaths: [undefined, []],
    findServerBeans: [{ filepath: "/x" }, []],
    getRequiredAttributes: [SUITE, { attributes: {} }],
    getOptionalAttributes: [SUITE, { attributes: {} }],
    getLaunchCommand: [launch("deaths"), null],
  };
  for (const [name, [params, expected]] of Object.entries(empty)) {
    const result = await (params === undefined ? ask[name]() : ask[name](params));
    if (typeof expected === "function") expected(result);
    else assert.deepEqual(result, expected, name);
  }
  // This scenario calls each method of the library, except those that other scenarios call.
  const elsewhere = ["constructor", "registerClientCapabilities", "shutdown", "disconnectClient", "getServerHandles",
    "getServerTypes", "getLaunchModes", "getRequiredLaunchAttributes", "getOptionalLaunchAttributes", "getServerState",
    "startServerAsync", "stopServerAsync", "getJobs", "cancelJob"];
  const all = Object.getOwnPropertyNames(Object.getPrototypeOf(ask)).filter((name) => !elsewhere.includes(name));
  assert.deepEqual(all.sort(), [...Object.keys(refused), ...Object.keys(empty)].sort());
  client.shutdownServer();
  assert.equal(await soon(server.left, "the end of the server"), 0);
}

/** Another scenario starts this process and kills it while a test runs. */
export async function client_that_is_killed() {
  const { ask } = await editor(Number(process.env.RSP_PORT));
  await ask.startServerAsync(launch("meet", { filter: "test(Family)" }));
  await new Promise(() => {});
}

export async function client_killed_in_mid_run_leaves_nothing() {
  const meeting = await meetingPoint();
  const server = await served(["meet"]);
  const main = new URL("rsp_main.mjs", import.meta.url).pathname;
  const env = { ...process.env, RSP_PORT: String(server.port) };
  const victim = spawn(process.execPath, [main, "client_that_is_killed"], { env, stdio: "ignore" });
  const guest = await soon(meeting.next(), "the test");
  const killed = performance.now();
  victim.kill("SIGKILL");
  await soon(guest.gone(), "the end of the test's processes");
  const children = () => readFileSync(`/proc/${server.child.pid}/task/${server.child.pid}/children`, "utf8").trim();
  while (children() !== "") {
    assert.ok(performance.now() - killed < 5000, `processes are left behind: ${children()}`);
    await setTimeout(5);
  }
  console.log(`nothing is left after ${(performance.now() - killed).toFixed(0)} ms`);
  // The next client is served, and the suite can be started again.
  const { client, record, ask } = await editor(server.port);
  assert.equal((await ask.getServerState(handle("meet"))).state, STOPPED);
  await ask.startServerAsync(launch("meet", { filter: "test(Case)", jobs: 1 }));
  (await soon(meeting.next(), "the first test")).letGo();
  await record.until(({ event, percent }) => event === "changed" && percent > 0, "progress");
  client.shutdownServer();
  assert.equal(await soon(server.left, "the end of the server"), 0);
  meeting.close();
}

export async function requests_and_notifications_of_the_base_protocol() {
  const server = await served(["deaths"]);
  const { connection, faults, closed } = await peer(server.port);
  const refused = async (...call) => {
    const error = await soon(connection.sendRequest(...call).then(() => assert.fail(String(call)), (error) => error), call[0]);
    return error.code;
  };
  // Parameters: absent, null, by position and by name.
  const { byName, byPosition } = rpc.ParameterStructures;
  for (const params of [[], [null], [byPosition, 1, "x"], [byName, { x: 1 }], [{}]]) {
    assert.deepEqual(await connection.sendRequest("server/getServerTypes", ...params), [SUITE], JSON.stringify(params));
  }
  assert.equal(await refused("server/none"), -32601);
  assert.equal(await refused("server/none", { x: 1 }), -32601);
  assert.equal(await refused("$/none", { x: 1 }), -32601);
  assert.equal(await refused("client/promptString", {}), -32601);
  assert.equal(await refused("server/getServerState", {}), -32602);
  assert.equal(await refused("server/startServerAsync"), -32602);
  assert.equal(await refused("server/startServerAsync", { mode: "run", params: { id: 7 } }), -32602);
  // Notifications are never answered, known or not.
  for (const method of ["server/none", "$/none", "initialized", "server/getJobs"]) await connection.sendNotification(method, { x: 1 });
  await connection.sendNotification("$/cancelRequest", { id: 4711 });
  await connection.sendNotification("$/cancelRequest", { id: "text" });
  // A cancelled request is still answered.
  const token = new rpc.CancellationTokenSource();
  const pending = connection.sendRequest("server/getServerHandles", {}, token.token);
  token.cancel();
  assert.deepEqual(await soon(pending, "the answer to a cancelled request"), [handle("deaths")]);
  // A null result is a result.
  assert.equal(await connection.sendRequest("server/getLaunchCommand", {}), null);
  // Any number of requests is answered in order.
  const answered = [];
  const all = Array.from({ length: 200 }, (_, n) =>
    connection.sendRequest(n % 2 ? "server/getJobs" : "server/getServerTypes", {}).then(() => answered.push(n)));
  await soon(Promise.all(all), "all answers");
  assert.deepEqual(answered, Array.from({ length: 200 }, (_, n) => n));
  assert.deepEqual(faults, []);
  // If the client disconnects with a request, the request is answered.
  assert.equal(await soon(connection.sendRequest("server/disconnectClient"), "an answer"), null);
  await soon(closed, "the end of the connection");
  const last = await peer(server.port);
  await last.connection.sendNotification("server/shutdown");
  assert.equal(await soon(server.left, "the end of the server"), 0);
}

const TYPES = '{"jsonrpc":"2.0","id":1,"method":"server/getServerTypes","params":null}';

/** Replaces the editor: takes and starts the provider like the extension of the servers view. */
function editorWith(command) {
  const shown = { states: [], stderr: "" };
  const load = Module._load;
  const view = { registerRSPProvider: async (provider) => { shown.provider = provider; } };
  const vscode = {
    workspace: { getConfiguration: () => ({ get: () => command }), workspaceFolders: [{ uri: { fsPath: cwd() } }] },
    extensions: { getExtension: (id) => (id === "redhat.vscode-rsp-ui" ? { activate: async () => view } : undefined) },
    Uri: { joinPath: ({ fsPath }, name) => ({ fsPath: `${fsPath}/${name}` }) },
  };
  Module._load = (name, ...rest) => (name === "vscode" ? vscode : load(name, ...rest));
  const require = createRequire(import.meta.url);
  const file = require.resolve("../../editors/vscode-rsp/extension.js");
  delete require.cache[file];
  const extension = require(file);
  Module._load = load;
  return { activate: () => extension.activate({ extensionUri: { fsPath: dirname(file) } }), shown };
}

export async function extension_of_the_servers_view_starts_suites() {
  const { activate, shown } = editorWith([process.env.HEELER, "serve", "rsp", "kinds"]);
  const provider = await activate();
  assert.deepEqual(shown.provider, { state: STOPPED, type: { id: "heeler.heeler-rsp", visibilename: "Heeler" } });
  provider.onRSPServerStateChanged((state) => shown.states.push(state));
  const info = await soon(provider.startRSP(() => {}, (text) => { shown.stderr += text; }), "the server");
  assert.deepEqual([info.host, info.spawned, shown.states], ["127.0.0.1", true, [STARTING, STARTED]]);
  assert.match(shown.stderr, /^heeler: listening on /m);
  // VS Code does not show the view's nodes without an image.
  assert.ok(existsSync(provider.getImage("heeler.suite").fsPath));
  const { record, ask } = await editor(info.port);
  assert.equal((await ask.getServerState(handle("kinds"))).publishState, 6);
  await ask.startServerAsync(launch("kinds", { filter: "test(Math.Add)" }));
  await record.until(({ event, state }) => event === "state" && state === STOPPED, "the end of the run");
  assert.equal((await ask.getServerState(handle("kinds"))).publishState, 1);
  await provider.stopRSP();
  const end = async () => { while (shown.states.at(-1) !== STOPPED) await setTimeout(10); };
  await soon(end(), "the end of the server");
  // At the second start, the view's output channels are already disposed.
  const disposed = () => { throw new Error("Channel has been closed"); };
  assert.ok((await soon(provider.startRSP(disposed, disposed), "the second server")).port);
  // The exit of the second server does not stop the third in the view.
  await provider.stopRSP();
  assert.ok((await soon(provider.startRSP(disposed, disposed), "the third server")).port);
  await provider.stopRSP();
  await soon(end(), "the end of the third server");
  assert.equal(shown.states.filter((state) => state === STOPPED).length, 2, String(shown.states));
  // The user sees why Heeler did not start or why it ended.
  for (const [command, reason] of [
    [["./no-such-heeler"], /ENOENT.*heeler\.command/],
    [[process.env.HEELER, "serve", "rsp", "--no-such-option"], /--no-such-option.*exited with code/],
  ]) {
    const broken = await editorWith(command).activate();
    await assert.rejects(broken.startRSP(disposed, disposed), reason);
  }
}

export async function headers_are_read_in_every_valid_form() {
  const server = await served(["deaths"]);
  const bytes = Buffer.byteLength(TYPES);
  for (const head of [
    `Content-Length: ${bytes}\r\n\r\n`,
    `content-length:${bytes}\r\nContent-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n`,
    `Content-Type: application/vscode-jsonrpc; charset=utf8\r\nCONTENT-LENGTH: ${bytes}\r\n\r\n`,
    `X-Other: 1\nContent-Length: ${bytes}\n\n`,
  ]) {
    const client = await raw(server.port);
    client.write(head + TYPES);
    assert.deepEqual((await client.next(head)).result, [SUITE], head);
    // Header and body in separate reads, and one byte at a time.
    client.write(head);
    await setTimeout(1);
    client.write(TYPES);
    assert.deepEqual((await client.next(head)).result, [SUITE], head);
    for (const byte of Buffer.from(head + TYPES)) client.write(Buffer.from([byte]));
    assert.deepEqual((await client.next(head)).result, [SUITE], head);
    client.socket.destroy();
  }
  server.child.kill("SIGTERM");
  await soon(server.left, "the end of the server");
}

export async function damaged_stream_is_closed_and_the_next_client_served() {
  const server = await served(["deaths"]);
  const bytes = Buffer.byteLength(TYPES);
  for (const bad of [
    `Content-Length: ${bytes}\r\nContent-Length: ${bytes + 1}\r\n\r\n${TYPES}`,
    `Content-Length: ${bytes}\r\nContent-Length: ${bytes}\r\n\r\n${TYPES}`,
    // Headers that never end: the next client is still served.
    `Content-Length: ${bytes}\r\n`,
    `Content-Length: +${bytes}\r\n\r\n${TYPES}`,
    `Content-Length: -1\r\n\r\n${TYPES}`,
    `Content-Type: a/b\r\n\r\n${TYPES}`,
    `Content-Length: 9223372036854775808\r\n\r\n`,
    `Content-Length: 999999999999\r\n\r\n`,
    `Content-Length: ${bytes}\r\nContent-Type: application/vscode-jsonrpc; charset=utf-16\r\n\r\n${TYPES}`,
    `no colon\r\n\r\n${TYPES}`,
    `X-Long: ${"x".repeat(9000)}\r\n`,
    "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    Buffer.from([0xff, 0xfe, 0, 1, 13, 10, 13, 10]),
  ]) {
    const client = await raw(server.port);
    client.write(bad);
    await soon(client.closed, `the end of the connection after ${JSON.stringify(String(bad)).slice(0, 80)}`);
  }
  const client = await raw(server.port);
  client.send(TYPES);
  assert.deepEqual((await client.next()).result, [SUITE]);
  server.child.kill("SIGTERM");
  await soon(server.left, "the end of the server");
}

export async function invalid_bodies_are_answered_and_the_connection_kept() {
  const server = await served(["deaths"]);
  const client = await raw(server.port);
  const answer = async (body) => {
    client.send(body);
    const { jsonrpc, id, error, ...rest } = await client.next(String(body));
    assert.deepEqual([jsonrpc, rest], ["2.0", {}], String(body));
    return [id, error.code];
  };
  assert.deepEqual(await answer("{"), [null, -32700]);
  assert.deepEqual(await answer(Buffer.from([0x7b, 0xff, 0x7d])), [null, -32700]);
  assert.deepEqual(await answer(`[${TYPES}]`), [null, -32600]);
  assert.deepEqual(await answer("[]"), [null, -32600]);
  assert.deepEqual(await answer("7"), [null, -32600]);
  assert.deepEqual(await answer("{}"), [null, -32600]);
  assert.deepEqual(await answer('{"jsonrpc":"2.0","id":null,"method":"server/getJobs"}'), [null, -32600]);
  assert.deepEqual(await answer('{"jsonrpc":"2.0","id":[],"method":"server/getJobs"}'), [null, -32600]);
  assert.deepEqual(await answer('{"jsonrpc":"2.0","id":1,"method":"server/getJobs","params":7}'), [1, -32600]);
  assert.deepEqual(await answer('{"jsonrpc":"2.0","id":"x","method":"server/getJobs","params":"y"}'), ["x", -32600]);
  assert.deepEqual(await answer('{"jsonrpc":"1.0","id":1,"method":"server/getJobs"}'), [1, -32600]);
  // Without a version, and with unknown members.
  client.send('{"id":2,"method":"server/getJobs","other":[1]}');
  assert.deepEqual((await client.next()).result, []);
  // Notifications, and responses to requests that were never sent, are not answered.
  for (const body of ['{"jsonrpc":"2.0","id":5,"result":null}', '{"jsonrpc":"2.0","id":"s","error":{"code":1,"message":"x"}}',
    '{"jsonrpc":"2.0","method":"server/none","params":7}', '{"jsonrpc":"2.0","id":6}']) client.send(body);
  // Ids are echoed exactly as written.
  for (const id of ["0", "-7", "18446744073709551616", "1.5", "1e3", '"text"', '"ünïx \\u0001"', '""']) {
    client.send(`{"jsonrpc":"2.0","id":${id},"method":"server/getJobs"}`);
    const { result } = await client.next(id);
    assert.deepEqual(result, []);
    assert.ok(client.lastText().includes(`"id":${id},`), `${id}: ${client.lastText()}`);
  }
  client.socket.destroy();
  server.child.kill("SIGTERM");
  await soon(server.left, "the end of the server");
}

export async function lengths_count_bytes_and_not_characters() {
  const server = await served(["ünïx"]);
  const { client, record, ask } = await editor(server.port);
  assert.deepEqual(await ask.getServerHandles(), [handle("ünïx")]);
  await ask.startServerAsync(launch("ünïx", { filter: "test(~One) | test(ünïx€😀)" }));
  await record.until(({ event, state }) => event === "state" && state === STOPPED, "the end of the run");
  assert.equal(checkRun(record.heard, "ünïx").severity, OK);
  assert.match(outputOf(record, 2), /ünïx::First\.One$/m);
  client.disconnect();
  const other = await raw(server.port);
  other.send('{"jsonrpc":"2.0","id":"ünïx€😀","method":"server/getServerState","params":{"id":"ünïx"}}');
  const { id, result } = await other.next();
  assert.deepEqual([id, result.server.id, result.state], ["ünïx€😀", "ünïx", STOPPED]);
  other.send('{"jsonrpc":"2.0","method":"server/shutdown"}');
  assert.equal(await soon(server.left, "the end of the server"), 0);
}

export async function second_client_is_closed_while_one_is_served() {
  const server = await served(["deaths"]);
  const first = await raw(server.port);
  first.send(TYPES);
  assert.deepEqual((await first.next()).result, [SUITE]);
  for (let round = 0; round < 3; round += 1) {
    const second = await raw(server.port);
    second.send(TYPES);
    await soon(second.closed, "the end of the second connection");
  }
  first.send(TYPES);
  assert.deepEqual((await first.next()).result, [SUITE], "the first client is still served");
  // Another client, or the same one, can connect as soon as a client is gone.
  let current = first;
  for (let round = 0; round < 10; round += 1) {
    if (round % 2) current.socket.destroy();
    else current.send('{"jsonrpc":"2.0","method":"server/disconnectClient"}');
    const next = await raw(server.port);
    next.send(TYPES);
    assert.deepEqual((await next.next(`the answer of round ${round}`)).result, [SUITE]);
    current = next;
  }
  server.child.kill("SIGTERM");
  await soon(server.left, "the end of the server");
}
