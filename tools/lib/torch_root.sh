#!/usr/bin/env bash
# torch_root.sh REPOSITORY RELEASE ROOT: what tools/test --torch runs where no PyTorch is installed, as root in a mount and a pid namespace of
# its own. The suite, with what was built here, in a root of the Debian release RELEASE that has PyTorch: Debian's is for the CPU alone.
# ROOT is made when it is not there, or has other packages than these, and kept.
set -euo pipefail
repository=$1 release=$2 root=$3
# PyTorch, what its own tests import, the libraries that the build may stand on, what programs in C++ are built with, and what makes hosts of
# namespaces.
packages=(python3-torch python3-numpy python3-setuptools libssl3 libhwy1t64 libucx0 libibverbs1 libtorch-dev libgtest-dev g++ cmake ninja-build
  iproute2)
# A proxy is this machine's affair, as its name server is; nothing else of the caller's environment goes along.
in_root() {
  env -i HOME=/root TERM=dumb LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin http_proxy="${http_proxy:-}" chroot "$@" </dev/null
}

if [[ ! -e $root/packages || $(<"$root/packages") != "${packages[*]}" ]]; then
  echo "Debian $release with PyTorch is put in $root, once: 1.8 GB"
  rm -rf --one-file-system "$root" "$root.part"
  # Of a release that debootstrap does not know yet, the script of sid.
  script=/usr/share/debootstrap/scripts/$release
  [[ -e $script ]] || script=${script%/*}/sid
  {
    debootstrap --variant=minbase "$release" "$root.part" "" "$script"
    cp /etc/resolv.conf "$root.part/etc/"
    in_root "$root.part" apt-get -qq update
    in_root "$root.part" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install "${packages[@]}"
    in_root "$root.part" apt-get clean
    mkdir "$root.part/lockstep"
    echo "${packages[*]}" >"$root.part/packages"
  } >"$root.log" 2>&1 || { tail -n 20 "$root.log"; exit 1; }
  mv "$root.part" "$root"
fi
echo "127.0.0.1 localhost $(uname -n)" >"$root/etc/hosts"  # torchrun and Gloo look their host up
# These mounts lie in this process's namespace, and end with it. ROOT becomes its root: below a chroot no hosts can be made of namespaces.
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mkdir -p "$root/dev/shm"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t tmpfs tmpfs "$root/tmp"
mount --bind "$repository" "$root/lockstep"
cd "$root"
pivot_root . .
umount -l .
# Debian builds PyTorch without libuv, which torchrun's store would take.
in_root / env USE_LIBUV=0 /lockstep/tools/lib/torch_suite.sh /lockstep
