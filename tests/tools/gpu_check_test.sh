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

"$check" --device host --kit "$build" --out "$folder/host" --ranks 2 >"$folder/log" 2>&1 || fail "gpu-check --device host failed"
grep -q 'NO GPU WAS HERE' "$folder/log" || fail "it does not say that there was no GPU"
for step in floors 'every operation' 'every type and operator' 'latency host_sync, 2 ranks' 'latency device_sync, 2 ranks' 'graph replay device_sync, 2 ranks' 'test nccl_collectives_test'; do
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
rates = {"copy": [{"bytes": 1 << 28, "gbs": 4000.0}], "smallest_operation_us": 2.0,
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

# Out of time: what was not begun is unmeasured, and nothing hangs.
"$check" --device host --kit "$build" --out "$folder/short" --ranks 2 --limit 5 >"$folder/log" 2>&1 || fail "a short run failed"
grep -q 'unmeasured  every operation.*the time was over' "$folder/log" || fail "a short run measured everything"

if ! command -v nvidia-smi >/dev/null; then
  "$check" --kit "$build" --out "$folder/cuda" >"$folder/log" 2>&1 || fail "without a GPU there is nothing that can fail"
  grep -q 'unmeasured  everything.*no GPU was found' "$folder/log" || fail "it does not say what is missing"
fi
