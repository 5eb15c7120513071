#!/usr/bin/env bash
# symbols_test.sh LIBRARY INCLUDE_DIR TESTS_DIR: every function that NCCL's headers declare is exported, as a strong pnccl name and
# a weak nccl name of one address; nothing else is; and each is called by a test of this folder.
set -euo pipefail
library=$1 include=$2 tests=$3
failed=0
complain() {
  echo "$*"
  failed=1
}

# Without nccl or pnccl in front. Of nccl_device.h only what the host calls, and is not inline.
declared_functions() {
  {
    sed 's://.*::' "$include/nccl.h"
    cat "$include"/nccl_device/*.h 2>/dev/null | grep -E '^NCCL_EXTERN_C __host__ '
  } | grep -vE '^#|^ \*' | grep -oE '\bp?nccl[A-Z][A-Za-z0-9]*\(' | sed -E 's/^p?nccl//; s/\($//' | sort -u
}
exported=$(nm -D --defined-only "$library")
entry() { grep -E " [A-Za-z] $1\$" <<<"$exported" || true; }

count=0
for name in $(declared_functions); do
  read -r strong_at strong _ <<<"$(entry "pnccl$name")" || true
  read -r weak_at weak _ <<<"$(entry "nccl$name")" || true
  [[ ${strong-} == T && ${weak-} == W && $strong_at == "$weak_at" ]] ||
    complain "$name: pnccl is '${strong-}', nccl is '${weak-}'; wanted T and W at one address"
  grep -qE "\bnccl$name\(|\"$name\"" "$tests"/*.c || complain "nccl$name is called by no test"
  count=$((count + 1))
done
((count >= 50)) || complain "only $count functions were found in the headers"

strangers=$(grep -vE ' (T p?nccl[A-Z][A-Za-z0-9]*|W nccl[A-Z][A-Za-z0-9]*|T lockstep_nccl_version)$' <<<"$exported" || true)
[[ -z $strangers ]] || complain "exported beside the interface: $strangers"
for name in $(sed -nE 's/.* W nccl([A-Za-z0-9]+)$/\1/p' <<<"$exported"); do
  grep -qE "\bnccl$name\(|\"$name\"" "$tests"/*.c || complain "nccl$name is called by no test"
done
[[ $(readelf -d "$library" | sed -nE 's/.*SONAME.*\[(.*)\]/\1/p') == libnccl.so.2 ]] || complain "the SONAME is not libnccl.so.2"
! readelf -d "$library" | grep -qE 'NEEDED.*lib(cuda|cudart|nvidia)' || complain "it is linked with CUDA"
echo "$count functions declared, $(grep -cE ' W nccl' <<<"$exported") exported"
exit $failed
