"""The runtime of guarded Python sources: the active mutant of this process, how often mutants are reached, and the
limit on that. Every interpreter that finds this module through PYTHONPATH loads it at start, including interpreters
started by tests. The environment variables are the same as for the Rust runtime.
"""

import builtins
import operator
import os
import sys

EXIT_CODE = 87
STEPS_EXIT_CODE = 88
# If set, this process is forked for mutants after it has collected the tests.
WARM = "HEELER_WARM"
# If set, each test counts in its own file, named by this prefix and the index of the test.
EACH = "HEELER_MUTANT_EACH"
# The user's project, the directory of its mutants, and the project's copy there.
ROOT = "@ROOT@"
PLACE = "@PLACE@"
TREE = "@TREE@"

OPERATORS = {
    "+": operator.iadd,
    "-": operator.isub,
    "*": operator.imul,
    "/": operator.itruediv,
    "//": operator.ifloordiv,
    "%": operator.imod,
    "**": operator.ipow,
    "&": operator.iand,
    "|": operator.ior,
    "^": operator.ixor,
    "<<": operator.ilshift,
    ">>": operator.irshift,
}
# 32-bit counters stop at this value.
FULL = 0xFFFFFFFF


def number(name, otherwise):
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else otherwise


def end(code):
    """Ends the process at a limit, in a way that no test can catch."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # Closed, or replaced by a test.
            pass
    os._exit(code)


def without_mutant():
    def at(base, count):
        return 0

    return at


def before_forks():
    """Notes mutants reached before the forks: activated only in a fork, they would miss their earlier effects."""
    reached = set()

    def at(base, count):
        reached.add((base, count))
        return 0

    def was_reached(number):
        return any(base <= number < base + count for base, count in reached)

    at.was_reached = was_reached
    at.begin_again = begin
    return at


def with_mutant(on, hit_limit, step_limit):
    hits = steps = 0

    def at(base, count):
        nonlocal hits, steps
        if base <= on < base + count:
            hits += 1
            if hits > hit_limit:
                end(EXIT_CODE)
            return on - base + 1
        steps += 1
        if steps > step_limit:
            end(STEPS_EXIT_CODE)
        return 0

    return at


def with_counts(path):
    """Counts reached mutants in a file that forked children share."""
    import mmap
    import time

    def map_file(path, flags=0, size=0):
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
        try:
            if size:
                os.ftruncate(file, size)
            return memoryview(mmap.mmap(file, 0)).cast("I")
        finally:
            os.close(file)

    counts = map_file(path)
    mutants = len(counts)

    def at(base, count):
        steps = counts[0]
        if steps != FULL:
            counts[0] = steps + 1
        for number in range(base, min(base + count, mutants)):
            reached = counts[number]
            if reached != FULL:
                counts[number] = reached + 1
        return 0

    def run_apart(index, run):
        """Runs a test in a child that counts in its own file, as if the test were alone in the process. Returns the
        exit status of the child."""
        nonlocal counts
        own = f"{os.environ[EACH]}-{index}"
        began = time.monotonic()
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            if status == 0:
                with open(own + ".time", "w", encoding="ascii") as file:
                    file.write(str(round((time.monotonic() - began) * 1e6)))
            return status
        status = 1
        try:
            counts = map_file(own, os.O_CREAT, mutants * 4)
            # For the processes that the test starts.
            os.environ["HEELER_MUTANT_COVERAGE"] = own
            del os.environ[EACH]
            run()
            note_foreign_modules(own)
            status = 0
        finally:
            end(status)

    at.run_apart = run_apart if os.environ.get(EACH) else None
    return at


def add_assignments(at):
    """Adds the helpers for assignments with an operator, whose mutants have another operator."""

    def name(base, count, own, other):
        return OPERATORS[other if at(base, count) else own]

    def attribute(base, count, own, other, target, name):
        apply = OPERATORS[other if at(base, count) else own]
        value = getattr(target, name)

        def assign(right):
            setattr(target, name, apply(value, right))

        return assign

    def item(base, count, own, other, target, key):
        apply = OPERATORS[other if at(base, count) else own]
        value = target[key]

        def assign(right):
            target[key] = apply(value, right)

        return assign

    at.name, at.attribute, at.item = name, attribute, item


def note_foreign_modules(coverage):
    """Notes project modules that were not imported from the copy. Their mutants cannot be tested."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "sources"), encoding="utf-8") as file:
        modules = dict(line.rstrip("\n").split("\t") for line in file)
    paths = {path: name for name, path in modules.items()}
    found = []
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str):
            continue
        path = os.path.realpath(path)
        if path.startswith(PLACE + os.sep):
            continue
        if path.startswith(ROOT + os.sep) and path[len(ROOT) + 1 :] in paths:
            found.append((name, path, path[len(ROOT) + 1 :]))
        elif name in modules and {"site-packages", "dist-packages"} & set(path.split(os.sep)):
            found.append((name, path, modules[name]))
    if found:
        text = "".join("\t".join(line) + "\n" for line in found)
        with open(coverage + ".imports", "a", encoding="utf-8") as file:
            file.write(text)


def keep_bytecode_out():
    """Keeps this process from writing bytecode next to the user's own sources."""
    from _frozen_importlib_external import SourceFileLoader

    write = SourceFileLoader.set_data

    def set_data(self, path, data, **options):
        path = os.path.abspath(path)
        if path.startswith(PLACE + os.sep) or not path.startswith(ROOT + os.sep):
            write(self, path, data, **options)

    SourceFileLoader.set_data = set_data


def begin():
    coverage = os.environ.get("HEELER_MUTANT_COVERAGE", "")
    on = number("HEELER_MUTANT", 0)
    at = without_mutant()
    if on:
        unlimited = float("inf")
        at = with_mutant(on, number("HEELER_MUTANT_HITS", unlimited), number("HEELER_MUTANT_STEPS", unlimited))
    elif coverage and sys.byteorder == "little":
        import atexit

        try:
            at = with_counts(coverage)
            atexit.register(note_foreign_modules, coverage)
        except (OSError, ValueError):  # The process outlived its test, and the file is gone.
            pass
    elif os.environ.get(WARM):
        at = before_forks()
    at.on = on
    add_assignments(at)
    builtins.__hg__ = at


def run_next():
    """Runs the sitecustomize module that the interpreter would have found without this one."""
    own = os.path.dirname(os.path.abspath(__file__))
    for directory in sys.path:
        file = os.path.join(directory, "sitecustomize.py")
        if os.path.abspath(directory) != own and os.path.isfile(file):
            with open(file, "rb") as source:
                code = compile(source.read(), file, "exec")
            exec(code, {"__name__": "sitecustomize", "__file__": file})
            return


begin()
keep_bytecode_out()
run_next()
