"""Floors and benchmarks: of processes and of threads that share a GPU, and of processes under MPS."""
import json
import re
import tempfile
from pathlib import Path

import facts
import mps
from runner import TOOK_TOO_LONG
from step import Result, Step, too_long, unmeasured

BENCH_SECONDS = 60
BENCH_PATIENCE = {"LOCKSTEP_TIMEOUT": "20s"}
WRONG_DATA = 3  # lockstep-bench's exit status
MODES = ["host_sync", "stream_sync", "device_sync"]
GRAPH_MODES = ["stream_sync", "device_sync"]
MIB = 1 << 20
ROOMY_MIB = 60_000  # Eight ranks on it have buffers of 1 GiB.
UNDER_MPS = ", under MPS"
# Of all clients together: an H100 makes 2 x 32, 4 x 16 and 8 x 8 of them, and at 3 x 32 a client's context fails with "out of memory".
MPS_CONNECTIONS = 64


def sizes(options, about):
    """Of the goals the first and the last, which come by factors of eight; of the floors the last, which come by factors of four from
    1 MiB. On a GPU the last is the same."""
    if options.device != "cuda":
        return "16", "4M", 16 * MIB
    total = re.match(r"(\d+) MiB", about["gpu"]["memory.total"]) if about["gpu"] else None
    roomy = total is not None and int(total[1]) >= ROOMY_MIB
    return ("8", "1G", 1024 * MIB) if roomy else ("16", "256M", 256 * MIB)


def floors_step(options, about):
    def body(runner):
        most = sizes(options, about)[2]
        outcome = runner.run([runner.kit.program("lockstep-device-floors"), most] + options.ranks, BENCH_SECONDS)
        start = outcome.output.find("{")
        if outcome.status != 0 or start < 0:
            return Result("", "failed", f"status {outcome.status}: {outcome.tail()}")
        return Result("", "passed", data=json.loads(outcome.output[start:outcome.output.rindex("}") + 1]))
    return Step("floors", body)


def bench_step(name, options, arguments, environment=None):
    """Rows of lockstep-bench, right in every element."""
    def body(runner):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.json"
            command = [runner.kit.program("lockstep-bench"), "--device", options.device, "--json", path] + arguments
            outcome = runner.run(command, BENCH_SECONDS, {**BENCH_PATIENCE, **(environment or {})})
            if outcome.status == WRONG_DATA:
                return Result("", "failed", "wrong data: " + outcome.tail())
            if outcome.status == TOOK_TOO_LONG:
                return Result("", "failed", too_long(outcome))
            if "cannot replay" in outcome.output:
                return Result("", "unmeasured", "no call can be captured here: several processes share the GPU without MPS")
            if not path.exists():
                return Result("", "failed", f"status {outcome.status}: {outcome.tail(4)}")
            rows = json.loads(path.read_text(encoding="utf-8"))
            refused = next((note for note in rows["notes"] if note.startswith("unmeasured: lockstep: ")), None)
            return Result("", "failed" if refused else "passed", refused or "", rows)
    return Step(name, body, (environment or {}).get("LOCKSTEP_DEVICE_MODE"))


def crowd(count, kind="ranks"):
    """The name of so many ranks, as processes ("ranks") or threads of one, and how the benchmark is asked for them."""
    return f"{count} {kind}", [f"--{kind}", str(count), "-n", "20", "-w", "3"]


def all_reduce_step(options, about, count, kind="ranks", mode=None):
    """What goals.py judges. Without `mode` in the mode that the library takes."""
    first, last, _ = sizes(options, about)
    name, arguments = crowd(count, kind)
    return bench_step(f"all_reduce registered, {name}" + (f", {mode}" if mode else ""), options,
                      ["all_reduce", "-b", first, "-e", last, "-f", "8", "--registered"] + arguments, {"LOCKSTEP_DEVICE_MODE": mode} if mode else {})


def goal_steps(options, about):
    """Threads' kernels run beside one another, as do those of processes that have a GPU each."""
    return ([floors_step(options, about)] + [all_reduce_step(options, about, count) for count in options.ranks]
            + [all_reduce_step(options, about, count, "threads", "device_sync") for count in options.ranks])


def latency_step(options, mode, count, kind="ranks"):
    name, arguments = crowd(count, kind)
    return bench_step(f"latency {mode}, {name}", options, ["all_reduce", "-b", "8", "-f", "8", "-e", "64K"] + arguments, {"LOCKSTEP_DEVICE_MODE": mode})


def graph_step(options, mode, count, kind="ranks"):
    name, arguments = crowd(count, kind)
    return bench_step(f"graph replay {mode}, {name}", options, ["all_reduce", "-b", "8", "-f", "8", "-e", "1M", "--graph"] + arguments, {"LOCKSTEP_DEVICE_MODE": mode})


def latency_steps(options, count, kind="ranks"):
    return [latency_step(options, mode, count, kind) for mode in MODES] + [graph_step(options, mode, count, kind) for mode in GRAPH_MODES]


def under_mps(step, about, count):
    """The step of so many processes, whose kernels run beside one another: a device for each, but for the wires."""
    name = step.name + UNDER_MPS
    if not about["gpu"]:
        return unmeasured(name, "no GPU")
    if not about["mps_control"]:
        return unmeasured(name, "there is no nvidia-cuda-mps-control")

    def body(runner):
        connections = {"CUDA_DEVICE_MAX_CONNECTIONS": str(max(1, MPS_CONNECTIONS // count))}
        with mps.daemon(about["mps_control"]) as environment, runner.more_environment(environment | connections):
            return step.body(runner)
    return Step(name, body, step.mode and step.mode + UNDER_MPS)


def mps_steps(options, about):
    steps = [(floors_step(options, about), max(options.ranks))]
    steps += [(all_reduce_step(options, about, count), count) for count in options.ranks]
    steps += [(latency_step(options, mode, count), count) for mode in reversed(MODES) for count in options.ranks]
    steps += [(graph_step(options, "device_sync", count), count) for count in options.ranks]
    return [under_mps(step, about, count) for step, count in steps]


def library_steps(options, about):
    nccl = [path for _, path in facts.libraries_of_nccl(options)] if about["gpu"] else []
    beside = [word for path in nccl[:1] for word in ("--lib", str(path), "--lib-apart")]
    # NCCL from 2.30 lets several ranks on one GPU in when asked to.
    ask = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_SOCKET_IFNAME": "lo"}
    steps = []
    ranks = ["--ranks", str(options.ranks[0]), "-n", "10", "-w", "2"]
    steps.append(bench_step("every operation", options, ["all", "-b", "4K", "-e", "1M", "-f", "256"] + ranks))
    steps.append(bench_step("every type and operator", options, ["all_reduce", "reduce_scatter", "-b", "4001", "-e", "4001", "-d", "all", "-o", "all"] + ranks))
    if beside:
        steps.append(bench_step("beside NCCL", options, ["all_reduce", "all_gather", "-b", "8", "-e", "64M", "-f", "64"] + ranks + beside, ask))
    else:
        steps.append(unmeasured("beside NCCL", "no GPU" if not about["gpu"] else "no libnccl.so.2 was found"))
    return steps
