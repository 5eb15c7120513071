# CUDA, where nvcc is found: kernels for every GPU from sm_80 on, and PTX for those to come. The driver is never linked;
# its functions are taken at run time, so the library starts where there is none.
# Code for 8.0 runs on 8.6 and 8.9, which have nothing that these kernels want besides.
set(LOCKSTEP_CUDA_ARCHITECTURES "80-real;90-real;100-real;100-virtual" CACHE STRING
    "GPU architectures that kernels are compiled for; one is enough while developing, none is a build without CUDA")
# Kernels are checked with compute-sanitizer: the sanitizers of the host's compiler have nothing to say about them.
if(LOCKSTEP_SANITIZE)
  set(LOCKSTEP_NO_CUDA "not with sanitizers")
elseif(CMAKE_CROSSCOMPILING)
  set(LOCKSTEP_NO_CUDA "not cross-compiled")
elseif(NOT LOCKSTEP_CUDA_ARCHITECTURES)
  set(LOCKSTEP_NO_CUDA "LOCKSTEP_CUDA_ARCHITECTURES is empty")
endif()
if(LOCKSTEP_NO_CUDA)
  return()
endif()
set(CMAKE_CUDA_ARCHITECTURES ${LOCKSTEP_CUDA_ARCHITECTURES})
set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
include(CheckLanguage)
find_program(LOCKSTEP_NVCC nvcc PATHS ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
mark_as_advanced(LOCKSTEP_NVCC)
if(LOCKSTEP_NVCC AND NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER ${LOCKSTEP_NVCC})
endif()
find_package(CUDAToolkit QUIET)
# Of 12.8: code for 10.0, and its compression by size; of 12.5 functions of the driver by their version.
set(LOCKSTEP_LEAST_CUDA 12.8)
if(CUDAToolkit_FOUND AND CUDAToolkit_VERSION VERSION_LESS LOCKSTEP_LEAST_CUDA)
  set(LOCKSTEP_NO_CUDA "${CUDAToolkit_VERSION} is there, but it takes ${LOCKSTEP_LEAST_CUDA}")
  return()
endif()
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER OR NOT TARGET CUDA::cudart_static)
  return()
endif()
if(CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake before 3.26 does not know that nvcc has it.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(LOCKSTEP_CUDA TRUE)

# Everything that is CUDA's; each floor adds its own. The arithmetic of kernels is the host's: no fused multiply-add.
add_library(lockstep_cuda OBJECT)
target_link_libraries(lockstep_cuda PRIVATE lockstep_options CUDA::cudart_static)
set_target_properties(lockstep_cuda PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_VISIBILITY_PRESET hidden)
target_compile_options(lockstep_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false --expt-relaxed-constexpr
  --compress-mode=size -Xcompiler=-Wall,-Wextra $<$<BOOL:${LOCKSTEP_WERROR}>:-Werror=all-warnings>>)
