#!/usr/bin/env bash
# parts_test.sh SOURCE_DIR CXX: what the README lets one leave out of the build is left out, and the rest still fits together, also as
# a part of another project. Only configures.
set -euo pipefail
source_dir=$1 cxx=$2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "FAILED: $*"
  exit 1
}
# configure SOURCE NAME OPTION...: without kernels for GPUs, which take their time.
configure() {
  cmake -G Ninja -S "$1" -B "$work/$2" -DCMAKE_CXX_COMPILER="$cxx" -DLOCKSTEP_CUDA_ARCHITECTURES= "${@:3}" >"$work/log" 2>&1 ||
    { cat "$work/log"; fail "$2: cannot be configured"; }
}

echo "== tests, without what some of them use"
configure "$source_dir" tests -DLOCKSTEP_BUILD_BENCH=OFF -DLOCKSTEP_BUILD_EXAMPLES=OFF -DLOCKSTEP_INSTALL=OFF \
  -DLOCKSTEP_WERROR=OFF -DCMAKE_CXX_COMPILER_LAUNCHER=env
# A target that is not there is a library to be found by the linker; these it has.
absent=$(grep -E '^ *LINK_LIBRARIES = ' "$work/tests/build.ninja" | grep -oE -- ' -l[^ ]+' | grep -vE -- '-l(dl|m|rt|pthread)$' | sort -u || true)
grep -q ' CUDA  *left out (LOCKSTEP_CUDA_ARCHITECTURES is empty): ' "$work/log" || fail "CUDA is not said to be left out"
! grep -q -- -Werror "$work/tests/build.ninja" || fail "warnings are errors, though that is off"
! grep -q ccache "$work/tests/CMakeFiles/rules.ninja" || fail "ccache is used, though another launcher was asked for"
[[ -z $absent ]] || fail "linked with what is not built: $absent"
ctest --test-dir "$work/tests" --show-only | grep -q ' install_test$' && fail "what cannot be installed is tested"
echo "left out: benchmarks, examples, installation"

echo "== as a part of a project that has warnings and a GoogleTest of its own"
mkdir "$work/outer"
cat >"$work/outer/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(outer LANGUAGES CXX)
add_compile_options(-Wconversion)
add_library(own_gtest INTERFACE)
add_library(GTest::gtest ALIAS own_gtest)
add_subdirectory($source_dir lockstep)
add_executable(outer $source_dir/tests/tools/outside/main.cpp)
target_link_libraries(outer PRIVATE lockstep::lockstep)
END
configure "$work/outer" part
linked=$(ninja -C "$work/part" -t commands | grep -oE -- ' (-o|qc) [^ ]+' | grep -vE '\.(o|gch|pch)$' | sort)
[[ $linked =~ ^\ -o\ lockstep/lib/liblockstep\.so\.[0-9.]+$'\n'\ -o\ outer$ ]] || fail "not the library alone is built:" "$linked"
! grep -q -- -Werror "$work/part/build.ninja" || fail "the other project's warnings are errors"
echo "built: the library alone"
