#!/usr/bin/env bash
# Training on devices, as processes: two ranks over the host backend must have the loss curve of the training in host memory, and one that
# is compressed to 8 bits must still learn. digits_device_test.sh BIN_DIRECTORY
set -euo pipefail
source "$(dirname "$0")/helpers.sh"

size=(--epochs 6 --hidden 96)
"$bin/digits" "${size[@]}" --loss-file "$work/host.loss" >"$work/host.out" 2>&1 || fail "in host memory"
export LOCKSTEP_DEVICE_BACKEND=host
"$bin/lockstep-run" -n 2 "$bin/digits-device" "${size[@]}" --loss-file "$work/device.loss" >"$work/device.out" 2>&1 || fail "on devices"
"$bin/lockstep-run" -n 2 "$bin/digits-device" "${size[@]}" --device 0 --compress f8e4m3 >"$work/fp8.out" 2>&1 || fail "in 8 bits"

"$bin/digits-device" --batch 4096 >"$work/batch.out" 2>&1 && fail "a batch of more than all samples"
grep -q -- '--batch 4096 is more than the [0-9]* samples' "$work/batch.out" || fail "the error of a batch of more than all samples"

grep -Eq 'digits-device: accuracy 0\.9[0-9]*, replicas equal, 2 ranks$' "$work/device.out" || fail "the closing line"
grep -Eq 'digits-device: accuracy 0\.9[0-9]*, replicas equal, 2 ranks$' "$work/fp8.out" || fail "the closing line in 8 bits"
same_curve "$work/host.loss" "$work/device.loss" $((6 * 22)) || fail "the loss curves differ, or have not 6 epochs of 22 steps"
