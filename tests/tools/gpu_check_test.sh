#!/usr/bin/env bash
# gpu_check_test.sh GPU_CHECK BUILD_DIR: gpu-check runs to its end without a GPU, and says that there was none.
set -euo pipefail
check=$1 build=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() {
  echo "$*"
  cat "$folder/log"
  exit 1
}

# refused TEXT ARGUMENT...: what is wrong with a command line is said in words.
refused() {
  if "$check" --device host "${@:2}" >"$folder/log" 2>&1; then fail "not refused: ${*:2}"; fi
  grep -q "^gpu-check: .*$1" "$folder/log" || fail "badly refused: ${*:2}"
}
refused "write 2,4,8" --ranks 2,x
refused "no number of tests: write 4" --jobs 0
refused "no number of seconds: write 520" --limit -3
refused "there is no $folder/libnccl.so.2" --nccl "$folder/libnccl.so.2"
refused "$folder is neither a bundle nor a build folder" --kit "$folder"

# All steps, but a few of the tests in each mode: what they find on the host backend, they find in the suite, one by one. So these
# are in a bundle, whose programs are the build's; that a build brings all of its tests shows the short run below.
mkdir "$folder/bundle"
ln -s "$build/bin" "$build/lib" "$folder/bundle"
PYTHONPATH=$(dirname "$check")/gpu python3 - "$build" "$folder/bundle/kit.json" <<'END' || fail "the bundle cannot be written"
import json, re, sys
from pathlib import Path
import kit
every = kit.tests_of(Path(sys.argv[1]))
few = [test for test in every if re.match("(gpu|device_contract|device_graph|nccl_collectives|nccl_groups)_", test["name"])]
assert len(few) < len(every)
Path(sys.argv[2]).write_text(json.dumps({"tests": few, "commit": kit.commit()}))
END
"$check" --device host --kit "$folder/bundle" --out "$folder/host" --ranks 2 --jobs 2 >"$folder/log" 2>&1 || fail "gpu-check --device host failed"
grep -q 'NO GPU WAS HERE' "$folder/log" || fail "it does not say that there was no GPU"
for step in floors 'every operation' 'every type and operator' 'latency host_sync, 2 ranks' 'latency device_sync, 2 ranks' 'graph replay device_sync, 2 ranks' 'test nccl_collectives_test' 'test device_contract_host_sync_test' 'test device_graph_stream_sync_test' 'test nccl_groups_device_sync_test'; do
  grep -Eq "passed +$step " "$folder/log" || fail "$step did not pass"
done
grep -q 'unmeasured  PyTorch' "$folder/log" || fail "PyTorch on a GPU is claimed"
report=("$folder"/host/gpu-*-no-gpu-host.md)
grep -q 'no GPU' "${report[0]}" || fail "the report does not say that there was no GPU"
python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["gpu"] is None' "${report[0]%.md}.json" || fail "the JSON names a GPU"

grep -q '^## Goals' "${report[0]}" || fail "the report has no goals"

# What is below a goal is missed, and the report says so.
PYTHONPATH=$(dirname "$check")/gpu python3 - <<'END' || fail "goals are not judged"
import goals
import report
rates = {"copy": [{"bytes": 1 << 28, "gbs": 4000.0}], "flag_kernel_us": 2.0,
         "reduce_f32_sum": [{"bytes": 1 << 28, "sources": n, "gbs": 4000.0 * share, "of_copy": share} for n, share in ((2, 0.95), (4, 0.85))]}
def all_reduce(time_us):
    return {"rows": [{"ranks": 2, "bytes": size, "in_place": True, "time_us": time_us} for size in (1 << 20, 1 << 28)]}
steps = [{"name": "floors", "status": "passed", "data": {"device": {"rates": rates}, "hop_us": []}},
         {"name": "all_reduce registered, 2 ranks", "status": "passed", "data": all_reduce(300.0)},
         {"name": "all_reduce registered, 4 ranks", "status": "passed", "data": all_reduce(600.0)},
         {"name": "all_reduce registered, 8 ranks", "status": "unmeasured", "data": None}]
judged = goals.judge({"gpu": {"name": "one"}, "steps": steps})
assert [goal["result"] for goal in judged] == ["reached", "missed", "reached", "missed", "unmeasured"], judged
assert "| reduce kernel of 4 sources, 256M | 90 % | 85 % | missed |" in report.goals_section(judged)
assert goals.judge({"gpu": None, "steps": steps}) == []
END

# NCCL is found where distributions put it, whatever the processor.
PYTHONPATH=$(dirname "$check")/gpu python3 - <<'END' || fail "the system's NCCL is not found"
from types import SimpleNamespace
import facts
facts.platform.machine = lambda: "aarch64"
facts.Path.exists = lambda path: "aarch64" in str(path)
found = facts.libraries_of_nccl(SimpleNamespace(nccl=None))
assert [(where, str(path)) for where, path in found] == [("system", "/usr/lib/aarch64-linux-gnu/libnccl.so.2")], found
END

# What a step makes of what its program said.
PYTHONPATH=$(dirname "$check")/gpu python3 - <<'END' || fail "the outcomes of programs are misread"
from pathlib import Path
from types import SimpleNamespace
import steps
from kit import Kit
from runner import Outcome
def judged(status, output):
    result = steps.judge_test(Outcome(status, output, 90.0))
    return result.status, result.why
one_of_two = "[       OK ] Gpu.One (1 ms)\n[  SKIPPED ] Gpu.Two (0 ms)\n[  PASSED  ] 1 test.\n[  SKIPPED ] 1 test, listed below:\n[  SKIPPED ] Gpu.Two\n"
assert judged(0, one_of_two) == ("passed", "skipped: Gpu.Two"), judged(0, one_of_two)
assert judged(0, "[  SKIPPED ] Gpu.Two (0 ms)\n")[0] == judged(77, "")[0] == "unmeasured"
hung = judged(124, "[ RUN      ] Gpu.One\n[       OK ] Gpu.One (1 ms)\n[ RUN      ] Gpu.Two\nrank 1: waits\n")
assert hung[0] == "failed" and hung[1].endswith("rank 1: waits\nended after 90 s in Gpu.Two"), hung
skips = steps.judge_test(Outcome(0, "[  SKIPPED ] Gpu.Two (0 ms)\n", 1.0), must_run=True)
assert skips.status == "failed" and "a GPU is here" in skips.why, skips.why
assert judged(1, "")[0] == "failed"
clean, dirty = "========= ERROR SUMMARY: 0 errors\n", "========= ERROR SUMMARY: 1 error\n"
summaries = {clean: True, clean + clean: True, clean + dirty: False, dirty + clean: False, "": False}
assert all(steps.is_clean(Outcome(0, text, 1.0)) == is_clean for text, is_clean in summaries.items())
assert not steps.is_clean(Outcome(99, clean, 1.0))
assert steps.mode_of({"name": "device_graph_device_sync_test"}) == "device_sync" and steps.mode_of({"name": "gpu_test"}) is None
END

# What is measured comes first, and alone; the rest runs beside one another.
PYTHONPATH=$(dirname "$check")/gpu python3 - "$folder/planned" <<'END' || fail "the steps are badly planned"
import sys
from pathlib import Path
from types import SimpleNamespace
import steps
from kit import Kit
folder = Path(sys.argv[1])
for program in ("a_perf", "mpiexec.hydra"):
    (folder / "nccl-tests").mkdir(parents=True, exist_ok=True)
    (folder / "nccl-tests" / program).touch()
tests = [{"name": name, "command": [], "environment": {}} for name in ("device_operations_host_sync_test", "a_device_sync_test", "device_graph_device_sync_test", "a_test", "gpu_test")]
about = {"gpu": {"memory.total": "80000 MiB"}, "torch": None, "compute_sanitizer": "here", "mps_control": None}
planned = steps.plan(Kit(folder, tests, ""), SimpleNamespace(device="host", ranks=[2, 4], nccl=None), about)
names = [step.name for step in planned]
order = ["test gpu_test", "floors", "all_reduce registered, 2 ranks", "latency host_sync, 2 ranks", "beside NCCL", "latency host_sync, 4 ranks",
         "PyTorch DDP, 2 processes on one GPU", "test device_operations_host_sync_test", "compute-sanitizer memcheck device_graph_device_sync_test",
         "test a_test", "nccl-tests a_perf, 2 ranks", "test a_device_sync_test", "nccl-tests a_perf, 4 ranks"]
assert [name for name in names if name in order] == order, names
assert len(set(names)) == len(names), names
beside = {step.name for step in planned if step.beside}
alone = [name for name in names if name not in beside]
assert all(name.startswith(("test gpu_test", "floors", "all_reduce ", "latency ", "graph ", "every ", "beside NCCL")) for name in alone), alone
assert {"test a_test", "nccl-tests a_perf, 2 ranks", "compute-sanitizer memcheck device_graph_device_sync_test"} <= beside, beside
END

# The sanitizer looks at cases that there are, within its limit; where none of them runs, it has found nothing out.
PYTHONPATH=$(dirname "$check")/gpu python3 - "$build" "$folder" <<'END' || fail "the sanitizer is badly asked"
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
import kit
import runner
import steps
build, folder = map(Path, sys.argv[1:])
tests = {test["name"]: test for test in kit.tests_of(build)}
for name, cases in steps.SANITIZED:
    for case in cases.split(":"):
        listed = subprocess.run([build / tests[name]["command"][0], "--gtest_list_tests", f"--gtest_filter={case}"], text=True, capture_output=True, check=True)
        assert f"  {case.split('.', 1)[1]}" in listed.stdout, (case, listed.stdout)
tool = folder / "compute-sanitizer"
running = runner.Runner(kit.Kit(build, [], ""), SimpleNamespace(device="host", limit=60))
def found(does):
    tool.write_text(f"#!/bin/sh\n{does}\n")
    tool.chmod(0o755)
    return steps.sanitizer_step({"gpu": {"name": "one"}, "compute_sanitizer": str(tool)}, "memcheck", tests["device_sync_test"], "A.Case").run(running)
clean = "echo '========= ERROR SUMMARY: 0 errors'"
ran = 'echo "[       OK ] A.Case (1 ms)"; [ "$GTEST_FILTER" = "A.Case-*Killed*" ]'
assert found(f"{clean}; {ran}").status == "passed"
assert found(f"{clean}; {ran} && exit 99").status == "failed"
assert found(clean).status == "unmeasured"
steps.SANITIZER_SECONDS = 1
assert found("exec sleep 60").status == "unmeasured"
END

# What needs no programs of the build.
for part in mps beside; do
  mkdir "$folder/$part"
  PYTHONPATH=$(dirname "$check")/gpu python3 "$(dirname "$0")/gpu_check_$part.py" "$folder/$part" >"$folder/log" 2>&1 || fail "gpu_check_$part.py failed"
done

# A program that its own limit ends has hung; what the limit of the whole run cuts off says nothing, whatever it was.
PYTHONPATH=$(dirname "$check")/gpu python3 - "$folder" <<'END' >"$folder/log" 2>&1 || fail "what ran out of time is misjudged"
import sys
from pathlib import Path
from types import SimpleNamespace
import measurements
import runner
import steps
from kit import Kit
folder = Path(sys.argv[1]) / "hang"
for name in ("bin/lockstep-bench", "bin/lockstep-device-floors", "bin/lockstep-run", "bin/digits-device", "nccl-tests/a_perf", "nccl-tests/mpiexec.hydra", "torch_ddp.py"):
    program = folder / name
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("import time\ntime.sleep(60)\n" if name.endswith(".py") else "#!/bin/sh\necho '[ RUN      ] A.Test'\nexec sleep 60\n")
    program.chmod(0o755)
runner.LEAST_SECONDS = 0
steps.HERE = folder
options = SimpleNamespace(device="host", ranks=[2], limit=60)
kit, about = Kit(folder, [], ""), {"gpu": {"memory.total": "80000 MiB"}, "torch": "2"}
test = {"name": "a_test", "command": ["bin/lockstep-bench"], "environment": {}}
def result(step, limit=60):
    options.limit = limit
    return step.run(runner.Runner(kit, options))
def every():
    return [steps.test_step(test, about), measurements.bench_step("bench", options, []), measurements.floors_step(options, about), *steps.nccl_tests_steps(kit, about, [2]),
            steps.training_step(kit, "digits-device", [], bool), steps.torch_step(about)]
for step in every():
    cut = result(step, 0.3)
    assert cut.status == "unmeasured" and "the time was over" in cut.why, (cut.name, cut.status, cut.why)
steps.TEST_SECONDS = measurements.BENCH_SECONDS = steps.BENCH_SECONDS = steps.TORCH_SECONDS = 2  # The first two have to come to a line.
for number, step in enumerate(every()):
    ended = result(step)
    assert ended.status == "failed" and (number > 1 or "in A.Test" in ended.why), (ended.name, ended.status, ended.why)
# What hangs is looked into, and its mode is given up after the second time; what goes wrong in the check itself ends one step alone.
hanging = {"name": "a_host_sync_test", "command": ["bin/lockstep-bench"], "environment": {}}
running = runner.Runner(kit, options)
outcomes = [steps.test_step(hanging, about).run(running) for _ in range(3)]
assert [outcome.status for outcome in outcomes] == ["failed", "failed", "unmeasured"], [outcome.why for outcome in outcomes]
assert "does not end" in outcomes[0].why and "sleep" in outcomes[0].why, outcomes[0].why
assert "hung in mode host_sync" in outcomes[2].why, outcomes[2].why
assert steps.test_step(test, about).run(running).status == "failed"  # Of no mode.
# Whatever goes wrong meanwhile, no process of the program stays.
import hang
looked = []
def fails(session, seconds):
    looked.append(session)
    raise ValueError("no way to look")
hang.describe, running.hangs = fails, type(running.hangs)()
assert steps.test_step(test, about).run(running).status == "failed" and hang.processes(looked[0]) == [], looked
broken = steps.Step("broken", lambda _: {}["nothing"]).run(running)
assert broken.status == "failed" and "KeyError" in broken.why, (broken.status, broken.why)
# A communicator that could not be made is no gap in the measurements.
(folder / "bin/lockstep-bench").write_text("#!/bin/sh\nwhile [ \"$1\" != --json ]; do shift; done\n"
    "echo '{\"notes\": [\"unmeasured: lockstep: no way\"], \"rows\": []}' >\"$2\"\n")
measurements.BENCH_SECONDS = 20
refused = result(measurements.bench_step("bench", options, []))
assert refused.status == "failed" and refused.why == "unmeasured: lockstep: no way", (refused.status, refused.why)
END

# A bundle's own libraries of C++ serve where the machine's are too old, and nowhere else: they ask for a newer C library.
for works in true false; do
  mkdir -p "$folder/$works/bin" "$folder/$works/lib/carried" "$folder/$works/lib/carried-cxx"
  ln -s "$(type -P $works)" "$folder/$works/bin/lockstep-bench"
done
PYTHONPATH=$(dirname "$check")/gpu python3 - "$folder" <<'END' >"$folder/log" 2>&1 || fail "the libraries of a bundle are badly chosen"
import sys
from pathlib import Path
from kit import Kit
for works in ("true", "false"):
    paths = Kit(Path(sys.argv[1]) / works, [], "").environment["LD_LIBRARY_PATH"].split(":")
    assert any(path.endswith("/carried") for path in paths), paths
    assert any(path.endswith("/carried-cxx") for path in paths) == (works == "false"), paths
END

# Out of time: what was not begun is unmeasured, and nothing hangs.
"$check" --device host --kit "$build" --out "$folder/short" --ranks 2 --limit 5 >"$folder/log" 2>&1 || fail "a short run failed"
grep -q 'unmeasured  every operation.*the time was over' "$folder/log" || fail "a short run measured everything"
planned=$(grep -cE '(passed|failed|unmeasured)  test ' "$folder/log") tests=$(ctest --test-dir "$build" -L gpu -N | sed -n 's/^Total Tests: //p')
((planned == tests)) || fail "of the $tests tests with the label, $planned were planned"

# Asked to end, it writes what it has; and a later run goes on from there.
"$check" --device host --kit "$build" --out "$folder/cut" --ranks 2 >"$folder/log" 2>&1 &
until grep -q 'passed  floors' "$folder/log"; do
  kill -0 $! || fail "it ended before it could be asked to"
  sleep 0.1
done
kill -TERM $!
wait $! || fail "what was cut off has failed"
cut=("$folder"/cut/gpu-*.json)
grep -q 'was asked to end' "$folder/log" || fail "it does not say that it was asked to end"
grep -q '| every operation | unmeasured |' "${cut[0]%.json}.md" || fail "the report lacks what was not begun"
"$check" --device host --kit "$build" --out "$folder/after" --ranks 2 --limit 5 --after "${cut[0]}" >"$folder/log" 2>&1 || fail "a run after another failed"
grep -q 'passed  floors' "$folder/log" && fail "what had passed was run again"
grep -q '| floors | passed |' "$folder"/after/gpu-*.md || fail "what had passed is not taken over"
# Also where the run ends before it comes to it.
"$check" --device host --kit "$build" --out "$folder/again" --ranks 2 --limit 5 --after "$folder"/after/gpu-*.json >"$folder/log" 2>&1 &
until [[ -e $(echo "$folder"/again/gpu-*.md) ]]; do
  kill -0 $! || fail "it ended before it could be asked to"
  sleep 0.1
done
grep -q '| floors | passed |' "$folder"/again/gpu-*.md || fail "what had passed is lost in the first report"
wait $!
for damage in 's/"seconds"/"second"/' 's/"seconds": .*,/"seconds": "none",/' 's/"steps": \[/"steps": ["floors",/' 's/"gpu": null/"gpu": "a card"/'; do
  sed "$damage" "${cut[0]}" >"$folder/damaged.json"
  cmp -s "${cut[0]}" "$folder/damaged.json" && fail "nothing was damaged by $damage"
  refused "damaged.json is no report of gpu-check: " --kit "$build" --after "$folder/damaged.json"
done
sed -i 's/"commit": "/"commit": "x/' "${cut[0]}"
refused "is of other programs" --kit "$build" --after "${cut[0]}"

# Asked to end, it ends what runs side by side, also what does not obey, with all processes; and a later run goes on from there.
fake=$folder/fake
mkdir -p "$fake/bin"
cat >"$fake/bin/stays" <<'END'
#!/bin/sh
cd "$(dirname "$0")/.."
[ ! -e obeys ] || exit 0
trap '' TERM
sleep 600 &
echo "$$ $!" >"pids.$1.part" && mv "pids.$1.part" "pids.$1"
wait
END
printf '#!/bin/sh\n' >"$fake/bin/ends"
chmod +x "$fake"/bin/*
cat >"$fake/kit.json" <<'END'
{"commit": "fake", "tests": [{"name": "ends", "command": ["bin/ends"], "environment": {}},
 {"name": "stays-1", "command": ["bin/stays", "1"], "environment": {}}, {"name": "stays-2", "command": ["bin/stays", "2"], "environment": {}}]}
END
"$check" --device host --kit "$fake" --out "$fake/cut" --ranks 2 --jobs 2 >"$folder/log" 2>&1 &
until [[ -e $fake/pids.1 && -e $fake/pids.2 ]]; do
  kill -0 $! || fail "it ended before it could be asked to"
  sleep 0.1
done
kill -TERM $!
wait $! && fail "the fake programs measured something"
grep -q 'was asked to end' "$folder/log" || fail "it does not say that it was asked to end what runs side by side"
for process in $(cat "$fake"/pids.[12]); do
  grep -qs '^State:.[^Z]' "/proc/$process/status" && fail "process $process of a test stays"
done
touch "$fake/obeys"
"$check" --device host --kit "$fake" --out "$fake/after" --ranks 2 --jobs 2 --after "$fake"/cut/gpu-*.json >"$folder/log" 2>&1 && fail "the fake programs measured something"
grep -q 'test ends' "$folder/log" && fail "a test that had passed was run again"
python3 - "$fake"/cut/gpu-*.json "$fake"/after/gpu-*.json <<'END' >"$folder/log" 2>&1 || fail "the reports of what runs side by side are wrong"
import json, sys
for path, stays in zip(sys.argv[1:], ("unmeasured", "passed"), strict=True):
    found = [(step["name"], step["status"]) for step in json.load(open(path))["steps"] if step["name"].startswith("test ")]
    assert found == [("test ends", "passed"), ("test stays-1", stays), ("test stays-2", stays)], found
END

if ! command -v nvidia-smi >/dev/null; then
  "$check" --kit "$build" --out "$folder/cuda" >"$folder/log" 2>&1 || fail "without a GPU there is nothing that can fail"
  grep -q 'unmeasured  everything.*no GPU was found' "$folder/log" || fail "it does not say what is missing"
fi
