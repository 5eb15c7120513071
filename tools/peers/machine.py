"""The machine, and what it can do at best, measured in the same run."""
import json
import os
import platform
import statistics
import subprocess
import time
from pathlib import Path

import build
from options import Problem

LONGEST = 120  # seconds that one measurement of all limits may take
CLASSES = [64 << 10, 1 << 20, 4 << 20, 25 << 20]


def read(path, otherwise="unknown"):
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return otherwise


def processor():
    for line in read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.split(": ", 1)[1]
    return platform.machine()


def congestion():
    """(the default, those that every process may take)"""
    return (read("/proc/sys/net/ipv4/tcp_congestion_control"),
            read("/proc/sys/net/ipv4/tcp_allowed_congestion_control", "").split())


class Limits:
    """Measured once a round; the medians are what counts."""

    def __init__(self, program, quick, largest):
        self.program, self.measured = program, []
        self.milliseconds = 15 if quick else 60
        self.classes = [size for size in CLASSES + [64 << 20] if size <= max(largest, CLASSES[0])]

    def measure(self):
        command = [str(self.program), str(self.milliseconds), *map(str, self.classes)]
        try:
            done = subprocess.run(command, text=True, capture_output=True, timeout=LONGEST, check=True)
            self.measured.append(json.loads(done.stdout))
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            raise Problem(f"cannot measure the machine's limits: {error}") from error

    def median(self):
        def over_rounds(get):
            values = [get(one) for one in self.measured]
            return None if None in values else round(statistics.median(values), 4)
        first = self.measured[0]
        limits = {"cores": first["cores"], "cma": first["cma"]}
        for rates in ("copy_gbs", "add_gbs"):
            limits[rates] = {key: over_rounds(lambda one, r=rates, k=key: one[r][k]) for key in first[rates]}
        for latency in ("cache_line_us", "futex_us"):
            limits[latency] = over_rounds(lambda one, name=latency: one[name])
        return limits


def describe(crew):
    versions = dict(crew.versions)
    versions.pop("floors", None)
    if "gloo" in versions:
        versions["gloo"] = "Gloo " + build.package_version("libgloo-dev")
    versions["lockstep"] = build.commit()
    return {"date": time.strftime("%Y-%m-%d %H:%M"), "processor": processor(), "cores": len(os.sched_getaffinity(0)),
            "kernel": platform.release(), "load": round(os.getloadavg()[0], 2), "versions": versions}
