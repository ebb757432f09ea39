// Shows the test suites of the first workspace folder in Runtime Server Protocol UI. Starts `heeler serve
// rsp` in the folder; each suite is a server in the view.
"use strict";
const { spawn } = require("node:child_process");
const { createInterface } = require("node:readline");
const vscode = require("vscode");

const [STARTING, STARTED, STOPPED] = [1, 2, 4];
let heeler, report = () => {};

/** Starts Heeler. Resolves to its address, which Heeler prints when it listens. */
const startRSP = (_stdout, stderr) => new Promise((resolve, reject) => {
  const [program, ...args] = vscode.workspace.getConfiguration("heeler").get("command");
  const { fsPath: cwd } = vscode.workspace.workspaceFolders[0].uri;
  const started = heeler = spawn(program, args, { cwd, stdio: ["ignore", "ignore", "pipe"] });
  report(STARTING);
  const lines = [];
  // The exit of an earlier process must not change the state of the current one.
  const left = (reason) => { if (started === heeler) report(STOPPED); reject(new Error(reason)); };
  started.on("error", ({ message }) => left(`${message}, see the setting heeler.command`));
  started.on("close", (code) => left([...lines, `${program} exited with code ${code}`].join(" ")));
  createInterface({ input: started.stderr }).on("line", (line) => {
    lines.push(line);
    const [, host, port] = /listening on ([\w.]+):(\d+)/.exec(line) ?? [];
    if (port) { report(STARTED); resolve({ host, port: Number(port), spawned: true }); }
    // After the first stop, the view has disposed its output channel, which then throws for each line.
    try { stderr(`${line}\n`); } catch { /* The error message contains the lines. */ }
  });
});

exports.activate = async ({ extensionUri }) => {
  const ui = await vscode.extensions.getExtension("redhat.vscode-rsp-ui").activate();
  // Not awaited, because the view starts this provider and waits for this activation to end.
  ui.registerRSPProvider({ state: STOPPED, type: { id: "heeler.heeler-rsp", visibilename: "Heeler" } });
  const onRSPServerStateChanged = (listener) => { report = listener; };
  // Without an image, the view's nodes have null icons, and VS Code hides such nodes.
  const getImage = () => vscode.Uri.joinPath(extensionUri, "icon.svg");
  return { startRSP, stopRSP: async () => { heeler?.kill(); }, getImage, onRSPServerStateChanged };
};
exports.deactivate = () => heeler?.kill();
