# SPDX-License-Identifier: Apache-2.0
include(GoogleTest)

# halfbyte_test(NAME SOURCES ... DEPENDS layer ... [LABELS label ...])
# One GoogleTest program; each of its tests is a ctest test. Labels in use: slow, gpu, cuda (what the
# cuda preset runs without a GPU), threads (what the tsan preset builds and runs).
add_custom_target(threads_tests)
# Every test program, and what else the asan preset runs; not the command or the benchmarks.
add_custom_target(all_tests)
if(HALFBYTE_PRECOMPILE_HEADERS)
  add_executable(test_headers EXCLUDE_FROM_ALL)
  target_link_libraries(test_headers PRIVATE halfbyte_options GTest::gmock)
  target_compile_options(test_headers PRIVATE -O0)
  halfbyte_precompiled_headers(test_headers ${HALFBYTE_COMMON_HEADERS} <gmock/gmock.h> <gtest/gtest.h>)
endif()
function(halfbyte_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS;LABELS")
  add_executable(${name} ${arg_SOURCES})
  list(TRANSFORM arg_DEPENDS PREPEND halfbyte_)
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS} halfbyte_options GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE HALFBYTE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  # What is tested is optimised; the tests themselves compile in 60 % of the time without. Those of GPU kernels compute
  # what they expect of whole layers.
  target_compile_options(${name} PRIVATE $<IF:$<BOOL:${HALFBYTE_CUDA}>,-O1,-O0>)
  halfbyte_precompile(${name} test_headers)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_dependencies(all_tests ${name})
  if("threads" IN_LIST arg_LABELS)
    add_dependencies(threads_tests ${name})
  endif()
  set(properties TIMEOUT 300)
  if(arg_LABELS)
    list(APPEND properties LABELS "${arg_LABELS}")
  endif()
  # Parameters have names of their own; their values may be pointers, or structs without a printer.
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST NO_PRETTY_VALUES PROPERTIES ${properties})
endfunction()
