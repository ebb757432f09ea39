"""Runs all tests; each worker of Heeler dials this client: python3 callback_client.py build/unit_tests"""
import http.client, json, os, socket, socketserver, subprocess, sys, threading, uuid
tests, files, run = {}, set(), {"runId": str(uuid.uuid4())}

def send(stream, **message):
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    stream.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    stream.flush()

def handle(method, /, changes=(), attachments=(), **params):
    if method == "client/log":
        print(params["level"], params["message"], file=sys.stderr)
    files.update(file["uri"] for file in attachments or ())
    tests.update((one["node"]["uid"], one["node"]) for one in changes or () if one["node"]["node-type"] == "action")

def read(stream, until=None):  # Messages are handled in their order, until this request is answered.
    while length := http.client.parse_headers(stream)["Content-Length"]:
        message = json.loads(stream.read(int(length)))
        if "method" not in message and message["id"] == until:
            return message["result"]
        handle(message.get("method"), **message.get("params") or {})
        if {"method", "id"} <= message.keys():
            send(stream, id=message["id"], result=None)  # Everything before it has been handled.

main = socket.create_server(("127.0.0.1", 0))
socketserver.TCPServer.request_queue_size = 128  # All workers may dial at once.
# Every connection is handled in the same way, and left open until Heeler closes it.
callback = socketserver.ThreadingTCPServer(("127.0.0.1", 0), lambda peer, *_: read(peer.makefile("rwb")))
threading.Thread(target=callback.serve_forever, daemon=True).start()
words = [os.environ.get("HEELER", "heeler"), *sys.argv[1:], "--server", "--client-port", str(main.getsockname()[1])]
heeler = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
server = main.accept()[0].makefile("rwb")
testing = {"debuggerProvider": False, "attachmentsSupport": True, "callbackProvider": {"port": callback.server_address[1]}}
initialize = {"processId": os.getpid(), "clientInfo": {"name": "example", "version": "1"}, "capabilities": {"testing": testing}}
for number, (method, params) in enumerate([("initialize", initialize), ("testing/runTests", run)]):
    send(server, id=number, method=method, params=params)
    read(server, until=number)  # The answer to a run follows everything of the run, on all connections.
print(*(f"{node['execution-state']:10} {uid}" for uid, node in tests.items()), f"{len(files)} files", sep="\n")
send(server, method="exit", params={})
sys.exit(heeler.wait())
