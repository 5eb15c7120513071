#!/usr/bin/env bash
# exports_test.sh LIBRARY: the shared library exports the lockstep:: API and the C API's lockstep_ functions, nothing else.
set -euo pipefail
library=$1

exported=$(nm -D -C --defined-only "$library" | cut -d' ' -f3-)
if ! grep -q '^lockstep::size_of(' <<<"$exported"; then
  echo "lockstep::size_of is not exported by $library: the version script hides the API"
  exit 1
fi
strangers=$(grep -Ev '^((typeinfo|typeinfo name|vtable) for )?lockstep::[A-Za-z_]|^lockstep_[a-z]' <<<"$exported" || true)
insides=$(grep -E '^[^(]*lockstep::internal::' <<<"$exported" || true)
if [[ -n $strangers$insides ]]; then
  echo "symbols that $library must not export (see cmake/exports.map):"
  echo "$strangers$insides"
  exit 1
fi
