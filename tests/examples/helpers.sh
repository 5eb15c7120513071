# What the tests of the examples share, for them to source: `bin` is the folder of the programs, their first argument; `work` a folder
# for what they write, gone at the end.
# shellcheck shell=bash disable=SC2034  # bin is used by those who source this file
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Ends the test, with all that its programs said.
fail() {
  echo "FAILED: $*" >&2
  cat "$work"/*.out >&2
  exit 1
}

# same_curve FILE OTHER STEPS: whether both have the losses of so many steps, within 1e-4.
#
# The tolerance: ranks add the same gradients in another order, so they differ in the last bit (6e-8), and training lets that grow,
# to about 2e-6 after 100 steps. A gradient that lacks one rank's part, or counts it twice, moves the loss by 1e-2 within a few steps.
same_curve() {
  paste -d ' ' "$1" "$2" | awk -v steps="$3" '
    { d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || NF != 4) bad = 1; if (d > worst) worst = d }
    END { printf "largest difference over %d steps: %g\n", NR, worst; exit bad || NR != steps || worst > 1e-4 }'
}
