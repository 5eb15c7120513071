# Language level, warnings and sanitizers, as one interface target for everything of ours.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
find_program(CCACHE_PROGRAM ccache)
# It takes files with precompiled headers only if told that nothing in them depends on time or order.
if(CCACHE_PROGRAM AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
endif()

set(LOCKSTEP_SANITIZE "" CACHE STRING "Sanitizers: address,undefined or thread")
# With the compilers that changes are tested with. Another version may warn of what is not there (g++ 13: stringop-overflow in
# std::vector), and so may other flags, as those of a project that lockstep is a part of: no user's build should end for that.
set(tested_compiler OFF)
if(PROJECT_IS_TOP_LEVEL AND (
   (CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION MATCHES "^12\\.") OR
   (CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION MATCHES "^14\\.")))
  set(tested_compiler ON)
endif()
option(LOCKSTEP_WERROR "Warnings are errors" ${tested_compiler})

add_library(lockstep_options INTERFACE)
target_include_directories(lockstep_options INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
# The release and clang builds warn of what address and thread sanitizers are run on: here it would take a tenth of the compilation.
# Only the fuzzer's build has the programs in tests/fuzz.
if(LOCKSTEP_SANITIZE AND NOT LOCKSTEP_SANITIZE MATCHES fuzzer)
  target_compile_options(lockstep_options INTERFACE -w)
else()
  target_compile_options(lockstep_options INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wshadow -Wnon-virtual-dtor $<$<BOOL:${LOCKSTEP_WERROR}>:-Werror>>)
endif()
# g++ 12 sees overlapping copies in std::string's operator+ that are not there (GCC bug 105651); in a precompiled header it forgets
# that this is a system header, and sees endless ones too. The aarch64 build, which has none, keeps those warnings.
set(false_warnings -Wno-restrict)
if(NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
  list(APPEND false_warnings -Wno-stringop-overflow -Wno-array-bounds)
endif()
target_compile_options(lockstep_options INTERFACE
  "$<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:${false_warnings}>")
if(LOCKSTEP_SANITIZE)
  target_compile_options(lockstep_options INTERFACE -fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  # A fifth of the time goes by for checks of UndefinedBehaviorSanitizer whose findings AddressSanitizer makes too, or the processor.
  target_compile_options(lockstep_options INTERFACE -fno-sanitize=null,object-size,vptr)
  target_link_options(lockstep_options INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
endif()

# lockstep_command_line(FILE...): files that read a command line. CLI11's templates make them compile half a minute each with a
# sanitizer, which has nothing to look for in them, and without one a third longer when optimised for speed, which no command line
# needs: what is timed is in other files.
function(lockstep_command_line)
  if(LOCKSTEP_SANITIZE)
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS -O0 -fno-sanitize=all)
  else()
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:-O1>)
  endif()
endfunction()
