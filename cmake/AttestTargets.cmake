# SPDX-License-Identifier: Apache-2.0
# Settings every target of the project shares, and the helpers that make targets.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 99)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# attest_add_library(NAME SOURCE...): static library attest_NAME, alias attest::NAME, includes from the root.
function(attest_add_library name)
  add_library(attest_${name} STATIC ${ARGN})
  add_library(attest::${name} ALIAS attest_${name})
  set_target_properties(attest_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(attest_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                   $<INSTALL_INTERFACE:include/attest>)
  attest_target_settings(attest_${name})
endfunction()

# Warnings, sanitizers and the arithmetic rules (no fast-math, no contraction into FMA behind our back).
function(attest_target_settings target)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wshadow -ffp-contract=off>
    $<$<AND:$<BOOL:${ATTEST_WERROR}>,$<COMPILE_LANGUAGE:C,CXX>>:-Werror>)
  if(ATTEST_SANITIZE)
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${ATTEST_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
    target_link_options(${target} PRIVATE -fsanitize=${ATTEST_SANITIZE})
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # The sanitizers' own code makes GCC 12 warn of variables that are set, in std::regex among others.
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:-Wno-maybe-uninitialized>)
    endif()
  endif()
  if(ATTEST_FUZZ)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=fuzzer-no-link>)
  endif()
  if(ATTEST_STATIC)
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc)
  endif()
endfunction()

# Vector instructions for the targets that compute in bulk with Eigen. One fixed set, not the build machine's own, so
# that results are the same bits everywhere; on an older x86 CPU build with -DATTEST_ISA=x86-64.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(ATTEST_ISA "x86-64-v3" CACHE STRING "Instruction set (-march) of the oracle; empty: the compiler's default")
else()
  set(ATTEST_ISA "" CACHE STRING "Instruction set (-march) of the oracle; empty: the compiler's default")
endif()

# Eigen's own threads stay off: the oracle divides the work itself, in a way that does not depend on their number. Its
# element-by-element products of small matrices stay off too: which elements they round otherwise depends on addresses.
# -fno-trapping-math changes no value, only when exception flags are raised.
function(attest_vector_code target)
  target_compile_definitions(${target} PRIVATE EIGEN_DONT_PARALLELIZE EIGEN_GEMM_TO_COEFFBASED_THRESHOLD=1)
  target_compile_options(${target} PRIVATE -fno-trapping-math $<$<BOOL:${ATTEST_ISA}>:-march=${ATTEST_ISA}>)
endfunction()

if(ATTEST_STATIC)
  set(ATTEST_FMT fmt::fmt-header-only)
else()
  set(ATTEST_FMT fmt::fmt)
endif()

# attest_add_test(NAME [LABELS label...] [LINK target...]): tests/NAME.cpp as a GoogleTest program, one ctest
# entry per test case. RapidCheck properties get a fixed seed, so that a run can be repeated; the program alone draws
# a new one each time.
function(attest_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LABELS;LINK;SOURCES")
  if(NOT arg_SOURCES)
    set(arg_SOURCES ${name}.cpp)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  add_executable(${name} ${arg_SOURCES})
  attest_target_settings(${name})
  # Tests check values; what they call is optimised, they themselves need only build fast.
  target_compile_options(${name} PRIVATE -O1)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_LINK} GTest::gtest GTest::gtest_main)
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 600
                       ENVIRONMENT RC_PARAMS=seed=1)
endfunction()
