#!/usr/bin/env bash
# A loss file that cannot be written ends an example before its first step, with one line that names the file, the cause and the option;
# one whose disk is full ends it, too. loss_file_test.sh BIN_DIRECTORY
set -euo pipefail
source "$(dirname "$0")/helpers.sh"
export LOCKSTEP_DEVICE_BACKEND=host

# refused EXAMPLE FILE CAUSE COMMAND...
refused() {
  if "${@:4}" --loss-file "$2" >"$work/said.out" 2>"$work/error.out" </dev/null; then fail "$1 does not miss $2"; fi
  grep -qxF "$1: --loss-file: cannot write $2: $3" "$work/error.out" || fail "$1 does not say why $2 cannot be written"
  (($(wc -l <"$work/error.out") == 1)) || fail "$1 says more than one line of $2"
}

for example in digits gpt digits-device gpt-device; do
  # Many epochs and steps: who finds out after them ends by the time limit of this test.
  long=(--epochs 1000000) short=(--epochs 1 --hidden 8) steps='^ *epoch'
  if [[ $example == gpt* ]]; then long=(--steps 100000) short=(--steps 1) steps='^step'; fi
  mkdir "$work/$example.loss"
  refused "$example" "$work/missing/loss" "No such file or directory" timeout 60 "$bin/$example" "${long[@]}"
  refused "$example" "$work/$example.loss" "Is a directory" timeout 60 "$bin/$example" "${long[@]}"
  ! grep -qE "$steps" "$work/said.out" || fail "$example trains before it finds out"
  refused "$example" /dev/full "No space left on device" "$bin/$example" "${short[@]}"
done

# The rank that writes ends the job of all.
if timeout 60 "$bin/lockstep-run" -n 2 "$bin/digits" --epochs 1000000 --loss-file "$work/missing/loss" >"$work/said.out" 2>"$work/error.out"; then
  fail "two ranks do not miss their file"
fi
grep -qF "[0] digits: --loss-file: cannot write $work/missing/loss: No such file or directory" "$work/error.out" || fail "two ranks"
