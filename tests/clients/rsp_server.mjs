// Common base of the Runtime Server Protocol scenarios: the real server, started like users start it, and records of
// all messages to its clients. The clients are unmodified libraries.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { connect } from "node:net";
import { createInterface } from "node:readline";
import rspClient from "rsp-client";
import rpc from "vscode-jsonrpc/node";

export const SUITE = { id: "heeler.suite", visibleName: "Test suite",
  description: "A test program; starting it runs its tests" };
export const [UNKNOWN, STARTING, STARTED, STOPPING, STOPPED] = [0, 1, 2, 3, 4];

/** Timeout of a wait in milliseconds. */
const PATIENCE = 60_000;

// rsp-client turns a failed request into an unhandled rejection.
process.on("unhandledRejection", (error) => {
  console.error("unhandled rejection:", error);
  process.exit(1);
});

export function handle(id) {
  return { id, type: SUITE };
}

/** Fails unless a promise settles in time. */
export async function soon(promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`waited in vain for ${what}`)), PATIENCE);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Starts `heeler serve rsp …` and waits until it listens. */
export async function served(programs, options = []) {
  const words = ["serve", "rsp", ...options, ...programs];
  const child = spawn(process.env.HEELER, words, { stdio: ["ignore", "ignore", "pipe"] });
  const left = once(child, "exit").then(([code, signal]) => signal ?? code);
  const lines = createInterface({ input: child.stderr });
  const errors = [];
  const port = await soon(new Promise((resolve, reject) => {
    lines.on("line", (line) => {
      errors.push(line);
      const [, port] = line.match(/^heeler: listening on 127\.0\.0\.1:(\d+)$/) ?? [];
      if (port !== undefined) resolve(Number(port));
    });
    left.then((code) => reject(new Error(`heeler left with ${code}: ${errors.join("\n")}`)));
  }), "the port");
  return { child, port, left, errors };
}

/** Events received by a client, in order: {event, ...}. */
export class Record {
  heard = [];
  #waiting = [];

  add(entry) {
    this.heard.push({ at: performance.now(), ...entry });
    this.#waiting = this.#waiting.filter((has) => !has());
  }

  /** Waits for a matching entry; returns it. */
  async until(fits, what = String(fits)) {
    const found = this.heard.find(fits);
    if (found !== undefined) return found;
    return soon(new Promise((resolve) => {
      this.#waiting.push(() => {
        const entry = this.heard.find(fits);
        if (entry !== undefined) resolve(entry);
        return entry !== undefined;
      });
    }), what);
  }

  states(id) {
    return this.heard.filter(({ event, server }) => event === "state" && server.id === id).map(({ state }) => state);
  }
}

const NOTIFICATIONS = {
  serverStateChanged: ({ server, state, ...rest }) => {
    const { publishState, ...others } = rest;
    assert.deepEqual(others, { runMode: "run", deployableStates: [] });
    // While a suite runs, its result is unknown.
    assert.ok(state === 4 ? [1, 2, 6].includes(publishState) : publishState === 6, `${state} ${publishState}`);
    return { event: "state", server, state, publishState };
  },
  serverProcessCreated: ({ server, processId }) => ({ event: "created", server, processId }),
  serverProcessTerminated: ({ server, processId }) => ({ event: "terminated", server, processId }),
  serverProcessOutputAppended: (output) => ({ event: "output", ...output }),
  jobAdded: ({ name, id }) => ({ event: "added", name, id }),
  jobChanged: ({ percent, handle }) => ({ event: "changed", percent, id: handle.id }),
  jobRemoved: ({ status, handle }) => ({ event: "removed", status, id: handle.id }),
};

/** Connects the client that editors use. */
export async function editor(port) {
  const client = new rspClient.RSPClient("127.0.0.1", port);
  await client.connect();
  const record = new Record();
  for (const [name, read] of Object.entries(NOTIFICATIONS)) {
    const subscribe = `on${name[0].toUpperCase()}${name.slice(1)}`;
    client.getIncomingHandler()[subscribe]((params) => record.add(read(params)));
  }
  return { client, record, ask: client.getOutgoingHandler(), sync: client.getOutgoingSyncHandler() };
}

/** Connects a client on vscode-jsonrpc alone. */
export async function peer(port) {
  const socket = connect(port, "127.0.0.1");
  await soon(once(socket, "connect"), "the connection");
  const connection = rpc.createMessageConnection(new rpc.SocketMessageReader(socket), new rpc.SocketMessageWriter(socket));
  const record = new Record();
  const faults = [];
  for (const [name, read] of Object.entries(NOTIFICATIONS)) {
    connection.onNotification(`client/${name}`, (params) => record.add(read(params)));
  }
  connection.onUnhandledNotification(({ method }) => faults.push(`unknown notification ${method}`));
  connection.onError(([error]) => faults.push(String(error)));
  const closed = new Promise((resolve) => connection.onClose(resolve));
  connection.listen();
  return { socket, connection, record, faults, closed };
}

/** A connection on which a test writes raw bytes. */
export async function raw(port) {
  const socket = connect(port, "127.0.0.1");
  await soon(once(socket, "connect"), "the connection");
  const messages = [];
  let last = "";
  let buffer = Buffer.alloc(0);
  const changed = () => socket.emit("taken");
  socket.on("data", (chunk) => {
    buffer = Buffer.concat([buffer, chunk]);
    for (;;) {
      const head = buffer.indexOf("\r\n\r\n");
      if (head < 0) return;
      const [, length] = buffer.subarray(0, head).toString("ascii").match(/^Content-Length: (\d+)$/);
      const end = head + 4 + Number(length);
      if (buffer.length < end) return;
      messages.push(buffer.subarray(head + 4, end).toString("utf8"));
      buffer = buffer.subarray(end);
      changed();
    }
  });
  socket.on("error", () => {});
  const closed = new Promise((resolve) => socket.on("close", resolve));
  return {
    socket,
    closed,
    write: (text) => socket.write(text),
    send: (body) => {
      socket.write(`Content-Length: ${Buffer.byteLength(body)}\r\n\r\n`);
      socket.write(body);
    },
    /** Returns the next received message. */
    async next(what = "a message") {
      while (messages.length === 0) {
        const ended = closed.then(() => assert.fail(`closed before ${what}`));
        await soon(Promise.race([once(socket, "taken"), ended]), what);
      }
      last = messages.shift();
      return JSON.parse(last);
    },
    /** Returns the text of the last returned message. */
    lastText: () => last,
  };
}
