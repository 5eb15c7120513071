"""Where the processes of a program are that hangs: the only evidence, since they are ended then."""
import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path

# The first that is here is asked where a process's threads are.
DEBUGGERS = [["cuda-gdb", "--batch", "-ex", "thread apply all backtrace 12", "-p"], ["gdb", "--batch", "-ex", "thread apply all backtrace 12", "-p"],
             ["eu-stack", "-n", "12", "-p"]]
DEBUGGER_SECONDS = 15
MOST_LINES = 60  # Of one process.


def processes(session):
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            if os.getsid(int(folder.name)) == session:
                found.append(int(folder.name))
    return sorted(found)


def threads(process):
    """Of each its name, and where in the kernel it is."""
    for task in sorted(Path(f"/proc/{process}/task").glob("*")):
        with contextlib.suppress(OSError):
            place = (task / "wchan").read_text(encoding="utf-8") or "0"
            call = (task / "syscall").read_text(encoding="utf-8").split()[:2]
            yield f"  {(task / 'comm').read_text(encoding='utf-8').strip()} ({task.name}): in {place}, system call {' '.join(call)}"


def backtrace(process, seconds):
    debugger = next((command for command in DEBUGGERS if shutil.which(command[0])), None)
    if debugger is None or seconds <= 0:
        return []
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        said = subprocess.run([*debugger, str(process)], text=True, stdin=subprocess.DEVNULL, capture_output=True, errors="replace",
                              timeout=min(seconds, DEBUGGER_SECONDS), check=False)
        return said.stdout.strip().splitlines()[-MOST_LINES:]
    return []


def describe(session, seconds):
    """Takes that long at most."""
    end = time.monotonic() + seconds
    found = processes(session)
    lines = [line for process in found for line in (f"process {process} does not end:", *threads(process))]
    return "\n".join(lines + [line for process in found for line in backtrace(process, end - time.monotonic())])
