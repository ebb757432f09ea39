#!/usr/bin/env python3
"""A Heeler adapter for the functions test_* of Python files. Specification: docs/frameworks/json-lines.md."""
import json, os, runpy, sys, traceback, unittest

os.set_inheritable(3, False)  # what tests start has no business on the channel
requests, reports = open(3, "rb", closefd=False), open(3, "w", closefd=False)

def report(kind, **members):
    sys.stdout.flush()  # what a test has written stands before its end
    print(json.dumps({"k": kind, **members}), file=reports, flush=True)

def run(index, name):
    report("begin", i=index)
    try:
        tests[name]()
        result = {"state": "passed"}
    except unittest.SkipTest as reason:
        result = {"state": "skipped", "message": str(reason)}
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        result = {"state": "failed", "message": repr(error), "file": place.filename, "line": place.lineno}
    report("end", i=index, **result)

tests = {}
for path in sys.argv[1:]:
    module = runpy.run_path(path, run_name=os.path.basename(path).removesuffix(".py"))
    tests |= {f"{module['__name__']}.{name}": test for name, test in module.items() if name.startswith("test_")}
while (request := json.loads(requests.readline() or '{"k":"stop"}')).get("k") != "stop":
    if request.get("k") == "list":
        for name, test in tests.items():
            report("test", id=name, file=os.path.abspath(test.__code__.co_filename), line=test.__code__.co_firstlineno)
        report("listed")
    elif request.get("k") == "run":
        for index, name in enumerate(request["tests"]):
            run(index, name)
        report("done")
