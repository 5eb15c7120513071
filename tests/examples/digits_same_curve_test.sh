#!/usr/bin/env bash
# The real job, as processes: four ranks and one rank must have the same loss at every step within 1e-4, learn what they should, and
# report it. digits_same_curve_test.sh BIN_DIRECTORY
set -euo pipefail
source "$(dirname "$0")/helpers.sh"

"$bin/lockstep-run" -n 4 "$bin/digits" --loss-file "$work/four.loss" >"$work/four.out" 2>&1 || fail "four ranks"
"$bin/digits" --loss-file "$work/one.loss" >"$work/one.out" 2>&1 || fail "one rank"

grep -Eq 'digits: accuracy 0\.9[6-9][0-9]*, replicas equal, 4 ranks, -?[0-9]+ % of communication hidden$' "$work/four.out" ||
  fail "the closing line of four ranks"
grep -Eq 'digits: accuracy 0\.9[6-9][0-9]*, replicas equal, 1 rank, no communication$' "$work/one.out" ||
  fail "the closing line of one rank"
same_curve "$work/one.loss" "$work/four.loss" $((12 * 22)) || fail "the loss curves differ, or have not 12 epochs of 22 steps"
