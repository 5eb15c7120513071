#!/usr/bin/env bash
# libtorch_suite.sh REPOSITORY PREFIX FOLDER: LibtorchReducer with the C++ interface of the PyTorch that python3 finds, or that the system
# has, and with lockstep as it was installed in PREFIX. Builds in FOLDER. Fails where a test
# does; ends with 77, and says why, where nothing can be built.
set -euo pipefail
repository=$1 prefix=$2 folder=$3
run=$prefix/bin/lockstep-run
torch=$(python3 -c 'import torch; print(torch.__path__[0])')
header=include/torch/csrc/api/include/torch/torch.h

cannot() {
  echo "skipped: $1"
  exit 77
}
python3 -c 'import torch, sys; sys.exit(not torch.compiled_with_cxx11_abi())' ||
  cannot "this PyTorch has the old strings of the C++ library, with which nothing else links"
[[ -e $torch/$header || -e /usr/$header ]] || cannot "this PyTorch has no headers (Debian's are in libtorch-dev)"

cmake -S "$repository/tests/libtorch" -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix;$torch"
cmake --build "$folder"
for ranks in 1 2 3; do
  "$run" -n "$ranks" --only-rank 0 "$folder/module_reducer_test"
done

# The network of the example learns the same, however many ranks share its batches. Later epochs show that sums were rounded in another order.
losses() {
  "$run" -n "$1" --only-rank 0 "$folder/libtorch/libtorch-digits" | sed -nE 's/.*epoch [123]: loss //p'
}
alone=$(losses 1)
for ranks in 2 4; do
  paste <(echo "$alone") <(losses "$ranks") |
    awk '{ print "loss", $0; if (NF != 2 || ($1 - $2)^2 > (1e-3 * $1)^2) exit 1 } END { if (NR != 3) exit 1 }'
done
