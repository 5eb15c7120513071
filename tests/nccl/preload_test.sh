#!/usr/bin/env bash
# preload_test.sh LIBRARY: a program that it is loaded into finds what the driver reads when the context is made, unless the user
# said otherwise.
set -euo pipefail
connections() { env -u CUDA_DEVICE_MAX_CONNECTIONS "$@" env | sed -n 's/^CUDA_DEVICE_MAX_CONNECTIONS=//p'; }
[[ $(connections LD_PRELOAD="$1") == 32 ]] || { echo "CUDA_DEVICE_MAX_CONNECTIONS is '$(connections LD_PRELOAD="$1")', not 32"; exit 1; }
[[ $(connections LD_PRELOAD="$1" CUDA_DEVICE_MAX_CONNECTIONS=4) == 4 ]] || { echo "what the user has set is overwritten"; exit 1; }
