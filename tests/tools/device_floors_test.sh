#!/usr/bin/env bash
# device_floors_test.sh PROGRAM: lockstep-device-floors measures, and says in words what is wrong with its command line.
set -euo pipefail
program=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# refused TEXT ARGUMENT...
refused() {
  if "$program" "${@:2}" >"$folder/log" 2>&1; then
    echo "not refused: ${*:2}"
    exit 1
  fi
  grep -qE -- "$1" "$folder/log" && return
  echo "badly refused: ${*:2}"
  cat "$folder/log"
  exit 1
}
refused 'MOST_BYTES'
refused 'MOST_BYTES: .*big' big
refused 'MOST_BYTES: .*write 8, 64K or 1G' -- -5M
refused 'MOST_BYTES: rates are measured from 1M on; write 16M or 1G' 1K
refused 'RANKS: .*x' 4M x
refused 'RANKS: Value 0 not in range 1 to 1024' 4M 0

LOCKSTEP_DEVICE_BACKEND=host "$program" 1M 2 >"$folder/json"
python3 - "$folder/json" <<'END'
import json, sys
found = json.load(open(sys.argv[1]))
assert [ring["ranks"] for ring in found["hop_us"]] == [2], found
assert [rate["bytes"] for rate in found["device"]["rates"]["copy"]] == [1 << 20], found
END
