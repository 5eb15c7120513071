#!/bin/sh
# check.sh MODEL.pml [MUTANT...]: the model must hold for every interleaving, and every mutant of it must fail: a check that cannot fail shows
# nothing. Needs spin and cc. Prints a line a variant.
set -eu
model=$(readlink -f "$1")
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

errors_of() {  # errors_of -O1|-O0 [-DMUTANT]: how many errors the search of all states found
  optimised=$1
  shift
  spin -a "$@" "$model" > spin.log 2>&1 || { cat spin.log; exit 1; }
  cc "$optimised" -DSAFETY -DVECTORSZ=2048 -o pan pan.c
  ./pan -m100000 > pan.log 2>&1 || true
  grep -q 'max search depth too small' pan.log && { echo "the search was cut short"; exit 1; }
  sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.log
}

name=$(basename "$model" .pml)
found=$(errors_of -O1)
[ "$found" = 0 ] || { cat pan.log; echo "$name: FAILS"; exit 1; }
echo "$name: holds ($(sed -n 's/ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log) states)"
for mutant in "$@"; do
  found=$(errors_of -O0 "-D$mutant")  # Which is found soon: to compile takes longer.
  [ "$found" = 1 ] || { cat pan.log; echo "$name with $mutant: was not caught"; exit 1; }
  echo "$name with $mutant: caught"
done
