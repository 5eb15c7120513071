#!/usr/bin/env bash
# preload_test.sh LIBRARY: a program that it is loaded into finds what the driver reads when the context is made, unless the user
# said otherwise.
set -euo pipefail
library=$1
# is NAME VALUE [SETTING...]: what a program that is preloaded finds
is() {
  local found
  found=$(env -u "$1" LD_PRELOAD="$library" "${@:3}" env | sed -n "s/^$1=//p")
  [[ $found == "$2" ]] || { echo "with '${*:3}' $1 is '$found', not $2"; exit 1; }
}
# A daemon of MPS is there: its processes share what there is.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
is CUDA_DEVICE_MAX_CONNECTIONS 32 CUDA_MPS_PIPE_DIRECTORY="$folder"
mkfifo "$folder/control"
is CUDA_DEVICE_MAX_CONNECTIONS 8 CUDA_MPS_PIPE_DIRECTORY="$folder"
is CUDA_DEVICE_MAX_CONNECTIONS 4 CUDA_DEVICE_MAX_CONNECTIONS=4
is CUDA_MODULE_LOADING EAGER
is CUDA_MODULE_LOADING LAZY CUDA_MODULE_LOADING=LAZY
