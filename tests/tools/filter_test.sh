#!/usr/bin/env bash
# filter_test.sh ROOT BUILD: which tests tools/test --filter chooses, by their whole names. What it would install, build and run are
# words in a log here, and it stands in a folder of its own, beside no build.
set -euo pipefail
root=$1 build=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/root/tools" "$folder/bin" "$folder/root/build/fuzz/bin"
cp -r "$root/tools/test" "$root/tools/lib" "$folder/root/tools"

# program FILE LINE...: a script of these lines.
program() {
  printf '%s\n' '#!/usr/bin/env bash' "${@:2}" >"$1"
  chmod +x "$1"
}
program "$folder/bin/dpkg-query" 'echo installed'
program "$folder/bin/cmake" 'echo "cmake version 3.25.1"' "echo \"\$*\" >>$folder/built"
program "$folder/bin/ctest" 'echo "100% tests passed, 0 tests failed out of 1"' "echo \"\${*: -1}\" >>$folder/ran"
for name in engine store; do program "$folder/root/build/fuzz/bin/${name}_fuzz" 'echo "#1 DONE   cov: 1"'; done

# chosen ARGUMENT...: runs tools/test with them.
chosen() {
  rm -f "$folder/built" "$folder/ran"
  PATH=$folder/bin:$PATH "$folder/root/tools/test" --no-install "$@" >"$folder/out" 2>&1
}
# expect WHAT WANTED FOUND
expect() {
  [[ $3 == "$2" ]] && return
  echo "FAILED: $1: \"$3\", not \"$2\""
  cat "$folder/out"
  exit 1
}
# bounds PATTERN TARGETS TESTS: what --bounds builds and runs.
bounds() {
  chosen --bounds --filter "$1" || expect "$1" "accepted" "refused"
  expect "$1 builds" "$2" "$(sed -n 's/.*--target //p' "$folder/built")"
  expect "$1 runs" "^($3)\$" "$(cat "$folder/ran")"
}

bounds stream_sync device_failure_test device_failure_stream_sync_test
bounds '^device_failure_[hd]' device_failure_test "device_failure_host_sync_test|device_failure_device_sync_test"
bounds '^process_test$|crowded' "crowded_test process_test" "process_test|crowded_test"
if chosen --bounds --filter straight; then expect "a pattern that no name matches" "refused" "accepted"; fi
expect "a pattern that no name matches" "test: no test with a bound matches straight" "$(cat "$folder/out")"

# Every one of them is a test.
chosen --bounds
ctest --test-dir "$build" -N -R "$(cat "$folder/ran")" >"$folder/out"
expect "tests with a bound" "Total Tests: $(tr '|' '\n' <"$folder/ran" | wc -l)" "$(grep Total "$folder/out")"

chosen --fuzz --filter '^engine' || expect "a program of --fuzz" "found" "not found"
expect "programs of --fuzz" "ok engine_fuzz: #1 DONE cov: 1" "$(grep ^ok "$folder/out")"
