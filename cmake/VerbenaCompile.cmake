# SPDX-License-Identifier: Apache-2.0
# How every C file of Verbena is compiled: the interface targets verbena_language
# (needed by all, also by generated code) and verbena_warnings (our own code).

include(CheckFunctionExists)
include(CheckIPOSupported)
include(CheckLinkerFlag)
find_package(Threads REQUIRED)

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON) # gnu11: memfd, process_vm_readv and atomics on __int128 need it
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_FLAGS_RELEASE "-O3 -g1 -DNDEBUG")

add_library(verbena_language INTERFACE)
target_compile_definitions(verbena_language INTERFACE
  _GNU_SOURCE VERBENA_VERSION="${PROJECT_VERSION}")
# A fused multiplication and addition rounds once where two operations round twice. What a simulated
# fabric works out in floating point would depend on the processor: gcc fuses wherever one can.
target_compile_options(verbena_language INTERFACE
  -fno-semantic-interposition -fno-strict-aliasing -ffp-contract=off)
target_include_directories(verbena_language INTERFACE "${PROJECT_SOURCE_DIR}/src/native")
target_link_libraries(verbena_language INTERFACE Threads::Threads ${CMAKE_DL_LIBS} rt)

if(VERBENA_LOCK_ORDER OR VERBENA_SANITIZE OR VERBENA_SANITIZE_THREADS OR VERBENA_FUZZ)
  target_compile_definitions(verbena_language INTERFACE VERBENA_LOCK_ORDER=1)
endif()

add_library(verbena_warnings INTERFACE)
target_compile_options(verbena_warnings INTERFACE -Wall -Wextra)
if(VERBENA_WERROR)
  target_compile_options(verbena_warnings INTERFACE -Werror)
endif()

if(VERBENA_FUZZ AND NOT CMAKE_C_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "VERBENA_FUZZ needs clang: -DCMAKE_C_COMPILER=clang")
endif()
if(VERBENA_SANITIZE OR VERBENA_FUZZ)
  set(sanitizers -fsanitize=address,undefined -fno-sanitize-recover=undefined)
  if(VERBENA_FUZZ)
    list(APPEND sanitizers -fsanitize=fuzzer-no-link)
  endif()
  target_compile_options(verbena_language INTERFACE
    ${sanitizers} -fno-omit-frame-pointer -O1 -g -UNDEBUG)
  target_compile_definitions(verbena_language INTERFACE VERBENA_SANITIZE=1)
  target_link_options(verbena_language INTERFACE ${sanitizers})
elseif(VERBENA_SANITIZE_THREADS)
  # gcc says of each fence that ThreadSanitizer does not know fences: scripts/sanitize_threads.supp
  # has what that leads to.
  target_compile_options(verbena_language INTERFACE
    -fsanitize=thread -fno-omit-frame-pointer -O1 -g -UNDEBUG
    $<$<C_COMPILER_ID:GNU>:-Wno-tsan>)
  target_compile_definitions(verbena_language INTERFACE VERBENA_SANITIZE_THREADS=1)
  target_link_options(verbena_language INTERFACE -fsanitize=thread)
elseif(VERBENA_LTO AND CMAKE_BUILD_TYPE STREQUAL "Release")
  check_ipo_supported(RESULT ipo_supported OUTPUT ipo_output LANGUAGES C)
  set(CMAKE_INTERPROCEDURAL_OPTIMIZATION ${ipo_supported})
endif()
