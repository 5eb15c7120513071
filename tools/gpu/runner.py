"""Runs programs, each within its limit and all within one."""
import os
import signal
import subprocess
import time

LEAST_SECONDS = 5  # What would get less is not begun.
# A kernel that is loaded when it is first started may wait for all streams, and streams that share a connection wait for one another.
USUAL = {"CUDA_MODULE_LOADING": "EAGER", "CUDA_DEVICE_MAX_CONNECTIONS": "32"}
ASKED_SECONDS = 3  # From the request to end to the end.


class Outcome:
    def __init__(self, status, output, seconds):
        self.status, self.output, self.seconds = status, output, seconds

    def tail(self, lines=12):
        return "\n".join(self.output.strip().splitlines()[-lines:])


class OutOfTime(Exception):
    pass


def end(process):
    """Its output. Programs are asked first: they remove what they have made."""
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
        self.began = time.monotonic()

    def elapsed(self):
        return time.monotonic() - self.began

    def run(self, command, seconds, environment=None):
        """Standard output and error together. Status 124: the limit ended it, with all of its processes."""
        left = self.limit - self.elapsed()
        if left < LEAST_SECONDS:
            raise OutOfTime()
        everything = {**USUAL, **os.environ, **self.kit.environment, "LOCKSTEP_DEVICE_BACKEND": self.device, **(environment or {})}
        began = time.monotonic()
        process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   errors="replace", env=everything, start_new_session=True)
        try:
            output, _ = process.communicate(timeout=min(seconds, left))
            status = process.returncode
        except subprocess.TimeoutExpired:
            output, status = end(process), 124
        return Outcome(status, output, time.monotonic() - began)
