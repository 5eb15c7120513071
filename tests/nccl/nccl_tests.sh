#!/usr/bin/env bash
# nccl_tests.sh [--for-gpu] SOURCE BUILD_DIR OUTPUT [PROGRAM...]: builds programs of nccl-tests (a checkout of github.com/NVIDIA/nccl-tests, whose
# code is no part of this project) unchanged: their objects by nvcc, linked with the host's CUDA runtime of tests/nccl in place of
# CUDA's, with liblockstep_nccl.so under NCCL's name, and with MPI where mpicxx is found. Then runs them, checked, between 2 and 3
# ranks on the host backend. Their own kernels cannot run there: the checked data come from tests/nccl/host_verifiable.cpp.
# --for-gpu: builds only, with CUDA's runtime and their own kernels: for tools/gpu-check --pack DIR --nccl-tests OUTPUT.
set -euo pipefail
for_gpu=no
if [[ $1 == --for-gpu ]]; then for_gpu=yes; shift; fi
source_dir=$1 build=$(realpath "$2") output=$3
shift 3
programs=("$@")
((${#programs[@]})) || programs=(all_reduce all_gather reduce_scatter broadcast reduce sendrecv alltoall gather scatter)
cuda=${CUDA_HOME:-/usr/local/cuda} here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
mkdir -p "$output"

mpi=() mpi_libraries=()
if mpicxx=$(command -v mpicxx.mpich || command -v mpicxx); then
  for word in $("$mpicxx" -show); do
    case $word in
      -I*) mpi+=("$word") ;;
      -L* | -l*) mpi_libraries+=("$word") ;;
    esac
  done
  mpi+=(-DMPI_SUPPORT)
fi
flags=(-std=c++17 --extended-lambda -O1 -arch=sm_90 -DNCCL_OS_LINUX -I"$source_dir/os" -I"$cuda/include" "${mpi[@]}")

compile() { # compile OBJECT COMMAND...
  [[ -f $output/$1 ]] || "${@:2}" -c -o "$output/$1"
}
for file in common util "${programs[@]}"; do
  compile "$file.o" "$cuda/bin/nvcc" "${flags[@]}" "$source_dir/src/$file.cu"
done
compile timer.o g++ -std=c++17 -O1 -DNCCL_OS_LINUX -I"$source_dir/os" "$source_dir/src/timer.cc"
compile os.o g++ -std=c++17 -O1 -DNCCL_OS_LINUX -I"$source_dir/src" "$source_dir/os/linux.cc"
folder=$build/lib/lockstep-nccl
if [[ $for_gpu == yes ]]; then
  compile verifiable_gpu.o "$cuda/bin/nvcc" "${flags[@]}" "$source_dir/verifiable/verifiable.cu"
  for program in "${programs[@]}"; do
    "$cuda/bin/nvcc" -arch=sm_90 -cudart static -o "$output/${program}_perf" "$output"/{"$program",common,util,timer,os,verifiable_gpu}.o \
      -L"$folder" -lnccl -Xlinker --allow-shlib-undefined "${mpi_libraries[@]}" -lpthread
  done
  echo "nccl-tests: ${#programs[@]} programs for a GPU in $output"
  exit
fi
compile verifiable.o g++ -std=c++20 -O2 -I"$cuda/include" -I"$here/../.." "$here/host_verifiable.cpp"
compile values.o gcc -O2 -I"$cuda/include" "$here/values.c"

for program in "${programs[@]}"; do
  g++ -o "$output/${program}_perf" "$output"/{"$program",common,util,timer,os,verifiable,values}.o -L"$folder" -lnccl \
    -L"$build/lib" -lhost_cudart -Wl,-rpath,"$folder:$build/lib" "${mpi_libraries[@]}" -lpthread
done

export LOCKSTEP_DEVICE_BACKEND=host
failed=0
run() { # run NAME COMMAND...: prints the program's closing lines
  echo "== $1"
  local log
  if log=$(timeout 120 "${@:2}" 2>&1) && grep -q 'Out of bounds values : 0 OK' <<<"$log"; then
    grep -E '^# (Out of bounds|Avg bus)' <<<"$log"
  else
    tail -20 <<<"$log"
    failed=$((failed + 1))
  fi
}
# Every type with one operator, and every operator with one type.
sizes=(-b 4 -e 64K -f 128 -n 2 -w 1)
for program in "${programs[@]}"; do
  run "$program, 2 devices of one process, every type" "$output/${program}_perf" -g 2 "${sizes[@]}" -d all -o sum
  if ((${#mpi[@]})); then
    run "$program, 3 processes, every operator" "$(command -v mpirun.mpich || command -v mpirun)" -n 3 "$output/${program}_perf" -g 1 \
      "${sizes[@]}" -d float -o all
  fi
done
echo "nccl-tests: ${#programs[@]} programs, $failed runs failed"
((failed == 0))
