"""The machine and its GPU."""
import functools
import os
import platform
import shutil
import subprocess
import time
from pathlib import Path


def ask(*command):
    try:
        return subprocess.run(command, text=True, capture_output=True, timeout=60, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def processor():
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(": ", 1)[1]
    return platform.machine()


def gpu():
    """None where there is no driver or no device."""
    fields = ["name", "driver_version", "memory.total", "compute_mode", "pci.bus_id"]
    text = ask("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader")
    if not text:
        return None
    devices = [dict(zip(fields, (part.strip() for part in line.split(",")))) for line in text.splitlines()]
    return {"count": len(devices), **devices[0], "mps": bool(ask("pgrep", "-x", "nvidia-cuda-mps"))}


def toolkit():
    return Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))


@functools.cache
def cublas_folders():
    wheels = ask("python3", "-c", "import nvidia; print(*nvidia.__path__, sep='\\n')").splitlines()
    found = [path.parent for wheel in wheels for path in Path(wheel).glob("*/lib/libcublas.so.*")]
    return [folder for folder in [toolkit() / "lib64", *found] if folder.is_dir()]


def sanitizer():
    """Not every machine has the toolkit's programs on its PATH."""
    return shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=str(toolkit() / "bin"))


def torch_version():
    return ask("python3", "-c", "import torch; print(torch.__version__, 'CUDA', torch.version.cuda)")


def libraries_of_nccl(options):
    """[(where from, path)] of NCCLs here."""
    if options.nccl:
        return [("--nccl", Path(options.nccl))]
    torch_nccl = ask("python3", "-c", "import nvidia.nccl, os; print(os.path.join(list(nvidia.nccl.__path__)[0], 'lib/libnccl.so.2'))")
    candidates = [("toolkit", toolkit() / "lib64/libnccl.so.2")] + ([("PyTorch", Path(torch_nccl))] if torch_nccl else [])
    candidates += [("system", Path(folder, "libnccl.so.2")) for folder in (f"/usr/lib/{platform.machine()}-linux-gnu", "/usr/lib64")]
    return [(where, path) for where, path in candidates if path.exists()]


def describe(kit, options):
    here = gpu() if options.device == "cuda" else None
    return {"date": time.strftime("%Y-%m-%d %H:%M"), "commit": kit.commit, "device": options.device, "gpu": here,
            "machine": {"processor": processor(), "cores": len(os.sched_getaffinity(0)), "kernel": platform.release(),
                        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)},
            "torch": torch_version() or None, "compute_sanitizer": sanitizer(), "mps_control": shutil.which("nvidia-cuda-mps-control"),
            "nccl": [f"{where}: {path}" for where, path in libraries_of_nccl(options)]}


def headline(about):
    device = about["gpu"]["name"] if about["gpu"] else ("no GPU: the host backend" if about["device"] == "host" else "no GPU was found")
    return f"gpu-check: lockstep {about['commit']}, {about['date']}, {device}, {about['machine']['cores']} cores"
