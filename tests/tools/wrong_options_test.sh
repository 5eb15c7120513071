#!/usr/bin/env bash
# wrong_options_test.sh ROOT: what is wrong with a command line of the tools is said in words before anything is installed, built or
# measured; also where an option would have no effect, in the mode or beside the others that were given.
set -euo pipefail
tools=$1/tools
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# refused TEXT COMMAND...: with one line that has TEXT, and nothing else on the way.
refused() {
  if PYTHONDONTWRITEBYTECODE=1 timeout 20 "${@:2}" >"$folder/out" 2>"$folder/err" </dev/null; then
    echo "not refused: ${*:2}"
    exit 1
  fi
  grep -q -- "$1" "$folder/err" && [[ ! -s $folder/out ]] && return
  echo "badly refused: ${*:2}"
  cat "$folder/out" "$folder/err"
  exit 1
}

test=$tools/test
refused "--runs means nothing without a mode: leave it out; it goes with --fuzz" "$test" --runs 3
refused "--runs means nothing with --tsan" "$test" --runs 3 --tsan
refused "--release means nothing without a mode: leave it out; it goes with --torch" "$test" --release forky
refused "--filter means nothing with --soak: leave it out; it goes with no mode, --debug, " "$test" --soak --filter random
refused "--jobs means nothing with --format-check" "$test" --format-check --jobs 2
refused "--asan and --tsan are two modes, and a run has one" "$test" --asan --tsan

refused '^test: --filter is given "(", which is no regular expression' "$test" --filter '('
refused "^test: --filter needs a regular expression" "$test" --filter
refused "^test: --release needs a name" "$test" --torch --release
refused "^test: --runs needs a whole number above 0, not \"0\"" "$test" --fuzz --runs 0
refused "^demo: --jobs needs a whole number above 0$" "$tools/demo" --jobs

for option in "--ranks 2" "--sizes 8" "--ops barrier" --tcp --quick "--rounds 2" "--peers none" "--jobs 2" "--bin $folder"; do
  # shellcheck disable=SC2086  # an option and its value
  refused "argument ${option%% *}: it means nothing beside --from" "$tools/compare-peers" --from "$folder/none.json" $option
done
refused "argument --jobs: it means nothing beside --bin" "$tools/compare-peers" --no-install --bin "$folder" --jobs 2
refused "argument --sizes: a barrier has no size" "$tools/compare-peers" --no-install --ops barrier --sizes 8
refused "unrecognized arguments: --no-inst" "$tools/compare-peers" --no-inst  # Which the script before it would not know.

hosts=(python3 "$tools/peers/between_hosts.py" --no-install)
refused "argument --jobs: it means nothing beside --bin" "${hosts[@]}" --bin "$folder" --jobs=2
refused "argument --sizes: a barrier has no size" "${hosts[@]}" --ops barrier --sizes 8

for option in "--device host" "--kit $folder" "--out $folder" "--ranks 2" "--jobs 2" "--limit 9" "--after none.json"; do
  # shellcheck disable=SC2086
  refused "${option%% *} means nothing beside --pack" "$tools/gpu-check" --pack "$folder/kit" $option
done
refused "there are no programs of nccl-tests (\*_perf) in $folder" "$tools/gpu-check" --pack "$folder/kit" --nccl-tests "$folder"
refused "^gpu-check: --pack: cannot write /proc/kit: No such file or directory" "$tools/gpu-check" --pack /proc/kit
refused "^gpu-check: --pack: cannot write /proc/kit.tar.xz: No such file or directory" "$tools/gpu-check" --pack /proc/kit.tar.xz
touch "$folder/file"
refused "^gpu-check: --pack: $folder/file is a file already: name another" "$tools/gpu-check" --pack "$folder/file"
refused "^gpu-check: --out: cannot write into /proc/reports: No such" "$tools/gpu-check" --device host --kit "$folder" --out /proc/reports
refused "^gpu-check: --out: cannot write into $folder/file: File exists" "$tools/gpu-check" --device host --kit "$folder" --out "$folder/file"
touch "$folder/all_reduce_perf"
refused "--nccl-tests is what --pack carries along" "$tools/gpu-check" --nccl-tests "$folder"
refused "--nccl is measured on a GPU" "$tools/gpu-check" --device host --nccl libnccl.so.2
