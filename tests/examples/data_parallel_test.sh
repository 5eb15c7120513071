#!/usr/bin/env bash
# examples/data_parallel: on one, three and four ranks its forms have the same losses (it fails by itself where they differ), and
# the table names all of them. data_parallel_test.sh BIN_DIRECTORY
set -euo pipefail
source "$(dirname "$0")/helpers.sh"

for ranks in 1 3 4; do
  "$bin/lockstep-run" -n $ranks --only-rank 0 "$bin/data_parallel" --hidden 48 --batch 48 --steps 8 --rounds 3 \
    >"$work/ranks.out" 2>&1 || fail "$ranks ranks"
  for words in "$ranks ranks, batches of 48, 24 steps" 'distributed: ' 'parameter server: ' 'one process: ' 'agree to'; do
    grep -q "$words" "$work/ranks.out" || fail "\"$words\" with $ranks ranks"
  done
done

if "$bin/lockstep-run" -n 3 "$bin/data_parallel" --batch 64 >"$work/ranks.out" 2>&1; then fail "64 samples on 3 ranks were accepted"; fi
grep -q 'batch 64 cannot be dealt evenly to 3 ranks' "$work/ranks.out" || fail "the refusal of 64 samples on 3 ranks"
