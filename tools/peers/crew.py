"""All jobs of a run: started once, asked in turn, started again after a failure, and gone in the end."""
import os
import shutil
import tempfile
from pathlib import Path

from job import JobFailed, RunningJob

MOST_FAILURES = 3  # of one job; then it is left out
END_SECONDS = 3  # for a library's own orderly end


class Crew:
    """`note(text)` is told of every failure."""

    def __init__(self, programs, note):
        self.programs, self.note = programs, note
        self.cores = len(os.sched_getaffinity(0))
        shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="lockstep-peers-", dir=shared))
        self.running, self.failures, self.versions, self.started = {}, {}, {}, 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for job in self.running.values():
            job.hang_up()
        for job in self.running.values():
            job.stop(END_SECONDS)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, job, ranks):
        """Whether it runs; a job that has failed too often does not."""
        key = (job, ranks)
        if key in self.running:
            return True
        if self.failures.get(key, 0) >= MOST_FAILURES:
            return False
        self.started += 1
        try:
            self.running[key] = RunningJob(job, self.programs[job.peer], ranks, self.folder / str(self.started), self.cores)
            self.versions[job.peer] = self.running[key].version
            return True
        except JobFailed as error:
            self._failed(key, f"{error}")
            return False

    def turn(self, job, ranks, order, seconds):
        """The answer, or None when there is none."""
        if not self.start(job, ranks):
            return None
        try:
            return self.running[job, ranks].turn(order, seconds)
        except JobFailed as error:
            self._failed((job, ranks), f"{' '.join(order.split()[:3])}: {error}")
            self.running.pop((job, ranks)).stop()
            return None

    def ask(self, job, ranks, question):
        if (job, ranks) not in self.running:
            return None
        try:
            return self.running[job, ranks].ask(question, 5)
        except JobFailed:
            return None

    def _failed(self, key, what):
        self.failures[key] = self.failures.get(key, 0) + 1
        self.note(f"{key[0].name} with {key[1]} ranks, {what}")
