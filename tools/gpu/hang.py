"""Where the processes of a program are that hangs: the only evidence, since they are ended then."""
import contextlib
import os
import shutil
import subprocess
from pathlib import Path

# The first that is here says where a process's threads are; those of CUDA know no other name for what waits in the driver.
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


def backtrace(process):
    for command in DEBUGGERS:
        if not shutil.which(command[0]):
            continue
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            said = subprocess.run([*command, str(process)], text=True, capture_output=True, errors="replace", timeout=DEBUGGER_SECONDS, check=False)
            return said.stdout.strip().splitlines()[-MOST_LINES:]
    return []


def describe(session):
    lines = []
    for process in processes(session):
        lines += [f"process {process} does not end:", *threads(process), *backtrace(process)]
    return "\n".join(lines)
