"""Who is measured when: rounds of all contenders, cell by cell, one after the other (A B C A B C ...)."""
import math
import statistics
import time
from dataclasses import dataclass, field

import contenders
from options import sizes_of

BIG = 24 << 20
SIT_OUT = 4.0  # a contender that is so many times slower than the best one of its cell is measured in one round only
SLOW_US = 2000  # where a turn takes long; faster ones stay whatever their place


@dataclass(frozen=True)
class Cell:
    op: str
    ranks: int
    bytes: int


@dataclass(frozen=True)
class Entry:
    """One contender of a cell."""
    job: contenders.Job
    variant: str

    @property
    def buffers(self):
        return self.variant.partition("/")[0]

    @property
    def kind(self):
        """What is reduced, where that is not the f32 sum: "bf16", "f32-max"; else empty."""
        return self.variant.partition("/")[2]


@dataclass
class Samples:
    """What the turns of one entry in one cell gave."""
    answers: list = field(default_factory=list)

    @property
    def us(self):
        return statistics.median(answer.median for answer in self.answers)


class Schedule:
    def __init__(self, options, jobs, congestions):
        self.options, self.jobs, self.congestions = options, jobs, congestions
        self.cells = [Cell(op, ranks, size) for ranks in options.ranks for op in options.ops for size in sizes_of(options, op)]
        self.samples = {}

    def entries(self, cell):
        entries = [Entry(job, variant) for job in self.jobs if job.takes_part(cell.bytes)
                   for variant in contenders.variants(job, cell.op, cell.ranks, cell.bytes, self.congestions)]
        return [entry for entry in entries if not (self.options.quick and entry.kind)]

    @property
    def rounds(self):
        return self.options.rounds or (7 if self.options.quick else 5)

    def run(self, crew, deadline, progress, between_rounds):
        """Until all rounds are done, or the next round would end after `deadline` (monotonic seconds, or None)."""
        longest = 0
        for number in range(self.rounds):
            began = time.monotonic()
            if deadline and number and began + longest > deadline:
                break
            between_rounds()
            for cell in self.cells:
                progress(number, cell)
                self._visit(crew, cell)
            longest = max(longest if number > 1 else 0, time.monotonic() - began)

    def _visit(self, crew, cell):
        for entry in self.entries(cell):
            if self._sits_out(cell, entry):
                continue
            seconds = 15 if self.options.quick else 90
            answer = crew.turn(entry.job, cell.ranks, self._order(cell, entry), seconds)
            if answer:
                self.samples.setdefault((cell, entry), Samples()).answers.append(answer)

    def _sits_out(self, cell, entry):
        own = self.samples.get((cell, entry))
        if not own or own.us < SLOW_US or entry.job.peer == "lockstep":
            return False
        peers = (s.us for (c, e), s in self.samples.items() if c == cell and e.job.peer not in ("lockstep", "floors")
                 and {e.job.transport, entry.job.transport} != {"shm", "tcp"})
        best = min(peers, default=math.inf)
        return own.us > SIT_OUT * best

    def _order(self, cell, entry):
        budget_us = 10_000 if self.options.quick else 40_000
        warmups = 2 if cell.bytes >= BIG else 4
        least = 3 if self.options.quick or cell.bytes >= BIG else 5
        return f"{cell.op} {cell.bytes} {entry.variant} {budget_us} {warmups} {least} 20000"
