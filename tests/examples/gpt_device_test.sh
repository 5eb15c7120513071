#!/usr/bin/env bash
# The GPT on devices: one and two ranks over the host backend have the losses of the training in host memory, and with clipping it
# still learns. gpt_device_test.sh BIN_DIRECTORY
set -euo pipefail
source "$(dirname "$0")/helpers.sh"
steps=40

"$bin/gpt" --steps $steps --loss-file "$work/host.loss" >"$work/host.out" 2>&1 || fail "in host memory"
export LOCKSTEP_DEVICE_BACKEND=host
for ranks in 1 2; do
  "$bin/lockstep-run" -n $ranks sh -c "'$bin/gpt-device' --steps $steps --loss-file '$work/$ranks-'\$LOCKSTEP_RANK.loss" \
    >"$work/$ranks.out" 2>&1 || fail "$ranks ranks on devices"
  same_curve "$work/host.loss" "$work/$ranks-0.loss" $steps || fail "$ranks ranks have other losses than the host"
done
"$bin/lockstep-run" -n 2 "$bin/gpt-device" --steps $steps --clip 0.5 >"$work/clip.out" 2>&1 || fail "with clipping"
awk '/loss/ { if (!first) first = $NF; last = $NF } END { exit !(last && last < first) }' "$work/clip.out" || fail "the loss does not fall"
