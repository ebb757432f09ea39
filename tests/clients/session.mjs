// Common base of the scenarios: the real server, started like editors start it, and an ordered record of all its
// messages. The JSON-RPC on this side is unmodified vscode-jsonrpc.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import rpc from "vscode-jsonrpc/node";

export const UPDATES = "testing/testUpdates/tests";
export const ATTACHMENTS = "testing/testUpdates/attachments";
export const LOG = "client/log";
export const TELEMETRY = "telemetry/update";

const TERMINAL = ["passed", "skipped", "failed", "timed-out", "error", "cancelled"];

/** Accepts any members of a message, like most clients. */
export function loosely(_method, params) {
  return params;
}

/** Starts `heeler PROGRAM… --server --client-port N` and waits until it dials. */
export async function dialled(programs, { options = [], bind = loosely } = {}) {
  const listener = await listening();
  const port = String(listener.address().port);
  const session = new Session([...programs, "--server", "--client-port", port, ...options], "ignore", bind);
  const [socket] = await session.orLeft(once(listener, "connection"));
  listener.close();
  session.main = session.connect(socket, socket, "main");
  return session;
}

/** Starts `heeler serve --stdio PROGRAM…`. */
export function overStreams(programs, { bind = loosely } = {}) {
  const session = new Session(["serve", "--stdio", ...programs], "pipe", bind);
  session.main = session.connect(session.child.stdout, session.child.stdin, "main");
  return session;
}

/** Keeps the only thread busy, like a handler that updates a tree of tests. */
export function work(milliseconds) {
  const until = performance.now() + milliseconds;
  while (performance.now() < until);
}

async function listening() {
  const listener = createServer().listen(0, "127.0.0.1");
  await once(listener, "listening");
  return listener;
}

class Session {
  /** Messages of all connections in the order of handling: {on, method, params}. */
  record = [];
  /** Protocol errors. The list must be empty unless a scenario expects errors. */
  faults = [];
  /** Answers to the server's requests, by method. */
  answers = new Map();
  /** Milliseconds that the update handler works on each change. */
  workPerChange = 0;
  /** Milliseconds for which the handler of the first update blocks the thread. */
  workOnce = 0;
  /** Connections opened by the server's own processes. */
  callbackSockets = [];
  #runs = 0;
  #callbacks = 0;
  #waiting = [];

  constructor(words, streams, bind) {
    this.bind = bind;
    this.child = spawn(process.env.HEELER, words, { stdio: [streams, streams, "inherit"] });
    this.left = once(this.child, "exit").then(([code, signal]) => signal ?? code);
  }

  /** Waits for a promise; fails if the server exits first. */
  async orLeft(promise) {
    // Messages sent before the exit may still be unread or in the library's queue.
    const gone = this.left
      .then((code) => Promise.resolve(this.closed).then(() => new Promise(setImmediate)).then(() => code))
      .then((code) => assert.fail(`heeler left with ${code}`));
    gone.catch(() => {});
    return Promise.race([promise, gone]);
  }

  connect(from, to, on) {
    const connection = rpc.createMessageConnection(new rpc.StreamMessageReader(from), new rpc.StreamMessageWriter(to));
    connection.onNotification((method, params) => this.#take(on, method, params));
    for (const method of ["client/attachDebugger", "client/launchDebugger", TELEMETRY]) {
      connection.onRequest(method, (params, token) => this.#answer(on, method, params, token));
    }
    connection.onError(([error]) => this.faults.push(`${on}: ${error}`));
    // The library itself responds to all other server requests with "method not found".
    connection.onUnhandledNotification(() => {});
    const closed = new Promise((resolve) => connection.onClose(resolve));
    this.closed ??= closed;
    closed.then(() => this.#note(on, "closed", {}));
    connection.listen();
    return connection;
  }

  #take(on, method, params) {
    work(this.workPerChange * (params?.changes?.length ?? 0));
    if (method === UPDATES && this.workOnce > 0) {
      work(this.workOnce);
      this.workOnce = 0;
    }
    try {
      this.#note(on, method, this.bind(method, params));
    } catch (fault) {
      this.faults.push(`${on}: ${fault.message}`);
    }
  }

  #note(on, method, params) {
    this.record.push({ on, method, params });
    this.#waiting = this.#waiting.filter((has) => !has());
  }

  #answer(on, method, params, token) {
    this.#take(on, method, params);
    const answer = this.answers.get(method);
    return answer === undefined ? new rpc.ResponseError(-32601, `no ${method} here`) : answer(params, token);
  }

  /** Waits for a matching handled message. */
  async until(fits) {
    if (this.record.some(fits)) return;
    const came = new Promise((resolve) => {
      this.#waiting.push(() => {
        const has = this.record.some(fits);
        if (has) resolve();
        return has;
      });
    });
    await this.orLeft(came);
  }

  /** Waits until a test is in a state. */
  async untilState(uid, state) {
    await this.until(({ params }) =>
      params?.changes?.some(({ node }) => node.uid === uid && node["execution-state"] === state));
  }

  /** Opens a callback port for the server's own processes; returns the capability. */
  async callbackProvider() {
    this.listener = await listening();
    this.listener.on("connection", (socket) => {
      this.#callbacks += 1;
      this.callbackSockets.push(socket);
      this.connect(socket, socket, `callback ${this.#callbacks}`);
    });
    return { port: this.listener.address().port };
  }

  get callbacks() {
    return this.#callbacks;
  }

  async initialize(testing = { debuggerProvider: false }) {
    this.hasAttachments = testing.attachmentsSupport === true;
    const clientInfo = { name: "foreign", version: "1.0.0" };
    return this.request("initialize", { processId: process.pid, clientInfo, capabilities: { testing } });
  }

  async request(method, params, token) {
    return this.orLeft(this.main.sendRequest(method, params, ...(token === undefined ? [] : [token])));
  }

  /** Requests a discovery or a run. The promise resolves with the response, even an error response. */
  begin(method, params = {}, token = undefined) {
    this.#runs += 1;
    const runId = `00000000-0000-4000-8000-${String(this.#runs).padStart(12, "0")}`;
    const ended = this.request(method, { runId, ...params }, token).then(
      (result) => ({ result }),
      (error) => ({ error }),
    );
    const answered = ended.then((outcome) => {
      this.#note("main", "answer", { runId, ...outcome });
      return outcome;
    });
    return { runId, answered };
  }

  run(uids, token = undefined) {
    const params = uids === undefined ? {} : { tests: uids.map((uid) => ({ uid })) };
    return this.begin("testing/runTests", params, token);
  }

  /** Sends `exit` and waits until the server is gone; returns its exit code or signal. */
  async exit() {
    await this.main.sendNotification("exit", {});
    const code = await this.left;
    this.listener?.close();
    return code;
  }

  /** Fails unless a run was reported in order; returns the last update of each test. */
  check({ runId }, selected) {
    const of = this.record.filter(({ params }) => params?.runId === runId);
    const place = (fits) => of.findIndex(fits);
    const last = (fits) => of.findLastIndex(fits);
    const completion = place(({ method, params }) => method === UPDATES && params.changes === null);
    const answer = place(({ method }) => method === "answer");
    assert.ok(completion >= 0, "the run is completed");
    assert.equal(last(({ method, params }) => method === UPDATES && params.changes === null), completion);
    assert.equal(answer, of.length - 1, "nothing of a run comes behind its answer");
    assert.equal(completion, answer - 1, "and the completion stands right before it");
    const end = place(({ method, params }) => method === ATTACHMENTS && params.attachments === null);
    assert.equal(end >= 0, this.hasAttachments, "attachments end where the client reads them");
    if (this.hasAttachments) {
      assert.equal(end, completion - 1, "the attachments end right before the completion");
    }
    assert.deepEqual(this.faults, []);
    this.#checkTelemetry(of[answer]);
    return this.#results(of, selected);
  }

  /** Telemetry names no run: before each answer there is as much of it as there are answers. */
  #checkTelemetry(answer) {
    const until = this.record.slice(0, this.record.indexOf(answer) + 1);
    const count = (wanted) => until.filter(({ method }) => method === wanted).length;
    assert.equal(count(TELEMETRY), count("answer"), "telemetry comes before the answer");
  }

  #results(of, selected) {
    const results = new Map();
    for (const { node } of of.flatMap(({ params }) => params.changes ?? [])) {
      const state = node["execution-state"];
      if (state === "in-progress" || state === "discovered") {
        assert.ok(!results.has(node.uid), `${node.uid} begins after its end`);
      } else if (state !== undefined) {
        assert.ok(TERMINAL.includes(state), `${node.uid} is ${state}`);
        assert.ok(!results.has(node.uid), `${node.uid} ends twice`);
        results.set(node.uid, node);
      }
    }
    assert.deepEqual([...results.keys()].sort(), [...selected].sort(), "each test has one end, and no other has one");
    return results;
  }
}
