// Binds message parameters by name, like a client whose handlers are methods with named parameters: a message with an
// extra or missing member is dropped.
import assert from "node:assert/strict";

const isText = (value) => typeof value === "string";
const isListOrNull = (value) => value === null || Array.isArray(value);
const isObject = (value) => typeof value === "object" && value !== null;

const PARAMETERS = {
  "testing/testUpdates/tests": { runId: isText, changes: isListOrNull },
  "testing/testUpdates/attachments": { runId: isText, attachments: isListOrNull },
  "client/log": { level: isText, message: isText },
  "telemetry/update": { eventName: isText, metrics: isObject },
  "client/attachDebugger": { processId: Number.isInteger },
  "client/launchDebugger": { program: isText, args: isText, workingDirectory: isText, environmentVariables: isObject },
};

const LOG_BATCH = { runId: isText, messages: Array.isArray };
const LOG_MESSAGE = { nodeUid: isText, level: Number.isInteger, message: isText };

/** Throws where a message would be dropped. */
export function strictly(method, params) {
  return bind(method, params, PARAMETERS[method]);
}

/** The same for a client that reads log lines in batches: of a run, each about a test. */
export function strictlyInBatches(method, params) {
  if (method !== "client/log") return strictly(method, params);
  bind(method, params, LOG_BATCH);
  for (const message of params.messages) bind("a log line", message, LOG_MESSAGE);
  return params;
}

function bind(method, params, parameters) {
  assert.ok(parameters, `nobody is there for ${method}`);
  assert.ok(isObject(params) && !Array.isArray(params), `${method} has no named parameters`);
  assert.deepEqual(Object.keys(params).sort(), Object.keys(parameters).sort(), `the parameters of ${method}`);
  for (const [name, fits] of Object.entries(parameters)) {
    assert.ok(fits(params[name]), `${method}: ${name} is ${JSON.stringify(params[name])}`);
  }
  return params;
}
