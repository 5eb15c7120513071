#!/usr/bin/env bash
# install_test.sh BUILD_DIR OUTSIDE_DIR CXX [FLAGS]: installs the build into a temporary prefix, then builds and runs the
# program in OUTSIDE_DIR against it, once through find_package and once through pkg-config. What was not built is left out.
set -euo pipefail
build=$1 outside=$2 cxx=$3 flags=${4-}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >"$work/install.log" || { cat "$work/install.log"; exit 1; }
cp -r "$outside" "$work/source"

echo "== of a build that has the library alone, as tools/demo leaves it but for the programs that it shows"
while read -r script; do
  copy=$work/scripts/${script#"$build"/}
  mkdir -p "${copy%/*}"
  sed -e "s#include(\"$build/#include(\"$work/scripts/#" -e "s#$build/bin/#$work/absent/#g" \
    -e "s#$build/lib/lockstep-nccl/lib#$work/absent/lib#g" "$script" >"$copy"
done < <(find "$build" -name cmake_install.cmake)
cmake -DCMAKE_INSTALL_PREFIX="$work/part" -P "$work/scripts/cmake_install.cmake" >"$work/install.log" || { cat "$work/install.log"; exit 1; }
absent=$(find "$work/part" -name 'lockstep-*' -not -type d -o -name 'lib*nccl*')
[[ -z $absent ]] || { echo "FAILED: installed though it was not built: $absent"; exit 1; }
[[ -n $(find "$work/part" -name liblockstep.so) ]] || { echo "FAILED: the library was not installed"; exit 1; }

echo "== nobody gets lockstep for NCCL who does not ask for it"
libraries=$(dirname "$(find "$work/prefix" -name liblockstep.so)")
PATH=$PATH:/usr/sbin:/sbin ldconfig -n "$libraries"
[[ ! -e $libraries/libnccl.so.2 ]] || { echo "FAILED: ldconfig names $(readlink "$libraries/libnccl.so.2") NCCL for every program"; exit 1; }

echo "== find_package"
cmake -G Ninja -S "$work/source" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_COMPILER="$cxx" \
  -DCMAKE_CXX_FLAGS="$flags" >"$work/configure.log" || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/build"
"$work/build/outside"

echo "== pkg-config, from a prefix that was moved after the installation"
mv "$work/prefix" "$work/moved"
pc=$(find "$work/moved" -name lockstep.pc -printf '%h\n')
read -ra package <<<"$(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs lockstep)"
read -ra extra <<<"$flags"
"$cxx" -std=c++20 "${extra[@]}" "$work/source/main.cpp" -o "$work/outside" "${package[@]}"
LD_LIBRARY_PATH=$(dirname "$pc") "$work/outside"

echo "== the Python package, from there too"
if [[ -z $flags ]] && command -v python3 >/dev/null; then  # a sanitizer's runtime would have to be loaded before
  PYTHONPATH=$(dirname "$pc")/python python3 -c 'import lockstep; print(lockstep.__version__, lockstep.library_version())' | tee "$work/version"
  read -r package library <"$work/version"
  [[ $package == "$library" ]]
fi
