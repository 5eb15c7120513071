#!/usr/bin/env bash
# container_image.sh REPOSITORY [ROOT]: what tools/test --container runs, as root in a mount and a pid namespace of its own. Builds
# deploy/container/Dockerfile from a clean clone of the repository's last commit, without a container engine and without a registry (buildah in a
# chroot, over a Debian 12 base system made here under the name that FROM has), and has the image do what docs/clusters.md says it does.
# ROOT is such a base system that was made before; it is used, and kept. All else is removed at the end.
set -euo pipefail
repository=$1 root=${2:-}
folder=$(mktemp -d)
trap 'rm -rf --one-file-system "$folder"' EXIT

build_image() {
  buildah --root "$folder/storage" --runroot "$folder/run" --storage-driver vfs "$@"
}
# What is not here is not looked for anywhere else.
export CONTAINERS_REGISTRIES_CONF=$folder/registries.conf BUILDAH_ISOLATION=chroot
echo 'unqualified-search-registries = []' >"$CONTAINERS_REGISTRIES_CONF"

if [[ -z $root ]]; then
  root=$folder/base
  debootstrap --variant=minbase bookworm "$root" >"$folder/log" 2>&1 || { tail -n 20 "$folder/log"; exit 1; }
fi
git -c safe.directory="$repository" clone --quiet --no-hardlinks "$repository" "$folder/lockstep"
dockerfile=$folder/lockstep/deploy/container/Dockerfile
base=$(sed -n '1,/^FROM/s/^FROM \([^ ]*\).*/\1/p' "$dockerfile")
container=$(build_image from scratch)
build_image add --quiet "$container" "$root" / >/dev/null
build_image commit --quiet --rm "$container" "localhost/$base" >/dev/null
build_image build --pull-never --file "$dockerfile" --tag lockstep "$folder/lockstep"
echo "image: built"

container=$(build_image from --pull-never lockstep)
# in_image COMMAND...: as the user that the image names.
in_image() {
  build_image run "$container" -- "$@"
}
mapfile -t command < <(build_image inspect --format '{{range .OCIv1.Config.Cmd}}{{println .}}{{end}}' "$container" | sed '/^$/d')
echo "image: ${command[*]}"
in_image "${command[@]}" | tee "$folder/log"
grep -q '^# Wrong elements: 0 OK' "$folder/log"
echo "image: a network on four ranks"
in_image lockstep-run -n 4 digits | tee "$folder/log"
grep -qE 'digits: accuracy 0\.9[6-9][0-9]*, replicas equal, 4 ranks' "$folder/log"
in_image lockstep-bench all_reduce --ranks 2 --transport ucx -b 1M -e 1M | tee "$folder/log"  # The optional library is in it, too.
grep -q '^# Wrong elements: 0 OK' "$folder/log"
[[ $(in_image id -u) != 0 ]]
echo "image: trains, measures and needs no root"
