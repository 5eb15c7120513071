"""Runs programs, each within its limit and all within one."""
import collections
import contextlib
import glob
import itertools
import os
import signal
import subprocess
import time

import hang

LEAST_SECONDS = 5  # What would get less is not begun.
# A kernel that is loaded when it is first started may wait for all streams, and streams that share a connection wait for one another.
USUAL = {"CUDA_MODULE_LOADING": "EAGER", "CUDA_DEVICE_MAX_CONNECTIONS": "32"}
ASKED_SECONDS = 3  # From the request to end to the end.
MOST_LOOKS, LOOK_SECONDS = 3, 30  # So many hangs are looked into, for so long each.
# Without persistence mode the driver takes a GPU down when its last user goes, and up again in seconds for the next.
DEVICES = "/dev/nvidiactl", "/dev/nvidia[0-9]*"


TOOK_TOO_LONG = 124


class Outcome:
    def __init__(self, status, output, seconds):
        self.status, self.output, self.seconds = status, output, seconds

    def tail(self, lines=12):
        return "\n".join(self.output.strip().splitlines()[-lines:])


class OutOfTime(Exception):
    """The whole run's time is over: says nothing about the program."""


def hold_devices():
    held = []
    for path in itertools.chain(*map(glob.glob, DEVICES)):
        with contextlib.suppress(OSError):
            held.append(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    return held


def end(process):
    """Its output. Programs are asked first: they remove what they have made."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        output, _ = process.communicate(timeout=ASKED_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    return output


class Runner:
    def __init__(self, kit, options):
        self.kit, self.device, self.limit = kit, options.device, options.limit
        self.environment = kit.environment  # Found once, before each step has a process of its own.
        self.began = time.monotonic()
        self.held = hold_devices() if options.device == "cuda" else []
        self.mode, self.where_it_hung = None, ""  # Of the step that runs.
        self.hangs = collections.Counter()  # By mode.
        self.more = {}

    def elapsed(self):
        return time.monotonic() - self.began

    @contextlib.contextmanager
    def more_environment(self, variables):
        """For all that is run meanwhile."""
        self.more = variables
        try:
            yield
        finally:
            self.more = {}

    def run(self, command, seconds, environment=None):
        """Standard output and error together; USUAL where the caller has set nothing else, and None takes a variable away.
        Status 124: its own limit ended it, with all of its processes."""
        left = self.limit - self.elapsed()
        if left < LEAST_SECONDS:
            raise OutOfTime()
        wanted = {**USUAL, **os.environ, **self.environment, "LOCKSTEP_DEVICE_BACKEND": self.device, **self.more, **(environment or {})}
        everything = {name: value for name, value in wanted.items() if value is not None}
        began = time.monotonic()
        process = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace", env=everything, start_new_session=True)
        try:
            output, _ = process.communicate(timeout=min(seconds, left))
            status = process.returncode
        except subprocess.TimeoutExpired:
            if left < seconds:
                raise OutOfTime(f"the time was over after {left:.0f} s of it") from None
            self.look_into(process)
            output, status = end(process), TOOK_TOO_LONG
        finally:  # After whatever it was, a request to end among them, no process of it stays.
            if process.returncode is None:
                end(process)
        return Outcome(status, output, time.monotonic() - began)

    def look_into(self, process):
        self.hangs[self.mode] += 1
        if self.hangs.total() <= MOST_LOOKS:
            self.where_it_hung = hang.describe(process.pid, min(LOOK_SECONDS, self.limit - self.elapsed()))
