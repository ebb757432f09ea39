"""Forks test processes from a process that has collected the tests. PYTEST_DONT_REWRITE

The process with the collected tests (the warm process) forks a child. The child forks the test process and then
executes a guard of Heeler. The test process thus is the guard's own child, as if the guard had started it, with its own
environment, outputs and report channel. The test process waits on a pipe until the guard watches it.
"""

import atexit
import builtins
import ctypes
import gc
import json
import os
import random
import signal
import socket
import stat
import sys
import weakref

CHANNEL = 3
MUTANT = "HEELER_MUTANT"
WARM = "HEELER_WARM"
DESCRIPTORS = 4
PR_SET_PDEATHSIG = 1


def open_descriptors():
    """Returns the open descriptors of this process with their targets."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:  # That of the directory itself.
            pass
    return found


def is_appended_to(descriptor):
    with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as lines:
        flags = next((line.split()[1] for line in lines if line.startswith("flags:")), "0")
    return bool(int(flags, 8) & os.O_APPEND)


def shares_nothing(descriptor):
    """Returns whether forks can use a descriptor one after the other without noticing each other."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISCHR(mode) or stat.S_ISDIR(mode):
        return True
    return stat.S_ISREG(mode) and is_appended_to(descriptor)


class ForkServer:
    def __init__(self, channel):
        self.channel = channel
        self.c = ctypes.CDLL(None)
        self.known = open_descriptors()
        self.guards = []
        # Each fork gets new random numbers, unless the project has set the seed.
        self.first_numbers = random.getstate()
        self.numbers = None
        self.has_failed = False
        # Copies of the standard output descriptors.
        self.copies = {}

    def reason_against(self):
        """Returns why forking is unsafe: shared state through which a test could notice another fork."""
        if len(os.listdir("/proc/self/task")) > 1:
            return "it has threads"
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            return "it has started processes"
        except ChildProcessError:
            pass
        if signal.getsignal(signal.SIGCHLD) is not signal.SIG_DFL:
            return "it handles SIGCHLD"
        for descriptor, target in open_descriptors().items():
            is_known = self.known.get(descriptor) == target or descriptor in self.copies
            try:
                if not is_known and not shares_nothing(descriptor):
                    return f"it has opened {target}"
            except OSError:  # Closed in the meantime.
                pass
        with open("/proc/self/maps", "rb") as maps:
            for line in maps:
                _, permissions, *rest = line.split(None, 5)
                if permissions.startswith(b"rw") and permissions.endswith(b"s"):
                    return f"it shares memory with other processes: {os.fsdecode(rest[-1]).strip()}"
        return None

    def serve(self):
        """Forks on request. Returns the request to stop, or in a fork the request to run tests."""
        channel = self.channel
        outputs = {os.readlink(f"/proc/self/fd/{number}"): number for number in (1, 2)}
        targets = open_descriptors().items()
        self.copies = {descriptor: outputs[target] for descriptor, target in targets if target in outputs}
        reason = self.reason_against()
        channel.write_fence()
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self.replace_outputs({1: null, 2: null})
        os.close(null)
        numbers = random.getstate()
        self.numbers = numbers if numbers != self.first_numbers else None
        gc.collect()
        # Without freezing, a collection in a fork would copy the memory of all existing objects.
        gc.freeze()
        channel.send({"k": "cold", "reason": reason} if reason else {"k": "warm"})
        with socket.socket(fileno=os.dup(CHANNEL)) as requests:
            while True:
                request, descriptors = self.receive(requests)
                if request.get("k") == "stop":
                    return request
                if request.get("k") != "fork" or len(descriptors) != DESCRIPTORS:
                    continue
                report = self.refuse(request) or self.fork(request, descriptors)
                if report is None:
                    requests.close()
                    return channel.receive()
                for descriptor in descriptors:
                    os.close(descriptor)
                channel.send(report)

    def receive(self, requests):
        received, descriptors = b"", []
        while not received.endswith(b"\n"):
            room = socket.CMSG_SPACE(DESCRIPTORS * 4)
            data, ancillary, _, _ = requests.recvmsg(1 << 16, room, socket.MSG_CMSG_CLOEXEC)
            if not data:
                return {"k": "stop"}, []
            received += data
            for level, kind, content in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    numbers = memoryview(content[: len(content) // 4 * 4]).cast("i")
                    descriptors += numbers
        return json.loads(received), descriptors

    def refuse(self, request):
        """Returns the answer to a request that needs a separate process."""
        number = dict(request["env"]).get(MUTANT)
        was_reached = getattr(getattr(builtins, "__hg__", None), "was_reached", None)
        if number and was_reached is not None and was_reached(int(number)):
            return {"k": "refused", "reason": "its mutant was reached before any test ran"}
        return None

    def fork(self, request, descriptors):
        """Forks a test process below a guard. Returns the answer; returns None in the test process."""
        self.guards = [guard for guard in self.guards if os.waitpid(guard, os.WNOHANG)[0] == 0]
        gate_reader, gate = os.pipe()
        self.channel.is_lent = True
        try:
            guard = os.fork()
        except OSError as error:
            self.channel.is_lent = False
            os.close(gate_reader)
            os.close(gate)
            return {"k": "refused", "reason": str(error)}
        if guard:
            self.channel.is_lent = False
            self.guards.append(guard)
            os.close(gate_reader)
            os.close(gate)
            return {"k": "forked", "pid": guard}
        is_test = False
        try:
            self.channel.is_lent = True
            parent = os.getpid()
            test = os.fork()
            if test == 0:
                os.close(gate)
                self.begin_test(request, descriptors, gate_reader, parent)
                is_test = True
                return None
            self.execute_guard(request["guard"], descriptors, gate, test)
        finally:
            if not is_test:
                os._exit(1)

    def execute_guard(self, words, descriptors, gate, test):
        control, stdout, stderr, _ = descriptors
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for target, source in enumerate((control, stdout, stderr, gate)):
            os.dup2(source, target)
        for descriptor in open_descriptors():
            if descriptor >= DESCRIPTORS:
                try:
                    os.set_inheritable(descriptor, False)
                except OSError:  # That of the directory itself.
                    pass
        os.execve(words[0], [*words, str(test)], {})

    def begin_test(self, request, descriptors, gate_reader, parent):
        """Sets this process up as if Heeler had started it."""
        os.setpgid(0, 0)
        self.c.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
        control, stdout, stderr, reports = descriptors
        self.replace_outputs({1: stdout, 2: stderr})
        os.dup2(reports, CHANNEL, inheritable=False)
        for descriptor in (control, stdout, stderr, reports):
            os.close(descriptor)
        if os.read(gate_reader, 1) != b"\1":
            os._exit(1)
        os.close(gate_reader)
        for name, value in request["env"]:
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        guards = getattr(builtins, "__hg__", None)
        if hasattr(guards, "begin_again"):
            guards.begin_again()
        if self.numbers is not None:
            random.setstate(self.numbers)
        self.leave_exit_handlers()
        self.channel.begin_again()

    def replace_outputs(self, sources):
        for copy, number in self.copies.items():
            os.dup2(sources[number], copy, inheritable=copy in (1, 2))

    def leave_exit_handlers(self):
        """Leaves existing exit handlers to the warm process: in a fork they could delete files that other forks
        need. Handlers registered from now on run in the fork."""
        atexit._clear()
        for finalizer in list(weakref.finalize._registry):
            finalizer.atexit = False
        weakref.finalize._registered_with_atexit = False
        # Registered first, so it runs last: it ends the process without cleaning up modules.
        atexit.register(self.end)
        processes = sys.modules.get("multiprocessing.util")
        if processes is not None:
            atexit.register(processes._exit_function)
        hook = sys.excepthook

        def note_failure(*exception):
            self.has_failed = True
            hook(*exception)

        sys.excepthook = note_failure

    def end(self):
        for stream in {sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__}:
            try:
                stream.flush()
            except Exception:  # Closed, or replaced by a test.
                pass
        self.channel.flush_c_output()
        os._exit(1 if self.has_failed else 0)
