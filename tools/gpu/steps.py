"""What is run, in the order of its worth: when time runs out, the rest is unmeasured."""
import re
import shutil
import sys

from measurements import BENCH_SECONDS, MODES, goal_steps, latency_step, latency_steps, library_steps, mps_steps
from options import HERE
from runner import TOOK_TOO_LONG
from step import Result, Step, too_long, unmeasured

TEST_SECONDS = 90
# Thousands of operations, each of which may cost time slices.
LONG_TEST_SECONDS = {f"device_{part}_{mode}_test": 180 for part in ("operations", "matrix") for mode in ("stream_sync", "host_sync")}
SANITIZER_SECONDS = 60  # Under it each start of a process takes seconds.
TORCH_SECONDS = 120  # Each of its processes imports PyTorch, and loads its kernels.
# A wait that hangs names what it waits for, before the program is ended; and a test whose rank has failed goes on to the next.
# Processes stay from case to case: each takes a second to make its context, and all take turns at that.
PATIENCE = {"LOCKSTEP_TIMEOUT": "45s", "TEST_CREW": "1"}
SPARE_SECONDS = 15
# Cases of few processes and operations, for each sort of kernel that waits or that touches a peer's memory. They have no memory shared in a
# block, at which racecheck looks. Of ranks that are threads none: they hang under the tool.
SANITIZED = [("device_sync_test", "DeviceSync.ASmallCallIsOneKernelAndALargeOneAProgram"),
             ("device_messages_device_sync_test", "DeviceMessages.SmallOnesDoNotWaitForTheirReceiver:Memory/DeviceMessages.ALongOneIsReadBeforeItsBufferIsUsedAgain/private"),
             ("device_graph_device_sync_test", "DeviceGraphs.EveryCollectiveOfAGraphIsRight"),
             ("device_windows_stream_sync_test", "DeviceWindows.AnAllReduceTouchesEachByteOnce")]
NOT_SANITIZED = "*Killed*"  # The tool takes a process that a test ends for one that has failed.
BASIC = ["gpu_test", "gpu_processes_test"]  # Where these fail no figure means anything.
FORCED = re.compile(r"_device_sync_test$")  # Between processes of one GPU, where a kernel that waits may cost a time slice.


def skipped_tests(output):
    """Of a GoogleTest program, which names each of them twice."""
    return list(dict.fromkeys(re.findall(r"^\[  SKIPPED \] (\w[\w/]*\.[\w/]+)", output, re.MULTILINE)))


def judge_test(outcome, must_run=False):
    """`must_run`: the machine has all that the test asks for."""
    if outcome.status == TOOK_TOO_LONG:
        return Result("", "failed", too_long(outcome))
    skipped = skipped_tests(outcome.output)
    # 77 is what tests in C end with, GoogleTest says it in words.
    if outcome.status == 77 or (outcome.status == 0 and skipped and "[       OK ]" not in outcome.output):
        if must_run:
            return Result("", "failed", f"{outcome.tail(4)}\neverything was skipped, though a GPU is here")
        return Result("", "unmeasured", "the test needs another machine")
    if outcome.status != 0:
        return Result("", "failed", f"status {outcome.status}: {outcome.tail()}")
    return Result("", "passed", "skipped: " + ", ".join(skipped) if skipped else "")


def command_of(test, runner):
    return [runner.kit.folder / test["command"][0]] + test["command"][1:]


def environment_of(test):
    """All that the test asks for but its devices: they are those of this run."""
    return {key: value for key, value in test["environment"].items() if key != "LOCKSTEP_DEVICE_BACKEND"}


def test_step(test, about):
    limit = LONG_TEST_SECONDS.get(test["name"], TEST_SECONDS)

    def body(runner):
        environment = {**PATIENCE, "TEST_CHILD_SECONDS": str(limit - SPARE_SECONDS), **environment_of(test)}
        return judge_test(runner.run(command_of(test, runner), limit, environment), bool(about["gpu"]) and test["name"] in BASIC)
    return Step(f"test {test['name']}", body, mode_of(test), beside=test["name"] not in BASIC)


def mode_of(test):
    named = re.search("|".join(MODES), test["name"])
    return named[0] if named else None


def is_clean(outcome):
    """Each process that was looked at has a summary of its own."""
    errors = re.findall(r"ERROR SUMMARY: (\d+) error", outcome.output)
    return outcome.status == 0 and bool(errors) and all(int(count) == 0 for count in errors)


def sanitizer_step(about, tool, test, cases):
    name = f"compute-sanitizer {tool} {test['name']}"
    if not about["gpu"]:
        return unmeasured(name, "no GPU")
    if not about["compute_sanitizer"]:
        return unmeasured(name, "there is no compute-sanitizer")

    def body(runner):
        command = [about["compute_sanitizer"], "--tool", tool, "--target-processes", "all", "--require-cuda-init", "no",
                   "--error-exitcode", "99"] + command_of(test, runner)
        outcome = runner.run(command, SANITIZER_SECONDS, {**environment_of(test), "TEST_CREW": "1", "LOCKSTEP_TIMEOUT": "5m",
                                                          "GTEST_FILTER": f"{cases}-{NOT_SANITIZED}"})
        if outcome.status == TOOK_TOO_LONG:
            return Result("", "unmeasured", f"{too_long(outcome)} under {tool}")
        for words in ("Device not supported", "before first instrumented API call"):
            if words in outcome.output:
                return Result("", "unmeasured", f"compute-sanitizer cannot work here: {words}")
        if outcome.status == 0 and "[       OK ]" not in outcome.output:
            return Result("", "unmeasured", "none of the cases runs here")
        return Result("", "passed") if is_clean(outcome) else Result("", "failed", f"status {outcome.status}: {outcome.tail()}")
    return Step(name, body, beside=True)


def sanitizer_steps(kit, about):
    tests = {test["name"]: test for test in kit.tests}
    return [sanitizer_step(about, tool, tests[name], cases) for tool in ("memcheck", "synccheck") for name, cases in SANITIZED if name in tests]


def nccl_tests_steps(kit, about, ranks):
    programs = sorted((kit.folder / "nccl-tests").glob("*_perf"))
    if not programs:
        return [unmeasured("nccl-tests", "not carried along (--pack --nccl-tests)")]
    if not about["gpu"]:
        return [unmeasured("nccl-tests", "no GPU: their kernels make and check the data (tests/nccl/nccl_tests.sh runs them on the host)")]

    carried = kit.folder / "nccl-tests" / "mpiexec.hydra"
    mpiexec = str(carried) if carried.exists() else shutil.which("mpiexec")
    if not mpiexec:
        return [unmeasured("nccl-tests", "there is no mpiexec")]

    def step(program, count):
        def body(runner):
            command = [mpiexec, "-n", str(count), program, "-g", "1", "-b", "8", "-e", "16M", "-f", "64", "-n", "5"]
            outcome = runner.run(command, BENCH_SECONDS, {"NCCL_TESTS_DEVICE": "0"})
            right = outcome.status == 0 and re.search(r"Out of bounds values : 0 OK", outcome.output)
            return Result("", "passed" if right else "failed", "" if right else f"status {outcome.status}: {outcome.tail()}")
        return Step(f"nccl-tests {program.name}, {count} ranks", body, beside=True)
    return [step(program, count) for count in ranks for program in programs]


def training_step(kit, program, arguments, learns):
    """Two ranks on one GPU train one of the examples. `learns(output)`: whether they did."""
    name = f"{program}, 2 ranks"
    if not kit.program(program).exists():
        return unmeasured(name, "not carried: it needs cuBLAS, so it is built where the toolkit is")

    def body(runner):
        outcome = runner.run([kit.program("lockstep-run"), "-n", "2", kit.program(program), "--device", "0"] + arguments, BENCH_SECONDS)
        if "error while loading shared libraries" in outcome.output:
            return Result("", "unmeasured", "there is no cuBLAS: " + outcome.tail(1))
        right = outcome.status == 0 and learns(outcome.output)
        return Result("", "passed" if right else "failed", outcome.tail(1 if right else 12))
    return Step(name, body, beside=True)


def training_steps(kit):
    def falls(output):
        losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", output)]
        return len(losses) > 1 and losses[-1] < 0.8 * losses[0]
    # Small: without a GPU, and under sanitizers, the host backend does this too.
    return [training_step(kit, "digits-device", ["--epochs", "6", "--hidden", "96", "--data", kit.data("digits.csv")], lambda output: "accuracy 0.9" in output and "replicas equal" in output),
            training_step(kit, "gpt-device", ["--steps", "50"], falls)]


def torch_step(about, mode=None):
    """In the mode that the library takes, or in another. DDP's constructor blocks inside the driver: docs/gpu.md, "What may block"."""
    name = "PyTorch DDP, 2 processes on one GPU" + (f", {mode}" if mode else "")
    if not about["gpu"]:
        return unmeasured(name, "no GPU")
    if not about["torch"]:
        return unmeasured(name, "there is no PyTorch")

    def body(runner):
        outcome = runner.run([sys.executable, HERE / "torch_ddp.py"], TORCH_SECONDS,
                             {"LD_PRELOAD": str(runner.kit.library()), **({"LOCKSTEP_DEVICE_MODE": mode} if mode else {})})
        trained = outcome.status == 0 and "trained" in outcome.output
        return Result("", "passed" if trained else "failed", outcome.tail(3 if trained else 12))
    return Step(name, body, mode, beside=True)


def plan(kit, options, about):
    if options.device == "cuda" and not about["gpu"]:
        return [unmeasured("everything", "no GPU was found (nvidia-smi names none); --device host runs what can be run without")]
    def tests(wanted):
        return [test_step(test, about) for test in kit.tests if wanted(test["name"])]
    usual = {test["name"] for test in kit.tests} - {*BASIC, *LONG_TEST_SECONDS}
    forced = set(filter(FORCED.search, usual))
    first, *more = options.ranks  # What more ranks take is worth less.
    nccl_tests = nccl_tests_steps(kit, about, options.ranks)
    of_first = -(-len(nccl_tests) // len(options.ranks))
    sanitizers = sanitizer_steps(kit, about)
    alone = (tests(lambda name: name in BASIC) + goal_steps(options, about) + latency_steps(options, first) + latency_steps(options, first, "threads")
             + mps_steps(options, about) + library_steps(options, about)
             + [step for ranks in more for step in [latency_step(options, mode, ranks) for mode in MODES] + latency_steps(options, ranks, "threads")])
    # What takes long comes first: it fills one of the places while others come and go.
    beside = ([torch_step(about), torch_step(about, "host_sync")] + tests(lambda name: name in LONG_TEST_SECONDS) + training_steps(kit)
              + sanitizers[:len(SANITIZED)] + tests(lambda name: name in usual - forced) + nccl_tests[:of_first] + tests(lambda name: name in forced)
              + sanitizers[len(SANITIZED):] + nccl_tests[of_first:])
    return alone + beside
