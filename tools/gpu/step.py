"""One thing that is run, and what came of it."""
import re
import traceback

from runner import OutOfTime

MOST_HANGS = 2  # After so many in one mode nothing more of it is tried.
FIELDS = {"name": str, "status": str, "seconds": (int, float), "why": str, "data": (dict, type(None))}  # Of a result as JSON.


class Result:
    def __init__(self, name, status, why="", data=None, seconds=0.0):
        self.name, self.status, self.why, self.data, self.seconds = name, status, why, data, seconds

    def line(self):
        return f"{self.status:>10}  {self.name}  ({self.seconds:.1f} s)" + (f": {self.why.splitlines()[-1]}" if self.why else "")

    def as_json(self):
        return {"name": self.name, "status": self.status, "seconds": round(self.seconds, 2), "why": self.why, "data": self.data}

    @classmethod
    def from_json(cls, fields):
        """What as_json() gave; a ValueError for anything else."""
        if set(fields) != set(FIELDS) or not all(isinstance(fields[name], kind) for name, kind in FIELDS.items()):
            raise ValueError(f"a step has not just {', '.join(FIELDS)}: {str(fields)[:80]}")
        return cls(**fields)


class Step:
    """`body(runner)` gives a Result. `mode`: in which its ranks wait for one another, where it is said.
    `beside`: it measures nothing that others which run meanwhile could disturb."""

    def __init__(self, name, body, mode=None, beside=False):
        self.name, self.body, self.mode, self.beside = name, body, mode, beside

    def run(self, runner):
        began, runner.mode, runner.where_it_hung = runner.elapsed(), self.mode, ""
        result = self.outcome(runner)
        result.why = "\n".join(filter(None, [runner.where_it_hung, result.why]))
        result.name, result.seconds = self.name, runner.elapsed() - began
        return result

    def outcome(self, runner):
        if self.mode and runner.hangs[self.mode] >= MOST_HANGS:
            return Result(self.name, "unmeasured", f"not tried: {MOST_HANGS} programs hung in mode {self.mode}")
        try:
            return self.body(runner)
        except OutOfTime as over:
            return Result(self.name, "unmeasured", str(over) or "the time was over")
        except Exception:  # pylint: disable=broad-exception-caught  # What is measured already must not be lost.
            return Result(self.name, "failed", traceback.format_exc())


def unmeasured(name, why):
    return Step(name, lambda runner: Result(name, "unmeasured", why), beside=True)


def too_long(outcome):
    """A hang: where, and the last that was said."""
    began = re.findall(r"^\[ RUN      \] (\S+)", outcome.output, re.MULTILINE)
    return f"{outcome.tail()}\nended after {outcome.seconds:.0f} s" + (f" in {began[-1]}" if began else "")
