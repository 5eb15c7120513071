#!/usr/bin/env bash
# fresh_root.sh REPOSITORY [ROOT]: what tools/test --fresh runs, as root in a mount and a pid namespace of its own. A clean clone of the
# repository's last commit, in a Debian 12 root that has nothing but its base system, must be able to run tools/demo.
# ROOT is such a root that was made before; it is used, and kept. Otherwise one is made, and removed at the end.
set -euo pipefail
repository=$1 root=${2:-}

if [[ -z $root ]]; then
  root=$(mktemp -d)
  # The mounts lie in this process's namespace, and end with it; they must be gone before what they cover is removed.
  trap 'umount -q "$root/proc" "$root/dev/shm" || true; rm -rf --one-file-system "$root"' EXIT
  debootstrap --variant=minbase bookworm "$root" >"$root.log" 2>&1 || { tail -n 20 "$root.log"; exit 1; }
  rm "$root.log"
fi
mount -t proc proc "$root/proc"
mkdir -p "$root/dev/shm"
mount -t tmpfs tmpfs "$root/dev/shm"
cp /etc/resolv.conf "$root/etc/"
rm -rf "$root/root/lockstep"
git -c safe.directory="$repository" clone --quiet --no-hardlinks "$repository" "$root/root/lockstep"
# A proxy is this machine's affair, as its name server is; nothing else of the caller's environment goes along.
env -i HOME=/root TERM=dumb LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin http_proxy="${http_proxy:-}" \
  chroot "$root" bash -c 'cd /root/lockstep && ./tools/demo --jobs 2' </dev/null
