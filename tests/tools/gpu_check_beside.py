"""For gpu_check_test.sh: tests run side by side, a measurement alone. Argument: a folder, which is empty."""
import contextlib
import io
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import runner
import schedule
from kit import Kit
from step import Result, Step

FOLDER = Path(sys.argv[1])


def step(name, script, beside=True, mode=None, seconds=30):
    def body(running):
        outcome = running.run(["sh", "-c", f"cd {FOLDER}; {script}"], seconds)
        return Result("", "failed" if outcome.status else "passed", outcome.output)
    return Step(name, body, mode, beside)


def results(jobs, *steps):
    """Of each its status, and the names of all as they ended."""
    running, found = runner.Runner(Kit(FOLDER, [], ""), SimpleNamespace(device="host", limit=60)), {}
    schedule.run(list(enumerate(steps)), running, jobs, lambda number, result: found.update({number: result}))
    return [found[number].status for number in range(len(steps))], [result.name for result in found.values()]


def meets(mine, other):
    return step(mine, f"touch {mine}; until [ -e {other} ]; do sleep 0.02; done")


runner.LEAST_SECONDS = 0
assert results(2, meets("a", "b"), meets("b", "a"))[0] == ["passed"] * 2
# As soon as one has ended the next begins.
assert results(2, *(meets(f"of-chain-{number}", f"of-chain-{number + 1}") for number in range(4)), step("last", "touch of-chain-4"))[0] == ["passed"] * 5

order = [step("test", "sleep 0.5; touch tested; [ ! -e measuring ]"),
         step("measurement", "touch measuring; [ -e tested ] && sleep 0.5 && [ ! -e behind ] && touch measured", beside=False),
         step("behind", "touch behind; [ -e measured ]")]
assert results(3, *order) == (["passed"] * 3, ["test", "measurement", "behind"])
alone = [step(name, "mkdir one && sleep 0.2 && rmdir one") for name in "pqr"]
assert results(1, *alone) == (["passed"] * 3, ["p", "q", "r"])

# Of a step's hangs the next ones know; one whose process dies fails alone.
hanging = [step(name, "exec sleep 60", mode="host_sync", seconds=0.5) for name in "xyz"]
assert results(1, *hanging)[0] == ["failed", "failed", "unmeasured"]
assert results(2, Step("dies", lambda _: os._exit(1), beside=True), alone[0])[0] == ["failed", "passed"]

# Asked to end in the moment in which a step has: its line is printed, and it counts.
signal.signal(signal.SIGTERM, schedule.interrupt)
told, counted = io.StringIO(), []


def asked_to_end(_number, result):
    os.kill(os.getpid(), signal.SIGTERM)
    counted.append(result.status)


try:
    with contextlib.redirect_stdout(told):
        schedule.run([(0, step("one", "true")), (1, step("next", "true"))], runner.Runner(Kit(FOLDER, [], ""), SimpleNamespace(device="host", limit=60)), 1, asked_to_end)
    raise AssertionError("it was not interrupted")
except schedule.Interrupted:
    assert counted == ["passed"] and "passed  one" in told.getvalue() and "next" not in told.getvalue(), (counted, told.getvalue())
