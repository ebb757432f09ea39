#!/usr/bin/env python3
"""A Heeler adapter for the functions test_* of Python files. Specification: docs/frameworks/json-lines.md."""
import importlib.util, json, os, pathlib, sys, traceback, unittest

os.set_inheritable(3, False)  # what tests start has no business on the channel
sys.dont_write_bytecode = True

def report(kind, **members):
    line = json.dumps({"k": kind, **members}).encode() + b"\n"
    while line:
        line = line[os.write(3, line):]

def load(path):
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {f"{spec.name}.{name}": test for name, test in vars(module).items() if name.startswith("test_")}

def run(test):
    try:
        test()
        return {"state": "passed"}
    except unittest.SkipTest as reason:
        return {"state": "skipped", "message": str(reason)}
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return {"state": "failed", "message": repr(error), "file": place.filename, "line": place.lineno}

tests = {name: test for path in sys.argv[1:] for name, test in load(path).items()}
for line in open(3, "rb", closefd=False):
    request = json.loads(line)
    if request.get("k") == "list":
        for name, test in tests.items():
            code = test.__code__
            report("test", id=name, file=os.path.abspath(code.co_filename), line=code.co_firstlineno)
        report("listed")
    elif request.get("k") == "run":
        for index, name in enumerate(request["tests"]):
            report("begin", i=index)
            result = run(lambda: tests[name]())
            sys.stdout.flush()
            report("end", i=index, **result)
        report("done")
    elif request.get("k") == "stop":
        break
