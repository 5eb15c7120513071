# packages.sh: what lockstep and its tools need on Debian 12 or Ubuntu 24.04 (or later), and how to get it. For the scripts of tools/ to source.
# shellcheck shell=bash disable=SC2034  # the lists are used by those who source this file

build_packages=(g++ cmake ninja-build pkg-config libssl-dev nlohmann-json3-dev libcli11-dev libhwy-dev)
test_packages=(libgtest-dev spin iproute2 libucx-dev elfutils lld)
# The formatter's version is fixed: each one formats a little differently.
format_packages=(clang-format-14)
rdma_packages=(libibverbs-dev ibverbs-providers libucx-dev)
# Launchers that tools/test --cluster really runs. PyPI has no PyTorch for x86-64 without CUDA; Debian has, and torchrun with it.
slurm_packages=(slurmctld slurmd slurm-client munge)
torchrun_packages=(python3-torch)
manifest_packages=(python3-yaml)
fresh_packages=(debootstrap)
# Ubuntu does not trust Debian's archive by itself.
torch_root_packages=(debian-archive-keyring)
# Builds the container file without a container engine.
container_packages=(buildah)
clang_packages=(clang-14)
fuzz_packages=(libclang-rt-14-dev)
aarch64_packages=(g++-aarch64-linux-gnu qemu-user-static)
# What tools/compare-peers needs beside: its interpreter, and whom it compares with.
python_packages=(python3)
openmpi_packages=(openmpi-bin libopenmpi-dev)
mpich_packages=(mpich libmpich-dev)
gloo_packages=(libgloo-dev)

# die TEXT...: one line on standard error, then the end.
die() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# need_value WHAT OPTION [VALUE...]: dies where the value is missing or empty.
need_value() {
  [[ -n ${3:-} ]] || die "$2 needs $1"
}

# need_number OPTION [VALUE...]: dies unless the value is a whole number above 0.
need_number() {
  need_value "a whole number above 0" "$@"
  [[ $2 =~ ^[1-9][0-9]*$ ]] || die "$1 needs a whole number above 0, not \"$2\""
}

# run_as_root COMMAND...: as it is, or through sudo.
run_as_root() {
  if ((EUID == 0)); then
    "$@"
  else
    command -v sudo >/dev/null || die "this needs root and there is no sudo here; run it as root: $*"
    sudo "$@"
  fi
}

# missing_packages PACKAGE...: prints those that are not installed.
missing_packages() {
  local package
  for package in "$@"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || echo "$package"
  done
}

# need_packages yes|no PACKAGE...: installs what is missing, as root or through sudo; with "no" it only says what is missing.
need_packages() {
  local may_install=$1
  shift
  if ! command -v dpkg-query >/dev/null; then
    echo "this is neither Debian nor Ubuntu: please see yourself that it has what these packages hold: $*" >&2
    return
  fi
  local missing
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]})) || return 0
  if [[ $may_install == no ]]; then
    die "missing packages; install them with: apt-get install ${missing[*]}"
  fi
  echo "installing ${missing[*]}"
  run_as_root apt-get -qq update
  run_as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install "${missing[@]}" >/dev/null ||
    die "apt-get could not install ${missing[*]}"
}

# need_cmake: the presets need 3.25; Ubuntu 22.04 has an older one.
need_cmake() {
  local version
  version=$(cmake --version | sed -n '1s/[^0-9]*//p')
  [[ $(printf '3.25\n%s\n' "$version" | sort -V | head -1) == 3.25 ]] ||
    die "cmake $version is too old, 3.25 is needed: use Debian 12, Ubuntu 24.04 or later, or install a newer cmake"
}
