"""Heeler's plugin for pytest: lists tests and runs the requested ones. PYTEST_DONT_REWRITE

Heeler writes requests to descriptor 3 and reads reports there; both are lines of JSON. Tests keep descriptors
1 and 2. Between two tests the plugin writes a numbered line (a fence) to both, so that Heeler can split the output
by test, whichever process wrote it. The first request decides whether this process lists tests, runs tests, or
collects all tests and is forked for them.
"""

import builtins
import codecs
import contextlib
import faulthandler
import gc
import importlib
import json
import os
import signal
import sys

import _pytest
import pluggy
import pytest
from _pytest.reports import CollectErrorRepr, CollectReport

# Oldest supported versions. pluggy 1.2 introduced the hook wrappers that this plugin uses.
OLDEST_VERSIONS = {pytest: (7, 4), pluggy: (1, 2)}


def check_versions():
    """Raises an error for pytest to show if pytest or pluggy is too old."""
    for module, oldest in OLDEST_VERSIONS.items():
        if tuple(map(int, module.__version__.split(".")[:2])) < oldest:
            found = f"{module.__name__} {module.__version__} ({os.path.dirname(module.__file__)})"
            needed = f"{module.__name__} {oldest[0]}.{oldest[1]} or newer"
            python = f"{sys.executable} -m pip install --upgrade pytest pluggy"
            raise pytest.UsageError(f"Heeler needs {needed}, but found {found}; upgrade with: {python}")


check_versions()

CHANNEL = 3
MUTANT = "HEELER_MUTANT"
# Texts are cut to this many characters: a report must fit into a line of 1 MiB.
TEXT_LIMIT = 60_000
# The error of a file in a listing is sent with each request to run the file.
COLLECT_ERROR_LIMIT = 8_000
MAX_FAILURES = 8
# Options that end a session early, spread it over processes, choose other tests, or write one file for all.
NEUTRAL_OPTIONS = {
    "maxfail": 0,
    "numprocesses": None,
    "dist": "no",
    "tx": [],
    "looponfail": False,
    "lf": False,
    "failedfirst": False,
    "newfirst": False,
    "stepwise": False,
    "stepwise_skip": False,
    "collectonly": False,
    "usepdb": False,
    "trace": False,
    "xmlpath": None,
    "htmlpath": None,
    "report_log": None,
    "cov_report": {},
    "cov_fail_under": None,
}
# Files of the stack frames between a test and this plugin.
MACHINERY = (__file__, os.path.dirname(_pytest.__file__), os.path.dirname(pluggy.__file__))
MACHINERY += (os.path.dirname(importlib.__file__), "<frozen ")
# Marks that control how a test is called. Users do not select tests by them.
MECHANICAL_MARKS = {"parametrize", "usefixtures", "filterwarnings"}


# Set only if this process will be forked.
heeler_pytest_forks = importlib.import_module("heeler_pytest_forks") if os.environ.pop("HEELER_WARM", None) else None


def remove_own_path():
    """Removes the directory of this file from the paths that tests and their processes see."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if path != here]
    words = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if here in words:
        words.remove(here)
        if any(words):
            os.environ["PYTHONPATH"] = os.pathsep.join(words)
        else:
            del os.environ["PYTHONPATH"]


def escape_surrogates(error):
    """Escapes lone surrogates in a JSON string, such as bytes of file names that are not UTF-8."""
    characters = map(ord, error.object[error.start : error.end])
    words = [f"\\\\x{one - 0xDC00:02x}" if 0xDC80 <= one <= 0xDCFF else f"\\\\u{one:04x}" for one in characters]
    return "".join(words), error.end


codecs.register_error("heeler-escape", escape_surrogates)


def to_handle(text):
    """Returns the text in a form that Heeler can pass back: text that is not Unicode becomes a NUL and hex bytes."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        pass
    try:
        return "\0" + os.fsencode(text).hex()
    except UnicodeEncodeError:
        # Surrogates that do not represent a byte.
        return "\0\0" + text.encode("utf-8", "surrogatepass").hex()


def from_handle(text):
    if not text.startswith("\0"):
        return text
    data = bytes.fromhex(text.lstrip("\0"))
    return data.decode("utf-8", "surrogatepass") if text.startswith("\0\0") else os.fsdecode(data)


def shortened(text, limit=TEXT_LIMIT):
    text = str(text)
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters cut ...]\n{text[-half:]}"


@contextlib.contextmanager
def paused_garbage_collection():
    """Pauses the garbage collector: collected tests stay, and scanning them repeatedly takes a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def forgotten_import(path):
    """Undoes the import of a file, so that another file of the same name can be imported."""
    search_path = sys.path[:]
    known = set(sys.modules)
    try:
        yield
    finally:
        sys.path[:] = search_path
        for name in set(sys.modules) - known:
            if getattr(sys.modules[name], "__file__", None) == path:
                del sys.modules[name]


def paths_on_the_way(paths):
    """Returns the files together with their directories and packages."""
    found = set(paths)
    for path in paths:
        parent = os.path.dirname(path)
        while parent not in found:
            found |= {parent, os.path.join(parent, "__init__.py")}
            parent = os.path.dirname(parent)
    return found


class Channel:
    """The report channel, and the original standard outputs."""

    def __init__(self):
        self.pid = os.getpid()
        # Whether the next forked child reports in place of this process.
        self.is_lent = False
        self.reset()
        self.outputs = [os.dup(1), os.dup(2)]
        os.set_inheritable(CHANNEL, False)
        os.register_at_fork(after_in_child=self.leave)
        self.flush_c_output = load_c_flush()
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(line_buffering=True)
        # Print the stacks of a test ended by SIGTERM, even while C code holds the interpreter.
        faulthandler.register(signal.SIGTERM, file=self.outputs[1], all_threads=True, chain=True)

    def reset(self):
        self.received = b""
        self.unsent = []
        self.fences = 0
        self.nonce = os.urandom(12).hex()

    def begin_again(self):
        """Resets the channel in a forked child that has its own outputs and report channel."""
        self.reset()
        self.send_hello()

    def send_hello(self):
        self.send({"k": "hello", "v": 1, "fence": self.nonce})

    def leave(self):
        """Silences the channel in a forked child, unless the child reports in place of its parent."""
        if self.is_lent:
            self.is_lent = False
            self.pid = os.getpid()
            return
        os.close(CHANNEL)
        faulthandler.unregister(signal.SIGTERM)

    def exit_if_forked(self):
        """Ends a child that a test forked and that returned from the test."""
        if os.getpid() != self.pid:
            os._exit(1)

    def receive(self):
        while b"\n" not in self.received:
            data = os.read(CHANNEL, 1 << 16)
            if not data:
                return {"k": "stop"}
            self.received += data
        line, self.received = self.received.split(b"\n", 1)
        return json.loads(line)

    def add(self, report):
        self.unsent.append(json.dumps(report, ensure_ascii=False))

    def send(self, report=None):
        if report is not None:
            self.add(report)
        self.exit_if_forked()
        data = memoryview(("\n".join(self.unsent) + "\n").encode("utf-8", "heeler-escape"))
        self.unsent.clear()
        while data:
            data = data[os.write(CHANNEL, data) :]

    def write_fence(self):
        """Marks the end of the output so far; returns the number of the fence."""
        self.exit_if_forked()
        for stream in {sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__}:
            try:
                stream.flush()
            except Exception:  # Closed, or replaced by a test.
                pass
        self.flush_c_output()
        self.fences += 1
        for output in self.outputs:
            line = b"\x1e%s %d\n" % (self.nonce.encode(), self.fences)
            while line:
                line = line[os.write(output, line) :]
        return self.fences

    def write_error(self, text):
        """Writes to the original standard error."""
        os.write(self.outputs[1], f"{shortened(text)}\n".encode("utf-8", "backslashreplace"))


def load_c_flush():
    """Returns a function that flushes output printed by C code, and makes C code flush after each line."""
    try:
        import ctypes

        c = ctypes.CDLL(None)
        stdout = ctypes.c_void_p.in_dll(c, "stdout")
        c.setvbuf(stdout, None, 1, 0)
        return lambda: c.fflush(stdout)
    except Exception:  # No ctypes, or another C library.
        return lambda: None


class CoverageData:
    """The coverage data file of this process. At the end its data are added to the common file."""

    # Metadata key of the common file that contains the id of its run.
    RUN_KEY = "heeler_run"

    def __init__(self, options, nonce):
        import coverage

        configured = coverage.Coverage(config_file=getattr(options, "cov_config", None) or True)
        self.common = os.path.abspath(configured.get_option("run:data_file"))
        self.own = f"{self.common}.heeler-{os.getpid()}-{nonce}"
        self.appends = getattr(options, "cov_append", False)
        os.environ["COVERAGE_FILE"] = self.own

    def combine(self):
        """Adds the data to the common file. A file from an earlier run is replaced, as with pytest-cov."""
        import fcntl

        directory = os.open(os.path.dirname(self.common), os.O_RDONLY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            self.add_to_common(os.environ.get("HEELER_RUN_ID", ""))
        finally:
            os.close(directory)

    def add_to_common(self, run):
        import coverage
        import sqlite3

        name = os.path.basename(self.own)
        names = [one for one in os.listdir(os.path.dirname(self.own)) if one.startswith(name)]
        if not names:
            return
        if os.path.exists(self.common) and not self.appends:
            with sqlite3.connect(self.common) as known:
                query = "select value from meta where key = ?"
                is_of_run = known.execute(query, (self.RUN_KEY,)).fetchall() == [(run,)]
            known.close()
            if not is_of_run:
                os.remove(self.common)
        common = coverage.CoverageData(self.common)
        common.read()
        for name in names:
            path = os.path.join(os.path.dirname(self.own), name)
            own = coverage.CoverageData(path)
            own.read()
            common.update(own)
            own.close()
            os.remove(path)
        common.close()
        with sqlite3.connect(self.common) as known:
            known.execute("insert or replace into meta (key, value) values (?, ?)", (self.RUN_KEY, run))
        known.close()


class KeptDirectories:
    """Keeps directory nodes, so that all collections of a session use the same ones.

    Since pytest 9.1 the fixtures of a conftest.py belong to the first collected node of its directory. In a later
    collection, a new node for the same directory would have no fixtures.
    """

    def __init__(self):
        self.nodes = {}

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_collect_directory(self, path, parent):
        return self.nodes.get((parent, path))

    @pytest.hookimpl(wrapper=True, tryfirst=True, optionalhook=True, specname="pytest_collect_directory")
    def pytest_keep_directory(self, path, parent):
        node = yield
        if node is not None:
            self.nodes[parent, path] = node
        return node

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_finish(self, session):
        # pytest forgets conftest files of directories that it has not collected, but a later collection needs them.
        pending = getattr(session._fixturemanager, "_pending_conftests", {})
        kept = dict(pending)
        result = yield
        pending.update(kept)
        return result


class Boundary(pytest.Item):
    """A dummy item after the last one of a request: pytest tears down all fixtures except session fixtures."""

    def runtest(self):
        raise AssertionError("it is never run")


class RunningTest:
    """Reports of pytest about one test."""

    def __init__(self, index, item=None):
        self.index = index
        self.item = item
        self.outcomes = set()
        self.reason = None
        self.failures = []
        self.duration = 0.0
        self.compared = None
        self.subtests = {}

    def add_failure(self, longrepr, phase="call"):
        failure = describe_failure(longrepr, self.item and self.item.config.rootpath)
        if phase != "call":
            failure["message"] = f"failed in {phase}: {failure['message']}"
        elif self.compared and self.compared[0] in failure["message"]:
            failure["actual"], failure["expected"] = self.compared[1:]
        self.outcomes.add("failed")
        self.failures.append(failure)

    def end(self, fence):
        state = next((one for one in ("failed", "skipped", "passed") if one in self.outcomes), None)
        if state is None:
            state = "failed"
            self.failures = [{"message": "pytest reported no result for this test"}]
        report = {"k": "end", "i": self.index, "f": fence, "state": state, "ms": round(self.duration * 1000, 3)}
        if state == "skipped" and self.reason:
            report["message"] = shortened(self.reason)
        if state == "failed":
            # All failures of a test share the size limit of one line.
            failures = report["failures"] = self.failures[:MAX_FAILURES]
            for failure in failures:
                for name in failure.keys() & {"message", "stack"}:
                    failure[name] = shortened(failure[name], TEXT_LIMIT // len(failures))
        return report


def describe_failure(longrepr, root=None):
    text = shortened(longrepr)
    crash = getattr(longrepr, "reprcrash", None)
    if crash is None:
        # Doctests have their own locations; broken files have only text.
        crash = next((one[0] for one in getattr(longrepr, "reprlocation_lines", ())), None)
        said = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
        message = "\n".join(said) or text
    else:
        message = shortened(crash.message)
    failure = {"message": message}
    if message != text:
        failure["stack"] = text
    if crash is not None:
        failure["file"], failure["line"] = own_place(longrepr, root) or (str(crash.path), crash.lineno)
        failure["file"] = os.path.abspath(failure["file"])
    return failure


# Directories of installed packages, which a project may contain.
PACKAGES = {"site-packages", "dist-packages", ".venv", "venv", ".tox", ".nox", "node_modules"}


def own_place(longrepr, root):
    """Returns the file and line of the innermost frame in the project's own files, or None."""
    if root is None:
        return None
    entries = getattr(getattr(longrepr, "reprtraceback", None), "reprentries", ())
    for entry in reversed(entries):
        place = getattr(entry, "reprfileloc", None)
        if place is not None:
            path = os.path.abspath(str(place.path))
            below = os.path.relpath(path, root).split(os.sep)
            if below[0] != os.pardir and not PACKAGES.intersection(below):
                return path, place.lineno
    return None


def describe_exception(error):
    """Describes an exception that passed through pytest, without pytest's own frames."""
    excinfo = pytest.ExceptionInfo.from_exception(error)
    own = excinfo.traceback.filter(lambda entry: not str(entry.path).startswith(MACHINERY))
    if own:
        excinfo.traceback = own
    return excinfo.getrepr(style="short")


def selector_of(place, path, nodeid):
    """Returns the handle of a test: its index among tests with the same id, or "file"; its file; and its id."""
    return f"{place}\n{to_handle(str(path))}\n{to_handle(nodeid)}"


def skip_reason(longrepr):
    reason = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    return reason.removeprefix("Skipped: ")


class Plugin:
    def __init__(self):
        self.channel = Channel()
        # Set in a process that collects all tests and is then forked for them.
        self.forks = heeler_pytest_forks.ForkServer(self.channel) if heeler_pytest_forks else None
        self.opening = None
        self.skipped_paths = set()
        self.running = None
        self.paths = {}
        self.collect_reports = {}
        self.collected_paths = set()
        # The paths that a collection of named files visits; `None` to collect everything.
        self.wanted_paths = None
        self.directories = KeptDirectories()
        self.items = {}
        self.begun_items = set()
        # The names of fixtures whose tear-down has begun.
        self.tear_downs = {}
        self.coverage = None
        self.is_stopped = False
        self.failure_limit = 0

    # The session.

    @pytest.hookimpl(wrapper=True)
    def pytest_load_initial_conftests(self, early_config):
        # pytest loads its other plugins during this hook. Heeler wrote the request before it started this process.
        self.opening = self.channel.receive()
        self.channel.send_hello()
        if self.opening.get("k") == "warm" and not self.opening["collect"]:
            # Nothing of the project is loaded yet.
            self.opening = self.forks.serve()
            if self.opening.get("k") == "stop":
                os._exit(0)
        options = early_config.known_args_namespace
        has_mutants = hasattr(builtins, "__hg__")
        if getattr(options, "cov_source", None) and (self.is_listing() or has_mutants):
            options.cov_source = []
        elif getattr(options, "cov_source", None):
            self.coverage = CoverageData(options, self.channel.nonce)
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config):
        self.failure_limit = config.option.maxfail
        coverage = config.pluginmanager.get_plugin("_cov")
        for options in (config.option, getattr(coverage, "options", None)):
            for name, value in NEUTRAL_OPTIONS.items():
                if hasattr(options, name):
                    setattr(options, name, value)

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config):
        config.pluginmanager.register(self.directories, "heeler-directories")
        # These plugins would save state about only some of the tests.
        for name in ("lfplugin", "nfplugin", "stepwiseplugin"):
            plugin = config.pluginmanager.get_plugin(name)
            if plugin is not None:
                config.pluginmanager.unregister(plugin)
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter._tw._file = open(os.devnull, "w")

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self):
        with paused_garbage_collection():
            return (yield)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session):
        if self.opening.get("k") not in ("list", "warm"):
            # Each request collects its own files.
            session.items = []
            session.perform_collect = lambda *args, **options: []
        elif self.is_listing():
            self.skipped_paths = {from_handle(path) for path in self.opening.get("skip", ())}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        session.__dict__.pop("perform_collect", None)
        request = self.opening
        if request.get("k") == "warm":
            # Every fork inherits the collected tests.
            self.keep_items(session)
            request = self.forks.serve()
        while request.get("k") != "stop":
            if request.get("k") == "list":
                self.list_tests(session)
            elif request.get("k") == "run":
                self.run_tests(session, request["tests"])
            request = self.channel.receive()
        try:
            session._setupstate.teardown_exact(None)
        except BaseException as error:
            text = describe_exception(error)
            message = f"a session fixture failed in its tear-down: {describe_failure(text)['message']}"
            self.channel.send({"k": "failure", "message": message, "stack": shortened(text)})
        if not self.is_listing():
            # Each part was collected separately.
            session.testscollected = len(self.begun_items)
        self.is_stopped = True
        return True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session):
        own_status = session.exitstatus
        result = yield
        if self.is_stopped:
            if session.exitstatus not in (own_status, 0):
                self.report_exit_status(session.exitstatus)
            session.exitstatus = 0
        return result

    def report_exit_status(self, status):
        message = f"a plugin or conftest.py set the exit status of this pytest session to {int(status)}"
        count = len(self.begun_items)
        # A threshold for the whole suite needs all tests in one session.
        message += f" after {count} of the tests; use -j1 to run all tests in one session"
        self.channel.send({"k": "failure", "message": message})

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self):
        if not self.is_stopped:
            return
        if self.coverage is not None:
            try:
                self.coverage.combine()
            except Exception as error:
                self.channel.write_error(f"failed to combine coverage data {self.coverage.own}: {error!r}")
        # If a process exits without this report, the tear-down of its session ended it.
        self.channel.send({"k": "stopped"})

    def pytest_internalerror(self, excrepr):
        self.channel.write_error(excrepr)

    def pytest_keyboard_interrupt(self, excinfo):
        self.channel.write_error(excinfo.exconly())

    def is_listing(self):
        return self.opening.get("k") == "list"

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef, request):
        code = getattr(fixturedef.func, "__code__", None)
        # Function fixtures are part of their test.
        if fixturedef.scope == "function" or self.running is None or code is None:
            return (yield)
        name = fixturedef.argname if fixturedef.params is None else f"{fixturedef.argname}[{request.param_index}]"
        path = os.path.relpath(code.co_filename, str(request.config.rootpath))
        fixture = f"{name} ({path}:{code.co_firstlineno})"
        try:
            if fixturedef.scope != "session":
                return (yield)
            # Another interpreter may be waiting for a resource that a session fixture holds.
            report = {"k": "set-up", "fixture": fixture, "state": "failed"}
            self.channel.send({**report, "state": "begun"})
            try:
                result = yield
                report["state"] = "done"
                return result
            finally:
                self.channel.send(report)
        finally:
            # Finalizers run in reverse order: fixtures that use this fixture are finalized before this runs.
            fixturedef.addfinalizer(lambda: self.begin_tear_down(fixturedef, fixture))

    def begin_tear_down(self, fixturedef, fixture):
        self.tear_downs[fixturedef] = fixture
        self.channel.send({"k": "tear-down", "fixture": fixture, "state": "begun"})

    def pytest_fixture_post_finalizer(self, fixturedef):
        fixture = self.tear_downs.pop(fixturedef, None)
        if fixture is not None:
            self.channel.send({"k": "tear-down", "fixture": fixture, "state": "done"})

    # Collection.

    @pytest.hookimpl(tryfirst=True)
    def pytest_ignore_collect(self, collection_path):
        # The listing has already decided. Asking again for every sibling file would take longer than all tests.
        return None if self.wanted_paths is None else str(collection_path) not in self.wanted_paths

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector):
        path = str(collector.path)
        self.paths[path] = None
        if path in self.skipped_paths and isinstance(collector, pytest.File):
            error = CollectErrorRepr("the process died while collecting this file")
            report = CollectReport(collector.nodeid, "failed", error, [])
            self.collect_reports[collector.nodeid] = (path, report)
            # The file is not touched: the hook's implementation returns the result of collect().
            collector.collect = lambda: []
            yield
            return report
        if self.is_listing() and isinstance(collector, pytest.File):
            self.channel.send({"k": "file", "path": to_handle(path)})
        try:
            report = yield
        except (KeyboardInterrupt, SystemExit, pytest.exit.Exception) as error:
            text = describe_exception(error)
            report = CollectReport(collector.nodeid, "failed", CollectErrorRepr(str(text)), [])
        if report.outcome != "passed":
            self.collect_reports[collector.nodeid] = (path, report)
        return report

    def list_tests(self, session):
        seen = {}
        for item in session.items:
            path, line, _ = item.location
            place = seen[item.nodeid] = seen.get(item.nodeid, -1) + 1
            tags = {mark.name: None for mark in item.iter_markers() if mark.name not in MECHANICAL_MARKS}
            report = {"k": "test", "id": item.nodeid, "selector": selector_of(place, item.path, item.nodeid)}
            report["file"] = os.path.abspath(os.path.join(session.config.rootpath, path))
            if line is not None:
                report["line"] = line + 1
            report["tags"] = list(tags)
            self.channel.add(report)
        for nodeid, (path, collected) in self.collect_reports.items():
            report = {"k": "test", "id": nodeid or path, "file": path}
            report["selector"] = selector_of("file", path, nodeid)
            if collected.skipped:
                report["skip"] = shortened(skip_reason(collected.longrepr))
            else:
                report["selector"] += f"\n{shortened(collected.longrepr, COLLECT_ERROR_LIMIT)}"
            self.channel.add(report)
        for plugin in session.config.pluginmanager.get_plugins():
            file = getattr(plugin, "__file__", None)
            if file and os.path.basename(file) == "conftest.py":
                self.paths[file] = None
        if session.config.inipath:
            self.paths[str(session.config.inipath)] = None
        for path in list(self.paths):
            self.paths[os.path.dirname(path)] = None
        if self.failure_limit:
            message = "-x and --maxfail have no effect; use --fail-fast or --max-fail of heeler"
            self.channel.add({"k": "warning", "message": message})
        self.channel.add({"k": "depends", "paths": [to_handle(path) for path in self.paths]})
        self.channel.send({"k": "listed"})

    # Runs.

    def run_tests(self, session, selectors):
        wanted = []
        for index, selector in enumerate(selectors):
            place, path, nodeid, *error = selector.split("\n", 3)
            wanted.append((index, place, from_handle(path), from_handle(nodeid), "".join(error)))
        if os.environ.get(MUTANT, "0") != "0":
            # A failure that kills a mutant needs only its message. The source lines of a traceback would take
            # longer than most tests, because each fork would parse each file again.
            session.config.option.tbstyle = "line"
        self.collect_files(session, dict.fromkeys(path for _, place, path, *_ in wanted if place != "file"))
        found = []
        for index, place, path, nodeid, error in wanted:
            same = self.items.get(nodeid, ())
            item = same[int(place)] if place != "file" and int(place) < len(same) else None
            found.append((index, path, nodeid, error, item))
        boundary = Boundary.from_parent(session, name="heeler-boundary")
        following = [boundary]
        for *_, item in reversed(found):
            following.append(item or following[-1])
        fence = self.channel.write_fence()
        # When coverage is counted per test, each test runs in a child.
        run_apart = getattr(getattr(builtins, "__hg__", None), "run_apart", None)
        if run_apart is not None:
            # Without freezing, a collection in a child would copy the memory of all existing objects.
            gc.freeze()
        for place, (index, path, nodeid, error, item) in enumerate(found):
            self.channel.send({"k": "begin", "i": index, "f": fence})
            self.running = RunningTest(index, item)
            if item is None:
                self.run_collector(session, path, nodeid, error)
            elif run_apart is None:
                self.run_item(session, item, following[len(found) - place - 1])
            elif self.run_in_child(session, item, run_apart):
                fence = self.channel.fences
                continue
            fence = self.channel.write_fence()
            self.channel.add(self.running.end(fence))
            self.running = None
        session.items = []
        self.channel.send({"k": "done", "f": fence})

    def run_in_child(self, session, item, run_apart):
        """Runs a test in a child that reports its end. Returns whether the child reported."""

        def run():
            self.run_item(session, item, None)
            fence = self.channel.write_fence()
            self.channel.send(self.running.end(fence))

        self.channel.is_lent = True
        status = run_apart(self.running.index, run)
        self.channel.is_lent = False
        if status == 0:
            self.running = None
            self.channel.fences += 1
            return True
        self.running.add_failure(f"the test process exited with status {status}")
        return False

    def collect_files(self, session, paths):
        """Collects files that no earlier request needed, so that modules and their fixtures exist only once."""
        paths = [path for path in paths if path not in self.collected_paths and os.path.exists(path)]
        if not paths:
            return
        self.collected_paths.update(paths)
        self.wanted_paths = paths_on_the_way(paths)
        with paused_garbage_collection():
            session.perform_collect(paths)
        self.wanted_paths = None
        self.keep_items(session)

    def keep_items(self, session):
        """Keeps the collected items, by their ids."""
        for item in session.items:
            self.items.setdefault(item.nodeid, []).append(item)
            self.collected_paths.add(str(item.path))

    def run_item(self, session, item, following):
        if item in self.begun_items and hasattr(item, "_initrequest"):
            item._initrequest()
        self.begun_items.add(item)
        try:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        except BaseException as error:
            # KeyboardInterrupt and pytest.exit() would end a pytest session; here they only fail the test.
            self.channel.exit_if_forked()
            self.running.add_failure(describe_exception(error))
            try:
                session._setupstate.teardown_exact(following)
            except BaseException as error:
                text = describe_exception(error)
                self.running.add_failure(text, "tear-down")

    def run_collector(self, session, path, nodeid, known_error):
        """Runs the placeholder of a file without tests, or of a test that pytest does not collect."""
        self.collect_reports.pop(nodeid, None)
        before = session.items
        try:
            if os.path.exists(path):
                with forgotten_import(path):
                    session.perform_collect([path])
        except BaseException as error:
            self.running.add_failure(describe_exception(error))
        session.items = before
        file = nodeid.split("::")[0]
        _, report = self.collect_reports.get(nodeid) or self.collect_reports.get(file) or (None, None)
        if report is None:
            if known_error and not self.running.outcomes:
                # For example the second of two files with the same name, which can be imported without the first.
                self.running.add_failure(known_error)
            elif not self.running.outcomes:
                message = f"pytest listed {nodeid} but did not collect it in this process"
                self.running.add_failure(message)
        elif report.skipped:
            self.running.outcomes.add("skipped")
            self.running.reason = skip_reason(report.longrepr)
        else:
            self.running.add_failure(report.longrepr)

    def pytest_assertrepr_compare(self, op, left, right):
        if self.running is not None and op == "==":
            try:
                actual, expected = repr(left), repr(right)
            except Exception:
                return
            shown = f"{actual} == {expected}"
            limited = max(len(actual), len(expected)) <= 2000
            self.running.compared = (f"assert {shown}", actual, expected) if limited else None

    def pytest_runtest_logreport(self, report):
        running = self.running
        if running is None or report.outcome not in ("passed", "failed", "skipped"):
            return
        self.channel.exit_if_forked()
        if hasattr(report, "context"):
            return self.on_subtest(report)
        running.duration += report.duration
        expected_reason = getattr(report, "wasxfail", None)
        if report.failed:
            phase = {"setup": "set-up", "teardown": "tear-down"}.get(report.when, "call")
            running.add_failure(report.longrepr or "failed", phase)
            for name, text in report.sections:
                # Heeler already has the standard outputs; logging records are only in these sections.
                if name.startswith("Captured log"):
                    self.channel.write_error(f"--- {name} ---\n{text}")
        elif report.skipped:
            running.outcomes.add("skipped")
            if expected_reason is None:
                running.reason = skip_reason(report.longrepr)
            else:
                reason = expected_reason.removeprefix("reason: ")
                running.reason = f"expected to fail: {reason}" if reason else "expected to fail"
        elif report.when == "call":
            running.outcomes.add("passed")

    def on_subtest(self, report):
        describe = getattr(report, "_sub_test_description", None)
        name = shortened(describe() if describe else str(report.context))[:1000]
        number = self.running.subtests[name] = self.running.subtests.get(name, 0) + 1
        # Subtests with the same name are separate subtests, not repetitions.
        name = name if number == 1 else f"{name} #{number}"
        part = {"k": "part", "i": self.running.index, "name": name, "state": report.outcome}
        if report.failed:
            self.running.add_failure(report.longrepr)
            part["message"] = self.running.failures[-1]["message"]
        elif report.skipped:
            part["message"] = str(getattr(report, "wasxfail", None) or skip_reason(report.longrepr))
        self.channel.add(part)


remove_own_path()
PLUGIN = Plugin()


def pytest_plugin_registered(plugin, manager):
    """Registers the plugin's hooks as soon as this module is registered."""
    if plugin is sys.modules[__name__]:
        manager.register(PLUGIN, "heeler")
