#!/usr/bin/env bash
# torch_suite.sh REPOSITORY: the tests of the PyTorch process group, and of the reducer for PyTorch's C++ interface, with the PyTorch that
# python3 finds, what is in build/release, and that installed in build/installed. For each an ok or a FAILED line; the last line counts them.
set -euo pipefail
repository=$1
tests=$repository/tests/torch bin=$repository/build/release/bin
export PYTHONPATH=$repository/build/release/lib/python PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore OMP_NUM_THREADS=1
passed=0 failed=0
log=$(mktemp) folder=$(mktemp -d)
trap 'rm -rf "$log" "$folder"' EXIT

# check SECONDS NAME COMMAND...: runs it, for so long at most; its output is shown when it fails. With 77 it says in its last line why it
# cannot run here.
check() {
  local limit=$1 name=$2 start=$SECONDS status=0
  shift 2
  timeout "$limit" "$@" >"$log" 2>&1 </dev/null || status=$?
  if ((status == 77)); then
    echo "skipped $name: $(tail -n 1 "$log" | sed "s/^skipped: //")"
  elif ((status == 0)); then
    echo "ok      $name ($((SECONDS - start)) s): $(sed -nE 's/^(\[0\] )?(Ran [0-9]+ tests?) in.*/\2/p;s/^(\[0\] )?OK( \(.*\))/,\2/p' "$log" |
      tr -d '\n')"
    passed=$((passed + 1))
  else
    echo "FAILED  $name: ended with $status"
    grep -vE 'Warning|^$' "$log" | tail -n 100
    failed=$((failed + 1))
  fi
}

python3 -c 'import torch; print("PyTorch", torch.__version__)'
for what in collectives works; do
  for ranks in 2 3 4; do
    check 300 "$what of $ranks ranks" "$bin/lockstep-run" -n "$ranks" python3 "$tests/$what.py"
  done
  check 300 "$what over TCP" env LOCKSTEP_TRANSPORTS=tcp "$bin/lockstep-run" -n 2 python3 "$tests/$what.py"
  check 300 "$what under torchrun" python3 "$tests/torchrun.py" --standalone --nproc_per_node=2 "$tests/$what.py"
done
for ranks in 2 4; do
  check 300 "training on $ranks ranks" "$bin/lockstep-run" -n "$ranks" python3 "$tests/training.py"
done
check 1200 "LibTorch" "$repository/tools/lib/libtorch_suite.sh" "$repository" "$repository/build/installed" "$folder"
check 300 "Python's reducer, with NumPy" python3 "$repository/tests/python/reducer_test.py"
check 600 "failures" python3 "$tests/failures.py"
check 900 "several hosts" python3 "$tests/several_hosts.py"
check 3000 "PyTorch's own tests, 2 ranks" env WORLD_SIZE=2 python3 "$tests/pytorch_suite.py"
echo "torch: $passed passed, $failed failed"
