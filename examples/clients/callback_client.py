"""Runs all tests; each worker of Heeler dials this client: python3 callback_client.py build/unit_tests"""
import json, os, socket, subprocess, sys, threading, uuid

run_id, tests, files = str(uuid.uuid4()), {}, set()
lock, completed = threading.Lock(), threading.Event()


def send(stream, **message):
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    stream.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    stream.flush()


def handle(method, params):
    if method == "testing/testUpdates/tests" and params["runId"] == run_id:
        if params["changes"] is None:
            completed.set()  # Nothing more of this run comes, on any connection.
        for change in params["changes"] or []:
            if change["node"]["node-type"] == "action":
                tests[change["node"]["uid"]] = change["node"]
    elif method == "testing/testUpdates/attachments":
        files.update(file["uri"] for file in params["attachments"] or [])
    elif method == "client/log":
        print(params["level"], params["message"], file=sys.stderr)


def read(stream, until=None):
    """Handles messages in their order, and answers everything that has an id, until this one is answered."""
    while header := stream.readline():
        if header.lower().startswith(b"content-length:"):
            length = int(header.split(b":")[1])
        elif not header.strip():
            message = json.loads(stream.read(length))
            if "method" not in message:
                if message["id"] == until:
                    return message
                continue
            with lock:
                handle(message["method"], message.get("params"))
            if "id" in message:
                send(stream, id=message["id"], result=None)


def accept(listener):
    while True:
        threading.Thread(target=read, args=[listener.accept()[0].makefile("rwb")], daemon=True).start()


main, callback = socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0))
threading.Thread(target=accept, args=[callback], daemon=True).start()
words = [os.environ.get("HEELER", "heeler"), *sys.argv[1:], "--server", "--client-port", str(main.getsockname()[1])]
heeler = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
server = main.accept()[0].makefile("rwb")
testing = {"debuggerProvider": False, "attachmentsSupport": True, "callbackProvider": {"port": callback.getsockname()[1]}}
client = {"name": "callback example", "version": "1.0.0"}
initialize = {"processId": os.getpid(), "clientInfo": client, "capabilities": {"testing": testing}}
for number, (method, params) in enumerate([("initialize", initialize), ("testing/runTests", {"runId": run_id})]):
    send(server, id=number, method=method, params=params)
    assert "result" in (read(server, until=number) or {}), f"{method} has failed"
completed.wait()
for uid, node in tests.items():
    print(f"{node['execution-state']:10} {uid}")
print(f"{len(files)} files")
send(server, method="exit", params={})
sys.exit(heeler.wait())
