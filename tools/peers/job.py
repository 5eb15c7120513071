"""One job: its processes, and the line over which they are told what to measure."""
import contextlib
import ctypes
import os
import select
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass

import contenders

START_SECONDS = 30
STOOD_SECONDS = 2  # A look that takes so much longer than it should: the machine stood still, and the ranks with it.
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


class JobFailed(Exception):
    pass


@dataclass
class Answer:
    iterations: int
    median: float
    p95: float
    least: float
    algorithm: str


class RunningJob:
    """Started on construction; raises JobFailed. Between turns its processes sleep."""

    def __init__(self, job, program, ranks, folder, cores):
        self.job, self.folder = job, folder
        self.processes, self.pids, self.line, self.pending = [], [], None, b""
        folder.mkdir()
        self.log = (folder / "log").open("w+b")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(folder / "driver"))
            listener.listen(1)
            for arguments, environment in contenders.command(job, program, ranks, folder, cores):
                self._start(arguments, environment)
            self.line = self._accept(listener)
            greeting = self._read(time.monotonic() + START_SECONDS).split(" ", ranks + 1)
            self.pids, self.version = [int(pid) for pid in greeting[1:ranks + 1]], greeting[ranks + 1]
            share_priority(self.pids)
        except BaseException as error:  # an interruption as well
            self.stop()
            if isinstance(error, (OSError, JobFailed)):
                raise JobFailed(f"does not start: {error}") from error
            raise
        finally:
            listener.close()

    def _start(self, arguments, environment):
        self.processes.append(subprocess.Popen(arguments, env=contenders.clean_environment() | environment, stdin=subprocess.DEVNULL,
                                               stdout=self.log, stderr=self.log, preexec_fn=stay_close))

    def _accept(self, listener):
        deadline = time.monotonic() + START_SECONDS
        while not select.select([listener], [], [], 0.1)[0]:
            self._check(deadline)
        return listener.accept()[0]

    def _check(self, deadline):
        ended = [process.returncode for process in self.processes if process.poll() is not None]
        if ended:
            raise JobFailed(f"ended with status {ended[0]}{self._last_words()}")
        if time.monotonic() > deadline:
            raise JobFailed("did not answer in time" + self._last_words())

    def _last_words(self):
        self.log.flush()
        lines = (self.folder / "log").read_text(errors="replace").strip().splitlines()
        said = [line.strip() for line in lines if any(c.isalnum() for c in line)]
        return f": {said[0][:200]}" if said else ""

    def _read(self, deadline):
        while b"\n" not in self.pending:
            before = time.monotonic()
            here = select.select([self.line], [], [], 0.1)[0]
            stood = time.monotonic() - before
            deadline += stood if stood > STOOD_SECONDS else 0
            if here:
                part = self.line.recv(4096)
                if not part:
                    time.sleep(0.2)  # for its last words
                    raise JobFailed("ended" + self._last_words())
                self.pending += part
            elif time.monotonic() > deadline or any(process.poll() is not None for process in self.processes):
                self._check(deadline)
        line, self.pending = self.pending.split(b"\n", 1)
        return line.decode()

    def ask(self, line, seconds):
        try:
            self.line.sendall(line.encode() + b"\n")
            return self._read(time.monotonic() + seconds)
        except OSError as error:
            raise JobFailed(f"ended: {error}{self._last_words()}") from error

    def turn(self, order, seconds):
        """The answer, or None where the job has no such call."""
        words = self.ask(order, seconds).split(" ", 5)
        if words[0] == "ok":
            return Answer(int(words[1]), *map(float, words[2:5]), words[5])
        if words[0] == "unsupported":
            return None
        raise JobFailed(f"gave {words[1]} wrong elements")

    def hang_up(self):
        """Its ranks leave by themselves from now on."""
        if self.line:
            self.line.close()

    def stop(self, seconds=0):
        """Whoever has not left after so many seconds is ended."""
        self.hang_up()
        deadline = time.monotonic() + seconds
        for process in self.processes:
            try:
                process.wait(max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
        for number, seconds in ((signal.SIGTERM, 1), (signal.SIGKILL, None)):
            left = [process for process in self.processes if process.poll() is None]
            for process in left:
                os.killpg(process.pid, number)
            for process in left:
                try:
                    process.wait(seconds)
                except subprocess.TimeoutExpired:
                    pass
        for pid in processes_of(self.folder):  # of a launcher that was not kind enough to end them
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def stay_close():
    """In a new process: a group of its own, so that it can be ended as a whole (not a session of its own, which would be
    scheduled apart), and an end with this process, whatever ends that."""
    os.setpgrp()
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def processes_of(folder):
    """Those that were told of this folder, as all ranks are."""
    told = []
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                if entry.isdigit() and str(folder).encode() in file.read().split(b"\0"):
                    told.append(int(entry))
        except OSError:
            pass  # no process, or gone meanwhile
    return told


def group_nice(pid):
    """What the process's scheduling group may take, or None: a process that was never given a group of its own has an empty file."""
    with open(f"/proc/{pid}/autogroup", encoding="ascii") as file:
        words = file.read().split()
    return words[-1] if words else None


def share_priority(pids):
    """Some launchers give ranks a session, and with it a scheduling group, of their own: all contenders get this command's."""
    try:
        ours = group_nice("self") or "0"
        for pid in pids:
            if group_nice(pid) not in (None, ours):
                with open(f"/proc/{pid}/autogroup", "w", encoding="ascii") as file:
                    file.write(ours)
    except OSError:
        pass  # no such groups in this kernel, or not ours to change
