#!/usr/bin/env bash
# Two and four processes train the GPT with the same losses as one. gpt_same_curve_test.sh BIN_DIRECTORY
set -euo pipefail
source "$(dirname "$0")/helpers.sh"
steps=100

for ranks in 1 2 4; do
  # Each rank writes its losses to a file of its own: they must agree among themselves too.
  "$bin/lockstep-run" -n $ranks sh -c "'$bin/gpt' --steps $steps --loss-file '$work/$ranks-'\$LOCKSTEP_RANK.loss" \
    >"$work/$ranks.out" 2>&1 || fail "$ranks ranks"
  for ((rank = 0; rank < ranks; ++rank)); do
    same_curve "$work/1-0.loss" "$work/$ranks-$rank.loss" $steps ||
      fail "rank $rank of $ranks has other losses than one rank alone"
  done
done

# It learns at all.
awk 'NR == 1 { first = $2 } { last = $2 } END { exit !(last < first / 4) }' "$work/1-0.loss" || fail "the loss does not fall"

# A batch that cannot be dealt evenly is refused.
if "$bin/lockstep-run" -n 3 "$bin/gpt" --steps 1 >"$work/3.out" 2>&1; then fail "8 sequences on 3 ranks were accepted"; fi
grep -q 'batch is no multiple of the ranks' "$work/3.out" || fail "the refusal of 8 sequences on 3 ranks"
