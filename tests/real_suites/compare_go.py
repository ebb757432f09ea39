#!/usr/bin/env python3
"""Compares the results of Go packages by `go test -json` with those by `heeler run --go`, test by test.

    compare_go.py --heeler PROGRAM [--rounds N] DIRECTORY PACKAGES…

Prints processor and elapsed seconds of both, which take turns, and each test whose results differ. Exits with 1 if one
does. Only tests themselves are compared: their subtests are parts of them in Heeler.
"""

import argparse
import json
import os
import subprocess
import sys
import time

OUTCOMES = {"passed": "pass", "failed": "fail", "skipped": "skip"}


def measured(command, directory):
    """Runs a command; returns its output, its processor seconds and its elapsed seconds."""
    begun = time.monotonic()
    before = os.times()
    ran = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    after = os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return ran, processor, time.monotonic() - begun


def lines_of(output):
    for line in output.decode(errors="replace").splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def by_go(packages, directory, options):
    ran, processor, elapsed = measured(["go", "test", "-json", "-count=1", *options, *packages], directory)
    results = {}
    for event in lines_of(ran.stdout):
        name = event.get("Test")
        if name and "/" not in name and event["Action"] in ("pass", "fail", "skip"):
            results[event["Package"] + "::" + name] = event["Action"]
    return results, processor, elapsed


def by_heeler(heeler, packages, directory, options):
    words = [word for package in packages for word in ("--go", package)]
    ran, processor, elapsed = measured([heeler, "run", "--format", "json", *words, *options], directory)
    results, failures = {}, []
    for event in lines_of(ran.stdout):
        if event["type"] == "test" and isinstance(event.get("outcome"), str):
            results[event["uid"]] = OUTCOMES.get(event["outcome"], event["outcome"])
        elif event["type"] == "program":
            failures.append(event)
    if not results:
        sys.exit(ran.stderr.decode(errors="replace"))
    return results, failures, processor, elapsed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--heeler", required=True)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--jobs", default="2")
    parser.add_argument("directory")
    parser.add_argument("packages", nargs="+")
    arguments = parser.parse_args()
    heeler = os.path.abspath(arguments.heeler)
    options = ["-j", arguments.jobs]
    # Compiles everything for both.
    subprocess.run(["go", "test", "-count=1", "-run=^$", *arguments.packages], cwd=arguments.directory, stdout=subprocess.DEVNULL)
    listing = [word for package in arguments.packages for word in ("--go", package)]
    subprocess.run([heeler, "list", *listing], cwd=arguments.directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    differs = False
    for number in range(arguments.rounds):
        ours, failures, our_processor, our_elapsed = by_heeler(heeler, arguments.packages, arguments.directory, options)
        theirs, processor, elapsed = by_go(arguments.packages, arguments.directory, [])
        print(f"round {number + 1}: {len(theirs)} tests; go test: {processor:.2f} s CPU, {elapsed:.2f} s; "
              f"heeler: {our_processor:.2f} s CPU, {our_elapsed:.2f} s", flush=True)
        for uid in sorted(set(ours) | set(theirs)):
            if ours.get(uid) != theirs.get(uid):
                differs = True
                print(f"  {uid}: go test {theirs.get(uid)}, heeler {ours.get(uid)}")
        for failure in failures:
            differs = True
            print(f"  a program failed under heeler: {json.dumps(failure)[:2000]}")
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main())
