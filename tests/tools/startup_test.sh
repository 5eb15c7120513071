#!/usr/bin/env bash
# Many ranks start, connect only to those they need, and hold little: 512 threads of one process over shared memory, 128 over TCP (512 of
# which tools/startup-growth starts, and a busy machine only slowly), and 64 processes over either; a quarter as many under a sanitizer. Bounds
# are of memory and descriptors, never of time. startup_test.sh BIN_DIRECTORY [SANITIZER]
set -euo pipefail
bin=$1
most_kib=${2:+1048576} most_kib=${most_kib:-8192}  # A sanitizer keeps books of its own: no bound then.
part=${2:+4} part=${part:-1}
row=$(mktemp)
trap 'rm -f "$row"' EXIT

# value NAME: of the row, without its fraction.
value() {
  grep -oE "\"$1\":[0-9]+" "$row" | cut -d: -f2
}

# starts_within DESCRIPTORS OPTION...: 8 MiB a rank, and so many descriptors a rank.
starts_within() {
  local most=$1
  shift
  timeout 300 "$bin/lockstep-bench" --startup "$@" --json - >"$row" || { echo "FAILED: --startup $*"; exit 1; }
  cat "$row"
  (($(value memory_kib_per_rank) <= most_kib)) || { echo "FAILED: $*: more than $most_kib KiB a rank"; exit 1; }
  (($(value descriptors_per_rank) <= most)) || { echo "FAILED: $*: more than $most descriptors a rank"; exit 1; }
}

# Threads over shared memory: a bell each. Over TCP, two sockets in this process for each pair that is connected, of about
# 2 log2(ranks) a rank: all pairs would be 128.
starts_within 4 --threads $((512 / part)) --transport shm
starts_within 32 --threads $((128 / part)) --transport tcp
# Processes watch each other's ends with a descriptor each, and over shared memory hold each other's bells.
starts_within 192 --ranks $((64 / part)) --transport shm
starts_within 128 --ranks $((64 / part)) --transport tcp
