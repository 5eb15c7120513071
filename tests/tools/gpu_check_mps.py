"""For gpu_check_test.sh: MPS has a daemon of its own for each step, told to end and made to; its clients have as many connections as it can
make in all. Argument: a folder, which is empty."""
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import measurements
import mps
import runner
from kit import Kit

FOLDER = Path(sys.argv[1])
LOG, STUBBORN, CONTROL = FOLDER / "log", FOLDER / "stubborn", FOLDER / "nvidia-cuda-mps-control"
PROGRAM = f"""#!/bin/sh
told=$CUDA_MPS_PIPE_DIRECTORY/told
if [ "$1" != -f ]; then
  cat >"$told.part" && mv "$told.part" "$told"
  exit
fi
echo "began $$" >>"{LOG}"
until [ -e "$told" ] && [ ! -e "{STUBBORN}" ]; do sleep 0.02; done
echo "told $(cat "$told")" >>"{LOG}"
"""


def is_gone(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def said():
    """By a daemon, which is gone, as is its folder."""
    LOG.write_text("", encoding="utf-8")
    with mps.daemon(str(CONTROL)) as environment:
        while not LOG.read_text(encoding="utf-8").endswith("\n"):
            time.sleep(0.02)
        place = Path(environment["CUDA_MPS_PIPE_DIRECTORY"])
        assert place.is_dir() and "CUDA_MPS_LOG_DIRECTORY" in environment
    began, *more = LOG.read_text(encoding="utf-8").splitlines()
    assert is_gone(int(began.split()[1])) and not place.exists(), began
    return more


class Recorder(runner.Runner):
    """Runs nothing."""
    asked = None

    def run(self, command, seconds, environment=None):
        self.asked = self.more["CUDA_DEVICE_MAX_CONNECTIONS"]
        assert "CUDA_MPS_PIPE_DIRECTORY" in self.more
        return runner.Outcome(1, "", 0.0)


def connections(counts):
    """Of each step's name what its clients are told."""
    options = SimpleNamespace(device="host", ranks=counts, limit=60)
    running, found = Recorder(Kit(FOLDER, [], ""), options), {}
    for step in measurements.mps_steps(options, {"gpu": {"name": "one"}, "mps_control": str(CONTROL)}):
        step.run(running)
        found[step.name] = running.asked
        assert running.more == {}, step.name
    return found


CONTROL.write_text(PROGRAM, encoding="utf-8")
CONTROL.chmod(0o755)
assert said() == ["told quit"]
STUBBORN.touch()
mps.QUIT_SECONDS = 0.5
assert said() == []
STUBBORN.unlink()
mps.QUIT_SECONDS = 10
asked = connections([2, 4, 8])
assert asked["floors, under MPS"] == "8", asked
for name in ("all_reduce registered", *(f"latency {mode}" for mode in measurements.MODES)):
    assert [asked[f"{name}, {count} ranks, under MPS"] for count in (2, 4, 8)] == ["32", "16", "8"], (name, asked)
