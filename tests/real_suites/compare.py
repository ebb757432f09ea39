"""Compares the results of test programs run by themselves with those under Heeler, case by case.

Each program runs by itself first. Then Heeler runs it on one slot, on two slots with the history of that run, on two
slots without any history, and with --isolate. The results of all cases must be the same, a program that ends well by
itself must not be in error, and both must succeed or both must fail. Where processes run a part of the program (without
a history, and with --isolate), a test may differ that the program itself fails with alone, because it looks at the
others. A program that fails by itself when it lists its tests must be in error under Heeler.
"""

import argparse
import collections
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree

# Name, state directory, options, and whether processes may run a part of the tests of a short program.
MODES = {
    "one slot": ("state", ["-j", "1"], False),
    "second run": ("state", ["-j", "2"], False),
    "first run": ("empty", ["-j", "2"], True),
    "isolate": ("state", ["-j", "2", "--isolate"], True),
}
TIMEOUT = 900


# CPU and wall time of what ran, in seconds, by the mode; the program by itself first.
SPENT = collections.OrderedDict()


def run(command, cwd, env, mode=None):
    """Returns exit code and output of a command; None as code after the time limit."""
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        return run_untimed(command, cwd, env)
    finally:
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if mode:
            cpu, wall = SPENT.get(mode, (0.0, 0.0))
            cpu += after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            SPENT[mode] = (cpu, wall + time.monotonic() - started)


def run_untimed(command, cwd, env):
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


def of_catch2_output(text, listed, shown):
    """Returns the results in a report of Catch2; `listed` are all names, `shown` those that are not hidden."""
    start = text.find("<?xml")
    try:
        root = ElementTree.fromstring(text[start:]) if start >= 0 else None
    except ElementTree.ParseError:
        root = None
    if root is None:
        return None
    pairs = []
    for case in root.iter("TestCase"):
        overall = case.find("OverallResult")
        if overall is None or overall.get("success") != "true":
            result = "failed"
        else:
            result = "skipped" if overall.get("skips", "0") != "0" else "passed"
        pairs.append((case.get("name"), result))
    results = numbered(pairs)
    hidden = collections.Counter(listed) - collections.Counter(shown)
    results.update({name: "skipped" for name in hidden if name not in results})
    return results


def of_doctest_report(path):
    """Returns the results in doctest's own report; None without one."""
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError):
        return None
    pairs = []
    for case in root.iter("TestCase"):
        overall = case.find("OverallResultsAsserts")
        if case.get("skipped") == "true":
            result = "skipped"
        else:
            is_success = overall is not None and overall.get("test_case_success") == "true"
            if overall is not None and overall.get("test_case_success") is None:
                # Before version 2.4.7; none of the suites has decorators that allow failures there.
                is_success = overall.get("failures") == "0" and case.find(".//Exception") is None
            result = "passed" if is_success else "failed"
        pairs.append((case.get("name") or "(no name)", result))
    return numbered(pairs)


def of_boost_report(path):
    """Returns the results in Boost.Test's own report, by path; None without one."""
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError):
        return None
    pairs = []

    def read(element, names):
        for child in element:
            path = names + [child.get("name")]
            if child.tag == "TestSuite":
                read(child, path)
            elif child.tag == "TestCase":
                words = {"passed": "passed", "skipped": "skipped"}
                pairs.append(("/".join(path), words.get(child.get("result"), "failed")))

    for module in root.iter("TestSuite"):
        read(module, [])
        break
    return numbered(pairs)


def of_libtest_output(text):
    """Returns the results in the output of a Rust test program; None if it did not end."""
    if "test result:" not in text:
        return None
    words = {"ok": "passed", "FAILED": "failed", "ignored": "skipped"}
    found = re.findall(r"^test (.+?)(?: - should panic)? \.\.\. (?:.*\n)*?.*?(ok|FAILED|ignored)(?:,.*)?$", text, re.M)
    return numbered((name, words[word]) for name, word in found)


OF_NO_TEST = re.compile(r" \((set-up|tear-down|set-up or tear-down|the program itself)\)$")

OF_LISTING = re.compile("failed to list the tests of|listed its tests, but|while listing its tests")


def of_ctrf(path, expected):
    """Returns the results of tests in Heeler's report, and the messages of programs in error."""
    results, errors = {}, []
    with open(path, encoding="utf-8") as report:
        tests = json.load(report)["results"]["tests"]
    for test in tests:
        name, result = test["name"], test["rawStatus"]
        # A test may have the name of its program.
        if name not in expected and (name in test.get("suite", []) or OF_NO_TEST.search(name)):
            errors.append(f"{name}: {test.get('message', '')[:300]}")
        else:
            result = {"flaky": "passed"}.get(result, result)
            results[name] = result if result in ("passed", "failed", "skipped") else "error"
    return results, errors


def names_of_catch2(program, cwd, env, spec):
    """Returns the names that a program of Catch2 lists, in the one or the other version."""
    for words in (["--list-tests", "--verbosity", "quiet"], ["--list-test-names-only"]):
        done = subprocess.run(
            [program] + spec + words, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=TIMEOUT
        )
        lines = [line.strip() for line in done.stdout.decode(errors="replace").splitlines() if line.strip()]
        if lines and not lines[0].endswith(":"):
            # Version 3 writes names that begin with a number sign in quotes.
            return [line[1:-1] if line.startswith('"#') and line.endswith('"') else line for line in lines]
    return []


def alone(program, cwd, env, directory, framework):
    """Runs the program by itself; returns its results and its exit code."""
    mode, report = "by itself", os.path.join(directory, "alone.xml")
    if framework == "libtest":
        code, text = run([program, "--test-threads=1"], cwd, env, mode)
        return of_libtest_output(text), code
    if framework == "catch2":
        code, _ = run([program, "--reporter", "xml", "--out", report], cwd, env, mode)
        with open(report, encoding="utf-8", errors="replace") as file:
            text = file.read()
        listed, shown = (names_of_catch2(program, cwd, env, spec) for spec in (["*"], []))
        return of_catch2_output(text, listed, shown), code
    if framework == "doctest":
        code, _ = run([program, "--dt-reporters=xml", f"--dt-out={report}"], cwd, env, mode)
        return of_doctest_report(report), code
    if framework == "boost":
        words = ["--report_level=detailed", "--report_format=XML", f"--report_sink={report}", "--log_level=nothing"]
        code, _ = run([program] + words, cwd, env, mode)
        return of_boost_report(report), code
    code, _ = run([program, f"--gtest_output=xml:{report}"], cwd, env, mode)
    return of_gtest_report(report), code


# How one test is selected, and how all are listed.
ONE_TEST = {
    "gtest": lambda name: [f"--gtest_filter={name}"],
    "libtest": lambda name: ["--exact", name],
    "catch2": lambda name: [re.sub(r"([\\\\,\[\]])", r"\\\1", name)],
    "doctest": lambda name: ["--dt-case-sensitive=true", f"--dt-test-case={name}"],
    "boost": lambda name: [f"--run_test={name}"],
}
LISTING = {
    "gtest": ["--gtest_list_tests"],
    "libtest": ["--list"],
    "doctest": ["--dt-list-test-cases"],
    "boost": ["--list_content"],
}


def fails_alone(program, names, cwd, env, framework):
    """Returns whether the program fails by itself with one of these tests alone: tests may look at the others, or use
    what others have left in the temporary directory."""
    for name in names[:50]:
        words = ONE_TEST[framework](name.split("#")[0])
        with tempfile.TemporaryDirectory(prefix="real-") as directory:
            if run([program] + words, cwd, dict(env, TEST_TMPDIR=directory))[0] != 0:
                return True
    return False


def lists(program, cwd, env, framework):
    """Returns whether the program ends well by itself when it only lists its tests."""
    # Catch2 2 exits with the number of its tests.
    return framework == "catch2" or run([program] + LISTING[framework], cwd, env)[0] == 0


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


def compare_run(mode, program, setup):
    """Runs the program under Heeler in one mode; describes what differs from the program by itself."""
    cwd, heeler, framework, env, directory, (expected, code), is_listed = setup
    report = os.path.join(directory, f"{mode.replace(' ', '-')}.xml")
    state, options, is_split = MODES[mode]
    command = [heeler, "run", program, "--state-dir", os.path.join(directory, state), "--status-level", "none"]
    ended, text = run(command + ["--report", f"ctrf={report}"] + options, cwd, env, mode)
    is_alone = lambda names: is_split and fails_alone(program, names, cwd, env, framework)
    found = []
    if expected and os.path.exists(report):
        results, errors = of_ctrf(report, expected)
        if framework == "catch2":
            # Catch2 reports names without the spaces around them.
            results = {name.strip(): result for name, result in results.items()}
        errors = [error for error in errors if is_listed or not OF_LISTING.search(error)]
        if not is_listed:
            # It runs all of its tests several times, or not all of them, and the last report is left.
            results = {name: result for name, result in results.items() if name in expected}
        found = differences(expected, code, results, errors, is_alone)
    elif expected:
        found.append("no report")
    if ended == 0 and not (code == 0 and is_listed):
        found.append("it succeeds under Heeler only")
    elif ended != 0 and code == 0 and expected and is_listed and not found and not is_alone(list(expected)):
        found.append("it fails under Heeler only")
    if found:
        found.append(f"exit code {code} by itself, {ended} under Heeler: {text[-500:]}")
    return [f"{mode}: {text}" for text in found]


def compare(program, cwd, heeler, framework, env):
    """Compares one program; returns its number of cases by itself, a description of these, and what differs."""
    with tempfile.TemporaryDirectory(prefix="real-") as directory:
        by_itself = alone(program, cwd, env, directory, framework)
        is_listed = lists(program, cwd, env, framework)
        found = []
        for mode in MODES:
            found += compare_run(mode, program, (cwd, heeler, framework, env, directory, by_itself, is_listed))
    expected, code = by_itself
    description = f"{len(expected)} cases" if expected else f"no cases by itself (exit code {code})"
    if not is_listed:
        description += ", fails by itself when it lists them"
    return len(expected or ()), description, found


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
    parser.add_argument("--framework", default="gtest", choices=["gtest", "catch2", "doctest", "boost"])
    parser.add_argument("programs", nargs="*")
    options = parser.parse_args()
    env = {name: value for name, value in os.environ.items() if not name.startswith(("GTEST_", "RUST_TEST_"))}
    framework = "libtest" if options.cargo else options.framework
    cwd, programs = os.getcwd(), [os.path.abspath(program) for program in options.programs]
    if options.cargo:
        cwd = os.path.abspath(options.cargo)
        programs = list(programs_of_cargo(cwd))
        env["CARGO_MANIFEST_DIR"] = cwd
    total, bad, started = 0, 0, time.monotonic()
    for program in programs:
        count, description, found = compare(program, cwd, os.path.abspath(options.heeler), framework, env)
        name = os.path.basename(program)
        total += count
        bad += bool(found)
        print(f"{name}: {description}, {'same' if not found else 'differs'}", flush=True)
        for text in found[:20]:
            print(f"    {text}", flush=True)
    seconds = time.monotonic() - started
    for mode, (cpu, wall) in SPENT.items():
        print(f"    {mode}: {cpu:.1f} s CPU, {wall:.1f} s", flush=True)
    print(f"{len(programs)} programs, {total} cases, {bad} programs with differences, {seconds:.0f} s", flush=True)
    sys.exit(1 if bad or not programs else 0)


main()
