#!/usr/bin/env bash
# exports_test.sh LIBRARY HEADER TESTS_DIR: the shared library exports the lockstep:: API and the C API's lockstep_ functions, nothing
# else; the latter are those that HEADER declares, and each is called by a test.
set -euo pipefail
library=$1 header=$2 tests=$3

exported=$(nm -D -C --defined-only "$library" | cut -d' ' -f3-)
if ! grep -q '^lockstep::name_of(' <<<"$exported"; then
  echo "lockstep::name_of is not exported by $library: the version script hides the API"
  exit 1
fi
strangers=$(grep -Ev '^((typeinfo|typeinfo name|vtable) for )?lockstep::[A-Za-z_]|^lockstep_[a-z]' <<<"$exported" || true)
insides=$(grep -E '^[^(]*lockstep::internal::' <<<"$exported" || true)
if [[ -n $strangers$insides ]]; then
  echo "symbols that $library must not export (see cmake/exports.map):"
  echo "$strangers$insides"
  exit 1
fi

declared=$(sed -nE 's/^LOCKSTEP_C_API .*\b(lockstep_[a-z_]+)\(.*/\1/p' "$header" | sort)
difference=$(diff <(echo "$declared") <(grep -E '^lockstep_[a-z]' <<<"$exported" | sort) || true)
if [[ -z $declared || -n $difference ]]; then
  echo "what $header declares (<) and $library exports (>) is not the same:"
  echo "$difference"
  exit 1
fi
failed=0
for name in $declared; do
  grep -rqE --include='*.c' --include='*.cpp' "\b$name\(" "$tests" && continue
  echo "$name is called by no test"
  failed=1
done
exit $failed
