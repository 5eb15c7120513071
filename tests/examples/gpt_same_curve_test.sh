#!/usr/bin/env bash
# Two and four processes train the GPT with the same losses as one. gpt_same_curve_test.sh BIN_DIRECTORY
#
# The tolerance: ranks add the same gradients in another order, so they differ in the last bit (6e-8), and training lets that grow,
# to about 2e-6 after 100 steps. A gradient that lacks one rank's part, or counts it twice, moves the loss by 1e-2 within a few steps.
set -euo pipefail
bin=$1
steps=100
tolerance=1e-4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "FAILED: $*" >&2
  cat "$work"/*.out >&2
  exit 1
}

for ranks in 1 2 4; do
  # Each rank writes its losses to a file of its own: they must agree among themselves too.
  "$bin/lockstep-run" -n $ranks sh -c "'$bin/gpt' --steps $steps --loss-file '$work/$ranks-'\$LOCKSTEP_RANK.loss" \
    >"$work/$ranks.out" 2>&1 || fail "$ranks ranks"
  for ((rank = 0; rank < ranks; ++rank)); do
    paste -d ' ' "$work/1-0.loss" "$work/$ranks-$rank.loss" | awk -v tolerance=$tolerance -v steps=$steps '
      { d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || NF != 4) bad = 1; if (d > worst) worst = d }
      END { print "largest difference:", worst; exit bad || NR != steps || worst > tolerance }' ||
      fail "rank $rank of $ranks has other losses than one rank alone"
  done
done

# It learns at all.
awk 'NR == 1 { first = $2 } { last = $2 } END { exit !(last < first / 4) }' "$work/1-0.loss" || fail "the loss does not fall"

# A batch that cannot be dealt evenly is refused.
if "$bin/lockstep-run" -n 3 "$bin/gpt" --steps 1 >"$work/3.out" 2>&1; then fail "8 sequences on 3 ranks were accepted"; fi
grep -q 'batch is no multiple of the ranks' "$work/3.out" || fail "the refusal of 8 sequences on 3 ranks"
