#!/usr/bin/env bash
# aarch64_sysroot.sh DIR: fills DIR with the arm64 libraries that lockstep is cross-built against. It downloads them with apt into a
# state of its own and unpacks them, so the machine's package database stays as it is; needs no root. Done once per DIR.
set -euo pipefail
sysroot=$1
packages=(libssl-dev libssl3 libhwy-dev libhwy1 libgtest-dev libgmock-dev nlohmann-json3-dev libcli11-dev)

[[ -e $sysroot/.complete ]] && exit 0
rm -rf "$sysroot"
mkdir -p "$sysroot"
sysroot=$(realpath "$sysroot")
state=$sysroot/apt
mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$state/debs"

options=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::State::Lists=$state/lists"
  -o "Dir::Cache=$state/cache" -o "Dir::State::status=$state/status" -o APT::Sandbox::User="$(id -un)")
: >"$state/status"
# shellcheck source=/dev/null
source /etc/os-release
if [[ $ID == ubuntu ]]; then # Ubuntu keeps arm64 on servers of its own.
  keyring=/usr/share/keyrings/ubuntu-archive-keyring.gpg
  for suite in "" -updates -security; do
    echo "deb [signed-by=$keyring] http://ports.ubuntu.com/ubuntu-ports $VERSION_CODENAME$suite main universe"
  done >"$state/sources.list"
  options+=(-o "Dir::Etc::sourcelist=$state/sources.list" -o Dir::Etc::sourceparts=/dev/null)
  # The 64-bit time transition renamed the libraries.
  packages=("${packages[@]/%libssl3/libssl3t64}")
  packages=("${packages[@]/%libhwy1/libhwy1t64}")
fi
apt-get "${options[@]}" update
(cd "$state/debs" && apt-get "${options[@]}" download "${packages[@]}")
for package in "$state"/debs/*.deb; do dpkg-deb -x "$package" "$sysroot"; done
rm -rf "$state"
touch "$sysroot/.complete"
