#!/usr/bin/env bash
# The real job, as processes: four ranks and one rank must have the same loss at every step within 1e-4, learn what they should, and
# report it. digits_same_curve_test.sh BIN_DIRECTORY
set -euo pipefail
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "FAILED: $*" >&2
  cat "$work"/*.out >&2
  exit 1
}

"$bin/lockstep-run" -n 4 "$bin/digits" --loss-file "$work/four.loss" >"$work/four.out" 2>&1 || fail "four ranks"
"$bin/digits" --loss-file "$work/one.loss" >"$work/one.out" 2>&1 || fail "one rank"

grep -Eq 'digits: accuracy 0\.9[6-9][0-9]*, replicas equal, 4 ranks, -?[0-9]+ % of communication hidden$' "$work/four.out" ||
  fail "the closing line of four ranks"
grep -Eq 'digits: accuracy 0\.9[6-9][0-9]*, replicas equal, 1 rank, no communication$' "$work/one.out" ||
  fail "the closing line of one rank"
(($(wc -l <"$work/one.loss") == 12 * 22)) || fail "12 epochs of 22 steps were expected"

paste -d ' ' "$work/one.loss" "$work/four.loss" | awk '
  { d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || NF != 4) bad = 1; if (d > worst) worst = d }
  END { printf "largest difference over %d steps: %g\n", NR, worst; exit bad || worst > 1e-4 }' || fail "the loss curves differ"
