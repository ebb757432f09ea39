"""Compares the results of test programs run by themselves with those under Heeler, case by case.

Each program runs by itself first. Then Heeler runs it in batches, once more with the history of that run, and with
--isolate. The results of all cases must be the same, and a program that ends well by itself must not be in error. With
--isolate, a test may differ that the program itself fails with alone, because it looks at the others.
"""

import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

MODES = [("batches", []), ("second run", []), ("isolate", ["--isolate"])]
TIMEOUT = 900


def run(command, cwd, env):
    """Returns exit code and output of a command; None as code after the time limit."""
    try:
        done = subprocess.run(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=TIMEOUT,
        )
        return done.returncode, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as error:
        return None, (error.stdout or b"").decode(errors="replace")


def numbered(pairs):
    """Returns the results by name; the second test of one name has #2 behind it, as in Heeler's uids."""
    seen, results = collections.Counter(), {}
    for name, result in pairs:
        seen[name] += 1
        results[name if seen[name] == 1 else f"{name}#{seen[name]}"] = result
    return results


def of_gtest_report(path):
    """Returns the results in GoogleTest's own report; None without one."""
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError):
        return None
    pairs = []
    for suite in root.iter("testsuite"):
        for case in suite.iter("testcase"):
            if not case.get("name"):
                continue
            if case.get("status") != "run" or case.get("result") == "skipped" or case.find("skipped") is not None:
                result = "skipped"
            else:
                result = "passed"
            if case.find("failure") is not None:
                result = "failed"
            pairs.append((f"{suite.get('name')}.{case.get('name')}", result))
    return numbered(pairs)


def of_libtest_output(text):
    """Returns the results in the output of a Rust test program; None if it did not end."""
    if "test result:" not in text:
        return None
    words = {"ok": "passed", "FAILED": "failed", "ignored": "skipped"}
    found = re.findall(r"^test (.+?)(?: - should panic)? \.\.\. (?:.*\n)*?.*?(ok|FAILED|ignored)(?:,.*)?$", text, re.M)
    return numbered((name, words[word]) for name, word in found)


def of_junit(path):
    """Returns the results of tests in Heeler's report, and the messages of programs in error."""
    results, errors = {}, []
    for suite in ElementTree.parse(path).getroot().iter("testsuite"):
        for case in suite.iter("testcase"):
            name, bad = case.get("name"), case.find("failure")
            error = case.find("error")
            if name == suite.get("name") or re.search(r" \((set-up|tear-down|set-up or tear-down|the program itself)\)$", name):
                errors.append(f"{name}: {(error if error is not None else bad).get('message', '')[:300]}")
            elif error is not None:
                results[name] = "error"
            elif bad is not None:
                results[name] = "failed"
            else:
                results[name] = "skipped" if case.find("skipped") is not None else "passed"
    return results, errors


def alone(program, cwd, env, directory, is_rust):
    """Runs the program by itself; returns its results and its exit code."""
    if is_rust:
        code, text = run([program, "--test-threads=1"], cwd, env)
        return of_libtest_output(text), code
    report = os.path.join(directory, "alone.xml")
    code, _ = run([program, f"--gtest_output=xml:{report}"], cwd, env)
    return of_gtest_report(report), code


def fails_alone(program, names, cwd, env, is_rust):
    """Returns whether the program fails by itself with one of these tests alone: tests may look at the others."""
    for name in names[:50]:
        name = name.split("#")[0]
        words = ["--exact", name] if is_rust else [f"--gtest_filter={name}"]
        if run([program] + words, cwd, env)[0] != 0:
            return True
    return False


def differences(expected, code, results, errors, is_explained):
    """Describes what differs. `is_explained` says of a list of tests whether one of them fails alone."""
    found = []
    for name in sorted(set(expected) | set(results)):
        one, other = expected.get(name, "missing"), results.get(name, "missing")
        # A test that ends its process has no result of its own by itself either.
        if one != other and not (one == "missing" and other == "error") and not is_explained([name]):
            found.append(f"{name}: {one} by itself, {other} under Heeler")
    if code == 0:
        for error in errors:
            suite = error.split(" (", 1)[0]
            tests = [name for name in expected if name.startswith(f"{suite}.")] or list(expected)
            if not is_explained(tests):
                found.append(f"in error: {error}")
    return found


def compare(program, cwd, heeler, is_rust, env):
    """Compares one program; returns its number of cases, or None if it has no results by itself, and what differs."""
    with tempfile.TemporaryDirectory(prefix="real-") as directory:
        expected, code = alone(program, cwd, env, directory, is_rust)
        if not expected:
            return None, [], code
        found = []
        for mode, options in MODES:
            report = os.path.join(directory, f"{mode.replace(' ', '-')}.xml")
            state = os.path.join(directory, "state")
            command = [heeler, "run", program, "--state-dir", state, "--status-level", "none", "-j", "2"]
            _, text = run(command + ["--report", f"junit={report}"] + options, cwd, env)
            if not os.path.exists(report):
                found.append(f"{mode}: no report: {text[-500:]}")
                continue
            results, errors = of_junit(report)
            is_alone = lambda names: mode == "isolate" and fails_alone(program, names, cwd, env, is_rust)
            found += [f"{mode}: {text}" for text in differences(expected, code, results, errors, is_alone)]
        return len(expected), found, code


def programs_of_cargo(directory):
    with open(os.path.join(directory, "build.json"), encoding="utf-8") as lines:
        for line in lines:
            message = json.loads(line) if line.startswith("{") else {}
            if message.get("executable") and message.get("profile", {}).get("test"):
                yield message["executable"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--heeler", required=True)
    parser.add_argument("--cargo", help="a package whose test programs are compared")
    parser.add_argument("programs", nargs="*")
    options = parser.parse_args()
    env = {name: value for name, value in os.environ.items() if not name.startswith(("GTEST_", "RUST_TEST_"))}
    cwd, programs = os.getcwd(), [os.path.abspath(program) for program in options.programs]
    if options.cargo:
        cwd = os.path.abspath(options.cargo)
        programs = list(programs_of_cargo(cwd))
        env["CARGO_MANIFEST_DIR"] = cwd
    total, bad = 0, 0
    for program in programs:
        count, found, code = compare(program, cwd, os.path.abspath(options.heeler), bool(options.cargo), env)
        name = os.path.basename(program)
        if count is None:
            print(f"{name}: no results by itself (exit code {code}), not compared", flush=True)
            continue
        total += count
        bad += bool(found)
        print(f"{name}: {count} cases, {'same' if not found else f'{len(found)} differences'}", flush=True)
        for text in found[:20]:
            print(f"    {text}", flush=True)
    print(f"{len(programs)} programs, {total} cases, {bad} programs with differences", flush=True)
    sys.exit(1 if bad else 0)


main()
