#!/usr/bin/env bash
# The GPT on devices: one and two ranks over the host backend have the losses of the training in host memory, and with clipping it
# still learns. gpt_device_test.sh BIN_DIRECTORY
set -euo pipefail
bin=$1
steps=40
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "FAILED: $*" >&2
  cat "$work"/*.out >&2
  exit 1
}

"$bin/gpt" --steps $steps --loss-file "$work/host.loss" >"$work/host.out" 2>&1 || fail "in host memory"
export LOCKSTEP_DEVICE_BACKEND=host
for ranks in 1 2; do
  "$bin/lockstep-run" -n $ranks sh -c "'$bin/gpt-device' --steps $steps --loss-file '$work/$ranks-'\$LOCKSTEP_RANK.loss" \
    >"$work/$ranks.out" 2>&1 || fail "$ranks ranks on devices"
  # The tolerance is that of gpt_same_curve_test.sh.
  paste -d ' ' "$work/host.loss" "$work/$ranks-0.loss" | awk -v steps=$steps '
    { d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || NF != 4) bad = 1; if (d > worst) worst = d }
    END { printf "largest difference over %d steps: %g\n", NR, worst; exit bad || NR != steps || worst > 1e-4 }' ||
    fail "$ranks ranks have other losses than the host"
done
"$bin/lockstep-run" -n 2 "$bin/gpt-device" --steps $steps --clip 0.5 >"$work/clip.out" 2>&1 || fail "with clipping"
awk '/loss/ { if (!first) first = $NF; last = $NF } END { exit !(last && last < first) }' "$work/clip.out" || fail "the loss does not fall"
